// Package flatten unpacks the layers of an image into one directory.
//
// Layers are hostile. Nothing in them reaches the disk before all of them have
// been read: names, links and whiteouts are applied, within limits, to a tree
// in memory that has no way out of its root. Only then is the tree written,
// into an empty directory: directories first, then files, hard links, and
// symbolic links last, so that no symbolic link can be followed while files are
// written.
//
// What a sandbox does not need is left out: device nodes, fifos, sockets,
// owners, extended attributes, and the setuid and setgid bits. Everything
// belongs to the caller, who can read all of it.
package flatten

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// ErrLayer is wrapped by every error that is caused by the layers, not by the
// machine.
var ErrLayer = errors.New("the image is not in order")

// A Layer is a tar archive: plain, or compressed with gzip or zstd.
type Layer struct {
	// Name is for error messages.
	Name string
	// DiffID is the digest of the archive, uncompressed ("sha256:…"). It is
	// always checked.
	DiffID string
	// Size is the size of the stream that Open returns, in bytes, for progress
	// only.
	Size int64
	// Open opens the layer; it is called twice.
	Open func() (io.ReadCloser, error)
}

// Limits bound what an image may unpack to. A zero limit takes the default.
type Limits struct {
	Bytes   int64 // of all files in all layers
	Entries int   // in all layers
}

// DefaultLimits suffice for images with machine learning frameworks.
var DefaultLimits = Limits{Bytes: 32 << 30, Entries: 1 << 20}

// Plain bounds the bytes of the uncompressed archives, which contain headers
// besides the files.
func (l Limits) Plain() int64 {
	l = l.withDefaults()
	return l.Bytes + 4096*min(int64(l.Entries), max(l.Bytes/1024, 4096))
}

// withDefaults fills in the limits that are not set.
func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Entries == 0 {
		l.Entries = DefaultLimits.Entries
	}
	return l
}

// Limits that no image has a reason to exceed.
const (
	maxName  = 255  // of one element of a path, as file systems have it
	maxPath  = 4095 // as Linux has it; of a symbolic link's target, too
	maxDepth = 200
	maxHops  = 40 // symbolic links followed for one name
)

// A Report describes an unpacked image.
type Report struct {
	Bytes   int64          // of files
	Entries int            // files, directories and links
	Dropped map[string]int // what was left out, in words, and how often
}

// Notes describes Dropped for the user.
func (r *Report) Notes() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.Dropped)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Dropped[what], what))
	}
	return strings.Join(parts, ", ")
}

// Unpack writes the file system that the layers describe, the lowest first,
// into dir, which exists and is empty. On error the content of dir is useless.
// progress, which may be nil, receives how many bytes of layers have been read,
// of twice their sizes.
func Unpack(ctx context.Context, dir string, layers []Layer, limits Limits, progress func(done int64)) (*Report, error) {
	p := &pass{ctx: ctx, limits: limits.withDefaults(), progress: progress}
	t, err := p.plan(layers)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := p.write(root, t, layers); err != nil {
		return nil, err
	}
	return p.report(t), nil
}

// blame returns an error that is caused by the layers.
func blame(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrLayer, fmt.Errorf(format, args...))
}

// permissions are the bits that are kept. The owner can always read.
func permissions(mode fs.FileMode) fs.FileMode {
	perm := mode.Perm() | 0o400
	if mode.IsDir() {
		perm |= 0o700
	}
	return perm
}

package wasi

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// Config describes the host of one instance.
type Config struct {
	FS   *memfs.FS
	Args []string
	Env  []string // "NAME=value"

	// Stdin, Stdout and Stderr are descriptors of this process that do not block.
	// With -1 the instance reads the end of a file, and what it writes is lost.
	Stdin, Stdout, Stderr int

	Waiter    Waiter
	OpenFiles int // bounds the instance's descriptors; 0: 1024

	Now       func() time.Time     // nil: the machine's clock
	Monotonic func() time.Duration // since any point; nil: the machine's
	Rand      io.Reader            // nil: the machine's
}

// A CPUTimer is a [Waiter] that knows the CPU time of its instance.
type CPUTimer interface {
	CPUTime() time.Duration
}

// Host is what one instance sees of the world. Only the goroutine that runs the
// instance may use it.
type Host struct {
	cfg   Config
	table []*descriptor // nil: free
	// attender is the Waiter if it is one.
	attender Attender
	ahead    time.Duration // added to the monotonic clock
}

// A descriptor is an open file, or a stream of the channel.
type descriptor struct {
	file    *memfs.File // nil: a stream
	stream  int         // 0 to 2
	off     int64
	preopen bool
	flags   uint16 // fdflags
}

// rootFD is the descriptor of the root directory.
const rootFD = 3

// defaultOpenFiles bounds the descriptors if the configuration does not.
const defaultOpenFiles = 1024

// epoch is where the monotonic clock starts. It has passed before any instance
// starts, and so a clock of a later process never shows less than one of an earlier.
var epoch = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

// New returns a host with the descriptors 0 to 2 for the channel and 3 for the root
// directory.
func New(cfg Config) *Host {
	h := newHost(cfg)
	for stream := range 3 {
		h.table = append(h.table, &descriptor{stream: stream})
	}
	h.table = append(h.table, &descriptor{file: cfg.FS.Root(), preopen: true})
	return h
}

func newHost(cfg Config) *Host {
	if cfg.OpenFiles <= 0 {
		cfg.OpenFiles = defaultOpenFiles
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Monotonic == nil {
		start := time.Now()
		before := max(start.Sub(epoch), 0)
		cfg.Monotonic = func() time.Duration { return before + time.Since(start) }
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	h := &Host{cfg: cfg}
	h.attender, _ = cfg.Waiter.(Attender)
	return h
}

// FS returns the instance's file system.
func (h *Host) FS() *memfs.FS { return h.cfg.FS }

// Descriptors returns how many descriptors are open besides those of [New].
func (h *Host) Descriptors() int {
	n := 0
	for fd, d := range h.table {
		if d != nil && fd > rootFD {
			n++
		}
	}
	return n
}

// Close closes the instance's files.
func (h *Host) Close() {
	for _, d := range h.table {
		if d != nil && d.file != nil {
			d.file.Close()
		}
	}
	h.table = nil
}

type contextKey struct{}

// WithHost returns a context in which calls of an instance reach h.
func WithHost(ctx context.Context, h *Host) context.Context {
	return context.WithValue(ctx, contextKey{}, h)
}

// monotonic is the monotonic clock of the instance.
func (h *Host) monotonic() time.Duration { return h.cfg.Monotonic() + h.ahead }

// get returns an open descriptor.
func (h *Host) get(fd uint32) (*descriptor, Errno) {
	if uint64(fd) >= uint64(len(h.table)) || h.table[fd] == nil {
		return nil, errBadFile
	}
	return h.table[fd], success
}

// dir returns the open directory that a path is relative to.
func (h *Host) dir(fd uint32) (*memfs.File, Errno) {
	d, errno := h.get(fd)
	switch {
	case errno != success:
		return nil, errno
	case d.file == nil || d.file.Kind() != memfs.Dir:
		return nil, errNotDir
	}
	return d.file, success
}

// full reports whether no descriptor is left.
func (h *Host) full() bool {
	if len(h.table) < h.cfg.OpenFiles {
		return false
	}
	for _, d := range h.table {
		if d == nil {
			return false
		}
	}
	return true
}

// add gives a descriptor the lowest free number. There is one.
func (h *Host) add(d *descriptor) uint32 {
	for fd, old := range h.table {
		if old == nil {
			h.table[fd] = d
			return uint32(fd)
		}
	}
	h.table = append(h.table, d)
	return uint32(len(h.table) - 1)
}

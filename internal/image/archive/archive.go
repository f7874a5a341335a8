// Package archive reads and writes images as files: archives of `docker save`
// and `podman save`, OCI archives, OCI layout directories, and the plain tar
// archive of a root file system.
//
// A file may come from anywhere. No name in an archive becomes a name on disk,
// links in it lead only to files of the archive, and the digest of every blob
// that has one is checked before use.
package archive

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

// Limits of what an archive may hold.
const (
	maxMembers   = 100000
	maxDocument  = 8 << 20
	maxDocuments = 64 << 20 // all together, because they are in memory
	maxImages    = 100
	maxNames     = 1000 // of all images
	maxLayers    = 512
	maxDepth     = 4 // indexes in indexes
)

// An Image is an image in an archive.
type Image struct {
	// Names are its names in the archive, if any.
	Names []string
	*image.Content
	// Plain is set for a root file system that is not an image.
	Plain bool
}

// files gives access to the files of an archive or directory by name.
type files interface {
	open(name string) (io.ReadCloser, int64, error)
}

// members are files with a limit on the bytes that may still be read into
// memory, and the layers that have been verified.
type members struct {
	files
	documents *int64
	verified  map[v1.Hash]bool
}

func counted(f files) members {
	left := int64(maxDocuments)
	return members{f, &left, map[v1.Hash]bool{}}
}

// Read finds the images in file: a directory or an archive, which may be
// compressed with gzip or zstd. dir is an empty folder for unpacked data, and
// must exist as long as the images are used. Read writes no more than the
// limits allow an image to have, and reads no more of the archive than such an
// image needs.
func Read(ctx context.Context, file, dir string, limits flatten.Limits) ([]Image, error) {
	images, err := readAll(ctx, file, dir, limits)
	names := 0
	for _, img := range images {
		names += len(img.Names)
	}
	if err == nil && names > maxNames {
		return nil, fmt.Errorf("%w: its images have %d names; the limit is %d", flatten.ErrLayer, names, maxNames)
	}
	return images, err
}

func readAll(ctx context.Context, file, dir string, limits flatten.Limits) ([]Image, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(file)
		if err != nil {
			return nil, err
		}
		// It is not closed: layers are opened from it later.
		if _, err := root.Lstat("oci-layout"); err != nil {
			root.Close()
			return nil, fmt.Errorf("%s is not an OCI layout: it has no file oci-layout (the root file system of a directory: tar -C %s -c . | sallyport image load -t NAME -)", file, file)
		}
		return fromLayout(ctx, counted(folder{root}))
	}
	kind, err := sniff(ctx, file, limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if kind == plainRoot {
		img, err := fromRoot(ctx, file, limits)
		return []Image{img}, err
	}
	unpacked, err := spread(ctx, file, dir, limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if kind == ociLayout {
		return fromLayout(ctx, counted(unpacked))
	}
	return fromSave(ctx, counted(unpacked))
}

// Kinds of archives.
const (
	plainRoot = iota
	ociLayout
	dockerSave
)

// clean returns the clean name of a member.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// each calls do for each member of a tar archive.
func each(ctx context.Context, file string, limits flatten.Limits, do func(h *tar.Header, r io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	plain, err := flatten.Decompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	r := tar.NewReader(limits.Bounded(plain))
	for n := 0; ; n++ {
		h, err := r.Next()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF && n == 0:
			return fmt.Errorf("%w: it is empty or not a tar archive", flatten.ErrLayer)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", flatten.ErrLayer, err)
		}
		if err := do(h, r); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
}

// errFound ends a search.
var errFound = errors.New("found")

// sniff determines the kind of an archive by the names in it.
func sniff(ctx context.Context, file string, limits flatten.Limits) (kind int, err error) {
	members := 0
	err = each(ctx, file, limits, func(h *tar.Header, _ io.Reader) error {
		switch clean(h.Name) {
		case "oci-layout":
			kind = ociLayout
			return errFound
		case "manifest.json":
			kind = dockerSave // unless there is an oci-layout, too
		}
		if members++; members > maxMembers && kind == plainRoot {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return kind, err
}

// folder is a directory. No link leads out of it.
type folder struct{ root *os.Root }

func (d folder) open(name string) (io.ReadCloser, int64, error) {
	info, err := d.root.Stat(filepath.FromSlash(name))
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: not a file", name)
	}
	f, err := d.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// spreadOut is an archive whose members were written to files with names that
// we chose.
type spreadOut struct {
	files map[string]string // by the member's name
	links map[string]string
}

// spread writes the members of an archive to files in dir.
func spread(ctx context.Context, file, dir string, limits flatten.Limits) (*spreadOut, error) {
	s := &spreadOut{files: map[string]string{}, links: map[string]string{}}
	room := limits.Room() // a sparse member is larger than its data
	err := each(ctx, file, limits, func(h *tar.Header, r io.Reader) error {
		if len(s.files)+len(s.links) >= maxMembers {
			return fmt.Errorf("%w: it has more than %d files", flatten.ErrLayer, maxMembers)
		}
		name := clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			if err := room.Take(h.Size); err != nil {
				return err
			}
			to := filepath.Join(dir, fmt.Sprintf("member-%d", len(s.files)))
			f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = io.CopyN(f, r, h.Size)
			if err = errors.Join(err, f.Close()); err != nil {
				return blameRead(err)
			}
			s.files[name] = to
		case tar.TypeSymlink:
			s.links[name] = clean(path.Join(path.Dir(name), h.Linkname))
		case tar.TypeLink:
			s.links[name] = clean(h.Linkname)
		}
		return nil
	})
	return s, err
}

// blameRead attributes a read error to the archive, unless the disk caused it.
func blameRead(err error) error {
	var machine *fs.PathError
	if errors.As(err, &machine) {
		return err
	}
	return fmt.Errorf("%w: %w", flatten.ErrLayer, err)
}

func (s *spreadOut) open(name string) (io.ReadCloser, int64, error) {
	name = clean(name)
	for range 8 {
		file, ok := s.files[name]
		if ok {
			f, err := os.Open(file)
			if err != nil {
				return nil, 0, err
			}
			info, err := f.Stat()
			if err != nil {
				f.Close()
				return nil, 0, err
			}
			return f, info.Size(), nil
		}
		to, ok := s.links[name]
		if !ok {
			break
		}
		name = to
	}
	return nil, 0, fmt.Errorf("%w: it has no file %q", flatten.ErrLayer, name)
}

// document reads a JSON member.
func document(m members, name string, into any) error {
	raw, err := read(m, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %s: %w", flatten.ErrLayer, name, err)
	}
	return nil
}

func read(m members, name string) ([]byte, error) {
	r, size, err := m.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if *m.documents -= size; size > maxDocument || *m.documents < 0 {
		return nil, fmt.Errorf("%w: %s has %d bytes", flatten.ErrLayer, name, size)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxDocument))
	if err != nil {
		return nil, blameRead(err)
	}
	return raw, nil
}

// savedImage is an image in the manifest.json of docker save.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// fromSave reads the form of docker save before it had OCI layouts.
func fromSave(ctx context.Context, m members) ([]Image, error) {
	var list []savedImage
	if err := document(m, "manifest.json", &list); err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) > maxImages {
		return nil, fmt.Errorf("%w: it has %d images", flatten.ErrLayer, len(list))
	}
	var out []Image
	for _, e := range list {
		config, err := read(m, e.Config)
		if err != nil {
			return nil, err
		}
		if len(e.Layers) > maxLayers {
			return nil, fmt.Errorf("%w: it has %d layers", flatten.ErrLayer, len(e.Layers))
		}
		c := &image.Content{Config: config}
		for _, name := range e.Layers {
			r, size, err := m.open(name)
			if err != nil {
				return nil, err
			}
			r.Close()
			c.Layers = append(c.Layers, opened(m, name, name, size))
		}
		out = append(out, Image{Names: e.RepoTags, Content: c})
	}
	return out, ctx.Err()
}

func opened(m members, name, shown string, size int64) flatten.Layer {
	return flatten.Layer{Name: shown, Size: size, Open: func() (io.ReadCloser, error) {
		r, _, err := m.open(name)
		return r, err
	}}
}

// fromRoot returns an image with a root file system as its only layer.
func fromRoot(ctx context.Context, file string, limits flatten.Limits) (Image, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Image{}, err
	}
	f, err := os.Open(file)
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	plain, err := flatten.Decompress(f)
	if err != nil {
		return Image{}, err
	}
	defer plain.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, limits.Bounded(plain)); err != nil {
		if ctx.Err() != nil {
			return Image{}, context.Cause(ctx)
		}
		return Image{}, blameRead(err)
	}
	config, err := Config([]string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}, nil)
	layer := flatten.Layer{Name: filepath.Base(file), Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(file) }}
	return Image{Plain: true, Content: &image.Content{Config: config, Layers: []flatten.Layer{layer}}}, err
}

// Config returns the configuration of an image for this machine with layers of
// these digests.
func Config(diffs, env []string) ([]byte, error) {
	c := v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}}
	c.Config.Env = env
	for _, d := range diffs {
		h, err := v1.NewHash(d)
		if err != nil {
			return nil, err
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, h)
	}
	return json.Marshal(c)
}

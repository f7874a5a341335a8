package flatten

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// pass is one Unpack.
type pass struct {
	ctx      context.Context
	limits   Limits
	progress func(int64)

	done    int64 // bytes of layers read
	bytes   int64 // of files seen
	entries int   // seen
	targets int64 // bytes of symbolic links' targets
	plain   int64 // bytes of layers, uncompressed, that this reading may still give
	dropped map[string]int
}

// plan reads all layers into a tree.
func (p *pass) plan(layers []Layer) (*tree, error) {
	t := newTree(p.limits)
	p.dropped = map[string]int{}
	p.rewind()
	for i, l := range layers {
		t.layer = i
		err := p.each(l, func(index int, h *tar.Header, _ io.Reader) error {
			return p.apply(t, index, h)
		})
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Name, err)
		}
	}
	return t, nil
}

// rewind begins a reading of all layers.
func (p *pass) rewind() { p.plain = p.limits.Plain() }

// each calls do for each entry of a layer, and checks the layer's digest.
func (p *pass) each(l Layer, do func(index int, h *tar.Header, content io.Reader) error) error {
	raw, err := l.Open()
	if err != nil {
		return err
	}
	defer raw.Close()
	plain, err := decompress(&counter{p: p, r: raw})
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	content := &bounded{r: io.TeeReader(plain, sum), left: &p.plain}
	r := tar.NewReader(content)
	for index := 0; ; index++ {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return p.whose(err)
		}
		if err := do(index, h, r); err != nil {
			return p.whose(err)
		}
	}
	// What follows the archive's end counts for the digest.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return p.whose(err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != l.DiffID {
		return blame("its content has the digest %s, and should have %s", got, l.DiffID)
	}
	return nil
}

// whose attributes a read error to the layer, unless the caller gave up or the
// machine caused it.
func (p *pass) whose(err error) error {
	var machine *fs.PathError
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case errors.Is(err, ErrLayer), errors.As(err, &machine):
		return err
	}
	return fmt.Errorf("%w: %w", ErrLayer, err)
}

// apply adds one entry of an archive to the tree.
func (p *pass) apply(t *tree, index int, h *tar.Header) error {
	if p.entries++; p.entries > p.limits.Entries {
		return blame("it has more than %d entries", p.limits.Entries)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	path, err := split(h.Name)
	if err != nil {
		return err
	}
	if len(path) > 0 && strings.HasPrefix(path[len(path)-1], whiteout) {
		return t.hide(path)
	}
	mode := h.FileInfo().Mode()
	if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && !mode.IsDir() {
		p.dropped["setuid or setgid bits"]++
	}
	mtime := sensible(h.ModTime)
	switch h.Typeflag {
	case tar.TypeDir:
		return t.putDir(path, permissions(mode), mtime)
	case tar.TypeReg, '\x00', tar.TypeGNUSparse, tar.TypeCont:
		if p.bytes += h.Size; p.bytes > p.limits.Bytes || h.Size < 0 {
			return blame("its files are larger than %d MiB together", p.limits.Bytes>>20)
		}
		return t.put(path, &node{kind: file, mode: permissions(mode), mtime: mtime, size: h.Size, layer: t.layer, index: index})
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxPath || strings.ContainsRune(h.Linkname, 0) {
			return blame("the symbolic link %q has an invalid target", h.Name)
		}
		if p.targets += int64(len(h.Linkname)); p.targets > 128*int64(p.limits.Entries) {
			return blame("the targets of its symbolic links are too long")
		}
		return t.put(path, &node{kind: symlink, target: h.Linkname})
	case tar.TypeLink:
		target, err := split(h.Linkname)
		if err != nil {
			return err
		}
		return t.link(path, target)
	case tar.TypeChar, tar.TypeBlock:
		p.dropped["device nodes"]++
		return t.drop(path)
	case tar.TypeFifo:
		p.dropped["fifos"]++
		return t.drop(path)
	}
	p.dropped["entries of unknown types"]++
	return nil
}

// drop applies an entry that is left out: it hides what was there before. Some
// tools write whiteouts as device nodes.
func (t *tree) drop(path []string) error {
	if len(path) == 0 {
		return nil
	}
	dir, err := t.walk(path[:len(path)-1], false)
	if err == nil && dir != nil {
		delete(dir.children, path[len(path)-1])
	}
	return err
}

// sensible returns a time that every file system and program can handle.
func sensible(t time.Time) time.Time {
	if s := t.Unix(); s < 0 || s > 1<<32-1 {
		return time.Unix(0, 0)
	}
	return time.Unix(t.Unix(), 0)
}

// counter reports progress, and ends reading when the caller gave up.
type counter struct {
	p *pass
	r io.Reader
}

func (c *counter) Read(b []byte) (int, error) {
	if err := c.p.ctx.Err(); err != nil {
		return 0, context.Cause(c.p.ctx)
	}
	n, err := c.r.Read(b)
	c.p.done += int64(n)
	if c.p.progress != nil {
		c.p.progress(c.p.done)
	}
	return n, err
}

// A Room counts how much may still be written to disk for an image, by several
// writers in sequence.
type Room struct{ left, limit int64 }

// Room returns the room for what must be on disk before an image can be
// unpacked: as much as its files may take.
func (l Limits) Room() *Room {
	bytes := l.withDefaults().Bytes
	return &Room{bytes, bytes}
}

// Reader returns a reader that fails, with an error that blames the image, when
// more is read than there is room for.
func (r *Room) Reader(from io.Reader) io.Reader { return roomReader{from, r} }

type roomReader struct {
	from io.Reader
	room *Room
}

func (r roomReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err := r.room.Take(int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

// Archives is Room for archives that are made for an image.
func (l Limits) Archives() *Room {
	bytes := l.Plain()
	return &Room{bytes, bytes}
}

// Write takes the room for p. It writes nothing itself.
func (r *Room) Write(p []byte) (int, error) { return len(p), r.Take(int64(len(p))) }

// Take takes n bytes of the room.
func (r *Room) Take(n int64) error {
	if n < 0 || n > r.left {
		return blame("what it is read from takes more than %d MiB on disk, which images.maxSize allows", r.limit>>20)
	}
	r.left -= n
	return nil
}

// Bounded is a reader that fails where a stream has more bytes than an image's
// archive may have.
func (l Limits) Bounded(r io.Reader) io.Reader {
	left := l.Plain()
	return &bounded{r: r, left: &left}
}

// bounded is a reader that fails where it would give more than left, of which
// several may have a part.
type bounded struct {
	r    io.Reader
	left *int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, blame("it unpacks to far more than the limit (images.maxSize)")
	}
	return n, err
}

package memfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// errCorrupt is why a saved file system cannot be loaded.
var errCorrupt = errors.New("the saved file system is damaged")

// maxOpen bounds the open files of a saved file system.
const maxOpen = 1 << 16

// Load returns a file system as it was saved, and the files that were open, in the order
// of Save. The base is that of the saved one, the configuration may differ in its quotas.
// Load reads no further than what was saved if r is a [bufio.Reader] of 64 KiB. It trusts
// nothing that it reads.
func Load(base *Base, cfg Config, r io.Reader) (*FS, []*File, error) {
	f, err := New(base, cfg)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{fs: f, r: bufio.NewReaderSize(r, chunkSize)}
	files, err := d.all()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCorrupt
	}
	if err != nil {
		d.discard()
		return nil, nil, fmt.Errorf("load the file system: %w", err)
	}
	return f, files, nil
}

type decoder struct {
	fs    *FS
	r     *bufio.Reader
	nodes []*node // by number
	dirs  []*node // directories whose entries come next
}

// discard gives back what the nodes took of the budget.
func (d *decoder) discard() {
	for _, v := range d.fs.volumes {
		v.give(v.used)
	}
}

func (d *decoder) all() ([]*File, error) {
	want := append([]byte(magic), d.fs.base.fingerprint()...)
	head := make([]byte, len(want))
	if _, err := io.ReadFull(d.r, head); err != nil {
		return nil, err
	}
	if !bytes.Equal(head, want) {
		return nil, errors.New("it was saved by another version")
	}
	next, err := d.uint(1 << 62)
	if err != nil {
		return nil, err
	}
	d.fs.nextIno = max(next, firstIno)
	for i, root := range d.fs.roots {
		if err := d.node(root, d.fs.volumes[i]); err != nil {
			return nil, err
		}
		if root.kind != Dir {
			return nil, errCorrupt
		}
	}
	if err := d.directories(); err != nil {
		return nil, err
	}
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	tail := make([]byte, len(magic))
	if _, err := io.ReadFull(d.r, tail); err != nil {
		return nil, err
	}
	if string(tail) != magic {
		return nil, errCorrupt
	}
	return files, nil
}

// uint reads a number below limit.
func (d *decoder) uint(limit uint64) (uint64, error) {
	n, err := binary.ReadUvarint(d.r)
	if err == nil && n >= limit {
		err = errCorrupt
	}
	return n, err
}

// string reads a string of at most limit bytes.
func (d *decoder) string(limit uint64) (string, error) {
	n, err := d.uint(limit + 1)
	if err != nil {
		return "", err
	}
	p := make([]byte, n)
	_, err = io.ReadFull(d.r, p)
	return string(p), err
}

// node reads a node of a volume into n, and charges it.
func (d *decoder) node(n *node, v *volume) error {
	kind, err := d.uint(256)
	if err != nil {
		return err
	}
	ino, err := d.uint(d.fs.nextIno)
	if err != nil {
		return err
	}
	perm, err := d.uint(0o1000)
	if err != nil {
		return err
	}
	for _, t := range []*int64{&n.atime, &n.mtime, &n.ctime} {
		if *t, err = binary.ReadVarint(d.r); err != nil {
			return err
		}
	}
	if ino < firstIno {
		return errCorrupt
	}
	n.kind, n.ino, n.perm, n.vol = Kind(kind), ino, uint32(perm), v
	d.nodes = append(d.nodes, n)
	switch n.kind {
	case Dir:
		next, err := d.uint(1 << 62)
		if err != nil {
			return err
		}
		n.children = children{names: map[string]*entry{}, next: max(next, firstCookie)}
		d.dirs = append(d.dirs, n)
	case Symlink:
		if n.text, err = d.string(maxPath); err != nil {
			return err
		}
		if n.text == "" || bytes.IndexByte([]byte(n.text), 0) >= 0 {
			return errCorrupt
		}
		return v.take(int64(len(n.text)))
	case Regular:
		return d.content(&n.data, v)
	default:
		return errCorrupt
	}
	return nil
}

func (d *decoder) content(c *content, v *volume) error {
	size, err := d.uint(uint64(v.limit) + 2*chunkSize)
	if err != nil {
		return err
	}
	chunks, err := d.uint((size+chunkSize-1)/chunkSize + 1)
	if err != nil {
		return err
	}
	c.size = int64(size)
	if err := c.index(v, int(chunks)); err != nil {
		return err
	}
	for next := 0; ; next++ {
		n, err := d.uint(chunkSize + 1)
		if err != nil || n == 0 {
			return err
		}
		skipped, err := d.uint(chunks)
		if err != nil {
			return err
		}
		next += int(skipped)
		if next >= int(chunks) || int64(next)*chunkSize+int64(n) > c.size {
			return errCorrupt
		}
		if err := c.room(v, next, int(n)); err != nil {
			return err
		}
		if _, err := io.ReadFull(d.r, c.chunks[next]); err != nil {
			return err
		}
	}
}

// ref reads a reference to a node. A new one is of the volume of dir, or of any if dir
// is nil.
func (d *decoder) ref(dir *node) (*node, error) {
	what, err := d.uint(3)
	if err != nil {
		return nil, err
	}
	switch what {
	case refFixed:
		ino, err := d.uint(firstIno)
		if err != nil || dir != nil {
			return nil, errors.Join(err, errCorrupt)
		}
		return d.fs.readOnly(ino)
	case refKnown:
		number, err := d.uint(uint64(len(d.nodes)))
		if err != nil {
			return nil, err
		}
		n := d.nodes[number]
		if dir != nil && (n.kind == Dir || n.vol != dir.vol) {
			return nil, errCorrupt
		}
		return n, nil
	}
	dev, err := d.uint(uint64(len(d.fs.volumes)) + 2)
	if err != nil {
		return nil, err
	}
	if dev < 2 || dir != nil && dev != dir.vol.dev {
		return nil, errCorrupt
	}
	n := &node{parent: dir}
	return n, d.node(n, d.fs.volumes[dev-2])
}

// directories reads the entries of all directories whose turn it is.
func (d *decoder) directories() error {
	for len(d.dirs) > 0 {
		dir := d.dirs[0]
		d.dirs = d.dirs[1:]
		count, err := d.uint(uint64(d.fs.maxEntries) + 1)
		if err != nil {
			return err
		}
		next := dir.next
		dir.next = firstCookie
		for range count {
			if err := d.entry(dir); err != nil {
				return err
			}
		}
		dir.next = max(dir.next, next)
	}
	return nil
}

func (d *decoder) entry(dir *node) error {
	name, err := d.string(maxName)
	if err != nil {
		return err
	}
	cookie, err := d.uint(1 << 62)
	if err != nil {
		return err
	}
	n, err := d.ref(dir)
	switch {
	case err != nil:
		return err
	case dir.parent == nil || validName(name) != nil || dir.lookup(name) != nil || cookie < dir.next:
		return errCorrupt
	case d.fs.entries >= d.fs.maxEntries:
		return ErrNoSpace
	}
	if err := dir.vol.take(cost(name, n)); err != nil {
		return err
	}
	d.fs.entries++
	n.nlink++
	dir.next = cookie
	dir.insert(name, n)
	return nil
}

// files reads the open files.
func (d *decoder) files() ([]*File, error) {
	count, err := d.uint(maxOpen)
	if err != nil {
		return nil, err
	}
	var files []*File
	for range count {
		bits, err := d.uint(8)
		if err != nil {
			return nil, err
		}
		n, err := d.ref(nil)
		if err != nil {
			return nil, err
		}
		mode := Mode{Read: bits&1 != 0, Write: bits&2 != 0, Append: bits&4 != 0}
		if n.kind == Symlink || mode.Write && (n.kind == Dir || n.kind == Regular && n.vol == nil) {
			return nil, errCorrupt
		}
		if err := d.directories(); err != nil {
			return nil, err
		}
		files = append(files, d.fs.open(n, mode))
	}
	return files, nil
}

// readOnly returns a node of the read-only part by its inode number.
func (f *FS) readOnly(ino uint64) (*node, error) {
	switch {
	case ino >= firstFixed && ino-firstFixed < uint64(len(f.fixed)):
		return f.fixed[ino-firstFixed], nil
	case ino == 0 || ino >= uint64(len(f.base.nodes)):
		return nil, errCorrupt
	}
	n := f.base.nodes[ino]
	if c := f.copies[n]; c != nil {
		n = c
	}
	return n, nil
}

package memfs

import (
	"bufio"
	"encoding/binary"
	"io"
)

// The format of Save: the magic, the base's fingerprint, the next inode number, then
// the three trees, each with its root first and every directory's entries when its turn
// comes, and the open files at last. Numbers are varints.
const magic = "memfs 1\n"

// What a reference to a node is.
const (
	refNew   = 0 // the node follows
	refKnown = 1 // the number of a node that was new before
	refFixed = 2 // the inode number of a read-only node
)

// Save writes the writable trees and which nodes the given files are. The files are
// open and belong to f.
func (f *FS) Save(w io.Writer, files []*File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &encoder{w: bufio.NewWriterSize(w, chunkSize), known: map[*node]uint64{}}
	e.raw(magic)
	e.raw(string(f.base.fingerprint()))
	e.uint(f.nextIno)
	for _, root := range f.roots {
		e.node(root)
	}
	e.directories()
	e.uint(uint64(len(files)))
	for _, h := range files {
		e.mode(h.mode)
		e.ref(h.node)
		e.directories()
	}
	e.raw(magic)
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

// An encoder writes until it fails for the first time.
type encoder struct {
	w     *bufio.Writer
	err   error
	known map[*node]uint64 // the numbers of nodes that were written
	dirs  []*node          // directories whose entries come next
}

func (e *encoder) raw(s string) {
	if e.err == nil {
		_, e.err = e.w.WriteString(s)
	}
}

func (e *encoder) bytes(p []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(p)
	}
}

func (e *encoder) uint(n uint64) {
	var buf [binary.MaxVarintLen64]byte
	e.bytes(binary.AppendUvarint(buf[:0], n))
}

func (e *encoder) int(n int64) {
	var buf [binary.MaxVarintLen64]byte
	e.bytes(binary.AppendVarint(buf[:0], n))
}

func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.raw(s)
}

func (e *encoder) mode(m Mode) {
	bits := uint64(0)
	for i, on := range []bool{m.Read, m.Write, m.Append} {
		if on {
			bits |= 1 << i
		}
	}
	e.uint(bits)
}

// ref writes which node it is, and the node if it is new.
func (e *encoder) ref(n *node) {
	number, known := e.known[n]
	switch {
	case n.vol == nil:
		e.uint(refFixed)
		e.uint(n.ino)
	case known:
		e.uint(refKnown)
		e.uint(number)
	default:
		e.uint(refNew)
		e.uint(n.vol.dev)
		e.node(n)
	}
}

// node writes a node without a directory's entries.
func (e *encoder) node(n *node) {
	e.known[n] = uint64(len(e.known))
	e.uint(uint64(n.kind))
	e.uint(n.ino)
	e.uint(uint64(n.perm))
	for _, t := range []int64{n.atime, n.mtime, n.ctime} {
		e.int(t)
	}
	switch n.kind {
	case Dir:
		e.uint(n.next)
		e.dirs = append(e.dirs, n)
	case Symlink:
		e.string(n.text)
	case Regular:
		e.content(&n.data)
	}
}

// content writes the chunks that are not empty, each with how many are skipped before
// it, and at the end a chunk of no bytes.
func (e *encoder) content(c *content) {
	chunks := c.chunks
	for len(chunks) > 0 && len(chunks[len(chunks)-1]) == 0 {
		chunks = chunks[:len(chunks)-1]
	}
	e.uint(uint64(c.size))
	e.uint(uint64(len(chunks)))
	skipped := uint64(0)
	for _, chunk := range chunks {
		if len(chunk) == 0 {
			skipped++
			continue
		}
		e.uint(uint64(len(chunk)))
		e.uint(skipped)
		e.bytes(chunk)
		skipped = 0
	}
	e.uint(0)
}

// directories writes the entries of all directories whose turn it is, and of those that
// they have.
func (e *encoder) directories() {
	for len(e.dirs) > 0 && e.err == nil {
		dir := e.dirs[0]
		e.dirs = e.dirs[1:]
		e.uint(uint64(len(dir.names)))
		for _, entry := range dir.order {
			if entry.node == nil {
				continue
			}
			e.string(entry.name)
			e.uint(entry.cookie)
			e.ref(entry.node)
		}
	}
}

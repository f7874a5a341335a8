package memfs

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultEntries bounds the entries of all writable directories together.
const DefaultEntries = 1 << 20

// Config describes a file system. With a quota of zero nothing can be written.
type Config struct {
	Workspace int64 // quotas in bytes
	Tmp       int64
	Packages  int64
	Entries   int               // 0: DefaultEntries
	Budget    Budget            // nil: the quotas alone bound the memory
	Files     map[string]string // more read-only files, by their absolute paths
	Now       func() time.Time  // nil: the machine's clock
	Rand      io.Reader         // behind /dev/random; nil: the machine's
}

// Volumes are the paths of the writable trees.
var volumePaths = [...]string{"/workspace", "/tmp", "/packages"}

// FS is a file system. All methods of it and of its files are safe for concurrent
// use.
type FS struct {
	mu         sync.Mutex
	base       *Base
	root       *node
	copies     map[*node]*node // of directories of the base that have more entries here
	fixed      []*node         // other read-only nodes, by inode number
	volumes    [len(volumePaths)]*volume
	roots      [len(volumePaths)]*node
	entries    int
	maxEntries int
	nextIno    uint64
	now        func() time.Time
	rand       io.Reader
}

// Inode numbers of nodes that the base does not have: firstFixed is that of the first
// read-only one, firstIno that of the first writable tree.
const (
	firstFixed = 1 << 31
	firstIno   = 1 << 32
)

// New returns a file system whose writable trees are empty.
func New(base *Base, cfg Config) (*FS, error) {
	f := &FS{
		base: base, copies: map[*node]*node{}, maxEntries: cfg.Entries, nextIno: firstIno,
		now: cfg.Now, rand: cfg.Rand,
	}
	if f.maxEntries <= 0 {
		f.maxEntries = DefaultEntries
	}
	if f.now == nil {
		f.now = time.Now
	}
	if f.rand == nil {
		f.rand = rand.Reader
	}
	f.root = f.copyDir(base.root, nil)
	f.root.parent = f.root
	for i, limit := range []int64{cfg.Workspace, cfg.Tmp, cfg.Packages} {
		dir, err := f.place(volumePaths[i])
		if err != nil {
			return nil, err
		}
		f.volumes[i] = &volume{dev: uint64(i) + 2, limit: max(limit, 0), budget: cfg.Budget}
		root := newDir(f.newIno(), dir)
		root.vol = f.volumes[i]
		f.stamp(root)
		dir.insert(path.Base(volumePaths[i]), root)
		f.roots[i] = root
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Files)) {
		dir, err := f.place(name)
		if err != nil {
			return nil, err
		}
		n := &node{kind: Regular, perm: 0o444, nlink: 1, text: cfg.Files[name]}
		f.fix(n)
		dir.insert(path.Base(name), n)
	}
	return f, nil
}

// copyDir returns a copy of a directory of the base that can have more entries.
func (f *FS) copyDir(dir, parent *node) *node {
	c := *dir
	c.parent, c.own = parent, true
	c.names = make(map[string]*entry, len(dir.names)+1)
	c.order = make([]*entry, len(dir.order), len(dir.order)+1)
	for i, e := range dir.order {
		copied := *e
		c.order[i], c.names[e.name] = &copied, &copied
	}
	f.copies[dir] = &c
	return &c
}

// place returns the directory that is to have an entry at the path, as a copy of this
// file system's own.
func (f *FS) place(name string) (*node, error) {
	names, err := split(name)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", name, ErrExist)
	}
	at := f.root
	for _, n := range names[:len(names)-1] {
		child := at.lookup(n)
		switch {
		case child == nil:
			child = newDir(0, at)
			f.fix(child)
		case child.kind != Dir || child.vol != nil:
			return nil, fmt.Errorf("%s: %w", name, ErrNotDir)
		case child.ino < firstFixed && !child.own:
			child = f.copyDir(child, at)
		}
		at.insert(n, child)
		at = child
	}
	if at.lookup(names[len(names)-1]) != nil {
		return nil, fmt.Errorf("%s: %w", name, ErrExist)
	}
	return at, nil
}

// fix numbers and stamps a read-only node that the base does not have.
func (f *FS) fix(n *node) {
	n.ino = firstFixed + uint64(len(f.fixed))
	f.fixed = append(f.fixed, n)
	f.stamp(n)
}

func (f *FS) newIno() uint64 {
	f.nextIno++
	return f.nextIno - 1
}

// stamp sets all times of a new node.
func (f *FS) stamp(n *node) {
	at := f.now().UnixNano()
	n.atime, n.mtime, n.ctime = at, at, at
}

// touch notes that a node's content has changed.
func (f *FS) touch(n *node) {
	at := f.now().UnixNano()
	n.mtime, n.ctime = at, at
}

// parentOf returns a directory's parent, or nil if it was removed.
func (f *FS) parentOf(dir *node) *node {
	if c := f.copies[dir.parent]; c != nil {
		return c
	}
	return dir.parent
}

// A spot is where a path leads.
type spot struct {
	dir   *node  // has the entry; nil if the path ends with "." or ".." or is "/"
	name  string // of the entry
	node  *node  // nil: there is none
	slash bool   // the path ends with a slash
}

// What a walk does with a link at the end of a path.
type lastLink int

const (
	keepLink    lastLink = iota // it is an entry to be made, moved or removed
	enterLink                   // it is followed if a slash comes after it
	resolveLink                 // it is followed
)

// walk follows a path from a directory. The last name may be absent.
func (f *FS) walk(at *node, name string, last lastLink) (spot, error) {
	switch {
	case name == "":
		return spot{}, ErrNotExist
	case len(name) > maxPath:
		return spot{}, ErrNameTooLong
	case strings.IndexByte(name, 0) >= 0:
		return spot{}, ErrInvalid
	}
	links := 0
	for rest := name; ; {
		if rest[0] == '/' {
			at = f.root
			if rest = strings.TrimLeft(rest, "/"); rest == "" {
				return spot{name: ".", node: at, slash: true}, nil
			}
		}
		first, after, slash := strings.Cut(rest, "/")
		after = strings.TrimLeft(after, "/")
		end := after == ""
		if at.kind != Dir {
			return spot{}, ErrNotDir
		}
		if len(first) > maxName {
			return spot{}, ErrNameTooLong
		}
		if first == "." || first == ".." {
			if first == ".." {
				if at = f.parentOf(at); at == nil {
					return spot{}, ErrNotExist
				}
			}
			if end {
				return spot{name: first, node: at, slash: slash}, nil
			}
			rest = after
			continue
		}
		child := at.lookup(first)
		switch {
		case child == nil && end:
			return spot{dir: at, name: first, slash: slash}, nil
		case child == nil:
			return spot{}, ErrNotExist
		case child.kind == Symlink && (!end || last == resolveLink || slash && last == enterLink):
			if links++; links > maxLinks {
				return spot{}, ErrLoop
			}
			rest = child.text
			if slash {
				rest += "/" + after
			}
			if len(rest) > maxPath {
				return spot{}, ErrNameTooLong
			}
			continue
		case child.kind != Dir && slash && (!end || last != keepLink):
			return spot{}, ErrNotDir
		case end:
			return spot{dir: at, name: first, node: child, slash: slash}, nil
		}
		at, rest = child, after
	}
}

// found is walk to a node that exists.
func (f *FS) found(at *node, name string, follow bool) (*node, error) {
	last := enterLink
	if follow {
		last = resolveLink
	}
	s, err := f.walk(at, name, last)
	if err == nil && s.node == nil {
		err = ErrNotExist
	}
	return s.node, err
}

// link adds an entry for a node to a writable directory, and charges it.
func (f *FS) link(dir *node, name string, n *node) error {
	switch {
	case dir.vol == nil:
		return ErrReadOnly
	case dir.parent == nil:
		return ErrNotExist
	case f.entries >= f.maxEntries:
		return ErrNoSpace
	}
	if err := dir.vol.take(cost(name, n)); err != nil {
		return err
	}
	f.entries++
	dir.insert(name, n)
	f.touch(dir)
	return nil
}

// unlink removes an entry of a writable directory.
func (f *FS) unlink(dir *node, name string) {
	n := dir.lookup(name)
	dir.remove(name)
	dir.vol.give(cost(name, n))
	f.entries--
	f.touch(dir)
	f.drop(n)
}

// drop notes that one name of a node is gone.
func (f *FS) drop(n *node) {
	n.nlink--
	n.ctime = f.now().UnixNano()
	if n.kind == Dir {
		n.parent = nil
	}
	f.release(n)
}

// release gives back what a node holds that has neither a name nor an open file.
func (f *FS) release(n *node) {
	if n.vol == nil || n.nlink > 0 || n.opens > 0 {
		return
	}
	switch n.kind {
	case Regular:
		n.data.free(n.vol)
	case Symlink:
		n.vol.give(int64(len(n.text)))
		n.text = ""
	}
}

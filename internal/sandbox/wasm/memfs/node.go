package memfs

import (
	"slices"
	"strings"
)

// A Kind is what a node is. Its values are the file types of WASI preview 1.
type Kind uint8

// The kinds of node.
const (
	Device  Kind = 2
	Dir     Kind = 3
	Regular Kind = 4
	Symlink Kind = 7
)

// Bounds on what a program can name.
const (
	maxName  = 255
	maxPath  = 4096
	maxLinks = 40 // symbolic links in a walk
)

// What an entry of a directory costs of its volume's quota, besides its name, and what a
// directory costs in addition: at least the memory that they take.
const (
	entryCost = 512
	dirCost   = 512
)

// cost is what an entry costs.
func cost(name string, n *node) int64 {
	c := int64(entryCost + len(name))
	if n.kind == Dir {
		c += dirCost
	}
	return c
}

// A node is a file, a directory, a link or a device. Those of a Base are shared by
// sessions and never change.
type node struct {
	kind   Kind
	device device
	perm   uint32
	ino    uint64
	nlink  uint32
	opens  int     // open files
	vol    *volume // nil: read-only
	own    bool    // a session's copy of a directory of the base
	parent *node   // of a directory; nil once it is removed
	text   string  // a read-only file's content, or a link's target
	data   content // a writable file's content
	children

	atime, mtime, ctime int64 // nanoseconds since 1970
}

// children are the entries of a directory.
type children struct {
	names map[string]*entry
	// order has the entries by their cookies. A removed one stays, without its name and
	// its node, until there are more removed than present.
	order []*entry
	next  uint64 // the next entry's cookie
}

type entry struct {
	name   string
	node   *node // nil: removed
	cookie uint64
}

// firstCookie is where the entries of a directory begin: 0 is the directory itself,
// 1 its parent.
const firstCookie = 2

func newDir(ino uint64, parent *node) *node {
	return &node{kind: Dir, perm: 0o755, ino: ino, nlink: 1, parent: parent, children: children{names: map[string]*entry{}, next: firstCookie}}
}

func (c *children) lookup(name string) *node {
	if e := c.names[name]; e != nil {
		return e.node
	}
	return nil
}

// insert adds an entry, or replaces that of the same name in its place.
func (c *children) insert(name string, n *node) {
	if e := c.names[name]; e != nil {
		e.node = n
		return
	}
	// The name may be part of a long path, which would stay in memory with it.
	e := &entry{strings.Clone(name), n, c.next}
	c.next++
	c.names[e.name] = e
	c.order = append(c.order, e)
}

func (c *children) remove(name string) {
	e := c.names[name]
	if e == nil {
		return
	}
	delete(c.names, name)
	e.name, e.node = "", nil
	if len(c.order) > 2*len(c.names)+1 {
		// Neither shrinks by itself.
		order, names := make([]*entry, 0, len(c.names)), make(map[string]*entry, len(c.names))
		for _, e := range c.order {
			if e.node != nil {
				order, names[e.name] = append(order, e), e
			}
		}
		c.order, c.names = order, names
	}
}

// from returns the entries at and after a cookie, removed ones among them.
func (c *children) from(cookie uint64) []*entry {
	i, _ := slices.BinarySearchFunc(c.order, cookie, func(e *entry, cookie uint64) int {
		switch {
		case e.cookie < cookie:
			return -1
		case e.cookie > cookie:
			return 1
		}
		return 0
	})
	return c.order[i:]
}

// size is what Stat shows.
func (n *node) size() int64 {
	switch {
	case n.kind == Regular && n.vol != nil:
		return n.data.size
	case n.kind == Regular || n.kind == Symlink:
		return int64(len(n.text))
	}
	return 0
}

// validName reports whether a directory can have an entry of this name.
func validName(name string) error {
	if name == "" || name == "." || name == ".." {
		return ErrInvalid
	}
	if len(name) > maxName {
		return ErrNameTooLong
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return ErrInvalid
		}
	}
	return nil
}

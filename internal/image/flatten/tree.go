package flatten

import (
	"io/fs"
	"strings"
	"time"
)

// kind is the kind of a node.
type kind uint8

const (
	directory kind = iota
	file
	symlink
)

// A node is a file, a directory or a symbolic link. A file with several names
// is one node with several entries.
type node struct {
	kind  kind
	mode  fs.FileMode
	mtime time.Time
	size  int64

	// Of a file: where its content is.
	layer, index int
	// path is the file's first name while the tree is written.
	path string

	target string // of a symbolic link

	children map[string]entry // of a directory
	depth    int
	length   int // of a directory's path
}

// An entry is a name in a directory. Layer is the layer that it comes from:
// whiteouts hide only what lower layers have.
type entry struct {
	*node
	layer int
}

// tree is a file system in memory. Paths in it are clean and relative; nothing
// leads out of the root, which is its own parent.
type tree struct {
	root  *node
	layer int // that is being applied
	// left is how many more directories may be made: one entry's name can
	// bring hundreds that have no entry.
	left int
}

func newTree(limits Limits) *tree {
	return &tree{root: &node{kind: directory, mode: 0o755, children: map[string]entry{}}, left: limits.Entries}
}

// split makes a name of an archive into the elements of a path below the root.
// A name that leaves the root is an error, because it is never an accident.
func split(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, blame("a name of %d bytes", len(name))
	}
	if strings.ContainsRune(name, 0) {
		return nil, blame("the name %q", name)
	}
	var out []string
	for _, e := range strings.Split(name, "/") {
		switch {
		case e == "" || e == ".":
		case e == "..":
			if len(out) == 0 {
				return nil, blame("the name %q leads out of the image", name)
			}
			out = out[:len(out)-1]
		case len(e) > maxName:
			return nil, blame("the name %.60q… is longer than %d bytes", e, maxName)
		default:
			out = append(out, e)
		}
	}
	return out, nil
}

// walk finds the directory of that path, following symbolic links within the
// tree. If create is set, missing directories are created; otherwise it returns
// nil.
func (t *tree) walk(path []string, create bool) (*node, error) {
	at := []*node{t.root} // from the root to where we are
	hops := 0
	rest := path
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		here := at[len(at)-1]
		if name == ".." { // of a symbolic link's target
			if len(at) > 1 {
				at = at[:len(at)-1]
			}
			continue
		}
		if name == "" || name == "." {
			continue
		}
		next, ok := here.children[name]
		switch {
		case !ok && !create:
			return nil, nil
		case !ok:
			made, err := t.mkdir(here, name)
			if err != nil {
				return nil, err
			}
			at = append(at, made)
		case next.kind == directory:
			at = append(at, next.node)
		case next.kind == symlink:
			if hops++; hops > maxHops {
				return nil, blame("too many symbolic links on the way to %q", strings.Join(path, "/"))
			}
			if strings.HasPrefix(next.target, "/") {
				at = at[:1]
			}
			elements := strings.Split(next.target, "/")
			rest = append(elements, rest...)
			if len(rest) > maxPath {
				return nil, blame("too long a way to %q", strings.Join(path, "/"))
			}
		case !create:
			return nil, nil
		default:
			return nil, blame("%q lies below a file", strings.Join(path, "/"))
		}
	}
	return at[len(at)-1], nil
}

// mkdir creates a directory that no entry of a layer has described so far.
func (t *tree) mkdir(parent *node, name string) (*node, error) {
	d := &node{
		kind: directory, mode: 0o755, mtime: time.Unix(0, 0), children: map[string]entry{},
		depth: parent.depth + 1, length: parent.length + len(name) + 1,
	}
	if len(name) > maxName {
		return nil, blame("the name %.60q… is longer than %d bytes", name, maxName)
	}
	if d.depth > maxDepth || d.length > maxPath {
		return nil, blame("directories are nested too deeply, at %.60q…", name)
	}
	if t.left--; t.left < 0 {
		return nil, blame("it has too many directories")
	}
	parent.children[name] = entry{d, t.layer}
	return d, nil
}

// place returns the directory that an entry of that path goes into, and its
// name there. For the root itself the name is empty.
func (t *tree) place(path []string) (*node, string, error) {
	if len(path) == 0 {
		return t.root, "", nil
	}
	parent, err := t.walk(path[:len(path)-1], true)
	if err != nil {
		return nil, "", err
	}
	return parent, path[len(path)-1], nil
}

// putDir adds or describes a directory.
func (t *tree) putDir(path []string, mode fs.FileMode, mtime time.Time) error {
	parent, name, err := t.place(path)
	if err != nil {
		return err
	}
	d := parent
	if name != "" {
		if have, ok := parent.children[name]; ok && have.kind == directory {
			d = have.node
			parent.children[name] = entry{d, t.layer}
		} else if d, err = t.mkdir(parent, name); err != nil {
			return err
		}
	}
	d.mode, d.mtime = mode, mtime
	return nil
}

// put adds a node other than a directory, and replaces whatever was there.
func (t *tree) put(path []string, n *node) error {
	parent, name, err := t.place(path)
	if err != nil {
		return err
	}
	if name == "" {
		return blame("its root is not a directory")
	}
	parent.children[name] = entry{n, t.layer}
	return nil
}

// link gives the file at target another name.
func (t *tree) link(path, target []string) error {
	if len(target) == 0 {
		return blame("a hard link to its root")
	}
	dir, err := t.walk(target[:len(target)-1], false)
	if err != nil {
		return err
	}
	var to entry
	if dir != nil {
		to = dir.children[target[len(target)-1]]
	}
	switch {
	case to.node == nil:
		return blame("%q is a hard link to %q, which is not there", strings.Join(path, "/"), strings.Join(target, "/"))
	case to.kind == directory:
		return blame("%q is a hard link to a directory", strings.Join(path, "/"))
	}
	return t.put(path, to.node)
}

// Whiteouts, as the OCI image specification has them.
const (
	whiteout       = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh." // others belong to a particular file system
)

// hide applies a whiteout: it hides what lower layers have, at any place of the
// archive.
func (t *tree) hide(path []string) error {
	name := path[len(path)-1]
	dir, err := t.walk(path[:len(path)-1], false)
	if err != nil || dir == nil {
		return err
	}
	switch {
	case name == whiteoutOpaque:
		t.hideBelow(dir)
	case strings.HasPrefix(name, whiteoutMeta):
	default:
		name = strings.TrimPrefix(name, whiteout)
		if have, ok := dir.children[name]; ok && !t.kept(have) {
			delete(dir.children, name)
		}
	}
	return nil
}

// hideBelow removes what lower layers have in a directory.
func (t *tree) hideBelow(dir *node) {
	for name, e := range dir.children {
		if !t.kept(e) {
			delete(dir.children, name)
		}
	}
}

// kept reports whether the layer that hides an entry has it too, or something
// in it. What lower layers have in it is removed.
func (t *tree) kept(e entry) bool {
	if e.kind == directory {
		t.hideBelow(e.node)
		return e.layer == t.layer || len(e.children) > 0
	}
	return e.layer == t.layer
}

package flatten

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// named is a file or symbolic link of the tree with one of its names.
type named struct {
	*node
	path string
}

// write writes the tree below root.
func (p *pass) write(root *os.Root, t *tree, layers []Layer) error {
	wanted := make([]map[int]*node, len(layers)) // files by their places
	var dirs, links, symlinks []named
	var visit func(dir *node, path string) error
	visit = func(dir *node, path string) error {
		for _, name := range slices.Sorted(maps.Keys(dir.children)) {
			n := dir.children[name].node
			at := path + name
			switch n.kind {
			case directory:
				dirs = append(dirs, named{n, at})
				if err := root.Mkdir(at, 0o700); err != nil {
					return collision(at, err)
				}
				if err := visit(n, at+"/"); err != nil {
					return err
				}
			case symlink:
				symlinks = append(symlinks, named{n, at})
			case file:
				if n.path != "" {
					links = append(links, named{n, at})
					break
				}
				n.path = at
				if wanted[n.layer] == nil {
					wanted[n.layer] = map[int]*node{}
				}
				wanted[n.layer][n.index] = n
			}
		}
		return p.ctx.Err()
	}
	if err := visit(t.root, ""); err != nil {
		return err
	}
	p.rewind()
	for i, l := range layers {
		if err := p.writeFiles(root, l, wanted[i]); err != nil {
			return fmt.Errorf("layer %s: %w", l.Name, err)
		}
	}
	for _, l := range links {
		if err := root.Link(l.node.path, l.path); err != nil {
			return collision(l.path, err)
		}
	}
	for _, s := range symlinks {
		if err := root.Symlink(s.target, s.path); err != nil {
			return collision(s.path, err)
		}
	}
	// The deepest first: a change in a directory changes its time.
	for _, d := range slices.Backward(append([]named{{t.root, "."}}, dirs...)) {
		if err := errors.Join(root.Chmod(d.path, d.mode), root.Chtimes(d.path, d.mtime, d.mtime)); err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// writeFiles writes the files whose content a layer has.
func (p *pass) writeFiles(root *os.Root, l Layer, wanted map[int]*node) error {
	return p.each(l, func(index int, h *tar.Header, content io.Reader) error {
		n := wanted[index]
		if n == nil {
			return nil
		}
		delete(wanted, index)
		f, err := root.OpenFile(n.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return collision(n.path, err)
		}
		size, err := io.Copy(f, io.LimitReader(content, n.size+1)) // the layer may have changed
		if err == nil && (size != n.size || h.Size != n.size) {
			err = blame("%q has %d bytes, and should have %d", n.path, size, n.size)
		}
		err = errors.Join(err, f.Chmod(n.mode), f.Close())
		if err != nil {
			return err
		}
		return root.Chtimes(n.path, n.mtime, n.mtime)
	})
}

// collision explains that a name is taken: two names of an image can be one
// where the file system takes "A" for "a".
func collision(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the file system of the state directory takes %q and another name of the image for one: %w", path, err)
	}
	return err
}

// report counts what the tree has.
func (p *pass) report(t *tree) *Report {
	r := &Report{Dropped: p.dropped}
	seen := map[*node]bool{}
	var count func(dir *node)
	count = func(dir *node) {
		for _, e := range dir.children {
			r.Entries++
			switch e.kind {
			case directory:
				count(e.node)
			case file:
				if !seen[e.node] {
					seen[e.node] = true
					r.Bytes += e.size
				}
			}
		}
	}
	count(t.root)
	return r
}

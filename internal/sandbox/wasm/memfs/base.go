package memfs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"strings"
	"time"
)

// A Base is the read-only part of file systems: built once, then shared by any number
// of them. It must not change after the first [New].
type Base struct {
	root  *node
	nodes []*node // by inode number
	sum   hash.Hash
	take  func(n int64) error // asked before a node takes memory; nil: it may
}

// earliest is the time of files that have none. Archives of the ZIP format cannot
// hold an earlier one.
var earliest = time.Date(1980, time.January, 2, 0, 0, 0, 0, time.UTC)

// device is what a device does.
type device uint8

const (
	null device = iota + 1
	zero
	random
)

// NewBase returns a tree with the devices null, zero, random and urandom in /dev.
func NewBase() *Base {
	b := &Base{nodes: []*node{nil}, sum: sha256.New()}
	b.root = b.adopt(newDir(0, nil), earliest)
	b.root.parent = b.root
	for _, d := range []struct {
		name   string
		device device
	}{{"null", null}, {"zero", zero}, {"random", random}, {"urandom", random}} {
		dir, err := b.dir("/dev")
		if err == nil {
			err = b.add(dir, "/dev/"+d.name, &node{kind: Device, device: d.device, perm: 0o666, nlink: 1}, earliest)
		}
		if err != nil {
			panic(err) // no input decides about it
		}
	}
	return b
}

// adopt numbers a node.
func (b *Base) adopt(n *node, at time.Time) *node {
	n.ino = uint64(len(b.nodes))
	b.nodes = append(b.nodes, n)
	if at.Before(earliest) {
		at = earliest
	}
	n.atime, n.mtime, n.ctime = at.UnixNano(), at.UnixNano(), at.UnixNano()
	return n
}

// charge asks whether an entry may take memory.
func (b *Base) charge(name string, n *node) error {
	if b.take == nil {
		return nil
	}
	return b.take(cost(name, n))
}

// split returns the names of an absolute, clean path.
func split(name string) ([]string, error) {
	if !path.IsAbs(name) || path.Clean(name) != name || len(name) > maxPath {
		return nil, fmt.Errorf("%q: a clean absolute path is needed", name)
	}
	if name == "/" {
		return nil, nil
	}
	names := strings.Split(name[1:], "/")
	for _, n := range names {
		if err := validName(n); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return names, nil
}

// dir returns the directory at a path, and makes it if it does not exist.
func (b *Base) dir(name string) (*node, error) {
	names, err := split(name)
	if err != nil {
		return nil, err
	}
	at := b.root
	for _, n := range names {
		child := at.lookup(n)
		if child == nil {
			child = newDir(0, at)
			if err := b.charge(n, child); err != nil {
				return nil, err
			}
			b.adopt(child, earliest)
			at.insert(n, child)
		}
		if child.kind != Dir {
			return nil, fmt.Errorf("%s: %w", name, ErrNotDir)
		}
		at = child
	}
	return at, nil
}

func (b *Base) add(dir *node, name string, n *node, at time.Time) error {
	if err := validName(path.Base(name)); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if dir.lookup(path.Base(name)) != nil {
		return fmt.Errorf("%s: %w", name, ErrExist)
	}
	if err := b.charge(path.Base(name), n); err != nil {
		return err
	}
	dir.insert(path.Base(name), b.adopt(n, at))
	fmt.Fprintf(b.sum, "%d %d %d %q\n", n.ino, n.kind, len(n.text), name)
	return nil
}

// AddFile adds a file at an absolute path, with the directories above it. The data is
// not copied.
func (b *Base) AddFile(name, data string, perm fs.FileMode) error {
	return b.addFile(name, data, perm, earliest)
}

func (b *Base) addFile(name, data string, perm fs.FileMode, at time.Time) error {
	dir, err := b.dir(path.Dir(name))
	if err != nil {
		return err
	}
	return b.add(dir, name, &node{kind: Regular, perm: uint32(perm.Perm()), nlink: 1, text: data}, at)
}

// AddLink adds a symbolic link at an absolute path.
func (b *Base) AddLink(name, target string) error {
	if target == "" || len(target) > maxPath || strings.ContainsRune(target, 0) {
		return errors.New("a link needs a target")
	}
	dir, err := b.dir(path.Dir(name))
	if err != nil {
		return err
	}
	return b.add(dir, name, &node{kind: Symlink, perm: 0o777, nlink: 1, text: target}, earliest)
}

// AddFS adds the directories and the regular files of a tree below an absolute path.
// It reads all of them.
func (b *Base) AddFS(dir string, tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place := path.Join(dir, name)
		if d.IsDir() {
			_, err := b.dir(place)
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return b.addFile(place, string(data), info.Mode().Perm(), info.ModTime())
	})
}

// fingerprint tells trees of other shapes apart.
func (b *Base) fingerprint() []byte { return b.sum.Sum(nil) }

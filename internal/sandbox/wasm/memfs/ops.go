package memfs

// Info describes a node. Times are in nanoseconds since 1970.
type Info struct {
	Kind                Kind
	Dev, Ino            uint64
	Nlink               uint32
	Perm                uint32
	Size                int64
	Atime, Mtime, Ctime int64
}

func (n *node) info() Info {
	dev := uint64(1)
	if n.vol != nil {
		dev = n.vol.dev
	}
	return Info{n.kind, dev, n.ino, n.nlink, n.perm, n.size(), n.atime, n.mtime, n.ctime}
}

// Mode says how a file is opened. The zero value opens what exists, for neither
// reading nor writing.
type Mode struct {
	Read      bool
	Write     bool
	Append    bool // each write goes to the end
	Create    bool
	Exclusive bool // with Create: fail if the path exists
	Truncate  bool
	Directory bool // fail if the path is not a directory
	NoFollow  bool // fail if the path is a symbolic link
}

// Root opens the root directory.
func (f *FS) Root() *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open(f.root, Mode{Read: true})
}

func (f *FS) open(n *node, mode Mode) *File {
	if n.vol != nil {
		n.opens++
	}
	return &File{fs: f, node: n, mode: Mode{Read: mode.Read, Write: mode.Write, Append: mode.Append}}
}

// Open opens the path, relative to the directory at.
func (f *FS) Open(at *File, name string, mode Mode) (*File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := resolveLink
	if mode.NoFollow || mode.Create && mode.Exclusive {
		last = enterLink
	}
	s, err := f.walk(at.node, name, last)
	if err != nil {
		return nil, err
	}
	n := s.node
	switch {
	case mode.Create && mode.Directory:
		return nil, ErrInvalid
	case n == nil && !mode.Create:
		return nil, ErrNotExist
	case n == nil && s.slash:
		return nil, ErrIsDir
	case n == nil:
		if n, err = f.create(s, &node{kind: Regular, perm: 0o644}); err != nil {
			return nil, err
		}
		return f.open(n, mode), nil
	case mode.Create && mode.Exclusive:
		return nil, ErrExist
	case n.kind == Symlink:
		return nil, ErrLoop
	case n.kind == Dir && (mode.Write || mode.Truncate || mode.Create):
		return nil, ErrIsDir
	case n.kind != Dir && mode.Directory:
		return nil, ErrNotDir
	case n.kind == Regular && n.vol == nil && (mode.Write || mode.Truncate):
		return nil, ErrReadOnly
	}
	if mode.Truncate && n.kind == Regular {
		if err := n.data.truncate(n.vol, 0); err != nil {
			return nil, err
		}
		f.touch(n)
	}
	return f.open(n, mode), nil
}

// create adds a new node where a walk has ended.
func (f *FS) create(s spot, n *node) (*node, error) {
	if s.dir.vol == nil {
		return nil, ErrReadOnly
	}
	n.vol, n.nlink, n.ino = s.dir.vol, 1, f.newIno()
	f.stamp(n)
	if err := f.link(s.dir, s.name, n); err != nil {
		return nil, err
	}
	return n, nil
}

// Stat describes what a path leads to, or the link itself.
func (f *FS) Stat(at *File, name string, follow bool) (Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.found(at.node, name, follow)
	if err != nil {
		return Info{}, err
	}
	return n.info(), nil
}

// Times are new times of a node, in nanoseconds since 1970.
type Times struct {
	Atime, Mtime       int64
	SetAtime, SetMtime bool
}

// SetTimes sets times of what a path leads to, or of the link itself.
func (f *FS) SetTimes(at *File, name string, follow bool, t Times) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.found(at.node, name, follow)
	if err != nil {
		return err
	}
	return f.setTimes(n, t)
}

func (f *FS) setTimes(n *node, t Times) error {
	if n.vol == nil {
		return ErrReadOnly
	}
	if t.SetAtime {
		n.atime = t.Atime
	}
	if t.SetMtime {
		n.mtime = t.Mtime
	}
	n.ctime = f.now().UnixNano()
	return nil
}

// Mkdir makes a directory.
func (f *FS) Mkdir(at *File, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.walk(at.node, name, keepLink)
	switch {
	case err != nil:
		return err
	case s.node != nil:
		return ErrExist
	}
	_, err = f.create(s, newDir(0, s.dir))
	return err
}

// Symlink makes a symbolic link, which need not lead anywhere.
func (f *FS) Symlink(target string, at *File, name string) error {
	switch {
	case target == "":
		return ErrNotExist
	case len(target) > maxPath:
		return ErrNameTooLong
	}
	for i := range len(target) {
		if target[i] == 0 {
			return ErrInvalid
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.walk(at.node, name, keepLink)
	switch {
	case err != nil:
		return err
	case s.node != nil:
		return ErrExist
	case s.slash:
		return ErrNotExist
	case s.dir.vol == nil:
		return ErrReadOnly
	}
	if err := s.dir.vol.take(int64(len(target))); err != nil {
		return err
	}
	if _, err := f.create(s, &node{kind: Symlink, perm: 0o777, text: target}); err != nil {
		s.dir.vol.give(int64(len(target)))
		return err
	}
	return nil
}

// Readlink returns the target of a symbolic link.
func (f *FS) Readlink(at *File, name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.found(at.node, name, false)
	switch {
	case err != nil:
		return "", err
	case n.kind != Symlink:
		return "", ErrInvalid
	}
	return n.text, nil
}

// Unlink removes a file or a link.
func (f *FS) Unlink(at *File, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.walk(at.node, name, keepLink)
	switch {
	case err != nil:
		return err
	case s.node == nil:
		return ErrNotExist
	case s.node.kind == Dir:
		return ErrIsDir
	case s.slash:
		return ErrNotDir
	case s.dir.vol == nil:
		return ErrReadOnly
	}
	f.unlink(s.dir, s.name)
	return nil
}

// Rmdir removes an empty directory.
func (f *FS) Rmdir(at *File, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.walk(at.node, name, keepLink)
	switch {
	case err != nil:
		return err
	case s.node == nil:
		return ErrNotExist
	case s.node.kind != Dir:
		return ErrNotDir
	case s.name == ".":
		return ErrInvalid
	case s.name == "..":
		return ErrNotEmpty
	case s.dir.vol != s.node.vol:
		return ErrBusy // the root of a volume
	case s.dir.vol == nil:
		return ErrReadOnly
	case len(s.node.names) > 0:
		return ErrNotEmpty
	}
	f.unlink(s.dir, s.name)
	return nil
}

// Link gives a file one more name.
func (f *FS) Link(at *File, name string, follow bool, newAt *File, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.found(at.node, name, follow)
	if err != nil {
		return err
	}
	s, err := f.walk(newAt.node, newName, keepLink)
	switch {
	case err != nil:
		return err
	case s.node != nil:
		return ErrExist
	case n.kind == Dir:
		return ErrPermission
	case s.slash:
		return ErrNotExist
	case n.vol != s.dir.vol:
		return ErrCrossVolume
	}
	if err := f.link(s.dir, s.name, n); err != nil {
		return err
	}
	n.nlink++
	n.ctime = f.now().UnixNano()
	return nil
}

// Rename moves an entry within a volume, and replaces what has the new name.
func (f *FS) Rename(at *File, name string, newAt *File, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, err := f.walk(at.node, name, keepLink)
	if err != nil {
		return err
	}
	to, err := f.walk(newAt.node, newName, keepLink)
	if err != nil {
		return err
	}
	switch {
	case from.node == nil:
		return ErrNotExist
	case from.dir == nil || to.dir == nil:
		return ErrBusy
	case from.dir.vol == nil && to.dir.vol == nil:
		if from.node.vol != nil || to.node != nil && to.node.vol != nil {
			return ErrBusy // the root of a volume
		}
		return ErrReadOnly
	case from.dir.vol != to.dir.vol:
		return ErrCrossVolume
	case to.dir.parent == nil:
		return ErrNotExist
	case from.node.kind != Dir && (from.slash || to.slash):
		return ErrNotDir
	case inside(to.dir, from.node):
		return ErrInvalid
	case inside(from.dir, to.node):
		return ErrNotEmpty
	case to.node == from.node:
		return nil
	}
	if old := to.node; old != nil {
		switch {
		case old.kind == Dir && from.node.kind != Dir:
			return ErrIsDir
		case old.kind != Dir && from.node.kind == Dir:
			return ErrNotDir
		case old.kind == Dir && len(old.names) > 0:
			return ErrNotEmpty
		}
		to.dir.vol.give(cost(from.name, from.node)) // and what has the new name keeps its charge
		f.entries--
		defer f.drop(old)
	} else if err := to.dir.vol.retake(cost(from.name, from.node), cost(to.name, from.node)); err != nil {
		return err
	}
	to.dir.insert(to.name, from.node)
	from.dir.remove(from.name)
	if from.node.kind == Dir {
		from.node.parent = to.dir
	}
	f.touch(from.dir)
	f.touch(to.dir)
	from.node.ctime = f.now().UnixNano()
	return nil
}

// inside reports whether a directory of a volume is n or lies in it.
func inside(dir, n *node) bool {
	for ; dir != nil && dir.vol != nil; dir = dir.parent {
		if dir == n {
			return true
		}
	}
	return false
}

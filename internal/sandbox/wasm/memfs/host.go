package memfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
)

// workspacePath returns a path of the host's side below /workspace, and refuses all
// that could lead elsewhere by its name.
func workspacePath(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%q: a clean path below /workspace is needed", name)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("%q: a clean path below /workspace is needed", name)
		}
	}
	return nil
}

// Put writes a file of exactly size bytes, with the directories above it, in place of
// any file or link of its name. The path is relative to /workspace. Links in it are
// followed within /workspace only. The file appears when all of it has been read.
func (f *FS) Put(name string, r io.Reader, size int64, perm fs.FileMode) error {
	if err := f.put(name, r, size, perm); err != nil {
		return fmt.Errorf("put %q: %w", name, err)
	}
	return nil
}

func (f *FS) put(name string, r io.Reader, size int64, perm fs.FileMode) (err error) {
	if err := workspacePath(name); err != nil {
		return err
	}
	vol := f.volumes[0]
	switch {
	case size < 0:
		return ErrInvalid
	case size > vol.limit:
		return ErrNoSpace
	}
	n := &node{kind: Regular, perm: uint32(perm.Perm()), vol: vol}
	defer func() {
		if err != nil {
			f.mu.Lock()
			n.data.free(vol)
			f.mu.Unlock()
		}
	}()
	buf := make([]byte, min(size+1, chunkSize))
	for {
		k, err := r.Read(buf[:min(size+1-n.data.size, int64(len(buf)))])
		f.mu.Lock()
		written, writeErr := n.data.writeAt(vol, buf[:k], n.data.size)
		f.mu.Unlock()
		switch {
		case writeErr != nil:
			return writeErr
		case written < k:
			return ErrNoSpace
		case n.data.size > size:
			return fmt.Errorf("there are more than %d bytes", size)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if n.data.size != size {
		return fmt.Errorf("there are %d bytes, not %d", n.data.size, size)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if dir := path.Dir(name); dir != "." {
		if err := f.mkdirAll(dir); err != nil {
			return err
		}
	}
	s, err := f.walk(f.roots[0], name, keepLink)
	switch {
	case err != nil:
		return err
	case s.dir == nil || s.dir.vol != vol:
		return ErrPermission // a link led out of /workspace
	case s.node != nil && s.node.kind == Dir:
		return ErrIsDir
	}
	old := s.node
	n.nlink, n.ino = 1, f.newIno()
	f.stamp(n)
	if old == nil {
		return f.link(s.dir, s.name, n)
	}
	s.dir.insert(s.name, n) // with the old entry's charge
	f.touch(s.dir)
	f.drop(old)
	return nil
}

// mkdirAll makes a directory of /workspace and those above it.
func (f *FS) mkdirAll(name string) error {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		s, err := f.walk(f.roots[0], name[:i], resolveLink)
		switch {
		case err != nil:
			return err
		case s.node != nil && s.node.kind != Dir:
			return ErrNotDir
		case s.node != nil && s.node.vol == f.volumes[0]:
			continue
		case s.node != nil || s.dir.vol != f.volumes[0]:
			return ErrPermission // a link led out of /workspace
		}
		if _, err := f.create(s, newDir(0, s.dir)); err != nil {
			return err
		}
	}
	return nil
}

// Get opens a file for the host. The path is relative to /workspace. Links are
// followed within /workspace only. The reader ends after the bytes that the file has
// now.
func (f *FS) Get(name string) (io.ReadCloser, error) {
	h, size, err := f.get(name)
	if err != nil {
		return nil, fmt.Errorf("get %q: %w", name, err)
	}
	return &reader{file: h, left: size}, nil
}

func (f *FS) get(name string) (*File, int64, error) {
	if err := workspacePath(name); err != nil {
		return nil, 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.found(f.roots[0], name, true)
	switch {
	case err != nil:
		return nil, 0, err
	case n.kind == Dir:
		return nil, 0, ErrIsDir
	case n.kind != Regular || n.vol != f.volumes[0]:
		return nil, 0, ErrPermission // a link led out of /workspace
	}
	return f.open(n, Mode{Read: true}), n.data.size, nil
}

// reader reads a file from its start.
type reader struct {
	file *File
	off  int64
	left int64
}

func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.left)], r.off)
	r.off += int64(n)
	r.left -= int64(n)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

func (r *reader) Close() error { return r.file.Close() }

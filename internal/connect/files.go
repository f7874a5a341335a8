package connect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// A file is replaced through a handle on its folder, so that what a path leads
// to cannot change in between. The user's own file may be a link, which is
// followed once; a project's may not, and neither it nor its folders lead out
// of the project.
type file struct {
	root *os.Root
	name string // in root
	path string // as people know it
}

// openFile opens the folder of a file. With create, missing folders are made.
func openFile(path, project string, create bool) (*file, error) {
	f := &file{path: path}
	if project != "" {
		return f, f.openIn(project, create)
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a link to a file that does not exist: create that file, or remove the link", path)
		}
		real = path
	default:
		return nil, fmt.Errorf("%s cannot be opened: %w", path, err)
	}
	if create {
		if err := os.MkdirAll(filepath.Dir(real), 0o700); err != nil {
			return nil, err
		}
	}
	f.name = filepath.Base(real)
	f.root, err = os.OpenRoot(filepath.Dir(real))
	return f, err
}

func (f *file) openIn(project string, create bool) (err error) {
	if f.name, err = filepath.Rel(project, f.path); err != nil {
		return err
	}
	if f.root, err = os.OpenRoot(project); err != nil {
		return err
	}
	if create {
		err = f.root.MkdirAll(filepath.Dir(f.name), 0o755)
	}
	if info, statErr := f.root.Lstat(f.name); err == nil && statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = fmt.Errorf("%s is a link, which is not followed in a project's folder", f.path)
	}
	if err != nil {
		err = errors.Join(err, f.root.Close())
	}
	return err
}

// read returns the content, or nil if the file does not exist.
func (f *file) read() (content []byte, mode fs.FileMode, exists bool, err error) {
	info, err := f.root.Stat(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0o600, false, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, false, fmt.Errorf("%s is not a regular file", f.path)
	}
	opened, err := f.root.Open(f.name)
	if err != nil {
		return nil, 0, false, err
	}
	defer func() { _ = opened.Close() }()
	content, err = io.ReadAll(io.LimitReader(opened, definitions.MaxFileSize+1))
	if err == nil && len(content) > definitions.MaxFileSize {
		err = fmt.Errorf("%s is larger than %d MB", f.path, definitions.MaxFileSize>>20)
	}
	return content, info.Mode().Perm(), true, err
}

// write replaces the whole file, or leaves it as it was. It fails with ErrChanged
// if the file is not as expected right before that.
func (f *file) write(content []byte, mode fs.FileMode, expected []byte, existed bool) error {
	return private.Replace(f.root, filepath.ToSlash(f.name), content, 0o600, func(t *os.File) error {
		if info, err := f.root.Stat(f.name); err == nil {
			keepOwner(t, info)
		}
		return errors.Join(t.Chmod(mode), f.is(expected, existed))
	})
}

// missing returns the folders that have to be made for a file, the deepest first.
func missing(path, project string) (out []string) {
	for dir := filepath.Dir(path); dir != project && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		out = append(out, dir)
	}
	return out
}

// removeEmpty removes folders that have nothing in them, the deepest first.
func removeEmpty(folders []string, project string) {
	for _, dir := range folders {
		remove, lstat := os.Remove, os.Lstat
		name := dir
		if project != "" {
			root, err := os.OpenRoot(project)
			if err != nil {
				return
			}
			defer root.Close()
			if name, err = filepath.Rel(project, dir); err != nil {
				return
			}
			remove, lstat = root.Remove, root.Lstat
		}
		if info, err := lstat(name); err != nil || !info.IsDir() || remove(name) != nil {
			return // someone uses it
		}
	}
}

// advice says what to do about a file that could not be written.
func advice(path string, err error) string {
	real, linkErr := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space on its disk, and run the command again"
	case !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS):
		return "run the command again"
	case linkErr == nil && real != filepath.Clean(path):
		return fmt.Sprintf("it is a link to %s: make the change where that file comes from, or make its folder writable, and run the command again", real)
	}
	return fmt.Sprintf("make the folder %s writable for you, and run the command again", filepath.Dir(path))
}

// is returns ErrChanged if the file has another content.
func (f *file) is(expected []byte, existed bool) error {
	now, _, exists, err := f.read()
	if err == nil && (exists != existed || !bytes.Equal(now, expected)) {
		err = ErrChanged
	}
	return err
}

func (f *file) remove() error { return f.root.Remove(f.name) }

func (f *file) close() { _ = f.root.Close() }

// Read returns the content of a client's file; it is empty if there is none.
func Read(path, project string) (content []byte, exists bool, err error) {
	content, _, exists, err = look(path, project)
	return content, exists, err
}

// look is Read with the file's mode.
func look(path, project string) (content []byte, mode fs.FileMode, exists bool, err error) {
	f, err := openFile(path, project, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	defer f.close()
	return f.read()
}

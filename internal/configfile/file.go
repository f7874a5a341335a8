package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/settings"
)

// ErrChanged reports that another program changed the file meanwhile.
var ErrChanged = errors.New("another program changed the file meanwhile: try again")

// A File is the configuration file in a directory that only this user can change.
type File struct {
	root *os.Root
	name string
	mode fs.FileMode
}

// Open opens the directory of a configuration file, and creates it if it does not
// exist. A symbolic link is followed to where the file is: that directory, too,
// must belong to this user, and no other user may be able to write to it or to
// replace it. The caller closes the File.
func Open(path string) (*File, error) {
	real, err := filepath.EvalSymlinks(path)
	open := private.Passable
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s is a symbolic link to a file that does not exist", path)
		}
		if real, open = path, private.Open; exists(filepath.Dir(path)) {
			open = private.Passable
		}
	case err != nil:
		return nil, err
	}
	// Links in the directory's path are followed and checked there.
	root, err := open(filepath.Dir(real))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be changed: %w", path, err)
	}
	f := &File{root: root, name: filepath.Base(real), mode: 0o600}
	info, err := root.Lstat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	default:
		f.mode = info.Mode().Perm()
		return f, nil
	}
	return nil, errors.Join(err, root.Close())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Close closes the directory.
func (f *File) Close() error { return f.root.Close() }

// Read returns the content, which is nil if the file does not exist.
func (f *File) Read() ([]byte, error) {
	in, err := f.root.Open(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, settings.MaxFile+1))
	if err == nil && len(b) > settings.MaxFile {
		err = fmt.Errorf("%s is larger than %d KiB", f.name, settings.MaxFile>>10)
	}
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// Replace replaces the content, whole or not at all, if it is still what was read.
// A new file is readable by this user only.
func (f *File) Replace(before, after []byte) error {
	return private.Replace(f.root, f.name, after, f.mode, func(*os.File) error {
		now, err := f.Read()
		if err == nil && ((now == nil) != (before == nil) || !bytes.Equal(now, before)) {
			err = ErrChanged
		}
		return err
	})
}

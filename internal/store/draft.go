package store

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
)

// A Draft is a file that has no name yet. What a crash leaves of it is removed by
// [Dir.List], an hour after its last write.
type Draft struct {
	*os.File
	root *os.Root
	tmp  string
}

// Draft creates a file, which is written and then kept under a name, or dropped. The
// directory is created if necessary.
func (d Dir) Draft() (*Draft, error) {
	root, err := d.OpenRoot()
	if err != nil {
		return nil, err
	}
	tmp := temporary + rand.Text()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Draft{File: f, root: root, tmp: tmp}, nil
}

// Keep ends the draft as the file of that name, which it replaces. After an error,
// nothing is left of it.
func (f *Draft) Keep(name string) error {
	err := errors.Join(checkName(name), f.Close())
	if err == nil {
		err = f.root.Rename(f.tmp, name)
	}
	return errors.Join(err, f.end(err != nil))
}

// Drop ends the draft and removes it.
func (f *Draft) Drop() { _ = errors.Join(f.Close(), f.end(true)) }

func (f *Draft) end(remove bool) error {
	defer f.root.Close()
	if !remove {
		return nil
	}
	if err := f.root.Remove(f.tmp); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

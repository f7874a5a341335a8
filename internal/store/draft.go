package store

import (
	"crypto/rand"
	"errors"
	"os"
)

// A Draft is a file that has no name yet. What a crash leaves of it is removed by
// [Dir.List], an hour after its last write.
type Draft struct {
	*os.File
	dir Dir
	tmp string
}

// Draft creates a file, which is written and then kept under a name, or dropped. The
// directory is created if necessary. Close may come before: many drafts wait without an
// open file.
func (d Dir) Draft() (*Draft, error) {
	root, err := d.OpenRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	tmp := temporary + rand.Text()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &Draft{File: f, dir: d, tmp: tmp}, nil
}

// Close ends the writing.
func (f *Draft) Close() error {
	if err := f.File.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Keep ends the draft as the file of that name, which it replaces. After an error,
// nothing is left of it.
func (f *Draft) Keep(name string) error {
	err := errors.Join(checkName(name), f.Close())
	if err == nil {
		err = f.rename(name)
	}
	if err != nil {
		f.Drop()
	}
	return err
}

func (f *Draft) rename(name string) error {
	root, err := f.dir.existing()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Rename(f.tmp, name)
}

// Drop ends the draft and removes it.
func (f *Draft) Drop() {
	_ = errors.Join(f.Close(), f.dir.remove(f.tmp)) // what is left goes as after a crash
}

package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// ErrNoKey reports a file that should hold a key and does not.
var ErrNoKey = errors.New("not a key")

// Key returns the secret key in a file. If there is none and create is set, it is
// created: once, even if several processes do it at the same time.
func (d Dir) Key(name string, create bool) ([]byte, error) {
	if create {
		if err := d.newKey(name); err != nil {
			return nil, err
		}
	}
	key, err := d.Read(name, 1<<10)
	if err != nil {
		return nil, err
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("%s: %w", d.Path(name), ErrNoKey)
	}
	return key, nil
}

func (d Dir) newKey(name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	root, err := d.OpenRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(name); err == nil {
		return nil
	}
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails
	tmp := temporary + rand.Text()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Link(tmp, name) // the first one wins
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, root.Remove(tmp))
}

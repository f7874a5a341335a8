// Package keyed keeps values under keys: a file for each key in one directory.
//
// Files are replaced atomically, so readers need no lock. A writer holds the
// directory's lock while it reads the old value, decides and writes the new
// one. Keys, the size of a file and the total of all files are bounded.
package keyed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/store"
)

// Kinds of failed requests. The errors of a Store wrap them, or come from the
// file system.
var (
	ErrMissing  = errors.New("nothing is kept under this key")
	ErrBroken   = errors.New("the file is broken")
	ErrLimit    = errors.New("too much to keep")
	ErrConflict = errors.New("another version is kept by now")
)

// MaxFile bounds a file that is read, in bytes. Users may edit files, so they
// may be larger than what a Store wrote.
const MaxFile = 64 << 20

const extension = ".json"

// A Format describes how the values of a Store are kept.
type Format[T any] struct {
	// Lock is the name of the directory's lock.
	Lock string
	// Plural names the values in errors.
	Plural string
	// KeysSetting and TotalSetting name the settings of the limits in errors. They
	// may be empty.
	KeysSetting, TotalSetting string
	// Key returns the key of a value, which is a part of it.
	Key func(value T) string
	// Decode reads a file. Its errors wrap ErrBroken.
	Decode func(data []byte) (T, error)
	// Encode returns the content of a file.
	Encode func(value T) ([]byte, error)
	// Listed returns what List returns of a value, and about how many bytes it
	// takes in memory.
	Listed func(value T) (T, int64)
}

// Check returns an error if a file of this name has a content that is not
// used.
func (f *Format[T]) Check(name string, data []byte) error {
	_, err := f.decode(name, data)
	return err
}

func (f *Format[T]) decode(name string, data []byte) (value T, err error) {
	decoded, err := f.Decode(data)
	if err == nil && store.FileName(f.Key(decoded), extension) != name {
		err = fmt.Errorf("%w: its key does not belong to its name", ErrBroken)
	}
	if err != nil {
		return value, err
	}
	return decoded, nil
}

// Limits bound what a Store keeps.
type Limits struct {
	Keys  int
	Total int64 // bytes of all files
}

// A Store is the values in one directory. It is safe for concurrent use, also
// by several processes.
type Store[T any] struct {
	dir    store.Dir
	format Format[T]
	limits Limits
	// writing is held by whoever waits for the directory's lock: one thread
	// of this process, not one for each caller.
	writing sync.Mutex
	// reading bounds how many files are read at a time.
	reading chan struct{}
	listed  store.Cache[Item[T]]
}

// maxReading bounds the files that one Store reads at a time: they may be
// large, and callers may be hostile.
const maxReading = 4

// Open returns the values in a directory, which need not exist.
func Open[T any](dir store.Dir, format Format[T], limits Limits) *Store[T] {
	return &Store[T]{dir: dir, format: format, limits: limits, reading: make(chan struct{}, maxReading)}
}

// Get returns what is kept under a key and its version, or ErrMissing. The
// version changes whenever the file does, whoever changes it.
func (s *Store[T]) Get(key string) (value T, version string, err error) {
	return s.read(store.FileName(key, extension))
}

func (s *Store[T]) read(name string) (value T, version string, err error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	data, err := s.dir.Read(name, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrMissing
	}
	if err != nil {
		return value, "", err
	}
	if value, err = s.format.decode(name, data); err != nil {
		return value, "", err
	}
	return value, versionOf(data), nil
}

// Update replaces what is kept under a key and returns the new version. Under
// the lock it calls change with the result of Get and keeps what change
// returns, or returns the error of change. To compare and swap, change returns
// ErrConflict if the version is not the expected one. Update writes nothing if
// the value is the same.
func (s *Store[T]) Update(key string, change func(old T, version string, err error) (T, error)) (version string, err error) {
	unlock, err := s.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	old, before, err := s.Get(key)
	value, err := change(old, before, err)
	if err != nil {
		return "", err
	}
	data, err := s.format.Encode(value)
	if err != nil {
		return "", err
	}
	version = versionOf(data)
	if version == before {
		return version, nil
	}
	if len(data) > MaxFile {
		return "", fmt.Errorf("%w: the file would take %s, at most %s can be read", ErrLimit, Size(int64(len(data))), Size(MaxFile))
	}
	name := store.FileName(key, extension)
	if err := s.room(name, int64(len(data))); err != nil {
		return "", err
	}
	return version, s.dir.Write(name, data)
}

// Delete removes a key, or returns ErrMissing.
func (s *Store[T]) Delete(key string) error {
	name := store.FileName(key, extension)
	if _, err := os.Lstat(s.dir.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return ErrMissing // no need for a lock, or for a directory
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = s.dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrMissing
	}
	return err
}

// Item is one line of a list.
type Item[T any] struct {
	Key   string // of a file that cannot be read, what the file's name tells
	Value T      // shared: it must not be changed
	Err   error  // why the file cannot be read
}

// List returns what is kept, sorted by key.
func (s *Store[T]) List() ([]Item[T], error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	items := make([]Item[T], 0, len(names))
	for _, name := range names {
		item, err := s.listed.Get(s.dir, name, func() (Item[T], int64, error) {
			value, _, err := s.read(name)
			if err != nil {
				return Item[T]{}, 0, err
			}
			listed, size := s.format.Listed(value)
			return Item[T]{Key: s.format.Key(value), Value: listed}, size, nil
		})
		switch {
		case errors.Is(err, ErrMissing), errors.Is(err, fs.ErrNotExist): // removed meanwhile
			continue
		case err != nil:
			item = Item[T]{Key: store.TextOf(name, extension), Err: err}
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b Item[T]) int { return strings.Compare(a.Key, b.Key) })
	return items, nil
}

// Keys returns the keys, sorted. It reads only the files whose name does not
// hold the whole key.
func (s *Store[T]) Keys() ([]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(names))
	for _, name := range names {
		key := store.TextOf(name, extension)
		if store.FileName(key, extension) != name {
			value, _, err := s.read(name)
			if err != nil {
				continue // not the name of a key
			}
			key = s.format.Key(value)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// names returns the names of the files that are values.
func (s *Store[T]) names() ([]string, error) {
	all, err := s.dir.List()
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, extension) }), err
}

// lock waits for the directory's lock.
func (s *Store[T]) lock() (unlock func(), err error) {
	s.writing.Lock()
	release, err := s.dir.Lock(s.format.Lock)
	if err != nil {
		s.writing.Unlock()
		return nil, err
	}
	return func() { release(); s.writing.Unlock() }, nil
}

// room returns an error if a file of that size cannot be stored. One that does
// not grow always can.
func (s *Store[T]) room(name string, size int64) error {
	if info, err := os.Lstat(s.dir.Path(name)); err == nil && size <= info.Size() {
		return nil
	}
	names, err := s.names()
	if err != nil {
		return err
	}
	keys, total := 1, size
	for _, other := range names {
		if other == name {
			continue
		}
		keys++
		if info, err := os.Lstat(s.dir.Path(other)); err == nil {
			total += info.Size()
		}
	}
	if keys > s.limits.Keys {
		return fmt.Errorf("%w: there are %d %s already%s", ErrLimit, s.limits.Keys, s.format.Plural, setting(s.format.KeysSetting))
	}
	if total > s.limits.Total {
		return fmt.Errorf("%w: all %s together would take %s, at most %s can be kept%s",
			ErrLimit, s.format.Plural, Size(total), Size(s.limits.Total), setting(s.format.TotalSetting))
	}
	return nil
}

func setting(name string) string {
	if name == "" {
		return ""
	}
	return " (setting " + name + ")"
}

// versionOf is a digest of a file.
func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Size formats a number of bytes for the user.
func Size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

// Package memory keeps the values that code in sandboxes saves under a key.
// All sessions of a user share them, in all programs that run at the same time,
// and they outlive these.
//
// Each is a file of its own that a person can read and edit: JSON with the
// members key, metadata, created_at, updated_at and value. Files are replaced
// whole. Whoever changes a value depending on what it was says which version
// that was, and changes nothing if it is another by now.
//
// What is kept is the code's: nothing here logs it, and errors name the key
// only.
package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport/internal/state"
)

// What can be wrong with a request. The errors of this package wrap them, or
// are the file system's.
var (
	ErrKey      = errors.New("a memory's key cannot be empty")
	ErrInvalid  = errors.New("not a value that can be kept")
	ErrLimit    = errors.New("too much to keep")
	ErrConflict = errors.New("another version is kept by now")
	ErrBroken   = errors.New("the file is broken")
	ErrMissing  = errors.New("there is no such memory")
)

const (
	// MaxKey bounds a key, and MaxMetadata its metadata, in bytes.
	MaxKey      = 1 << 10
	MaxMetadata = 64 << 10
	// MaxFile bounds a file that is read; what this package writes is smaller.
	MaxFile = 64 << 20
	// maxList bounds the metadata of one list.
	maxList = 8 << 20
	// maxIndented bounds what white space can make of a value: one that could
	// become longer is written on one line.
	maxIndented = 4 << 20

	extension = ".json"
	lockName  = "memory"
)

// Limits bound what is kept. A zero takes its default.
type Limits struct {
	Value int64 // bytes of one value as JSON: 4 MiB
	Keys  int   // 10,000
	Total int64 // bytes of all files: 256 MiB
}

// Entry is what is kept under a key.
type Entry struct {
	Key       string          `json:"key"`
	Metadata  json.RawMessage `json:"metadata"` // an object
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
	Value     json.RawMessage `json:"value"`
	// Version changes whenever the file does, whoever changes it.
	Version string `json:"-"`
}

// Item is one line of a list: an entry without its value, or the reason why it
// cannot be read.
type Item struct {
	Key       string          `json:"key"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	CreatedAt string          `json:"created_at,omitempty"`
	UpdatedAt string          `json:"updated_at,omitempty"`
	Error     string          `json:"error,omitempty"`
}

// A Store is the memory in one directory. It is safe for concurrent use, also
// by several processes.
type Store struct {
	dir    state.Dir
	limits Limits
	now    func() time.Time
	// writing is held by whoever waits for the directory's lock: one thread
	// of this process, not one for each caller.
	writing sync.Mutex
	// reading bounds how many files are read at a time.
	reading chan struct{}
	items   state.Cache[Item]
}

// maxReading bounds the files that one Store reads at a time: what is read may
// be large, and who asks may be hostile.
const maxReading = 4

// Open returns the memory in a directory, which need not be there.
func Open(dir state.Dir, limits Limits) *Store {
	if limits.Value == 0 {
		limits.Value = 4 << 20
	}
	if limits.Keys == 0 {
		limits.Keys = 10000
	}
	if limits.Total == 0 {
		limits.Total = 256 << 20
	}
	return &Store{dir: dir, limits: limits, now: time.Now, reading: make(chan struct{}, maxReading)}
}

// Get returns what is kept under a key, or ErrMissing.
func (s *Store) Get(key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	e, err := s.read(state.FileName(key, extension))
	if err == nil && e.Key != key {
		err = fmt.Errorf("%w: it says that its key is another", ErrBroken)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, ErrMissing
	}
	return e, err
}

// Put keeps a value in place of what was there. Metadata are an object, or
// nothing. It returns the version that is kept now.
func (s *Store) Put(key string, value, metadata json.RawMessage) (version string, err error) {
	if len(metadata) == 0 {
		metadata = json.RawMessage("{}")
	}
	return s.write(key, value, func(Entry, error) (json.RawMessage, error) { return metadata, nil })
}

// Swap keeps a value in place of the version that is named, and keeps the
// metadata. An empty version stands for a key under which nothing is kept.
// ErrConflict: another version is there by now, and stays.
func (s *Store) Swap(key string, value json.RawMessage, version string) (string, error) {
	return s.write(key, value, func(old Entry, err error) (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		if old.Version != version {
			return nil, ErrConflict
		}
		if version == "" {
			return json.RawMessage("{}"), nil
		}
		return old.Metadata, nil
	})
}

// write keeps a value with the metadata that decide returns. decide is given
// what is there, under the lock: a zero Entry where nothing is, or the error
// of reading it.
func (s *Store) write(key string, value json.RawMessage, decide func(Entry, error) (json.RawMessage, error)) (string, error) {
	value = Plain(value)
	if err := s.check(key, value); err != nil {
		return "", err
	}
	unlock, err := s.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	name := state.FileName(key, extension)
	old, err := s.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	metadata, err := decide(old, err)
	if err != nil {
		return "", err
	}
	if err := checkMetadata(metadata); err != nil {
		return "", err
	}
	now := s.now().UTC().Format("2006-01-02T15:04:05.000000-07:00")
	e := Entry{Key: key, Metadata: metadata, CreatedAt: old.CreatedAt, UpdatedAt: now, Value: value}
	if e.CreatedAt == "" {
		e.CreatedAt = now
	}
	data, err := encode(e)
	if err != nil {
		return "", err
	}
	if err := s.room(name, int64(len(data))); err != nil {
		return "", err
	}
	if err := s.dir.Write(name, data); err != nil {
		return "", err
	}
	return versionOf(data), nil
}

// Delete removes a key and says whether it was there.
func (s *Store) Delete(key string) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	name := state.FileName(key, extension)
	if _, err := os.Lstat(s.dir.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return false, nil // no need for a lock, or for a directory
	}
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	err = s.dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List returns all that is kept, sorted by key. What cannot be read has its
// reason.
func (s *Store) List() ([]Item, error) {
	items := []Item{}
	size := 0
	err := s.each(func(i Item) {
		if size += len(i.Metadata); size > maxList {
			i = Item{Key: i.Key, Error: unlisted}
		}
		items = append(items, i)
	})
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return items, err
}

// What a list says of a file that is no memory, and of those after too much.
const (
	unread   = "Failed to read"
	unlisted = "Left out: the list would be too long"
)

// Export calls f with every entry that can be read, sorted by key, and returns
// the keys of the others.
func (s *Store) Export(f func(Entry) error) (broken []string, err error) {
	var keys []string
	err = s.each(func(i Item) {
		if i.Error != "" {
			broken = append(broken, i.Key)
		} else {
			keys = append(keys, i.Key)
		}
	})
	if err != nil {
		return broken, err
	}
	slices.Sort(keys)
	for _, key := range keys {
		e, err := s.Get(key)
		switch {
		case errors.Is(err, ErrMissing): // removed meanwhile
		case err != nil:
			broken = append(broken, key)
		default:
			if err := f(e); err != nil {
				return broken, err
			}
		}
	}
	return broken, nil
}

// each calls f with what a list says of every file, in no order. The key is, of
// a file that cannot be read, what its name tells.
func (s *Store) each(f func(Item)) error {
	names, err := s.dir.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, extension) {
			continue
		}
		item, err := s.items.Get(s.dir, name, func() (Item, int64, error) {
			e, err := s.read(name)
			if err != nil {
				return Item{}, 0, err
			}
			item := Item{Key: e.Key, Metadata: slices.Clone(e.Metadata), CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt}
			return item, int64(len(e.Key) + len(e.Metadata) + itemSize), nil
		})
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil || state.FileName(item.Key, extension) != name:
			f(Item{Key: state.TextOf(name, extension), Error: unread})
		default:
			f(item)
		}
	}
	return nil
}

// itemSize is what an item takes in memory besides its texts, about.
const itemSize = 500

// lock waits for the directory's lock.
func (s *Store) lock() (unlock func(), err error) {
	s.writing.Lock()
	release, err := s.dir.Lock(lockName)
	if err != nil {
		s.writing.Unlock()
		return nil, err
	}
	return func() { release(); s.writing.Unlock() }, nil
}

// room answers whether a file of that size can be kept. One that does not grow
// can.
func (s *Store) room(name string, size int64) error {
	if info, err := os.Lstat(s.dir.Path(name)); err == nil && size <= info.Size() {
		return nil
	}
	names, err := s.dir.List()
	if err != nil {
		return err
	}
	keys, total := 1, size
	for _, other := range names {
		if other == name || !strings.HasSuffix(other, extension) {
			continue
		}
		keys++
		if info, err := os.Lstat(s.dir.Path(other)); err == nil {
			total += info.Size()
		}
	}
	if keys > s.limits.Keys {
		return fmt.Errorf("%w: there are %d keys already (setting memories.maxKeys)", ErrLimit, s.limits.Keys)
	}
	if total > s.limits.Total {
		return fmt.Errorf("%w: all memories together would take %s, at most %s can be kept (setting memories.maxTotal)",
			ErrLimit, size10(total), size10(s.limits.Total))
	}
	return nil
}

func (s *Store) read(name string) (Entry, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	data, err := s.dir.Read(name, MaxFile)
	if err != nil {
		return Entry{}, err
	}
	return decode(data)
}

func (s *Store) check(key string, value json.RawMessage) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !json.Valid(value) || !utf8.Valid(value) {
		return fmt.Errorf("%w: it is not JSON", ErrInvalid)
	}
	if int64(len(value)) > s.limits.Value {
		return fmt.Errorf("%w: the value takes %s as JSON, at most %s can be kept (setting memories.maxValue)",
			ErrLimit, size10(int64(len(value))), size10(s.limits.Value))
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return ErrKey
	case len(key) > MaxKey:
		return fmt.Errorf("%w: a key of %d bytes, of at most %d", ErrLimit, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: the key is not text", ErrInvalid)
	}
	return nil
}

func checkMetadata(metadata json.RawMessage) error {
	switch {
	case len(metadata) > MaxMetadata:
		return fmt.Errorf("%w: metadata of %s, of at most %s", ErrLimit, size10(int64(len(metadata))), size10(MaxMetadata))
	case !json.Valid(metadata) || !utf8.Valid(metadata) || !isObject(metadata):
		return fmt.Errorf("%w: metadata must be an object", ErrInvalid)
	}
	return nil
}

func isObject(raw []byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

// versionOf is a digest of a file.
func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// size10 is a size for people.
func size10(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

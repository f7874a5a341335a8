// Package memory keeps the values that code in sandboxes saves under a key.
// All sessions of a user share them, in all programs that run at the same time,
// and they outlive these.
//
// Each is a file of a keyed.Store that a person can read and edit: JSON with
// the members key, metadata, created_at, updated_at and value. A caller that
// changes a value depending on the old one names its version, and nothing is
// changed if that is no longer current.
//
// Values belong to the code: nothing here logs them, and errors name the key
// only.
package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/store/keyed"
)

// Kinds of failed requests besides those of package keyed.
var (
	ErrKey     = errors.New("a memory's key cannot be empty")
	ErrInvalid = errors.New("not a value that can be kept")
)

const (
	// MaxKey bounds a key, and MaxMetadata its metadata, in bytes.
	MaxKey      = 1 << 10
	MaxMetadata = 64 << 10
	// maxList bounds the metadata of one list.
	maxList = 8 << 20
	// maxIndented bounds what white space can make of a value: one that could
	// become longer is written on one line.
	maxIndented = 4 << 20
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
// by several processes. Its errors wrap those of package keyed and of this one,
// or come from the file system.
type Store struct {
	values *keyed.Store[Entry]
	most   int64 // bytes of a value
	now    func() time.Time
}

var format = keyed.Format[Entry]{
	Lock: "memory", Plural: "memories", KeysSetting: "memories.maxKeys", TotalSetting: "memories.maxTotal",
	Key: func(e Entry) string { return e.Key }, Decode: decode, Encode: encode, Listed: listed,
}

// Check returns an error if a file of this name has a content that is not
// used.
func Check(name string, data []byte) error { return format.Check(name, data) }

// Open returns the memory in a directory, which need not exist.
func Open(dir store.Dir, limits Limits) *Store {
	limits = Limits{cmp.Or(limits.Value, 4<<20), cmp.Or(limits.Keys, 10000), cmp.Or(limits.Total, 256<<20)}
	values := keyed.Open(dir, format, keyed.Limits{Keys: limits.Keys, Total: limits.Total})
	return &Store{values: values, most: limits.Value, now: time.Now}
}

// Get returns what is kept under a key, or keyed.ErrMissing.
func (s *Store) Get(key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	e, version, err := s.values.Get(key)
	e.Version = version
	return e, err
}

// Put stores a value, replacing an earlier one. Metadata is an object, or
// empty. Put returns the new version.
func (s *Store) Put(key string, value, metadata json.RawMessage) (version string, err error) {
	if len(metadata) == 0 {
		metadata = json.RawMessage("{}")
	}
	return s.write(key, value, func(Entry, string, error) (json.RawMessage, error) { return metadata, nil })
}

// Swap replaces the given version of a value, and keeps the metadata. An empty
// version stands for a key without a value. The error is keyed.ErrConflict if
// there is another version, which is kept.
func (s *Store) Swap(key string, value json.RawMessage, version string) (string, error) {
	return s.write(key, value, func(old Entry, current string, err error) (json.RawMessage, error) {
		switch {
		case err != nil && !errors.Is(err, keyed.ErrMissing):
			return nil, err
		case current != version:
			return nil, keyed.ErrConflict
		case version == "":
			return json.RawMessage("{}"), nil
		}
		return old.Metadata, nil
	})
}

// write keeps a value with the metadata that decide returns for the old value,
// as keyed.Store.Update passes it.
func (s *Store) write(key string, value json.RawMessage, decide func(Entry, string, error) (json.RawMessage, error)) (string, error) {
	value = Plain(value)
	if err := s.check(key, value); err != nil {
		return "", err
	}
	return s.values.Update(key, func(old Entry, current string, err error) (Entry, error) {
		metadata, err := decide(old, current, err)
		if err == nil {
			err = checkMetadata(metadata)
		}
		if err != nil {
			return Entry{}, err
		}
		now := s.now().UTC().Format("2006-01-02T15:04:05.000000-07:00")
		return Entry{Key: key, Metadata: metadata, CreatedAt: cmp.Or(old.CreatedAt, now), UpdatedAt: now, Value: value}, nil
	})
}

// Delete removes a key, or returns keyed.ErrMissing.
func (s *Store) Delete(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.values.Delete(key)
}

// What a list says of a file that is not a memory, and of those after too much.
const (
	unread   = "Failed to read"
	unlisted = "Left out: the list would be too long"
)

// List returns all entries, sorted by key. Those that cannot be read have the
// reason.
func (s *Store) List() ([]Item, error) {
	kept, err := s.values.List()
	items := make([]Item, 0, len(kept))
	size := 0
	for _, k := range kept {
		e := k.Value
		item := Item{Key: k.Key, Metadata: e.Metadata, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt}
		switch size += len(e.Metadata); {
		case k.Err != nil:
			item.Error = unread
		case size > maxList:
			item = Item{Key: k.Key, Error: unlisted}
		}
		items = append(items, item)
	}
	return items, err
}

// Export calls f with every entry that can be read, sorted by key, and returns
// the keys of the others.
func (s *Store) Export(f func(Entry) error) (broken []string, err error) {
	kept, err := s.values.List()
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		var e Entry
		if err = k.Err; err == nil {
			e, err = s.Get(k.Key)
		}
		switch {
		case errors.Is(err, keyed.ErrMissing): // removed meanwhile
		case err != nil:
			broken = append(broken, k.Key)
		default:
			if err := f(e); err != nil {
				return broken, err
			}
		}
	}
	return broken, nil
}

func (s *Store) check(key string, value json.RawMessage) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !json.Valid(value) || !utf8.Valid(value) {
		return fmt.Errorf("%w: it is not JSON", ErrInvalid)
	}
	if int64(len(value)) > s.most {
		return fmt.Errorf("%w: the value takes %s as JSON, at most %s can be kept (setting memories.maxValue)",
			keyed.ErrLimit, keyed.Size(int64(len(value))), keyed.Size(s.most))
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return ErrKey
	case len(key) > MaxKey:
		return fmt.Errorf("%w: the key has %d bytes, at most %d are allowed", keyed.ErrLimit, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: the key is not text", ErrInvalid)
	}
	return nil
}

func checkMetadata(metadata json.RawMessage) error {
	switch {
	case len(metadata) > MaxMetadata:
		return fmt.Errorf("%w: the metadata takes %s, at most %s is allowed", keyed.ErrLimit, keyed.Size(int64(len(metadata))), keyed.Size(MaxMetadata))
	case !json.Valid(metadata) || !utf8.Valid(metadata) || !isObject(metadata):
		return fmt.Errorf("%w: metadata must be an object", ErrInvalid)
	}
	return nil
}

func isObject(raw []byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

package catalog

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"sallyport/internal/state"
)

// format is the version of the files. One of another version counts as none.
const format = 1

// The largest file that is read: what bound lets through, as JSON that escapes
// much, and room.
const maxFile = 32 << 20

// unused is the age at which a file of a definition that is not there any more
// is removed.
const unused = 30 * 24 * time.Hour

// record is one file: what is known of one definition of a server. That it
// could not be listed is another file beside, so that what was known stays as
// it was, and its age is the file's.
type record struct {
	Format  int       `json:"format"`
	Server  string    `json:"server"`
	Listed  time.Time `json:"listed,omitzero"`
	Listing *Listing  `json:"listing,omitempty"`
	Failure *Failure  `json:"failure,omitempty"`
}

// Failure is why a server could not be listed the last time.
type Failure struct {
	Reason string `json:"reason"` // for the user
	// Class is what sandboxed code may read of it.
	Class string    `json:"class,omitempty"`
	At    time.Time `json:"at"`
	Count int       `json:"count"` // in a row
	// Retry is when it is tried again in the background.
	Retry time.Time `json:"retry"`
}

// Class is what sandboxed code may read of why a server could not be listed:
// the kind of failure that the error itself says, and nothing else of it.
func Class(err error) string {
	var known interface{ Class() string }
	if errors.As(err, &known) {
		return known.Class()
	}
	return "failed"
}

// ownError is an error whose text says nothing of a server's definition.
type ownError string

func (e ownError) Error() string { return string(e) }

// Class returns the whole text.
func (e ownError) Class() string { return string(e) }

// failureError is a noted failure as an error.
type failureError struct{ *Failure }

func (e failureError) Error() string { return e.Reason }

// Class returns the class that was noted.
func (e failureError) Class() string { return cmp.Or(e.Failure.Class, "failed") }

// next is the failure after f, which may be nil.
func (f *Failure) next(err error, now time.Time) *Failure {
	const first, most = time.Minute, 6 * time.Hour
	n := Failure{Reason: clip(err.Error(), 2<<10), Class: Class(err), At: now, Count: 1}
	if f != nil {
		n.Count = min(f.Count, 1000) + 1
	}
	n.Retry = now.Add(min(first<<min(n.Count-1, 10), most))
	return &n
}

// stamp tells versions of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

// store is the files. Without a place for them everything is in memory alone.
type store struct{ dir state.Dir }

// Names of a definition's two files.
func listingFile(key string) string { return key + ".json" }
func failureFile(key string) string { return key + ".failed.json" }

// none says that there is no place for files.
func (s store) none() bool { return s.dir.Path("") == "" }

// stamp is that of no file where there is none.
func (s store) stamp(name string) stamp {
	if s.none() {
		return stamp{}
	}
	info, err := os.Lstat(s.dir.Path(name))
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// read returns nil for a file that is not there. Any other trouble is an error.
func (s store) read(name string) (*record, error) {
	data, err := s.dir.Read(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, state.ErrNoPlace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(name), err)
	}
	if r.Format != format || (r.Listing == nil) == (r.Failure == nil) {
		return nil, fmt.Errorf("%s: not in the form that this program writes", s.dir.Path(name))
	}
	if r.Listing != nil {
		r.Listing.bound()
	}
	return &r, nil
}

// write returns the stamp of what it wrote.
func (s store) write(name string, r *record) (stamp, error) {
	if s.none() {
		return stamp{}, nil
	}
	r.Format = format
	data, err := json.Marshal(r)
	if err == nil {
		err = s.dir.Write(name, data)
	}
	return s.stamp(name), err
}

func (s store) remove(name string) {
	_ = s.dir.Remove(name) // it is not there, or stays until it can be removed
}

// sweep removes the files of definitions that nobody has had for long.
func (s store) sweep(used map[string]bool, now time.Time) {
	names, err := s.dir.List()
	if err != nil {
		return
	}
	for _, name := range names {
		key, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		key, _ = strings.CutSuffix(key, ".failed")
		if used[key] {
			continue
		}
		if at := s.stamp(name); !at.modified.IsZero() && now.Sub(at.modified) > unused {
			_ = s.dir.Remove(name) // somebody else may have been quicker
		}
	}
}

// Secret is the key with which the state directory's files are named after
// definitions, so that a name tells nothing of the secrets in one. It is made
// when it is not there.
func Secret(dir state.Dir) ([]byte, error) {
	const name, size = "key", 32
	read := func() []byte {
		if data, err := dir.Read(name, size); err == nil && len(data) == size {
			return data
		}
		return nil
	}
	if key := read(); key != nil {
		return key, nil
	}
	key := make([]byte, size)
	_, _ = rand.Read(key) // never fails
	unlock, err := dir.Lock(name)
	if errors.Is(err, state.ErrNoPlace) {
		return key, nil // for this program's life
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if made := read(); made != nil {
		return made, nil
	}
	return key, dir.Write(name, key)
}

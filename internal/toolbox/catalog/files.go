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

	"github.com/sallyport/sallyport/internal/store"
)

// format is the version of the files. Files of other versions are ignored.
const format = 1

// The size of the largest file that is read: what bound allows, as heavily
// escaped JSON, plus some room.
const maxFile = 32 << 20

// unused is the age at which the file of a definition that no longer exists is
// removed.
const unused = 30 * 24 * time.Hour

// record is one file: what is known about one definition of a server. A failure
// to list it is in a separate file, so that earlier knowledge, and its age,
// stay unchanged.
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
	// Class is the part of it that sandboxed code may read.
	Class string    `json:"class,omitempty"`
	At    time.Time `json:"at"`
	Count int       `json:"count"` // in a row
	// Retry is when the background work tries again.
	Retry time.Time `json:"retry"`
}

// Class returns what sandboxed code may read about why a server could not be
// listed: only the kind of failure that the error itself gives.
func Class(err error) string {
	var known interface{ Class() string }
	if errors.As(err, &known) {
		return known.Class()
	}
	return "failed"
}

// ownError is an error whose message says nothing about a server's definition.
type ownError string

func (e ownError) Error() string { return string(e) }

// Class returns the whole message.
func (e ownError) Class() string { return string(e) }

// failureError is a recorded failure as an error.
type failureError struct{ *Failure }

func (e failureError) Error() string { return e.Reason }

// Class returns the recorded class.
func (e failureError) Class() string { return cmp.Or(e.Failure.Class, "failed") }

// next returns the failure after f, which may be nil.
func (f *Failure) next(err error, now time.Time) *Failure {
	const first, most = time.Minute, 6 * time.Hour
	n := Failure{Reason: clip(err.Error(), 2<<10), Class: Class(err), At: now, Count: 1}
	if f != nil {
		n.Count = min(f.Count, 1000) + 1
	}
	n.Retry = now.Add(min(first<<min(n.Count-1, 10), most))
	return &n
}

// stamp distinguishes versions of a file.
type stamp struct {
	modified time.Time
	size     int64
}

// files are the records on disk. Without a directory for them, everything is
// only in memory.
type files struct{ dir store.Dir }

// Names of a definition's files.
func listingFile(key string) string { return key + ".json" }
func failureFile(key string) string { return key + ".failed.json" }
func troubleFile(key string) string { return key + ".trouble.json" }

// none reports whether there is no directory for files.
func (s files) none() bool { return s.dir.Path("") == "" }

// stamp returns the zero stamp if the file does not exist.
func (s files) stamp(name string) stamp {
	if s.none() {
		return stamp{}
	}
	info, err := os.Lstat(s.dir.Path(name))
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// read returns nil if the file does not exist. Any other failure is an error.
func (s files) read(name string) (*record, error) {
	data, err := s.dir.Read(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
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
func (s files) write(name string, r *record) (stamp, error) {
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

func (s files) remove(name string) {
	_ = s.dir.Remove(name) // it does not exist, or stays until it can be removed
}

// sweep removes the files of definitions that have been gone for long.
func (s files) sweep(used map[string]bool, now time.Time) {
	names, err := s.dir.List()
	if err != nil {
		return
	}
	for _, name := range names {
		key, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		key, _, _ = strings.Cut(key, ".") // .failed, .shapes, .trouble
		if used[key] {
			continue
		}
		if at := s.stamp(name); !at.modified.IsZero() && now.Sub(at.modified) > unused {
			_ = s.dir.Remove(name) // another process may have been faster
		}
	}
}

// The file of the key, and its size.
const (
	keyFile = "key"
	keySize = 32
)

// Known returns the key of Secret if there is one.
func Known(dir store.Dir) []byte {
	if key, err := dir.Read(keyFile, keySize); err == nil && len(key) == keySize {
		return key
	}
	return nil
}

// Secret returns the key with which files in the state directory are named
// after definitions, so that a name reveals nothing of the secrets in one. It
// creates the key if need be.
func Secret(dir store.Dir) ([]byte, error) {
	if key := Known(dir); key != nil {
		return key, nil
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	unlock, err := dir.Lock(keyFile)
	if errors.Is(err, store.ErrNoPlace) {
		return key, nil // for this program's life
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if made := Known(dir); made != nil {
		return made, nil
	}
	return key, dir.Write(keyFile, key)
}

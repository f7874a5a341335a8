package library

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Bounds of what is stored.
const (
	maxTrust   = 1 << 20
	maxTrusted = 1000
)

func (l *Library) trustState() store.Dir { return l.config.State.Area(store.Trust) }

// trustName returns the name of the file with a folder's record.
func trustName(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// trustRecord is what the user trusted in one folder.
type trustRecord struct {
	Folder  string         `json:"folder"`
	Trusted []trustedEntry `json:"trusted"`

	path, problem string
}

// trustedEntry is a definition that the user has reviewed.
type trustedEntry struct {
	File   string `json:"file"` // below the folder
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// trust reads the record of the working directory. If it cannot be read,
// nothing is trusted.
func (l *Library) trust() *trustRecord {
	r := &trustRecord{Folder: l.folder, path: l.trustState().Path(trustName(l.folder))}
	data, err := l.trustState().Read(trustName(l.folder), maxTrust)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return r
	}
	var read trustRecord
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	switch {
	case err != nil:
		r.problem = fmt.Sprintf("cannot be read, so nothing in the project is trusted: %v", err)
	case read.Folder == l.folder:
		r.Trusted = read.Trusted
	}
	return r
}

// offer reports whether a project's definition waits for the user's decision.
func (r *trustRecord) offer(project string, d Definition) definitions.Offer {
	entry := r.entryOf(project, d)
	known := false
	for _, t := range r.Trusted {
		if t == entry {
			return ""
		}
		known = known || t.Name == d.Name
	}
	if known {
		return definitions.Changed
	}
	return definitions.Offered
}

func (r *trustRecord) entryOf(project string, d Definition) trustedEntry {
	file := d.File
	if rel, err := filepath.Rel(project, file); err == nil {
		file = filepath.ToSlash(rel)
	}
	digest := d.Digest()
	return trustedEntry{File: file, Name: d.Name, Digest: hex.EncodeToString(digest[:])}
}

// Folder returns the real path of the folder whose definitions are offered.
func (l *Library) Folder() string { return l.folder }

// Offered returns the definitions that wait for the user's decision.
func (s *Snapshot) Offered() []Definition {
	return slices.DeleteFunc(slices.Clone(s.Definitions), func(d Definition) bool { return d.Offer == "" })
}

// Trust records definitions of the working directory as the user saw them.
func (l *Library) Trust(defs []Definition) error {
	return l.editTrust(func(r *trustRecord) error {
		for _, d := range defs {
			entry := r.entryOf(l.config.Places.Dir, d)
			r.Trusted = slices.DeleteFunc(r.Trusted, func(t trustedEntry) bool { return t.File == entry.File && t.Name == entry.Name })
			r.Trusted = append(r.Trusted, entry)
		}
		if len(r.Trusted) > maxTrusted {
			return fmt.Errorf("more than %d servers of one folder cannot be trusted", maxTrusted)
		}
		return nil
	})
}

// Distrust forgets what was trusted in the working directory, and returns how
// many servers that were. Without names it forgets all of them.
func (l *Library) Distrust(names ...string) (int, error) {
	n := 0
	err := l.editTrust(func(r *trustRecord) error {
		before := len(r.Trusted)
		r.Trusted = slices.DeleteFunc(r.Trusted, func(t trustedEntry) bool { return len(names) == 0 || slices.Contains(names, t.Name) })
		n = before - len(r.Trusted)
		return nil
	})
	return n, err
}

func (l *Library) editTrust(edit func(*trustRecord) error) error {
	dir := l.trustState()
	unlock, err := dir.Lock("trust")
	if err != nil {
		return err
	}
	defer unlock()
	r := l.trust()
	if err := edit(r); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return dir.Write(trustName(l.folder), append(data, '\n'))
}

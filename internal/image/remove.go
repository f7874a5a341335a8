package image

import (
	"errors"
	"os"
	"path/filepath"
)

// A Removed is the result of removing an image.
type Removed struct {
	ID    string
	Bytes int64 // freed; 0 if it is kept
	Kept  string
}

// Why an image is kept.
const (
	KeptUsed  = "in use"
	KeptNamed = "it has other names"
	KeptBound = "a suspended session needs it"
)

// Untag removes the name of a record.
func (s *Store) Untag(r Record) error {
	err := s.names().Remove(recordFile(r.Name))
	if isNotExist(err) {
		return missing(r.Name)
	}
	return err
}

// Prune removes the roots that are not needed: those that have no name and no
// holder, and for which bound does not report a use. No process can begin to
// use a root while bound is called for it. If id is not empty, only that root
// is considered.
func (s *Store) Prune(id string, bound func(id string) (bool, error)) ([]Removed, error) {
	if s.path == "" {
		return nil, nil
	}
	s.sweep()
	var ids []string
	if id != "" {
		ids = []string{id}
	} else {
		entries, err := s.roots()
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if id := "sha256:" + e.Name(); wholeID().MatchString(id) {
				ids = append(ids, id)
			}
		}
	}
	var (
		out  []Removed
		errs []error
	)
	for _, id := range ids {
		r, err := s.removeRoot(id, bound)
		if errors.Is(err, ErrMissing) {
			continue
		}
		out, errs = append(out, r), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// removeRoot removes one root that is not needed.
func (s *Store) removeRoot(id string, bound func(string) (bool, error)) (Removed, error) {
	r := Removed{ID: id, Kept: KeptUsed}
	lock, err := s.lock(id)
	if err != nil {
		return r, err
	}
	if ok, err := lock.TryLock(); err != nil || !ok {
		return r, err
	}
	free := func() { _ = lock.Unlock() }
	defer func() { free() }()
	if _, err := os.Lstat(s.rootDir(id)); err != nil {
		if isNotExist(err) {
			err = missing(id)
		}
		return r, err
	}
	// A record that cannot be read may name it, so nothing is removed then.
	all, err := s.Records()
	if err != nil {
		return r, err
	}
	for _, other := range all {
		if other.ID == id {
			r.Kept = KeptNamed
			return r, nil
		}
	}
	if needed, err := bound(id); err != nil || needed {
		r.Kept = KeptBound
		return r, err
	}
	info, _ := s.Info(id)
	away, remove, err := s.Scratch()
	if err != nil {
		return r, err
	}
	defer remove()
	if err := os.Rename(s.rootDir(id), filepath.Join(away, "image")); err != nil {
		return r, err
	}
	free()
	free = func() {}
	r.Kept, r.Bytes = "", info.Bytes
	return r, nil
}

package image

import (
	"errors"
	"os"
	"path/filepath"
)

// A Removed says what became of an image that was to be removed.
type Removed struct {
	ID    string
	Bytes int64 // freed; 0 where it is kept
	Kept  string
}

// Why an image is kept.
const (
	KeptUsed  = "in use"
	KeptNamed = "it has other names"
	KeptBound = "a session that sleeps needs it"
)

// Untag removes a name, and says what it led to.
func (s *Store) Untag(r Record) error {
	err := s.names().Remove(recordFile(r.Name))
	if isNotExist(err) {
		return missing(r.Name)
	}
	return err
}

// Prune removes the roots that nobody needs: those that no name leads to, that
// nobody holds, and of which bound, which is asked while nobody can begin to use
// the root, does not say that something needs them. With an id it looks at that
// root alone.
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
			if id := "sha256:" + e.Name(); wholeID.MatchString(id) {
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

// removeRoot removes one root that nobody needs.
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
	// What cannot be read may lead to it: nothing is removed then.
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

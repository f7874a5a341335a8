package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// roomLock is held while records and contents change together.
const roomLock = "room"

// Sweep removes what is older than Options.Keep, contents without a record, and what
// programs that were killed have left.
func (s *Store) Sweep() error {
	names, err := s.dir.List()
	if err != nil {
		return err
	}
	contents, err := s.contents.List()
	if err != nil || len(names)+len(contents) == 0 {
		return err
	}
	unlock, err := s.dir.Lock(roomLock)
	if err != nil {
		return err
	}
	defer unlock()
	list, err := s.scan()
	if err != nil {
		return err
	}
	for _, r := range list {
		if s.options.Keep > 0 && time.Since(r.Created) > s.options.Keep {
			if err := s.dir.Remove(recordName(r.ID)); err != nil {
				return err
			}
		}
	}
	_, err = s.prune()
	return err
}

// scan returns all records, the latest first, and removes those that are damaged. The
// caller holds roomLock.
func (s *Store) scan() ([]*Record, error) {
	names, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		if _, err := s.Get(id); err == nil || errors.Is(err, ErrUnknown) {
			continue
		} else if errors.Is(err, errNewer) {
			return nil, err
		} else {
			s.options.Log.Warn("removing the damaged record of an artifact", "artifact", id, "error", err)
		}
		if err := s.dir.Remove(name); err != nil {
			return nil, err
		}
	}
	return s.List()
}

// prune removes the contents that no record names, and returns the size of the others.
// The caller holds roomLock.
func (s *Store) prune() (used int64, err error) {
	list, err := s.scan()
	if err != nil {
		return 0, err
	}
	named := map[string]bool{}
	for _, r := range list {
		for _, f := range r.Files {
			if !named[f.Digest] {
				named[f.Digest] = true
				used += f.Size
			}
		}
	}
	names, err := s.contents.List()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if !named[name] {
			if err := s.contents.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
		}
	}
	s.mu.Lock()
	s.used = used
	s.mu.Unlock()
	return used, nil
}

// makeRoom makes room for size bytes by removing the oldest records. The caller holds
// roomLock.
func (s *Store) makeRoom(size int64) error {
	most := s.options.MaxDisk
	if size > most {
		return fmt.Errorf("%d bytes are more than artifacts.maxDisk", size)
	}
	s.mu.Lock()
	used := s.used
	s.mu.Unlock()
	if used >= 0 && used+size <= most {
		return nil
	}
	used, err := s.prune()
	if err != nil || used+size <= most {
		return err
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	uses := map[string]int{}
	for _, r := range list {
		for _, f := range r.Files {
			uses[f.Digest]++
		}
	}
	// A sixteenth more, so that the next files do not have to look again.
	for enough := most - most/16; len(list) > 0 && used > 0 && used+size > enough; list = list[:len(list)-1] {
		oldest := list[len(list)-1]
		if err := s.dir.Remove(recordName(oldest.ID)); err != nil {
			return err
		}
		for _, f := range oldest.Files {
			if uses[f.Digest]--; uses[f.Digest] == 0 {
				used -= f.Size
			}
		}
	}
	_, err = s.prune()
	return err
}

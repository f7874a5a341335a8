package artifact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

const (
	// roomLock is held while records and contents change together.
	roomLock = "room"
	// changeName is a file that each change gives a new content.
	changeName = "change"
	// block is what a record and a content take at least on disk.
	block = 4096
)

// room returns what a content of that size takes on disk.
func room(size int64) int64 { return (size/block + 1) * block }

// room returns what the record itself takes on disk.
func (r *Record) room() int64 {
	n := int64(0)
	for _, f := range r.Files {
		n += int64(len(f.Path)+len(f.About)) + 256
	}
	return room(n)
}

// index is what is kept.
type index struct {
	change string         // the content of changeName that it belongs to
	uses   map[string]int // of contents, by digest
	used   int64          // of the disk
}

func (x *index) add(r *Record) {
	x.used += r.room()
	for _, f := range r.Files {
		if x.uses[f.Digest]++; x.uses[f.Digest] == 1 {
			x.used += room(f.Size)
		}
	}
}

// drop returns the digests of the contents that no record names any more.
func (x *index) drop(r *Record) (unused []string) {
	x.used -= r.room()
	for _, f := range r.Files {
		if x.uses[f.Digest]--; x.uses[f.Digest] == 0 {
			delete(x.uses, f.Digest)
			x.used -= room(f.Size)
			unused = append(unused, f.Digest)
		}
	}
	return unused
}

// change calls do, which changes records and contents, with the index of what is kept.
// It reads all records, and removes contents without one, if another process has changed
// something since this one did, or was killed while it did, or if fresh is set.
func (s *Store) change(fresh bool, do func(*index) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.dir.Lock(roomLock)
	if err != nil {
		return err
	}
	defer unlock()
	last, err := s.dir.Read(changeName, block)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	x := s.known
	s.known = nil // unless all goes well
	if fresh || x == nil || x.change != string(last) {
		if x, err = s.scan(); err != nil {
			return err
		}
	}
	x.change = rand.Text()
	if err := s.dir.WriteUnsynced(changeName, []byte(x.change)); err != nil {
		return err
	}
	s.at("change")
	if err := do(x); err != nil {
		return err
	}
	s.known = x
	return nil
}

// Sweep removes what is older than Options.Keep or finds no room, contents without a
// record, and what programs that were killed have left.
func (s *Store) Sweep() error {
	names, err := s.dir.List()
	if err != nil {
		return err
	}
	contents, err := s.contents.List()
	if err != nil || len(names)+len(contents) == 0 {
		return err
	}
	return s.change(true, func(x *index) error {
		list, err := s.List()
		if err != nil {
			return err
		}
		for _, r := range list {
			if s.options.Keep > 0 && time.Since(r.Created) > s.options.Keep {
				if err := s.forget(x, r); err != nil {
					return err
				}
			}
		}
		if !s.Keeps() {
			return nil
		}
		return s.makeRoom(x, 0)
	})
}

// scan reads all records, and removes those that are damaged and the contents that no
// record names. Within change alone.
func (s *Store) scan() (*index, error) {
	names, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	x := &index{uses: map[string]int{}}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		switch r, err := s.Get(id); {
		case err == nil:
			x.add(r)
		case errors.Is(err, errDamaged):
			s.options.Log.Warn("removing the damaged record of an artifact", "artifact", id, "error", err)
			if err := remove(s.dir.Remove(name)); err != nil {
				return nil, err
			}
		case !errors.Is(err, ErrUnknown):
			return nil, err // it may be read at another time
		}
	}
	contents, err := s.contents.List()
	if err != nil {
		return nil, err
	}
	for _, name := range contents {
		if x.uses[name] == 0 {
			if err := remove(s.contents.Remove(name)); err != nil {
				return nil, err
			}
		}
	}
	return x, nil
}

// remove returns the error of a removal, which is none if there was nothing.
func remove(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// forget removes a record and the contents that only it names. Within change alone.
func (s *Store) forget(x *index, r *Record) error {
	if err := remove(s.dir.Remove(recordName(r.ID))); err != nil {
		return err
	}
	s.at("forgotten")
	return s.free(x.drop(r))
}

// free removes contents. Within change alone.
func (s *Store) free(unused []string) error {
	for _, digest := range unused {
		if err := remove(s.contents.Remove(digest)); err != nil {
			return err
		}
		s.at("freed")
	}
	return nil
}

// makeRoom removes the oldest records if more is kept than there is room for. size is
// what a new record takes, which x has already. Within change alone.
func (s *Store) makeRoom(x *index, size int64) error {
	most := s.options.MaxDisk
	if x.used <= most {
		return nil
	}
	if size > most {
		return fmt.Errorf("%d bytes are more than artifacts.maxDisk", size)
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	// A sixteenth more, so that the next files do not have to look again.
	for enough := most - (most-size)/16; len(list) > 0 && x.used > enough; list = list[:len(list)-1] {
		if err := s.forget(x, list[len(list)-1]); err != nil {
			return err
		}
	}
	return nil
}

package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sallyport/internal/sandbox"
)

// Limits bound what a Store keeps on disk.
type Limits struct {
	// Disk bounds all runs together, in bytes; 0: no bound.
	Disk int64
	// Files is the most disk that fetching the files of one run takes, by
	// engine.
	Files map[string]int64
}

// roomLock is held from the moment at which room was found for a run until its
// record, which reserves that room, is written.
const roomLock = "room"

// most is what a run can come to take on disk.
func (s *Store) most(backend string) int64 {
	return s.limits.Files[backend] + 2*maxOutput + maxRecord
}

// takes is what a run takes on disk. One whose files may still be fetched counts
// as the most that it can come to, so that there is room for whatever it leaves.
func (s *Store) takes(r *Record) int64 {
	if r.State != Ended || r.Trouble != "" {
		return s.most(r.Backend)
	}
	n := int64(maxRecord)
	if r.Result != nil {
		n += r.Result.StdoutBytes + r.Result.StderrBytes
	}
	for _, f := range r.Files {
		n += f.Size
	}
	return n
}

// makeRoom makes room for one more run: the runs that ended longest ago are
// removed. roomLock is held.
func (s *Store) makeRoom(backend string) error {
	if s.limits.Disk <= 0 {
		return nil
	}
	list, err := s.List()
	if err != nil {
		s.log.Warn("counting what runs take on disk", "error", err)
	}
	reserved := s.most(backend)
	total := reserved
	var over []*Record
	for _, r := range list {
		n := s.takes(r)
		total += n
		if r.State == Ended && r.Trouble == "" {
			over = append(over, r)
		} else {
			reserved += n
		}
	}
	if reserved > s.limits.Disk {
		return fmt.Errorf("the runs that have not ended, and those whose files are still to be fetched, may take %d MB on disk with this one, and runs.maxDisk is %d MB: wait for some of them, fetch their files (sallyport runs fetch) or remove them (sallyport runs rm)",
			reserved>>20, s.limits.Disk>>20)
	}
	slices.SortStableFunc(over, func(a, b *Record) int { return a.Ended.Compare(b.Ended) })
	for _, r := range over {
		if total <= s.limits.Disk {
			return nil
		}
		switch err := s.Remove(r.ID); {
		case err == nil, errors.Is(err, ErrUnknown):
			s.log.Warn("removed a run that has ended: runs took more room than runs.maxDisk allows", "run", r.ID)
			total -= s.takes(r)
		case !errors.Is(err, ErrFollowed):
			return err
		}
	}
	if total > s.limits.Disk {
		return fmt.Errorf("there is no room for a run: %d MB are needed, and runs.maxDisk is %d MB", total>>20, s.limits.Disk>>20)
	}
	return nil
}

// reserve makes room for a run and writes its record.
func (s *Store) reserve(r *Record) error {
	unlock, err := s.dir.Lock(roomLock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.makeRoom(r.Backend); err != nil {
		return err
	}
	return s.write(r)
}

// listable refuses a list of files that a record has no room for.
func listable(files []sandbox.FetchedFile) error {
	b, err := json.Marshal(files)
	if err != nil {
		return err
	}
	if len(b) > maxRecord/2 {
		return fmt.Errorf("there are %d, and their names are longer than a run's record can hold", len(files))
	}
	return nil
}

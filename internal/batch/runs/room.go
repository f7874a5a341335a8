package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/batch"
)

// Limits bound what a Store keeps on disk.
type Limits struct {
	// Disk bounds all runs together, in bytes; 0: no bound.
	Disk int64
	// Files is the most disk that fetching the files of one run takes, by
	// service.
	Files map[string]int64
}

// roomLock is held from the moment at which room was found for a run until its
// record, which reserves that room, is written.
const roomLock = "room"

// most returns the most that a run can take on disk.
func (s *Store) most(service string) int64 {
	return s.limits.Files[service] + 2*maxOutput + maxRecord
}

// takes returns what a run takes on disk. A run whose files may still be fetched
// counts with its maximum, so that there is room for whatever it leaves.
func (s *Store) takes(r *Record) int64 {
	if r.State != Ended || r.Trouble != "" {
		return s.most(r.Service)
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

// makeRoom makes room for one more run by removing those that ended longest ago.
// The caller holds roomLock.
func (s *Store) makeRoom(service string) error {
	if s.limits.Disk <= 0 {
		return nil
	}
	list, err := s.List()
	if err != nil {
		s.log.Warn("counting what runs take on disk", "error", err)
	}
	reserved := s.most(service)
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
	if err := s.makeRoom(r.Service); err != nil {
		return err
	}
	return s.write(r)
}

// listable reports an error if a record has no room for the list of files.
func listable(files []batch.File) error {
	b, err := json.Marshal(files)
	if err != nil {
		return err
	}
	if len(b) > maxRecord/2 {
		return fmt.Errorf("there are %d, and their names are longer than a run's record can hold", len(files))
	}
	return nil
}

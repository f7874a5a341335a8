package session

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/session/hibernate"
)

// sleeping is what a store's snapshots take on disk, finished or not.
func suspendedBytes(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, statErr := d.Info(); statErr == nil { // others remove meanwhile
				total += info.Size()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestMaxDisk: several processes that lay sessions to sleep at the same time keep
// within the limit with each of them, and not when order is next kept. Those that
// have slept longest go, and are told.
func TestMaxDisk(t *testing.T) {
	const each = 1 << 20
	// What a run has is not known, so that it may be as much as its limit.
	limit := int64(4*each + 1<<20 + hibernate.SpareDisk)
	open, dir := sets(t, func(c *setup) { c.MaxDisk, c.Unpacked, c.Idle, c.Limits.MemoryBytes = limit, true, 0, 1<<20 })
	var all sync.WaitGroup
	for p := range 3 {
		set := open(newSaving())
		t.Cleanup(set.Close)
		all.Go(func() {
			for i := range 10 {
				s, err := set.Get(fmt.Sprintf("s-%d-%d", p, i))
				if err != nil {
					t.Error(err)
					return
				}
				exec(t, s, "set x "+strings.Repeat("y", each))
				if err := s.Suspend(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	most := int64(0)
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-time.After(time.Millisecond):
		}
		most = max(most, suspendedBytes(t, filepath.Join(dir, "snapshots")))
	}
	if most > limit || most < 2*each {
		t.Errorf("snapshots took up to %d bytes, want at most %d and something", most, limit)
	}
	if now := suspendedBytes(t, filepath.Join(dir, "snapshots")); now > limit-hibernate.SpareDisk {
		t.Errorf("30 sessions of %d bytes take %d, and the limit is %d", each, now, limit)
	}
	set := open(newSaving())
	defer set.Close()
	if out := exec(t, get(t, set, "s-0-0"), "get x"); !strings.Contains(out.Lost, "sessions.maxDisk") {
		t.Errorf("one that had to go lost %q, want that sessions.maxDisk is named", out.Lost)
	}
}

// TestMaxDiskTooSmall: a session that cannot fit stays awake, and no other goes.
func TestMaxDiskTooSmall(t *testing.T) {
	limit := int64(1<<20 + hibernate.SpareDisk)
	open, _ := sets(t, func(c *setup) { c.MaxDisk, c.Idle, c.Limits.MemoryBytes = limit, 0, 1<<20 })
	set := open(newSaving())
	defer set.Close()
	first, second := get(t, set, "first"), get(t, set, "second")
	exec(t, first, "set x 1")
	exec(t, second, "set x 2")
	if err := first.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.checkpoint.Store.MaxDisk = limit - 1
	if err := second.Suspend(t.Context()); err == nil || !strings.Contains(err.Error(), "sessions.maxDisk") {
		t.Errorf("got %v, want that sessions.maxDisk is too small", err)
	}
	has(t, second, "2")
	second.checkpoint.Store.MaxDisk = limit
	has(t, first, "1")
}

package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
)

// over ends a run that left a file of that size.
func over(t *testing.T, s *Store, size int) string {
	t.Helper()
	j, r := begin(t, s, Options{})
	r.files = map[string]string{"a": strings.Repeat("a", size)}
	r.end(batch.Result{})
	if record, err := j.Wait(t.Context(), nil); err != nil || record.Trouble != "" {
		t.Fatalf("%+v, %v", record, err)
	}
	j.Close()
	return j.ID()
}

// TestRoomForRuns: what runs left makes room for new ones, the oldest first, and
// a run for whose output there might be no room is not started.
func TestRoomForRuns(t *testing.T) {
	s := newStore(t, newService())
	one := s.most("far")
	s.limits.Disk = 2*one + 5<<20 // two that have not ended
	first := over(t, s, 1<<20)
	second := over(t, s, 1<<20)
	a, _ := begin(t, s, Options{})
	left := func() (ids []string) {
		t.Helper()
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := left(); len(got) != 3 {
		t.Fatalf("there are the runs %q, want %s, %s and %s", got, first, second, a.ID())
	}
	b, _ := begin(t, s, Options{})
	if got := fmt.Sprint(left()); strings.Contains(got, first) || !strings.Contains(got, b.ID()) {
		t.Errorf("there are the runs %s, want %s to have made room for %s", got, first, b.ID())
	}
	if _, err := os.Lstat(s.dir.Path(first)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what run %s left: %v, want it to be removed", first, err)
	}
	before := fmt.Sprint(left())
	_, err := s.Start(t.Context(), "far", batch.Job{Code: "1", Timeout: time.Minute}, Options{})
	if err == nil || !strings.Contains(err.Error(), "runs.maxDisk") {
		t.Errorf("a third run: got %v, want an error that names runs.maxDisk", err)
	}
	if got := fmt.Sprint(left()); got != before {
		t.Errorf("a run that was refused has changed %s to %s", before, got)
	}
}

// TestManyFiles: a record that lists many files can be read again, and files that
// no record can list stay at the service.
func TestManyFiles(t *testing.T) {
	for _, tt := range []struct {
		files, length int
		trouble       string
	}{{20000, 60, ""}, {20000, 1000, "longer than a run's record can hold"}} {
		s := newStore(t, newService())
		j, r := begin(t, s, Options{})
		name := strings.Repeat("n", tt.length-5)
		list := make([]batch.File, tt.files)
		for i := range list {
			list[i].Path = fmt.Sprintf("%s%05d", name, i)
		}
		r.list = list
		r.end(batch.Result{})
		if _, err := j.Wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(j.ID())
		if err != nil {
			t.Errorf("%d files: the record cannot be read again: %v", tt.files, err)
			continue
		}
		if (tt.trouble == "") != (got.Trouble == "") || !strings.Contains(got.Trouble, tt.trouble) || tt.trouble == "" && len(got.Files) != tt.files {
			t.Errorf("%d files of %d bytes: got %d and the trouble %q, want the trouble %q", tt.files, tt.length, len(got.Files), got.Trouble, tt.trouble)
		}
	}
}

// TestKilledWhileFilesAreFetched: they are fetched by whoever asks for them later.
func TestKilledWhileFilesAreFetched(t *testing.T) {
	s := newStore(t, newService())
	j, r := begin(t, s, Options{})
	var during []byte
	r.fetching = func(context.Context) {
		var err error
		if during, err = s.dir.Read(recordName(j.ID()), maxRecord); err != nil {
			t.Error(err)
		}
	}
	r.files = map[string]string{"a": "text"}
	r.end(batch.Result{})
	if _, err := j.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	j.Close()
	// As a program leaves it that is killed meanwhile.
	if err := errors.Join(s.dir.Write(recordName(j.ID()), during), s.dir.RemoveAll(j.ID())); err != nil {
		t.Fatal(err)
	}
	again, err := s.Attach(t.Context(), j.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if record, err := again.Wait(t.Context(), nil); err != nil || !record.Fetched || len(record.Files) != 1 {
		t.Errorf("got %+v, %v; want the file to be fetched. The record was %s", record, err, bytes.TrimSpace(during))
	}
}

package session

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// A session keeps its environment, in memory and on disk, and says which it is.
func TestEnvironmentOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, host, dir := ownersSet(t, e)
		data := &Template{Engine: e, Root: sandbox.Root{Image: "sha256:1"}, Environment: "data"}
		rebuilt := &Template{Engine: e, Root: sandbox.Root{Image: "sha256:2"}, Environment: "data"}
		key := Key{Name: "work"}
		set := open()
		if made, ok := set.Made(key); ok {
			t.Errorf("before it exists: got %+v, want nothing", made)
		}
		exec(t, keyed(t, set, key, data), "set x 1")
		if made, ok := set.Made(key); made.Template != data || made.Environment != "data" || made.Suspended || !ok {
			t.Errorf("in memory: got %+v, %t, want the template %p of data", made, ok, data)
		}
		if _, err := set.Get(key, host); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), "environment data, not host") {
			t.Errorf("another environment: got %v, want an error with both names", err)
		}
		if got := set.List("")[1].Environment; got != "data" {
			t.Errorf("its environment in the list: got %q, want data", got)
		}
		set.Close()

		offline := NewOfflineSessions(Options{Logger: discard, Records: store.At(filepath.Join(dir, "sessions")), Snapshots: snapshot.At(filepath.Join(dir, "snapshots"))}, "")
		if list, err := offline.List(); err != nil || len(list) != 1 || list[0].Environment != "data" {
			t.Errorf("on disk: got %+v (%v), want one with environment data", list, err)
		}
		for _, tt := range []struct {
			template *Template
			want     string
		}{
			{host, "it has environment data, not host"},
			{rebuilt, "environment data was built anew"},
		} {
			set = open()
			if made, ok := set.Made(key); made.Template != nil || made.Environment != "data" || !made.Suspended || !ok {
				t.Errorf("suspended: got %+v, %t, want the name data", made, ok)
			}
			s := keyed(t, set, key, tt.template)
			if _, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}}); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("with another environment: got %v, want %q", err, tt.want)
			}
			set.Close()
		}
		set = open()
		defer set.Close()
		has(t, keyed(t, set, key, data), "1")
	})
}

// A session keeps its folders, and its state where they cannot be shown.
func TestFoldersOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, host, dir := ownersSet(t, e)
		data := &Template{Engine: e, Mounts: []sandbox.Mount{{Source: "/d", Target: "/mnt/d", Mode: sandbox.ReadOnly, By: sandbox.ByPerson}}}
		key := Key{Name: "work"}
		set := open()
		exec(t, keyed(t, set, key, data), "set x 1")
		if _, err := set.Get(key, host); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), "other folders") {
			t.Errorf("without its folders: got %v, want an error", err)
		}
		if got := set.List("")[1].Folders; !slices.Equal(got, data.Mounts) {
			t.Errorf("its folders in the list: got %+v, want %+v", got, data.Mounts)
		}
		set.Close()
		offline := NewOfflineSessions(Options{Logger: discard, Records: store.At(filepath.Join(dir, "sessions")), Snapshots: snapshot.At(filepath.Join(dir, "snapshots"))}, "")
		if list, err := offline.List(); err != nil || len(list) != 1 || !slices.Equal(list[0].Folders, data.Mounts) {
			t.Errorf("on disk: got %+v (%v), want one with %+v", list, err, data.Mounts)
		}
		try := func(template *Template) error {
			set := open()
			defer set.Close()
			if made, ok := set.Made(key); !made.Suspended || !slices.Equal(made.Folders, data.Mounts) || !ok {
				t.Errorf("suspended: got %+v, %t, want its folders", made, ok)
			}
			s := keyed(t, set, key, template)
			_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}})
			return err
		}
		if err := try(host); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), "it sees other folders") {
			t.Errorf("with other folders: got %v, want an error", err)
		}
		e.unable = errors.New("no file /mnt/d/x")
		if err := try(data); !errors.Is(err, e.unable) || !strings.Contains(err.Error(), "sallyport sessions reset work") {
			t.Errorf("where a file is gone: got %v, want an error that says what to do", err)
		}
		e.unable = nil
		set = open()
		defer set.Close()
		has(t, keyed(t, set, key, data), "1")
	})
}

// preparedNames returns the names of the prepared snapshots.
func preparedNames(t *testing.T, store *snapshot.Store) map[string]bool {
	t.Helper()
	list, err := store.List()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range list {
		if strings.HasPrefix(e.Name, hibernate.PreparedPrefix) {
			names[e.Name] = true
		}
	}
	return names
}

// A prepared snapshot serves the first session. Modules that cannot be imported are
// reported and left out, and those snapshots stay that are in use.
func TestPrepare(t *testing.T) {
	e := newSaving()
	dir := t.TempDir()
	snapshots := snapshot.At(filepath.Join(dir, "snapshots"))
	set := NewSet(Options{Logger: discard, Restore: true, MaxRunning: 100, Snapshots: snapshots, Records: store.At(filepath.Join(dir, "sessions"))})
	defer set.Close()
	first := &Template{Engine: e, Preload: []string{"missing", "json"}}
	if err := set.Prepare(t.Context(), first); !errors.Is(err, ErrPreload) || !strings.Contains(err.Error(), "importing missing") || strings.Contains(err.Error(), "json") {
		t.Fatalf("got %v, want ErrPreload of missing alone", err)
	}
	use := func(name string) {
		t.Helper()
		if out := exec(t, keyed(t, set, Key{Name: name}, first), "get json"); out.Stdout.Head != "imported" {
			t.Errorf("session %s: got %q, want one that was restored with json", name, out.Stdout.Head)
		}
	}
	use("one")
	if restored, _ := e.counts(); restored != 1 {
		t.Errorf("sandboxes restored: got %d, want 1", restored)
	}
	mine := preparedNames(t, snapshots)
	for i := range keepPrepared + 2 {
		if err := set.Prepare(t.Context(), &Template{Engine: e, Preload: []string{"json", fmt.Sprintf("json.m%d", i)}}); err != nil {
			t.Fatal(err)
		}
		use(fmt.Sprintf("s%d", i))
	}
	names := preparedNames(t, snapshots)
	if len(names) != keepPrepared {
		t.Errorf("prepared snapshots: got %d, want %d", len(names), keepPrepared)
	}
	for name := range mine {
		if !names[name] {
			t.Error("the snapshot that is used all the time was removed")
		}
	}
	if err := NewSet(Options{Logger: discard}).Prepare(t.Context(), &Template{Engine: newSaving()}); err != nil {
		t.Errorf("without a place for snapshots: got %v, want none", err)
	}
}

package session

import (
	"errors"
	"fmt"
	"path/filepath"
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
		if _, name, ok := set.Made(key); ok {
			t.Errorf("before it exists: got %q, want nothing", name)
		}
		exec(t, keyed(t, set, key, data), "set x 1")
		if got, name, ok := set.Made(key); got != data || name != "data" || !ok {
			t.Errorf("in memory: got %p, %q, %t, want the template %p of data", got, name, ok, data)
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
			if got, name, ok := set.Made(key); got != nil || name != "data" || !ok {
				t.Errorf("suspended: got %p, %q, %t, want the name data", got, name, ok)
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

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// owners are some that might be taken for one another: by a path, by a file
// system that folds case or composes accents, or by the form of a key.
var owners = []string{
	"", "ann", "Ann", "../x", "..", ".", "/", "a/b", "a\\b", "C:", "con", "default", "ann#1", "x@ann", "#", "@", "%", "%00", "+ann", "~",
	"é", "e\u0301", "ß", "SS", "İ", "日本", "https://issuer.example|auth0|1", " ", "*", ".tmp-x", ".lock",
	strings.Repeat("x", maxOwner), strings.Repeat("x", maxOwner-1) + "y", strings.Repeat("é", maxOwner/2),
}

// keysOf are the keys of those owners' sessions.
func keysOf(names ...string) []Key {
	var keys []Key
	for _, owner := range owners {
		for _, name := range names {
			keys = append(keys, Key{Owner: owner, Name: name})
		}
		keys = append(keys, Key{Owner: owner, Name: DefaultName, Client: "1"}, Key{Owner: owner, Name: DefaultName, Client: "2"})
	}
	return keys
}

// No two keys have one text or one file, on whatever file system.
func TestKeysNeverMeet(t *testing.T) {
	texts, files := map[string]Key{}, map[string]Key{}
	for _, k := range keysOf("work", "Work", "work.json", "ann", DefaultName) {
		if err := k.check(); err != nil {
			t.Errorf("check of %#v: got %v, want none", k, err)
		}
		if other, taken := texts[k.String()]; taken {
			t.Errorf("text %q: got it for %#v and for %#v", k, k, other)
		}
		texts[k.String()] = k
		file := strings.ToLower(k.file())
		if other, taken := files[file]; taken {
			t.Errorf("file %q: got it for %#v and for %#v", file, k, other)
		}
		files[file] = k
		if len(file) > 180 || strings.ContainsAny(file, `/\`) || strings.HasPrefix(file, ".") || strings.ContainsFunc(file, func(r rune) bool { return r > '~' || r < ' ' }) {
			t.Errorf("file of %#v: got %q, which is no plain name", k, file)
		}
	}
	if got := (Key{Name: "work"}).file(); got != "work" {
		t.Errorf("file of the local user's session: got %q, want work", got)
	}
}

func TestInvalidKeys(t *testing.T) {
	for _, k := range []Key{
		{}, {Name: "a b"}, {Name: "a@b"}, {Name: "a#b"}, {Name: "../a"}, {Name: "a", Client: "1"},
		{Name: DefaultName, Client: "a@b"}, {Name: DefaultName, Client: "../1"},
		{Owner: "a\nb", Name: "x"}, {Owner: "a\x00b", Name: "x"}, {Owner: "\xff", Name: "x"}, {Owner: "a\u202eb", Name: "x"},
		{Owner: strings.Repeat("x", maxOwner+1), Name: "x"},
	} {
		if k.check() == nil {
			t.Errorf("check of %#v: got no error, want one", k)
		}
	}
}

// ownersSet returns a maker of sets on one disk, and its template.
func ownersSet(t *testing.T, e *saving) (func() *Set, *Template, string) {
	dir := t.TempDir()
	return func() *Set {
		return NewSet(Options{
			Logger: discard, Idle: time.Hour, MaxRunning: 1000, LogBytes: 1 << 20, Logs: filepath.Join(dir, "logs"),
			Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")),
		})
	}, &Template{Engine: e}, dir
}

func keyed(t *testing.T, set *Set, key Key, template *Template) *Session {
	t.Helper()
	s, err := set.Get(key, template)
	if err != nil {
		t.Fatalf("Get(%#v): %v", key, err)
	}
	return s
}

// Sessions of one name and several owners have their own state, in memory and
// on disk, their own records, snapshots and logs, and each owner lists their own
// alone.
func TestOwnersNeverMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, template, dir := ownersSet(t, e)
		set := open()
		keys := keysOf("work")
		for i, k := range keys {
			exec(t, keyed(t, set, k, template), fmt.Sprintf("set x %d", i))
		}
		verify := func(when string, set *Set, keys []Key) {
			t.Helper()
			for i, k := range keysOf("work") {
				for _, has := range keys {
					if has != k {
						continue
					}
					if out := exec(t, keyed(t, set, k, template), "get x"); out.Stdout.Head != fmt.Sprint(i) || out.Lost != "" {
						t.Errorf("%s, %#v: got %q (lost: %q), want %d", when, k, out.Stdout.Head, out.Lost, i)
					}
				}
			}
		}
		verify("in memory", set, keys)
		for _, k := range keys {
			if err := set.Suspend(t.Context(), k); err != nil {
				t.Fatalf("suspending %#v: %v", k, err)
			}
		}
		snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*-*"))
		if err != nil || len(snapshots) != len(keys) {
			t.Errorf("snapshots: got %d (%v), want %d", len(snapshots), err, len(keys))
		}
		verify("suspended and resumed", set, keys)
		set.Close()

		records, err := store.At(filepath.Join(dir, "sessions")).List()
		if err != nil || len(records) != len(owners) {
			t.Errorf("records: got %d (%v), want %d", len(records), err, len(owners))
		}
		logs, err := os.ReadDir(filepath.Join(dir, "logs", "named"))
		if err != nil || len(logs) != len(owners) {
			t.Errorf("logs: got %d (%v), want %d", len(logs), err, len(owners))
		}
		for i, owner := range owners {
			shelf := NewOfflineSessions(Options{Logger: discard, Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")), Logs: filepath.Join(dir, "logs")}, owner)
			list, err := shelf.List()
			if err != nil || len(list) != 1 || list[0].Owner != owner || list[0].Name != "work" || list[0].Status != hibernate.Suspended {
				t.Errorf("the sessions on disk of %q: got %+v (%v), want one that sleeps", owner, list, err)
				continue
			}
			r := sessionlog.ReadCode(list[0].Log)
			want := fmt.Sprintf("set x %d", i*3)
			if got := entries(t, r); len(got) == 0 || got[0].Code != want {
				t.Errorf("the log of %q: got %+v, want %q first", owner, got, want)
			}
			r.Close()
		}

		// The next process has them too. What one owner does to a session is
		// nothing to the others.
		set = open()
		defer set.Close()
		named := keys[:0:0]
		for _, k := range keys {
			if !k.own() {
				named = append(named, k)
			}
		}
		verify("in the next process", set, named)
		gone := Key{Owner: "ann", Name: "work"}
		if err := set.Remove(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		var left []Key
		for _, k := range named {
			if k != gone {
				left = append(left, k)
			}
		}
		verify("after one was removed", set, left)
		if out := exec(t, keyed(t, set, gone, template), "get x"); out.Stdout.Head != "" {
			t.Errorf("the removed one: got %q, want nothing", out.Stdout.Head)
		}
		if got := set.List("ann"); len(got) != 2 || got[1].Owner != "ann" || got[1].Name != "work" {
			t.Errorf("ann's sessions: got %+v, want default and work", got)
		}
	})
}

// A snapshot in the place of another owner's is not restored.
func TestSnapshotOfAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, template, dir := ownersSet(t, e)
		set := open()
		ann, bob := Key{Owner: "ann", Name: "work"}, Key{Owner: "bob", Name: "work"}
		exec(t, keyed(t, set, ann, template), "set x ann")
		exec(t, keyed(t, set, bob, template), "set x bob")
		set.Close()
		at := func(k Key) string { return filepath.Join(dir, "snapshots", hibernate.SessionPrefix+k.file()) }
		if err := errors.Join(os.RemoveAll(at(bob)), os.Rename(at(ann), at(bob))); err != nil {
			t.Fatal(err)
		}
		set = open()
		defer set.Close()
		if out := exec(t, keyed(t, set, bob, template), "get x"); out.Stdout.Head != "" || out.Lost == "" {
			t.Errorf("got %q (lost: %q), want nothing and why", out.Stdout.Head, out.Lost)
		}
	})
}

// Each client has its own session without a name, which ends with it: the state,
// the sandbox, the log and the snapshot.
func TestDefaultOfEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, template, dir := ownersSet(t, e)
		set := open()
		defer set.Close()
		one, two := Key{Name: DefaultName, Client: "1"}, Key{Name: DefaultName, Client: "2"}
		exec(t, keyed(t, set, one, template), "set x 1")
		exec(t, keyed(t, set, two, template), "set x 2")
		for _, k := range []Key{one, two} {
			if err := set.Suspend(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			if out := exec(t, keyed(t, set, k, template), "get x"); out.Stdout.Head != k.Client {
				t.Errorf("client %s: got %q, want its own variable", k.Client, out.Stdout.Head)
			}
		}
		if err := set.Suspend(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		set.End(two)
		set.End(two)
		if left, _ := filepath.Glob(filepath.Join(dir, "snapshots", "process-"+"*")); len(left) != 0 {
			t.Errorf("snapshots: got %v, want none", left)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "logs", "process-"+"*", "*%232*")); len(left) != 0 {
			t.Errorf("logs of the second client: got %v, want none", left)
		}
		list := set.List("")
		if len(list) != 1 || list[0].ClientID != "1" || !list[0].Unnamed || list[0].Status != hibernate.Running {
			t.Errorf("got %+v, want the first client's", list)
		}
		if out := exec(t, keyed(t, set, one, template), "get x"); out.Stdout.Head != "1" {
			t.Errorf("the first client: got %q, want 1", out.Stdout.Head)
		}
		if out := exec(t, keyed(t, set, two, template), "get x"); out.Stdout.Head != "" || out.Lost != "" {
			t.Errorf("a new client of that identity: got %q (lost: %q), want a fresh session", out.Stdout.Head, out.Lost)
		}
		set.End(Key{Name: "work"}) // not a client's
	})
}

// named is an engine of another name.
type named struct {
	*saving
	name string
}

func (n named) Name() string { return n.name }
func (n named) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	run, err := n.saving.Start(ctx, spec)
	return namedRun{run, n.name}, err
}
func (n named) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	run, err := n.saving.Restore(ctx, spec, image)
	return namedRun{run, n.name}, err
}

type namedRun struct {
	sandbox.Run
	name string
}

func (r namedRun) Handle() sandbox.Handle { return sandbox.Handle{Backend: r.name} }
func (r namedRun) Unwrap() sandbox.Run    { return r.Run }

// One set has sessions of several engines and templates. The prepared snapshot
// and the pool belong to the template.
func TestTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newSaving(), newSaving()
		dir := t.TempDir()
		set := NewSet(Options{
			Logger: discard, Restore: true, Pool: 1, Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")),
		})
		plain := &Template{Engine: named{first, "first"}}
		large := &Template{Engine: named{first, "first"}}
		large.Limits.MemoryBytes = 1 << 30
		again := &Template{Engine: named{first, "first"}} // as plain
		other := &Template{Engine: named{second, "second"}, Env: map[string]string{"A": "b"}}
		for i, template := range []*Template{plain, large, other} {
			exec(t, keyed(t, set, Key{Name: fmt.Sprintf("s%d", i)}, template), "set x 1")
		}
		exec(t, keyed(t, set, Key{Name: "s3"}, again), "set x 1")
		time.Sleep(time.Minute)
		if n := len(set.shared); n != 3 {
			t.Errorf("what templates share: got %d, want 3", n)
		}
		memory := map[int64]int{}
		for i := range first.started() {
			memory[first.run(i).spec.Limits.MemoryBytes]++
		}
		// Of each: its sessions' sandboxes (s3 took the one that was ready), the
		// one in the pool and the one that the snapshot was made of.
		if memory[512<<20] < 3 || memory[1<<30] != 3 {
			t.Errorf("sandboxes by memory: got %v, want 3 of the large template", memory)
		}
		if n := second.started(); n != 3 || second.run(0).spec.Env["A"] != "b" {
			t.Errorf("sandboxes of the second engine: got %d, want 3 with its environment", n)
		}
		if got := keyed(t, set, Key{Name: "s2"}, other).Engine().Name(); got != "second" {
			t.Errorf("engine: got %s, want second", got)
		}
		// A session keeps its template until it is reset.
		if _, err := set.Get(Key{Name: "s0"}, large); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), "engine first") {
			t.Errorf("another template: got %v, want ErrTemplate", err)
		}
		if _, err := set.Get(Key{Name: "s0"}, again); err != nil {
			t.Errorf("the same template again: got %v, want none", err)
		}
		if err := set.Reset(t.Context(), Key{Name: "s0"}); err != nil {
			t.Fatal(err)
		}
		if out := exec(t, keyed(t, set, Key{Name: "s0"}, other), "get x"); out.Stdout.Head != "" || out.Lost != "" {
			t.Errorf("reset and made anew: got %q (lost: %q), want a fresh session", out.Stdout.Head, out.Lost)
		}
		set.Close()
		for _, e := range []*saving{first, second} {
			for i := range e.started() {
				if !e.run(i).isDestroyed() {
					t.Errorf("sandbox %d is left", i)
				}
			}
		}
	})
}

// Another process resumes a session with the template that it was made with, or
// says why it cannot and leaves its state.
func TestTemplateOfASuspendedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _, _ := ownersSet(t, e)
		made, limited, foreign := &Template{Engine: named{e, "first"}}, &Template{Engine: named{e, "first"}}, &Template{Engine: named{e, "second"}}
		limited.Limits.Processes = 7
		key := Key{Name: "work"}
		set := open()
		exec(t, keyed(t, set, key, made), "set x 1")
		set.Close()

		tests := []struct {
			name     string
			template *Template
			want     string
		}{
			{"another engine", foreign, "suspended by engine first, and this one is second"},
			{"other limits", limited, "limits.processes was 128 and is 7"},
		}
		for _, tt := range tests {
			set = open()
			s := keyed(t, set, key, tt.template)
			if _, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}}); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "sessions reset work") {
				t.Errorf("%s, an execution: got %v, want %q", tt.name, err, tt.want)
			}
			if err := s.Resume(t.Context()); !errors.Is(err, ErrTemplate) {
				t.Errorf("%s, resuming: got %v, want ErrTemplate", tt.name, err)
			}
			if err := s.Export(t.Context(), io.Discard); !errors.Is(err, ErrTemplate) {
				t.Errorf("%s, an export: got %v, want ErrTemplate", tt.name, err)
			}
			set.Close()
			set = open()
			if _, err := set.Open(key, tt.template); !errors.Is(err, ErrTemplate) {
				t.Errorf("%s, opening: got %v, want ErrTemplate", tt.name, err)
			}
			set.Close()
		}
		set = open()
		s, err := set.Open(key, foreign, limited, made)
		if err != nil || s.Engine().Name() != "first" {
			t.Fatalf("with all templates: got %v, want the one that it was made with", err)
		}
		if out := exec(t, s, "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("got %q (lost: %q), want 1", out.Stdout.Head, out.Lost)
		}
		set.Close()
		// Modules that fresh sandboxes have imported are nothing to it.
		set = open()
		defer set.Close()
		preloaded := &Template{Engine: named{e, "first"}, Preload: []string{"json"}}
		if out := exec(t, keyed(t, set, key, preloaded), "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("with modules: got %q (lost: %q), want 1", out.Stdout.Head, out.Lost)
		}
		if err := set.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	})
}

// A session that was suspended with smaller limits goes on with those, and its
// caller learns that once. A reset gives it the new ones.
func TestResumeUnderSmallerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, small, _ := ownersSet(t, e)
		large := &Template{Engine: e, Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2}}
		small.Limits.CPUs = 1
		key := Key{Name: "work"}
		set := open()
		exec(t, keyed(t, set, key, small), "set x 1")
		set.Close()
		for range 2 { // it keeps its limits when it is suspended again
			set = open()
			s := keyed(t, set, key, large)
			if err := s.Export(t.Context(), io.Discard); err != nil {
				t.Error(err)
			}
			if got := e.run(e.started() - 1).spec.Limits; got.CPUs != 1 || got.MemoryBytes != 512<<20 {
				t.Errorf("sandbox of an export: got limits %+v, want the small ones", got)
			}
			out := exec(t, s, "get x")
			if out.Stdout.Head != "1" || out.Lost != "" {
				t.Errorf("got %q (lost: %q), want 1", out.Stdout.Head, out.Lost)
			}
			for _, want := range []string{"limits.memory was 512 MB and is 1024 MB", "limits.cpus was 1 and is 2"} {
				if !strings.Contains(out.Notice, want) {
					t.Errorf("got notice %q, want %q in it", out.Notice, want)
				}
			}
			if got := s.Limits(); got.MemoryBytes != 512<<20 || got.CPUs != 1 {
				t.Errorf("got limits %+v, want the small ones", got)
			}
			if got := e.run(e.started() - 1).spec.Limits; got != s.Limits() {
				t.Errorf("sandbox: got limits %+v, want %+v", got, s.Limits())
			}
			if out := exec(t, s, "get x"); out.Notice != "" {
				t.Errorf("the next execution: got notice %q, want none", out.Notice)
			}
			set.Close()
		}
		set = open()
		defer set.Close()
		s := keyed(t, set, key, large)
		if err := set.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if out := exec(t, s, "get x"); out.Notice != "" || s.Limits().MemoryBytes != 1<<30 || e.run(e.started()-1).spec.Limits.MemoryBytes != 1<<30 {
			t.Errorf("after a reset: got notice %q and limits %+v, want the large ones", out.Notice, s.Limits())
		}
	})
}

// Sessions of one name, of two owners, two templates and two engines are in one
// set at once, each with its own state and limits.
func TestOwnersAndTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := map[string]*saving{"first": newSaving(), "second": newSaving()}
		set := NewSet(Options{Logger: discard})
		defer set.Close()
		type made struct {
			session *Session
			want    string
			memory  int64
		}
		var all []made
		for _, owner := range []string{"ann", "bob"} {
			for name, e := range engines {
				for i, memory := range []int64{256 << 20, 1 << 30} {
					key := Key{Owner: owner, Name: fmt.Sprintf("%s-%d", name, i)}
					s := keyed(t, set, key, &Template{Engine: named{e, name}, Limits: sandbox.Limits{MemoryBytes: memory}})
					exec(t, s, "set x "+key.String())
					all = append(all, made{s, key.String(), memory})
				}
			}
		}
		for _, m := range all {
			if out := exec(t, m.session, "get x"); out.Stdout.Head != m.want || out.Lost != "" || m.session.Limits().MemoryBytes != m.memory {
				t.Errorf("got %q with %d bytes of memory (lost: %q), want %q with %d", out.Stdout.Head, m.session.Limits().MemoryBytes, out.Lost, m.want, m.memory)
			}
		}
		for name, e := range engines {
			if n := e.started(); n != 4 {
				t.Errorf("sandboxes of engine %s: got %d, want 4", name, n)
			}
		}
		for _, owner := range []string{"ann", "bob"} {
			if n := len(set.List(owner)); n != 5 { // with the default one
				t.Errorf("sessions of %s: got %d, want 5", owner, n)
			}
		}
		if n := len(set.shared); n != 4 {
			t.Errorf("what templates share: got %d, want 4", n)
		}
	})
}

// A session that does not fit can be reset, and then taken by the other template.
func TestResetOfAnotherTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _, _ := ownersSet(t, e)
		key := Key{Name: "work"}
		set := open()
		exec(t, keyed(t, set, key, &Template{Engine: named{e, "first"}}), "set x 1")
		set.Close()
		set = open()
		defer set.Close()
		s := keyed(t, set, key, &Template{Engine: named{e, "second"}})
		if err := set.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if out := exec(t, s, "get x"); out.Stdout.Head != "" || out.Lost != "" {
			t.Errorf("got %q (lost: %q), want a fresh session", out.Stdout.Head, out.Lost)
		}
	})
}

// The bound on named sessions is each owner's.
func TestNamedSessionsOfEachOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		set := NewSet(Options{Logger: discard, MaxNamed: 2})
		defer set.Close()
		template := &Template{Engine: e}
		for _, owner := range []string{"", "ann", "bob"} {
			for _, name := range []string{"a", "b"} {
				exec(t, keyed(t, set, Key{Owner: owner, Name: name}, template), "set x 1")
			}
			if _, err := set.Get(Key{Owner: owner, Name: "c"}, template); err == nil || !strings.Contains(err.Error(), "sessions.maxNamed") {
				t.Errorf("a third of %q: got %v, want sessions.maxNamed", owner, err)
			}
		}
	})
}

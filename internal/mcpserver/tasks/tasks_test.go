package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var me = Owner{"me", "editor", ""}

// newSet is a set whose calls become tasks at once, over a directory.
func newSet(t *testing.T, dir store.Dir) *Set {
	s := New(Options{Log: slog.New(slog.DiscardHandler), Dir: dir, Moment: time.Nanosecond})
	t.Cleanup(func() { s.Close(errors.New("the end of the test")) })
	return s
}

// gated is work that returns value and err once release is called, or the cause
// of its end.
func gated(value any, err error) (w Work, release func()) {
	gate := make(chan struct{})
	return Work{Run: func(ctx context.Context, _ *Task) (any, error) {
		select {
		case <-gate:
			return value, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}, func() { close(gate) }
}

// begin makes a task of work.
func begin(t *testing.T, s *Set, w Work) *Info {
	t.Helper()
	value, task, err := s.Call(t.Context(), me, w)
	if task == nil {
		t.Fatalf("got %v, %v; want a task", value, err)
	}
	return task
}

// end waits for the end of a task.
func end(t *testing.T, s *Set, id string) *Info {
	t.Helper()
	s.Watch(t.Context(), me, []string{id}, func(*Info) {})
	got := s.Get(me, id)
	if got == nil || !got.Ended() {
		t.Fatalf("got %+v, want a task that has ended", got)
	}
	return got
}

func TestQuickCallsAreNoTasks(t *testing.T) {
	s := newSet(t, store.At(t.TempDir()))
	s.moment = time.Hour
	wrong := &jsonrpc.Error{Code: -32602, Message: "wrong"}
	for _, want := range []struct {
		value any
		err   error
	}{{"done", nil}, {nil, wrong}} {
		value, task, err := s.Call(t.Context(), me, Work{Run: func(context.Context, *Task) (any, error) { return want.value, want.err }})
		if value != want.value || task != nil || !errors.Is(err, want.err) {
			t.Errorf("got %v, %+v, %v; want %v, %v", value, task, err, want.value, want.err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	w, _ := gated("x", nil)
	if _, task, err := s.Call(ctx, me, w); task != nil || !errors.Is(err, gone) {
		t.Errorf("a cancelled call: got %+v, %v; want %v", task, err, gone)
	}
	if names, _ := s.dir.List(); len(names) != 0 {
		t.Errorf("records: got %q, want none", names)
	}
}

func TestEnds(t *testing.T) {
	wrong := &jsonrpc.Error{Code: -32602, Message: "wrong"}
	for _, tt := range []struct {
		name    string
		value   any
		err     error
		status  Status
		result  string
		code    int64
		message string
	}{
		{"a result", map[string]any{"isError": true, "text": "<b>"}, nil, Completed, `{"isError":true,"text":"<b>"}`, 0, ""},
		{"an error of the protocol", nil, fmt.Errorf("about: %w", wrong), Failed, "", -32602, "wrong"},
		{"another error", nil, errors.New("broken"), Failed, "", -32603, "broken"},
		{"what cannot be encoded", func() {}, nil, Failed, "", -32603, "json: unsupported type: func()"},
		{"cancelled", nil, ErrCancelled, Cancelled, "", 0, "cancelled by the client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSet(t, store.At(t.TempDir()))
			w, release := gated(tt.value, tt.err)
			task := begin(t, s, w)
			if task.Status != Working || task.TTL < keptUnread.Milliseconds() || task.Poll <= 0 || !isID(task.ID) {
				t.Errorf("its beginning: got %+v", task)
			}
			release()
			remembered := end(t, s, task.ID)
			s.Close(nil) // its record has been written then
			for _, got := range []*Info{remembered, newSet(t, s.dir).Get(me, task.ID)} {
				var code int64
				if got == nil {
					t.Fatal("got nothing from disk")
				}
				if got.Error != nil {
					code = got.Error.Code
				}
				if got.Status != tt.status || string(got.Result) != tt.result || code != tt.code || got.Message != tt.message || !got.Created.Equal(task.Created) {
					t.Errorf("got %+v (error %d), want %+v", got, code, tt)
				}
			}
		})
	}
}

func TestCancel(t *testing.T) {
	s := newSet(t, store.At(t.TempDir()))
	w, _ := gated(nil, nil)
	task := begin(t, s, w)
	for range 2 { // the second changes nothing
		if !s.Cancel(me, task.ID) {
			t.Error("there is no such task")
		}
		if got := end(t, s, task.ID); got.Status != Cancelled {
			t.Errorf("got %+v, want a cancelled task", got)
		}
	}
}

func TestNobodyElsesTasks(t *testing.T) {
	dir := store.At(t.TempDir())
	s := newSet(t, dir)
	w, release := gated("secret", nil)
	id := begin(t, s, w).ID
	refused := func(s *Set) {
		t.Helper()
		for _, other := range []Owner{{"me", "another editor", ""}, {"you", "editor", ""}, {}} {
			if got := s.Get(other, id); got != nil || s.Cancel(other, id) || s.Update(other, id, nil) || s.Watchable(other, []string{id}) != nil {
				t.Errorf("%+v: got %+v, want nothing", other, got)
			}
		}
	}
	refused(s)
	refused(newSet(t, dir))
	for _, id := range []string{"", "../" + id, strings.ToLower(id), id + "A", ".", strings.Repeat("A", 26)} {
		if got := s.Get(me, id); got != nil {
			t.Errorf("%q: got %+v, want nothing", id, got)
		}
	}
	release()
	if got := end(t, s, id); got.Status != Completed {
		t.Errorf("got %+v, want that others changed nothing", got)
	}
	refused(newSet(t, dir))
}

// A task of a process that still runs stays as it is; one of a process that has
// died has failed.
func TestAnotherProcess(t *testing.T) {
	dir := store.At(t.TempDir())
	s, other := newSet(t, dir), newSet(t, dir)
	w, _ := gated(nil, nil)
	task := begin(t, s, w)
	if got := other.Get(me, task.ID); got == nil || got.Status != Working {
		t.Errorf("while it runs: got %+v", got)
	}
	if !other.Cancel(me, task.ID) || !other.Update(me, task.ID, nil) {
		t.Error("while it runs: it is not known")
	}
	dead := strings.Repeat("A", len(task.ID))
	data, err := dir.Read(task.ID+suffix, maxRecord)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Write(dead+suffix, []byte(strings.ReplaceAll(string(data), task.ID, dead))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := other.Get(me, dead)
		if got == nil || got.Status != Failed || got.Error == nil || !strings.Contains(got.Error.Message, "has ended") {
			t.Errorf("after it has died: got %+v, want a failed task", got)
		}
	}
}

func TestClose(t *testing.T) {
	dir := store.At(t.TempDir())
	s := newSet(t, dir)
	w, _ := gated(nil, nil)
	task := begin(t, s, w)
	s.Close(errors.New("the program ends"))
	if got := newSet(t, dir).Get(me, task.ID); got == nil || got.Status != Failed || got.Error.Message != "the program ends" {
		t.Errorf("got %+v, want a failed task", got)
	}
	if s.Room(me) {
		t.Error("there is room after the end")
	}
	if left, err := filepath.Glob(filepath.Join(dir.Path(""), ".*")); len(left) != 0 || err != nil {
		t.Errorf("locks: got %q, %v; want none", left, err)
	}
}

func TestExpiry(t *testing.T) {
	dir := store.At(t.TempDir())
	s := newSet(t, dir)
	w, release := gated("x", nil)
	id := begin(t, s, w).ID
	if other := newSet(t, dir).Get(me, id); other.TTL < keptUnread.Milliseconds() {
		t.Errorf("while it runs, it is kept for %d ms", other.TTL)
	}
	release()
	first := end(t, s, id)
	if least, most := keptRead.Milliseconds(), (keptRead + time.Hour).Milliseconds(); first.TTL < least || first.TTL > most {
		t.Errorf("once its end is known, it is kept for %d ms, want %d to %d", first.TTL, least, most)
	}
	s.mu.Lock()
	s.list[0].expires = stamp().Add(-time.Second)
	if err := func() error { s.mu.Unlock(); return s.record(s.list[0]) }(); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]*Set{"its own process": s, "another": newSet(t, dir)} {
		if got := set.Get(me, id); got != nil {
			t.Errorf("%s: got %+v, want no such task", name, got)
		}
	}
	if _, err := dir.Read(id+suffix, maxRecord); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record: %v, want that it is gone", err)
	}
}

func TestBounds(t *testing.T) {
	s := newSet(t, store.At(""))
	var releases []func()
	var ids []string
	for range maxTasks {
		w, release := gated("x", nil)
		ids, releases = append(ids, begin(t, s, w).ID), append(releases, release)
	}
	if s.Room(me) {
		t.Error("there is room for more")
	}
	value, task, err := s.Call(t.Context(), me, Work{Run: func(context.Context, *Task) (any, error) { return "waited", nil }})
	if value != "waited" || task != nil || err != nil {
		t.Errorf("one more: got %v, %+v, %v; want that the call waits", value, task, err)
	}
	w, release := gated("x", nil)
	if _, task, _ := s.Call(t.Context(), Owner{"you", "editor", ""}, w); task == nil {
		t.Error("another owner has no room")
	}
	release()
	releases[0]()
	end(t, s, ids[0])
	w, release = gated("x", nil)
	begin(t, s, w)
	release()
	if got := s.Get(me, ids[0]); got != nil {
		t.Errorf("got %+v, want that a known end makes room", got)
	}
	for _, release := range releases[1:] {
		release()
	}
}

func TestUnusableRecords(t *testing.T) {
	dir := store.At(t.TempDir())
	s := newSet(t, dir)
	id := strings.Repeat("B", 26)
	for _, data := range []string{
		``, `{}`, `[]`, `null`, `{"owner":"me","client":"editor","task":{"taskId":"` + id + `","status":"fine"}}`,
		`{"owner":"me","client":"editor","task":{"taskId":"other","status":"failed"}}`, `{"task":{}}`,
	} {
		if err := dir.Write(id+suffix, []byte(data)); err != nil {
			t.Fatal(err)
		}
		if got := s.Get(me, id); got != nil {
			t.Errorf("%s: got %+v, want nothing", data, got)
		}
	}
}

// A task that cannot be recorded is none: its call waits.
func TestUnwritableDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSet(t, store.At(path))
	value, task, err := s.Call(t.Context(), me, Work{
		Run: func(_ context.Context, task *Task) (any, error) {
			<-task.decided
			return "waited", nil
		},
		Answered: func() { t.Error("answered") },
	})
	if value != "waited" || task != nil || err != nil {
		t.Errorf("got %v, %+v, %v; want that the call waits", value, task, err)
	}
}

// A call whose work ends while its record turns out to be impossible has its
// result.
func TestUnwritableAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := newSet(t, store.At(path))
	s.moment = time.Hour // until the work is in a hurry
	until := func(what func() bool) {
		for done := false; !done; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			done = what()
			s.mu.Unlock()
		}
	}
	value, task, err := s.Call(t.Context(), me, Work{Run: func(_ context.Context, task *Task) (any, error) {
		task.writes.Lock() // the record waits
		task.hurry <- struct{}{}
		until(func() bool { return task.kept })
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Error(err)
		}
		go func() {
			until(task.ended)
			task.writes.Unlock()
		}()
		return "worked", nil
	}})
	if value != "worked" || task != nil || err != nil {
		t.Errorf("got %v, %+v, %v; want the result", value, task, err)
	}
}

func TestQuestions(t *testing.T) {
	dir := store.At(t.TempDir())
	s := newSet(t, dir)
	s.moment = time.Hour // asking makes the task
	task := begin(t, s, Work{Run: func(ctx context.Context, task *Task) (any, error) {
		answers := make(chan string, 2)
		for _, q := range []string{"name", "age"} {
			go func() {
				a, err := task.Ask(ctx, Question{Method: "elicitation/create", Params: q})
				answers <- fmt.Sprintf("%s %s %v", q, a, err)
			}()
		}
		both := []string{<-answers, <-answers}
		slices.Sort(both)
		return both, nil
	}})
	var asked map[string]Question
	wait := func(n int) *Info {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var last *Info
		s.Watch(ctx, me, []string{task.ID}, func(i *Info) {
			last = i
			if asked = i.InputRequests; len(asked) == n {
				cancel()
			}
		})
		return last
	}
	if got := wait(2); got.Status != InputRequired {
		t.Errorf("got %+v, want that it waits for answers", got)
	}
	keys := slices.Sorted(maps.Keys(asked))
	name := keys[0]
	if asked[name].Params != "name" {
		name = keys[1]
	}
	update := func(id string, answers map[string]json.RawMessage) {
		t.Helper()
		if !s.Update(me, id, answers) {
			t.Errorf("%s: no such task", id)
		}
	}
	update(task.ID, map[string]json.RawMessage{"unknown": nil})
	update(task.ID, map[string]json.RawMessage{name: json.RawMessage(`"Ada"`), "unknown": nil})
	if got := wait(1); got.Status != InputRequired || asked[name].Method != "" {
		t.Errorf("after one answer: got %+v, want the other question", got)
	}
	other := slices.Collect(maps.Keys(asked))[0]
	update(task.ID, map[string]json.RawMessage{name: json.RawMessage(`"again"`), other: json.RawMessage(`36`)})
	if got := end(t, s, task.ID); got.Status != Completed || string(got.Result) != `["age 36 <nil>","name \"Ada\" <nil>"]` {
		t.Errorf("got %+v (%s), want both answers", got, got.Result)
	}
	update(task.ID, map[string]json.RawMessage{other: json.RawMessage(`37`)}) // it awaits nothing
}

func TestCancelledWhileItAsks(t *testing.T) {
	s := newSet(t, store.At(t.TempDir()))
	task := begin(t, s, Work{Run: func(ctx context.Context, task *Task) (any, error) {
		return task.Ask(ctx, Question{Method: "elicitation/create"})
	}})
	s.Cancel(me, task.ID)
	if got := end(t, s, task.ID); got.Status != Cancelled || len(got.InputRequests) != 0 {
		t.Errorf("got %+v, want a cancelled task", got)
	}
}

func TestDescription(t *testing.T) {
	s := newSet(t, store.At(t.TempDir()))
	said := make(chan struct{})
	gate := make(chan struct{})
	task := begin(t, s, Work{Run: func(_ context.Context, task *Task) (any, error) {
		task.Describe(func() string { return "calling github.search" })
		close(said)
		<-gate
		return nil, nil
	}})
	<-said
	if got := s.Get(me, task.ID); got.Message != "calling github.search" {
		t.Errorf("while it works: got %+v", got)
	}
	close(gate)
	if got := end(t, s, task.ID); got.Message != "" {
		t.Errorf("at its end: got %+v", got)
	}
}

// Records of tasks whose time is up go, and those of running processes stay.
func TestSweep(t *testing.T) {
	dir := store.At(t.TempDir())
	running := newSet(t, dir)
	w, _ := gated(nil, nil)
	runs := begin(t, running, w).ID + suffix
	old, young := strings.Repeat("C", 26)+suffix, strings.Repeat("D", 26)+suffix
	for _, name := range []string{old, young} {
		if err := dir.Write(name, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-keptUnread - time.Hour)
	for _, name := range []string{old, runs} {
		if err := os.Chtimes(dir.Path(name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	newSet(t, dir).sweep()
	names, err := dir.List()
	want := []string{young, runs}
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
}

// A result that finds no room in memory is on disk, and so is when it expires once
// its client knows it.
func TestResultsAreCharged(t *testing.T) {
	dir := store.At(t.TempDir())
	room := budget.New(10)
	s := New(Options{Log: slog.New(slog.DiscardHandler), Dir: dir, Moment: time.Nanosecond, Budget: room})
	defer s.Close(nil)
	var ids []string
	for _, text := range []string{"small", "a large result"} {
		w, release := gated(text, nil)
		ids = append(ids, begin(t, s, w).ID)
		release()
		s.mu.Lock()
		one := s.list[len(s.list)-1]
		s.mu.Unlock()
		<-one.done
		if got := s.Get(me, one.id); got == nil || string(got.Result) != `"`+text+`"` {
			t.Errorf("got %+v, want %s", got, text)
		}
	}
	if used := room.Used(); used != int64(len(`"small"`)) {
		t.Errorf("%d bytes are charged, want those of the small one", used)
	}
	for _, id := range ids {
		if r := s.read(id); r == nil || r.Expires.After(stamp().Add(keptRead)) {
			t.Errorf("the record: got %+v, want that it expires soon", r)
		}
	}
	s.mu.Lock()
	for _, one := range s.list {
		one.expires = stamp().Add(-time.Second)
	}
	s.mu.Unlock()
	s.tidy()
	if names, _ := dir.List(); len(names) != 0 || room.Used() != 0 {
		t.Errorf("after their time: records %q and %d bytes, want none", names, room.Used())
	}
	none := New(Options{Log: slog.New(slog.DiscardHandler), Moment: time.Nanosecond, Budget: room})
	defer none.Close(nil)
	w, release := gated("a large result", nil)
	id := begin(t, none, w).ID
	release()
	if got := end(t, none, id); got.Status != Failed || !strings.Contains(got.Message, "no room") {
		t.Errorf("without a directory: got %+v, want that it failed", got)
	}
}

// Without any call, what is over goes hourly.
func TestTidiesHourly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Log: slog.New(slog.DiscardHandler), Moment: time.Nanosecond, Budget: budget.New(1 << 20)})
		defer s.Close(nil)
		w, release := gated("x", nil)
		begin(t, s, w)
		release()
		time.Sleep(keptUnread + sweepEvery + sweepAfter)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.list) != 0 {
			t.Errorf("%d tasks are left, want none", len(s.list))
		}
	})
}

// The bounds are those of one client.
func TestRoomOfOthers(t *testing.T) {
	s := newSet(t, store.At(""))
	var releases []func()
	for range maxTasks {
		w, release := gated("x", nil)
		begin(t, s, w)
		releases = append(releases, release)
	}
	if s.Room(me) || !s.Room(Owner{me.Name, me.Client, "another"}) {
		t.Errorf("room: %v, of another client of the same name %v; want false and true", s.Room(me), s.Room(Owner{me.Name, me.Client, "another"}))
	}
	for _, release := range releases {
		release()
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"owner":"me","client":"editor","task":{"taskId":"A","status":"working","createdAt":"2026-01-01T00:00:00Z","ttlMs":1}}`))
	f.Add([]byte(`{"task":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err == nil && (r.Task == nil || r.Task.ID == "") {
			t.Errorf("got %+v without an error", r)
		}
	})
}

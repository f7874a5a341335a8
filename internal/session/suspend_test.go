package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// sets returns a maker of sets that share a directory, as processes do.
func sets(t *testing.T, change func(*setup)) (func(e sandbox.Engine) *testSet, string) {
	dir := t.TempDir()
	return func(e sandbox.Engine) *testSet {
		config := setup{Template: Template{Engine: e}, Options: Options{
			Idle: time.Minute, Snapshots: snapshot.At(filepath.Join(dir, "snapshots")), Records: store.At(filepath.Join(dir, "sessions")),
		}}
		if change != nil {
			change(&config)
		}
		return newTestSet(config)
	}, dir
}

func get(t *testing.T, set *testSet, name string) *Session {
	t.Helper()
	s, err := set.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// has runs code in a session that must have its variable.
func has(t *testing.T, s *Session, x string) {
	t.Helper()
	if out := exec(t, s, "get x"); out.Stdout.Head != x || out.Lost != "" {
		t.Errorf("%+v", out)
	}
}

func TestSleepAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, nil)
		set := open(e)
		for _, name := range []string{"work", DefaultName} {
			s := get(t, set, name)
			exec(t, s, "set x 1")
			exec(t, s, "leave some output")
		}
		time.Sleep(2 * time.Minute)
		if restored, saves := e.counts(); restored != 0 || saves != 2 {
			t.Fatalf("%d restored, %d saved", restored, saves)
		}
		for i := range 2 {
			if !e.run(i).isDestroyed() {
				t.Error("a suspended session still has its sandbox")
			}
		}
		for _, name := range []string{"work", DefaultName} {
			out := exec(t, get(t, set, name), "get x")
			if out.Stdout.Head != "1" || out.Lost != "" || out.IdleOutput != "some output" {
				t.Errorf("%s woke with %+v", name, out)
			}
		}
		if restored, _ := e.counts(); restored != 2 {
			t.Errorf("%d restored", restored)
		}
		set.Close()

		// The next process has the named one.
		set = open(e)
		if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		if out := exec(t, get(t, set, DefaultName), "get x"); out.Stdout.Head != "" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		set.Close()
		left, err := os.ReadDir(filepath.Join(dir, "snapshots"))
		if err != nil || len(left) != 3 { // with the key and the lock
			t.Error(left, err)
		}
	})
}

func TestInUseElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		one, two := open(e), open(e)
		exec(t, get(t, one, "work"), "set x 1")
		_, err := get(t, two, "work").Exec(t.Context(), get(t, two, "work").Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}})
		if !errors.Is(err, hibernate.ErrElsewhere) || !strings.Contains(err.Error(), "process ") {
			t.Errorf("%v", err)
		}
		time.Sleep(2 * time.Minute) // it sleeps, and is free
		if out := exec(t, get(t, two, "work"), "get x"); out.Stdout.Head != "1" {
			t.Errorf("%+v", out)
		}
		exec(t, get(t, two, "work"), "set x 2")
		two.Close()
		if out := exec(t, get(t, one, "work"), "get x"); out.Stdout.Head != "2" || out.Lost != "" {
			t.Errorf("back in the first: %+v", out)
		}
		one.Close()
	})
}

func TestLeastRecentlyUsedMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.MaxRunning = 2; c.Idle = 0 })
		set := open(e)
		defer set.Close()
		for _, name := range []string{"a", "b", "c"} {
			exec(t, get(t, set, name), "set name "+name)
			time.Sleep(time.Second)
		}
		if restored, saves := e.counts(); restored != 0 || saves != 1 || !e.run(0).isDestroyed() {
			t.Fatalf("%d restored, %d saved", restored, saves)
		}
		if out := exec(t, get(t, set, "a"), "get name"); out.Stdout.Head != "a" || !e.run(1).isDestroyed() {
			t.Errorf("%+v", out)
		}
		// Sessions that run code do not make room.
		done := begin(t, set, "b", "sleep 30s")
		busy := begin(t, set, "c", "sleep 30s")
		synctest.Wait()
		s := get(t, set, "a")
		if _, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get name", Timeout: time.Second}}); err == nil || !strings.Contains(err.Error(), "sessions.maxRunning") {
			t.Errorf("with all of them at work: %v", err)
		}
		<-done
		<-busy
	})
}

// A session that is being laid to sleep makes room in a moment: whoever comes
// waits for that.
func TestRoomThatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		e.saveTakes = 3 * time.Second
		open, _ := sets(t, func(c *setup) { c.MaxRunning = 1 })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "a"), "set x a")
		slept := make(chan error)
		go func() { slept <- set.Suspend(t.Context(), "a") }()
		synctest.Wait()
		began := time.Now()
		if i := get(t, set, "a").info(); i.Status != hibernate.Running {
			t.Errorf("while it is saved: %+v", i)
		}
		exec(t, get(t, set, "b"), "set x b")
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-slept; err != nil {
			t.Error(err)
		}
		has(t, get(t, set, "a"), "a")
	})
}

// What cannot be saved is not ended for the sake of another.
func TestNoRoomToSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.MaxRunning = 1 })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "a"), "set x a")
		e.saveErr = errTest
		s := get(t, set, "b")
		_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}})
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), "no room for one more") || !strings.Contains(err.Error(), "a, which has been idle longest") {
			t.Errorf("%v", err)
		}
		if out := exec(t, get(t, set, "a"), "get x"); out.Stdout.Head != "a" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		e.saveErr = nil
		exec(t, s, "set x b")
	})
}

// begin runs code in the background.
func begin(t *testing.T, set *testSet, name, code string) <-chan struct{} {
	s, done := get(t, set, name), make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Exec(context.WithoutCancel(t.Context()), s.Enter(), Request{Submission: Submission{Code: code, Timeout: time.Hour}}); err != nil {
			t.Error(err)
		}
	}()
	return done
}

// An engine that cannot save ends the session that makes room, and the loss is
// said.
func TestRoomWithoutSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words)}
		open, _ := sets(t, func(c *setup) { c.MaxRunning = 1 })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "a"), "say x")
		exec(t, get(t, set, "b"), "say x")
		if out := exec(t, get(t, set, "a"), "say x"); !strings.Contains(out.Lost, "make room") {
			t.Errorf("%+v", out)
		}
	})
}

// What the machine cannot do just now costs nobody a session.
func TestWakeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set, other := open(e), open(e)
		exec(t, get(t, set, "work"), "set x 1")
		if err := set.Suspend(t.Context(), "work"); err != nil {
			t.Fatal(err)
		}
		e.unable = &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}
		if err := set.Resume(t.Context(), "work"); err == nil || !strings.Contains(err.Error(), "stays suspended") {
			t.Error(err)
		}
		if _, err := get(t, other, "work").Exec(t.Context(), get(t, other, "work").Enter(), Request{Submission: Submission{Code: "get x", Timeout: 10 * time.Second}}); err == nil || !strings.Contains(err.Error(), "cannot be resumed now") {
			t.Error(err)
		}
		e.unable = nil
		if out := exec(t, get(t, set, "work"), "get x"); out.Lost != "" || out.Stdout.Head != "1" {
			t.Errorf("%+v", out)
		}
		set.Close()
		other.Close()
	})
}

func TestWhatIsLostIsSaid(t *testing.T) {
	tests := []struct {
		name string
		harm func(t *testing.T, e *saving, dir string)
		want string
	}{
		{"another binding", func(t *testing.T, e *saving, dir string) { e.binding += "\nprogram: new" }, "could not be resumed: the snapshot does not fit: changed since: program"},
		{"damaged", func(t *testing.T, e *saving, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "snapshots", "session-work", "memory"), []byte(`{"x":"2"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "could not be resumed: the snapshot is damaged"},
		{"gone", func(t *testing.T, e *saving, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
				t.Fatal(err)
			}
		}, "could not be resumed: no snapshot"},
		{"expired", func(t *testing.T, e *saving, dir string) {
			long := time.Now().Add(-48 * time.Hour)
			if err := os.Chtimes(filepath.Join(dir, "snapshots", "session-work"), long, long); err != nil {
				t.Fatal(err)
			}
			open, _ := sets(t, nil)
			k := open(e).hibernator
			k.Snapshots, k.Records, k.Keep = snapshot.At(filepath.Join(dir, "snapshots")), store.At(filepath.Join(dir, "sessions")), 24*time.Hour
			if err := k.Tidy(); err != nil {
				t.Fatal(err)
			}
		}, "sessions.keep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newSaving()
				open, dir := sets(t, nil)
				set := open(e)
				exec(t, get(t, set, "work"), "set x 1")
				set.Close()
				tt.harm(t, e, dir)
				set = open(e)
				defer set.Close()
				out := exec(t, get(t, set, "work"), "get x")
				if !strings.Contains(out.Lost, tt.want) || out.Stdout.Head != "" {
					t.Errorf("%+v", out)
				}
				if out := exec(t, get(t, set, "work"), "set x 3"); out.Lost != "" {
					t.Errorf("said twice: %+v", out)
				}
			})
		})
	}
}

// A process that is killed saves nothing: the next one says so, once.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, nil)
		dead := open(e)
		exec(t, get(t, dead, "work"), "set x 1")
		time.Sleep(2 * time.Minute)
		exec(t, get(t, dead, "work"), "set x 2")
		// What is left of it: its files, and no lock.
		get(t, dead, "work").checkpoint.Release()
		set := open(e)
		if out := exec(t, get(t, set, "work"), "get x"); !strings.Contains(out.Lost, "ended without saving it") || out.Stdout.Head != "" {
			t.Errorf("%+v", out)
		}
		set.Close()
		get(t, dead, "work").checkpoint = nil
		dead.Close()
		if _, err := os.Stat(filepath.Join(dir, "snapshots", "session-work")); err != nil {
			t.Error(err)
		}
	})
}

func TestSavingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set := open(e)
		defer set.Close()
		s := get(t, set, "work")
		exec(t, s, "set x 1")
		e.saveErr = errTest
		if err := s.Suspend(t.Context()); !errors.Is(err, errTest) {
			t.Error(err)
		}
		if out := exec(t, s, "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("it does not go on: %+v", out)
		}
		// What the code holds is closed, and the session saved after all.
		e.saveErr, e.saveErrOnce = sandbox.ErrHeld, true
		if err := s.Suspend(t.Context()); err != nil {
			t.Errorf("with a file that is gone: got %v, want it saved", err)
		}
		if out := exec(t, s, "get let go"); out.Stdout.Head != "yes" || out.Lost != "" {
			t.Errorf("with a file that is gone: got %q, lost %q, want that the guest let go of it", out.Stdout.Head, out.Lost)
		}
		e.saveErr, e.dieOnSave = nil, errTest
		if err := s.Suspend(t.Context()); !errors.Is(err, errTest) {
			t.Error(err)
		}
		if out := exec(t, s, "get x"); !strings.Contains(out.Lost, "could not be saved") {
			t.Errorf("%+v", out)
		}
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, nil)
		set := open(e)
		s := get(t, set, "work")
		for _, suspended := range []bool{false, true} {
			exec(t, s, "set x 1")
			if suspended {
				if err := s.Suspend(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out := exec(t, s, "get x"); out.Stdout.Head != "" || out.Lost != "" {
				t.Errorf("%+v", out)
			}
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		set.Close()
		for _, d := range []string{"snapshots", "sessions"} {
			entries, err := os.ReadDir(filepath.Join(dir, d))
			for _, entry := range entries {
				if !strings.HasPrefix(entry.Name(), ".") && entry.Name() != "key" {
					t.Errorf("%s is left in %s", entry.Name(), d)
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// Fresh sandboxes come from a prepared snapshot, each with randomness of its
// own, and anew where the snapshot is of no use.
func TestBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.Restore, c.Preload = true, []string{"numpy"} })
		set := open(e)
		exec(t, get(t, set, "a"), "set x 1")
		if restored, saves := e.counts(); restored != 0 || saves != 0 {
			t.Fatal(restored, saves)
		}
		time.Sleep(10 * time.Second)
		if _, saves := e.counts(); saves != 1 {
			t.Fatal(saves)
		}
		seeds := map[string]bool{}
		for _, name := range []string{"b", "c"} {
			s := get(t, set, name)
			out := exec(t, s, "get reseed")
			if again := exec(t, s, "get reseed"); len(out.Stdout.Head) != 64 || seeds[out.Stdout.Head] || again.Stdout.Head != out.Stdout.Head {
				t.Errorf("reseeded with %q, %q", out.Stdout.Head, again.Stdout.Head)
			}
			seeds[out.Stdout.Head] = true
		}
		if restored, saves := e.counts(); restored != 2 || saves != 1 {
			t.Error(restored, saves)
		}
		set.Close()
		_, saved := e.counts()
		e.binding = "another"
		set = open(e)
		exec(t, get(t, set, DefaultName), "set x 1")
		if restored, _ := e.counts(); restored != 2 {
			t.Error("what does not fit was restored")
		}
		time.Sleep(10 * time.Second)
		if _, saves := e.counts(); saves != saved+1 {
			t.Error("none was made for the new conditions")
		}
		set.Close()
	})
}

// What ends with a session's state hears of it, not of its suspension.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var forgotten []string
		open, _ := sets(t, func(c *setup) {
			c.Options.Forgotten = func(key Key) { forgotten = append(forgotten, key.String()) }
		})
		set := open(newSaving())
		defer set.Close()
		for _, name := range []string{"work", "other", DefaultName} {
			exec(t, get(t, set, name), "set x 1")
		}
		key := func(name string) Key { return Key{Name: name} }
		for _, err := range []error{
			set.Suspend(t.Context(), "work"), set.Reset(t.Context(), "work"), set.Remove(t.Context(), "other"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		set.End(key(DefaultName))
		set.End(key("work")) // it does not end with a client
		if got, want := strings.Join(forgotten, " "), "work other "+DefaultName; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

package session

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.Pool, c.Restore = 2, true })
		set := open(e)
		if e.started() != 0 {
			t.Error("sandboxes before any code")
		}
		exec(t, get(t, set, "a"), "set x 1")
		time.Sleep(time.Minute)
		// Its own, two that are ready, and the one that the snapshot was made of.
		before := e.started()
		if before != 4 {
			t.Errorf("%d sandboxes", before)
		}
		out := exec(t, get(t, set, "b"), "get x")
		if out.Stdout.Head != "" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		synctest.Wait()
		if n := e.started(); n != before+1 {
			t.Errorf("%d sandboxes more, where one was to be replaced", n-before)
		}
		// One that has died is not given out.
		for i := range e.started() {
			if r := e.run(i); i != 0 {
				r.kill()
			}
		}
		synctest.Wait()
		if out := exec(t, get(t, set, "c"), "get x"); out.Lost != "" {
			t.Errorf("%+v", out)
		}
		set.Close()
		for i := range e.started() {
			if !e.run(i).isDestroyed() {
				t.Errorf("sandbox %d is left", i)
			}
		}
	})
}

// A sandbox that waited has run, and its session cannot tell: its executions are
// counted from one, and it is told to get fresh entropy.
func TestPoolIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, func(c *setup) {
			c.Pool, c.Restore, c.Logs, c.LogBytes = 1, true, filepath.Join(filepath.Dir(c.Records.Path("")), "logs"), 1<<20
		})
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "a"), "set x 1")
		time.Sleep(time.Minute)
		exec(t, get(t, set, "b"), "set x 1") // now one waits that was restored
		time.Sleep(time.Minute)
		started := e.started()
		s := get(t, set, "c")
		first := exec(t, s, "get reseed")
		if e.run(started-1).isDestroyed() || s.instance.run.Handle().ID != e.run(started-1).spec.ID {
			t.Error("it did not wait")
		}
		e.mu.Lock()
		warmed := e.memories[e.runs[started-2]]["reseed"]
		e.mu.Unlock()
		if len(first.Stdout.Head) != 64 || first.Stdout.Head == warmed {
			t.Errorf("reseeded with %q, another one with %q", first.Stdout.Head, warmed)
		}
		s.history.Flush()
		r := sessionlog.ReadCode(sessionlog.Dir(filepath.Join(dir, "logs"), "c"))
		defer r.Close()
		if list := entries(t, r); len(list) != 1 || list[0].Execution != 1 {
			t.Errorf("%+v", list)
		}
	})
}

func TestPoolAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.Pool = PoolAuto; c.Idle = 0 })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "a"), "set x 1")
		synctest.Wait()
		if n := e.started(); n != 2 {
			t.Errorf("%d sandboxes", n)
		}
		time.Sleep(2 * poolAuto)
		if !e.run(1).isDestroyed() {
			t.Error("it waits for ever")
		}
		exec(t, get(t, set, "a"), "set x 1")
		synctest.Wait()
		if n := e.started(); n != 2 {
			t.Errorf("%d sandboxes, and no session was opened", n)
		}
		exec(t, get(t, set, "b"), "set x 1")
		synctest.Wait()
		if n := e.started(); n != 4 {
			t.Errorf("%d sandboxes", n)
		}
	})
}

// Sandboxes are kept ready for a few templates: those of the one that was used
// least recently are ended first. What templates share is bounded, too.
func TestPoolsOfManyTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		set := NewSet(Options{Logger: discard, Pool: 1, MaxRunning: 1000})
		defer set.Close()
		template := func(i int) *Template {
			return &Template{Engine: e, Env: map[string]string{"N": fmt.Sprint(i)}}
		}
		ready := func(i int) int {
			p := set.shared[template(i).id()].pool
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.ready)
		}
		for i := range maxPools + 2 {
			exec(t, keyed(t, set, Key{Name: DefaultName, Client: fmt.Sprint(i)}, template(i)), "set x 1")
			synctest.Wait()
		}
		for i := range maxPools + 2 {
			want := 1
			if i < 2 {
				want = 0
			}
			if got := ready(i); got != want {
				t.Errorf("template %d: got %d sandboxes ready, want %d", i, got, want)
			}
		}
		alive := 0
		for i := range e.started() {
			if !e.run(i).isDestroyed() {
				alive++
			}
		}
		if want := 2*maxPools + 2; alive != want {
			t.Errorf("sandboxes: got %d, want %d", alive, want)
		}
		// An execution does not fill an emptied pool again; a new session does.
		exec(t, keyed(t, set, Key{Name: DefaultName, Client: "0"}, template(0)), "set x 1")
		synctest.Wait()
		if got := ready(0); got != 0 {
			t.Errorf("after an execution: got %d sandboxes ready, want 0", got)
		}
		exec(t, keyed(t, set, Key{Name: DefaultName, Client: "new"}, template(0)), "set x 1")
		synctest.Wait()
		if got, other := ready(0), ready(2); got != 1 || other != 0 {
			t.Errorf("after a new session: got %d sandboxes ready, and %d of the least recently used template, want 1 and 0", got, other)
		}
		for i := range maxTemplates {
			key := Key{Name: DefaultName, Client: "many"}
			exec(t, keyed(t, set, key, template(100+i)), "set x 1")
			set.End(key)
		}
		if n := len(set.shared); n > maxTemplates {
			t.Errorf("what templates share: got %d, want at most %d", n, maxTemplates)
		}
		if set.shared[template(1).id()] == nil {
			t.Error("what the template of a session shares was given up")
		}
	})
}

package session

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *Config) { c.Pool, c.Restore = 2, true })
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
		open, dir := sets(t, func(c *Config) {
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
		if e.run(started-1).isDestroyed() || s.box.run.Handle().ID != e.run(started-1).spec.ID {
			t.Error("it did not wait")
		}
		e.mu.Lock()
		warmed := e.memories[e.runs[started-2]]["reseed"]
		e.mu.Unlock()
		if len(first.Stdout.Head) != 64 || first.Stdout.Head == warmed {
			t.Errorf("reseeded with %q, another one with %q", first.Stdout.Head, warmed)
		}
		s.book.flush()
		r := Codes(bookDir(filepath.Join(dir, "logs"), "c"))
		defer r.Close()
		if list := entries(t, r); len(list) != 1 || list[0].Execution != 1 {
			t.Errorf("%+v", list)
		}
	})
}

func TestPoolAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *Config) { c.Pool = PoolAuto; c.Idle = 0 })
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

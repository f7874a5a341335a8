package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/hibernate"
)

// jumping is a machine's clock that is set now and then.
type jumping struct{ by atomic.Int64 }

func (j *jumping) now() time.Time       { return time.Now().Add(time.Duration(j.by.Load())).Round(0) }
func (j *jumping) jump(d time.Duration) { j.by.Add(int64(d)) }
func (j *jumping) in(c *setup)          { c.Now, c.Keep, c.Idle = j.now, 24*time.Hour, time.Minute }
func (j *jumping) written(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chtimes(filepath.Join(dir, "snapshots", "session-work"), j.now(), j.now()); err != nil {
		t.Fatal(err)
	}
}

const year = 365 * 24 * time.Hour

// Whatever the machine's clock does while a process runs, nothing sleeps too
// early or never, and nothing that sleeps is thrown away before its time.
func TestClockJumps(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": year, "back": -year} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, wall := newSaving(), &jumping{}
				open, dir := sets(t, wall.in)
				set := open(e)
				defer set.Close()
				s := get(t, set, "work")
				exec(t, s, "set x 1")
				time.Sleep(30 * time.Second)
				wall.jump(by)
				if used := s.info().Used; wall.now().Sub(used) != 30*time.Second {
					t.Errorf("used %v ago", wall.now().Sub(used))
				}
				time.Sleep(20 * time.Second)
				if _, saves := e.counts(); saves != 0 {
					t.Error("it is suspended after 50 seconds")
				}
				time.Sleep(30 * time.Second)
				if _, saves := e.counts(); saves != 1 {
					t.Error("it is not suspended after 80 seconds")
				}
				wall.written(t, dir)
				wall.jump(by)
				time.Sleep(23 * time.Hour) // among others, order is kept on the disk
				if out := exec(t, s, "get x"); out.Stdout.Head != "1" || out.Lost != "" {
					t.Errorf("%+v", out)
				}
				time.Sleep(2 * time.Minute)
				wall.written(t, dir)
				time.Sleep(25 * time.Hour)
				if out := exec(t, s, "get x"); !strings.Contains(out.Lost, "sessions.keep") {
					t.Errorf("it is kept for ever: %+v", out)
				}
			})
		})
	}
}

// What a process wrote whose clock was ahead counts from when that is noticed.
func TestWrittenInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, wall := newSaving(), &jumping{}
		open, dir := sets(t, wall.in)
		set := open(e)
		exec(t, get(t, set, "work"), "set x 1")
		set.Close()
		wall.jump(year)
		wall.written(t, dir)
		wall.jump(-year)
		set = open(e)
		defer set.Close()
		exec(t, get(t, set, DefaultName), "set y 1") // somebody looks
		time.Sleep(23 * time.Hour)
		if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		time.Sleep(2 * time.Minute)
		wall.jump(year)
		wall.written(t, dir)
		wall.jump(-year)
		time.Sleep(26 * time.Hour)
		if out := exec(t, get(t, set, "work"), "get x"); !strings.Contains(out.Lost, "sessions.keep") {
			t.Errorf("it is kept until then: %+v", out)
		}
	})
}

// The pool empties by the time that passes.
func TestPoolAndJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, wall := newSaving(), &jumping{}
		open, _ := sets(t, func(c *setup) { c.Pool, c.Now = PoolAuto, wall.now })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, DefaultName), "set x 1")
		synctest.Wait()
		wall.jump(-year)
		time.Sleep(poolAuto - time.Second)
		wall.jump(3 * year)
		synctest.Wait()
		if e.started() != 2 || e.run(1).isDestroyed() {
			t.Error("it went with the clock")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !e.run(1).isDestroyed() {
			t.Error("it stays for ever")
		}
	})
}

// What a power cut leaves of a record is a loss that is said, whatever it is.
func TestTornRecord(t *testing.T) {
	for name, left := range map[string]string{"nothing": "", "half": `{"name":"work","sta`, "zeros": "\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newSaving()
				open, dir := sets(t, nil)
				set := open(e)
				exec(t, get(t, set, "work"), "set x 1")
				set.Close()
				path := filepath.Join(dir, "sessions", "work.json")
				if err := os.WriteFile(path, []byte(left), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := offline(dir).List(); err == nil || !strings.Contains(err.Error(), "power failure") {
					t.Errorf("got %v, want that a power failure may be the cause", err)
				}
				set = open(e)
				defer set.Close()
				out := exec(t, get(t, set, "work"), "set x 2")
				if !strings.Contains(out.Lost, "damaged") {
					t.Errorf("%+v", out)
				}
				if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "2" || out.Lost != "" {
					t.Errorf("%+v", out)
				}
				var r hibernate.Record
				data, err := os.ReadFile(path)
				if err != nil || json.Unmarshal(data, &r) != nil || r.Status != hibernate.Running {
					t.Errorf("%s %v", data, err)
				}
			})
		})
	}
}

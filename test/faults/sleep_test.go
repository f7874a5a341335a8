//go:build linux

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// TestKillAsleep kills processes while sessions fall asleep, wake up, and a
// pool of fresh sandboxes is refilled. Whatever comes of it, a session goes on
// where the last answer left it, or its loss is said: never an older state, and
// never silence.
func TestKillAsleep(t *testing.T) {
	bin := os.Getenv("SALLYPORT_BIN")
	self := "user"
	if os.Geteuid() == 0 {
		self = "root"
	}
	if bin == "" {
		sandboxtest.Skip(t, "faults.asleep", "SALLYPORT_BIN is not set")
	}
	c := newChain(t, bin, nil)
	n := c.begin(t, 8)
	// One sandbox at a time: each call lays the other session to sleep.
	c.env = append(c.env, "SALLYPORT_SESSIONS_MAX_RUNNING=1", "SALLYPORT_SESSIONS_POOL=1", "SALLYPORT_LOG_LEVEL=info")
	count := map[string]int{"a": 0, "b": 0} // as last answered
	killed := map[string]int{}
	went, lost := 0, 0
	for i := range n {
		what, w, l := c.asleep(t, count)
		killed[what]++
		went, lost = went+w, lost+l
		c.after(t, what)
		if t.Failed() {
			t.Fatalf("round %d of %d, as %s", i, n, self)
		}
	}
	t.Logf("%d rounds, killed %v; sessions went on %d times, losses were said %d times", n, killed, went, lost)
	if went == 0 {
		t.Error("no session ever went on")
	}
	// What was killed in the middle of being made is made in the end.
	s := dial(t, c.host.Executable, c.env, nil, c.home)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.hangUp(ctx); err != nil {
			t.Error(err)
		}
	}()
	eventuallyWithin(t, "missing in the end", time.Minute, func() (missing []string) {
		if a := wait(s.runIn("a", "1"), time.Minute); a.err != nil {
			missing = append(missing, "a call: "+a.err.Error())
		}
		for _, pattern := range []string{"base-*", "session-*"} {
			if found, _ := filepath.Glob(filepath.Join(c.snapshots(), pattern)); len(found) == 0 {
				missing = append(missing, pattern)
			}
		}
		return missing
	})
}

// asleep is one round: a server, calls in turn, a kill, and what the next
// server says of the sessions.
func (c *chain) asleep(t *testing.T, count map[string]int) (what string, went, lost int) {
	t.Helper()
	const code = "n = globals().get('n', 0) + 1\nprint('n is', n)"
	names := []string{"a", "b"}
	// call makes one call and holds its answer against the last one.
	call := func(s *client, name string, mayFail bool, extra int) bool {
		t.Helper()
		a := wait(s.runIn(name, code), time.Minute)
		if a.err != nil || a.IsError {
			if !mayFail {
				t.Errorf("session %s: %v\n%s", name, a, s.logs)
			}
			if a.Structured.StateLost != "" {
				count[name] = 0
			}
			return false
		}
		_, after, _ := strings.Cut(a.text(), "n is ")
		line, _, _ := strings.Cut(after, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		switch {
		case err != nil:
			t.Errorf("session %s: %v", name, a)
		case n > count[name] && n <= count[name]+1+extra && a.Structured.StateLost == "":
			went++
		case n == 1 && a.Structured.StateLost != "":
			lost++
		case n == 1 && count[name] == 0: // its loss was said with a failed call
		default:
			t.Errorf("session %s had %d, now it says %d: %v\n%s", name, count[name], n, a, s.logs)
		}
		count[name] = n
		return true
	}

	s := dial(t, c.host.Executable, c.env, nil, c.home)
	server := s.cmd.Process.Pid
	c.note()
	stop := make(chan struct{})
	done := make(chan struct{})
	pending := "" // the session whose call was under way at the end
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			pending = names[i%2]
			if !call(s, pending, true, 0) {
				return
			}
			pending = ""
		}
	}()
	time.Sleep(time.Duration(c.rng.IntN(2500)) * time.Millisecond)
	c.note()
	byRole := map[string][]sandboxtest.Process{}
	for _, p := range c.host.Processes() {
		if r := role(p, server); r != "stub" {
			byRole[r] = append(byRole[r], p)
		}
	}
	roles := make([]string, 0, len(byRole))
	for r := range byRole {
		roles = append(roles, r)
	}
	slices.Sort(roles)
	what = "serve"
	if c.rng.IntN(2) == 0 && len(roles) > 0 {
		what = roles[c.rng.IntN(len(roles))]
	}
	victim := server
	if what != "serve" {
		victim = byRole[what][c.rng.IntN(len(byRole[what]))].PID
	}
	_ = syscall.Kill(victim, syscall.SIGKILL)
	time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
	close(stop)
	<-done
	if what == "serve" {
		<-s.ended
	} else {
		// The server says what is lost, and goes on.
		for _, name := range names {
			for try := 0; ; try++ {
				if call(s, name, try < 2, 0) || try == 2 {
					break
				}
			}
		}
		pending = ""
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.hangUp(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.gone(t, what, nil)

	s = dial(t, c.host.Executable, c.env, nil, c.home)
	for _, name := range names {
		// What was under way may have ended, and have been saved, unanswered.
		extra := 0
		if name == pending {
			extra = 1
		}
		call(s, name, false, extra)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Errorf("%s: the next server: %v", what, err)
	}
	return what, went, lost
}

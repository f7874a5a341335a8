//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// goneWithin is how soon everything must be gone, answerWithin how soon the
// server must answer for what is lost.
const (
	goneWithin   = 5 * time.Second
	answerWithin = 15 * time.Second
)

func TestKill(t *testing.T) {
	bin := os.Getenv("SALLYPORT_BIN")
	self := "user"
	if os.Geteuid() == 0 {
		self = "root"
	}
	if bin == "" {
		sandboxtest.Skip(t, "faults."+self, "SALLYPORT_BIN is not set")
	}
	t.Run(self, func(t *testing.T) { newChain(t, bin, nil).rounds(t) })
	t.Run("ordinary user", func(t *testing.T) {
		name := os.Getenv("SALLYPORT_TEST_USER")
		if name == "" || self != "root" {
			sandboxtest.Skip(t, "faults.user", "SALLYPORT_TEST_USER names no user, or root does not run the test")
		}
		u, err := user.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		newChain(t, bin, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}).rounds(t)
	})
}

// chain is where servers of one user run: an executable that nothing else runs
// and directories that nothing else uses.
type chain struct {
	who  *syscall.Credential
	env  []string
	home string
	host sandboxtest.HostState
	rng  *rand.Rand

	places    []string
	sawCgroup bool
}

func newChain(t *testing.T, bin string, who *syscall.Credential) *chain {
	t.Helper()
	place, err := os.MkdirTemp("/tmp", "sallyport-faults-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	c := &chain{who: who, home: filepath.Join(place, "home")}
	exe := filepath.Join(place, "sallyport")
	sandboxtest.Copy(t, bin, exe)
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(place, "run")
	for _, dir := range []string{c.home, run, filepath.Join(place, "cache"), filepath.Join(place, "state")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if who != nil {
			if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.env = []string{
		"HOME=" + c.home, "PATH=/usr/bin:/bin", "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR=" + run, "XDG_CACHE_HOME=" + filepath.Join(place, "cache"),
		"XDG_STATE_HOME=" + filepath.Join(place, "state"),
	}
	c.host = sandboxtest.HostState{Executable: exe, Dirs: []string{filepath.Join(run, "sallyport", "gvisor")}}
	return c
}

// prepare has the snapshot made that sandboxes are restored from: what makes it
// would be one more sandbox, at any moment.
func (c *chain) prepare(t *testing.T) {
	t.Helper()
	s := dial(t, c.host.Executable, c.env, c.who, c.home)
	if a := wait(s.runPython("1"), time.Minute); a.err != nil || a.IsError {
		t.Fatalf("%v\n%s", a, s.logs)
	}
	eventuallyWithin(t, "no snapshot is made", 2*time.Minute, func() []string {
		if found, _ := filepath.Glob(filepath.Join(c.snapshots(), "base-*")); len(found) == 0 {
			return []string{"nothing in " + c.snapshots()}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Fatal(err)
	}
}

func (c *chain) snapshots() string {
	return filepath.Join(filepath.Dir(c.home), "state", "sallyport", "snapshots")
}

// begin reads how much is to be done, and makes it random.
func (c *chain) begin(t *testing.T, n int) int {
	t.Helper()
	if v := os.Getenv("SALLYPORT_FAULT_ROUNDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if v := os.Getenv("SALLYPORT_FAULT_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SALLYPORT_FAULT_SEED=%d", seed)
	c.rng = rand.New(rand.NewPCG(seed, 0))
	c.prepare(t)
	return n
}

func (c *chain) rounds(t *testing.T) {
	n := c.begin(t, 30)
	killed := map[string]int{}
	for i := range n {
		what := c.round(t, i)
		killed[what]++
		if t.Failed() {
			t.Fatalf("round %d of %d", i, n)
		}
	}
	// The last server's own end must have left nothing, cgroups included.
	c.after(t, "all rounds")
	if len(c.places) == 0 {
		t.Error("no server had a place among the runtime files: are they elsewhere now?")
	}
	t.Logf("%d rounds: %v; there were cgroups: %v", n, killed, c.sawCgroup)
	for _, role := range []string{"serve", "supervisor", "sandbox", "gofer"} {
		found := false
		for what := range killed {
			found = found || strings.HasPrefix(what, role+" ")
		}
		if !found && n >= 50 {
			t.Errorf("no %s was killed in %d rounds", role, n)
		}
	}
}

// role says what a process of the chain is.
func role(p sandboxtest.Process, server int) string {
	switch {
	case p.PID == server:
		return "serve"
	case strings.Contains(p.Name, "supervisor"):
		return "supervisor"
	case strings.HasPrefix(p.Name, "runsc-sandbox"):
		return "sandbox"
	case strings.HasPrefix(p.Name, "runsc-gofer"):
		return "gofer"
	default:
		return "stub" // a process in which gVisor runs the guest's code
	}
}

// The moments at which a process is killed.
var moments = []string{"starting", "idle", "running"}

// round starts a server, kills a process of its chain and looks at what comes.
func (c *chain) round(t *testing.T, i int) string {
	t.Helper()
	s := dial(t, c.host.Executable, c.env, c.who, c.home)
	server := s.cmd.Process.Pid
	moment := moments[c.rng.IntN(len(moments))]
	var pending <-chan answer
	if moment == "starting" {
		pending = s.runPython("x = 41")
		time.Sleep(time.Duration(c.rng.IntN(400)) * time.Millisecond)
	} else {
		if a := wait(s.runPython("x = 41"), 30*time.Second); a.err != nil || a.IsError {
			t.Errorf("round %d: before anything was killed: %v\n%s", i, a, s.logs)
			_ = s.cmd.Process.Kill()
			return "nothing"
		}
		if moment == "running" {
			pending = s.runPython("import time\nwhile True:\n    print(x, flush=True); time.sleep(0.001)")
		}
		time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
	}

	c.note()
	if moment != "starting" {
		c.seen(t)
	}
	// Each role is as likely as another, however many processes it has.
	byRole := map[string][]sandboxtest.Process{}
	before := c.host.Processes()
	for _, p := range before {
		byRole[role(p, server)] = append(byRole[role(p, server)], p)
	}
	roles := make([]string, 0, len(byRole))
	for r := range byRole {
		roles = append(roles, r)
	}
	slices.Sort(roles)
	if len(roles) == 0 {
		t.Errorf("round %d: no process of the chain is found", i)
		return "nothing"
	}
	r := roles[c.rng.IntN(len(roles))]
	victim := byRole[r][c.rng.IntN(len(byRole[r]))]
	what := r + " " + moment
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}

	if r == "serve" {
		<-s.ended
		c.gone(t, what, nil)
		c.next(t, what)
	} else if r == "stub" {
		c.recovers(t, s, what, moment, pending)
	} else {
		c.survives(t, s, what, moment, pending, before, server)
	}
	c.after(t, what)
	if t.Failed() {
		t.Logf("round %d, %s: the server's log:\n%s", i, what, s.logs)
	}
	return what
}

// survives: the server is alive, says that the session's state is lost, and
// goes on.
func (c *chain) survives(t *testing.T, s *client, what, moment string, pending <-chan answer, before []sandboxtest.Process, server int) {
	t.Helper()
	lost := false
	if pending != nil {
		a := wait(pending, answerWithin)
		if a.err != nil {
			t.Errorf("%s: the call under way: %v", what, a)
		}
		if moment == "running" && !a.IsError {
			t.Errorf("%s: the call under way succeeded: %v", what, a)
		}
		lost = a.Structured.StateLost != ""
	}
	c.gone(t, what, func(p sandboxtest.Process) bool {
		return p.PID == server || !slices.Contains(before, p)
	})
	// The call that finds the sandbox dead may fail, if it says so: whether its
	// code began is not known. The one after it works.
	const probe = "try:\n    print('x is', x)\nexcept NameError:\n    print('no x')"
	a := wait(s.runPython(probe), answerWithin)
	lost = lost || a.Structured.StateLost != ""
	if a.err == nil && a.IsError && a.Structured.StateLost != "" {
		a = wait(s.runPython(probe), answerWithin)
	}
	if a.err != nil || a.IsError {
		t.Errorf("%s: the next call: %v", what, a)
	}
	if moment != "starting" {
		if !strings.Contains(a.text(), "no x") {
			t.Errorf("%s: the next call still has the state: %v", what, a)
		}
		if !lost {
			t.Errorf("%s: no answer says that the state is lost: %v", what, a)
		}
	}
	if a := wait(s.runPython("print(6 * 7)"), answerWithin); !strings.Contains(a.text(), "42") || a.Structured.StateLost != "" {
		t.Errorf("%s: the call after that: %v", what, a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// recovers is for a process whose death gVisor may not notice until it needs
// it, or not at all: the session keeps its state or says that it is lost, and
// answers correctly within three calls.
func (c *chain) recovers(t *testing.T, s *client, what, moment string, pending <-chan answer) {
	t.Helper()
	lost := false
	if moment == "running" {
		// The code may run on; its client gives it up.
		select {
		case a := <-pending:
			lost = a.Structured.StateLost != ""
			if a.err != nil {
				t.Errorf("%s: the call under way: %v", what, a)
			}
		case <-time.After(time.Second):
			s.cancelLast()
		}
	} else if pending != nil {
		a := wait(pending, answerWithin)
		if a.err != nil {
			t.Errorf("%s: the call under way: %v", what, a)
		}
		lost = a.Structured.StateLost != "" || a.IsError
	}
	for try := 1; ; try++ {
		a := wait(s.runPython("try:\n    print('x is', x)\nexcept NameError:\n    print('no x')"), answerWithin)
		lost = lost || a.Structured.StateLost != ""
		switch {
		case a.err == nil && !a.IsError && strings.Contains(a.text(), "x is 41"):
		case a.err == nil && !a.IsError && strings.Contains(a.text(), "no x") && lost:
		case try < 3:
			continue
		default:
			t.Errorf("%s: the third call after it: %v", what, a)
		}
		break
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// next starts a server after one was killed: it works and cleans up.
func (c *chain) next(t *testing.T, what string) {
	t.Helper()
	s := dial(t, c.host.Executable, c.env, c.who, c.home)
	if a := wait(s.runPython("print(6 * 7)"), 30*time.Second); !strings.Contains(a.text(), "42") {
		t.Errorf("%s: the next server: %v\n%s", what, a, s.logs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Errorf("%s: the next server: %v", what, err)
	}
}

// gone waits until no process of the chain is left but those that keep keeps.
func (c *chain) gone(t *testing.T, what string, keep func(sandboxtest.Process) bool) {
	t.Helper()
	eventually(t, what+": still running", func() []string {
		var left []string
		for _, p := range c.host.Processes() {
			if keep == nil || !keep(p) {
				left = append(left, p.String())
			}
		}
		return left
	})
}

// after waits until nothing of the chain's is on the host: no process, no
// mount, no file and no cgroup.
func (c *chain) after(t *testing.T, what string) {
	t.Helper()
	eventually(t, what+": left behind", func() []string {
		return append(slices.DeleteFunc(c.host.Left(), unfinished), c.cgroups()...)
	})
}

// unfinished says of what is left that it is a place that was being made or
// removed when its program died. Sweepers leave those alone for a minute,
// because another program may be at it.
func unfinished(left string) bool {
	path, ok := strings.CutPrefix(left, "file ")
	if !ok || !strings.HasPrefix(filepath.Base(path), "new-") {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && time.Since(fi.ModTime()) < time.Minute
}

// note remembers the names of the servers' places among the runtime files,
// which are in the names of their cgroups.
func (c *chain) note() {
	for _, dir := range c.host.Dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(c.places, e.Name()) {
				c.places = append(c.places, e.Name())
			}
		}
	}
}

// seen checks, while a session is live, that what must be gone later can be
// found at all.
func (c *chain) seen(t *testing.T) {
	t.Helper()
	found := strings.Join(append(c.host.Left(), c.cgroups()...), "\n")
	for _, part := range []string{"sallyport-supervisor", "runsc-sandbox", "runsc-gofer", "file "} {
		if !strings.Contains(found, part) {
			t.Errorf("%q is not found while a session is live:\n%s", part, found)
		}
	}
	c.sawCgroup = c.sawCgroup || strings.Contains(found, "cgroup ")
}

// cgroups are those of the chain's servers, dead or alive.
func (c *chain) cgroups() []string {
	var left []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		for _, place := range c.places {
			if strings.HasPrefix(d.Name(), "sallyport-"+place) {
				left = append(left, "cgroup "+path)
			}
		}
		return nil
	})
	return left
}

// eventually waits until list is empty.
func eventually(t *testing.T, what string, list func() []string) {
	t.Helper()
	eventuallyWithin(t, what, goneWithin, list)
}

func eventuallyWithin(t *testing.T, what string, limit time.Duration, list func() []string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		left := list()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s after %v:\n%s", what, limit, fmt.Sprint(strings.Join(left, "\n")))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

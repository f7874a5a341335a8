//go:build linux

package sandboxtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Limits that the suite sets, small enough to be reached quickly.
const (
	memoryLimit    = 256 << 20
	processLimit   = 64
	workspaceLimit = 32 << 20
	tmpLimit       = 16 << 20
	packagesLimit  = 24 << 20
	fileLimit      = 800
)

func (s *suite) limits(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	bystander := s.start(t, b, spec) // what its neighbour does must not hurt it
	bystander.must(t, "kept = 42")
	limited := func(t *testing.T, memory int64) *session {
		t.Helper()
		spec := s.spec()
		spec.Limits = sandbox.Limits{
			MemoryBytes: memory, Processes: processLimit,
			WorkspaceBytes: workspaceLimit, TmpBytes: tmpLimit, PackagesBytes: packagesLimit, OpenFiles: fileLimit,
		}
		return s.start(t, b, spec)
	}
	for _, tt := range []struct {
		name     string
		resource sandbox.Resource // "" where it is not a limit that an engine reports
		test     func(*testing.T, *session)
	}{
		{"memory in one process", sandbox.Memory, s.memoryOne},
		{"memory at once", sandbox.Memory, s.memoryAtOnce},
		{"memory in forty processes", sandbox.Memory, s.memoryForty},
		{"memory in files", sandbox.Memory, s.memoryFiles},
		{"memory of many children", sandbox.Memory, s.forks},
		{"memory that is shown", sandbox.Memory, s.memoryShown(memoryLimit)},
		{"fork bomb", sandbox.Processes, s.forkBomb},
		{"thread bomb", sandbox.Processes, s.threadBomb},
		{"disk", sandbox.Disk, s.disk},
		{"small files", sandbox.Disk, s.smallFiles},
		{"descriptors", sandbox.OpenFiles, s.descriptors},
		{"output flood", "", s.outputFlood},
		{"interrupt a spin", "", s.interrupt("while True: pass")},
		{"interrupt a sleep", "", s.interrupt("import time; time.sleep(600)")},
		{"interrupt a child", "", s.interrupt("import subprocess; subprocess.run(['sleep', '600'])")},
		{"interrupt at once", "", s.interruptAtOnce},
		{"ignored interrupt", "", s.ignoredInterrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.resource != "" {
				s.needLimit(t, tt.resource)
			}
			memory := int64(memoryLimit)
			if tt.resource == sandbox.Processes {
				memory *= 4 // so that the processes' limit is reached first
			}
			sess := limited(t, memory)
			tt.test(t, sess)
			if got := bystander.must(t, "print(kept)"); got != "42\n" {
				t.Errorf("the neighbouring sandbox answers %q", got)
			}
		})
	}
	t.Run("processors", s.processors)
	t.Run("few descriptors", s.fewDescriptors)
	t.Run("soft landing", s.softLanding)
}

// fewDescriptors tests that a small limit is either enforced or clearly
// refused.
func (s *suite) fewDescriptors(t *testing.T) {
	s.needLimit(t, sandbox.OpenFiles)
	b := s.backend(t)
	spec := s.spec()
	spec.Limits.OpenFiles = 64
	run, err := b.Start(t.Context(), spec)
	if err != nil {
		if !errors.Is(err, sandbox.ErrInvalidSpec) {
			t.Errorf("refused, but not as an invalid spec: %v", err)
		}
		return
	}
	if err := run.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	s.start(t, b, spec).usable(t, "a sandbox with 64 descriptors")
}

// survivedOrDied checks the effect of a limit: either the execution fails and
// the session goes on, or the run ends and says why.
func (s *suite) survivedOrDied(t *testing.T, sess *session, r result, reasons ...sandbox.Reason) {
	t.Helper()
	if r.alive() {
		sess.usable(t, "the session that survived")
		t.Logf("the session survived: %s %s", r.Status, lastLine(r.Stderr))
		return
	}
	e := sess.exit(t)
	for _, want := range reasons {
		if e.Reason == want {
			t.Logf("the run ended: %+v", e)
			return
		}
	}
	t.Errorf("the run ended without a clear reason: %+v (%v)", e, r.Err)
}

// lastNumber returns the number in the last line of the output that starts with
// word, or 0 if there is none.
func lastNumber(out, word string) int64 {
	var last int64
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			last, _ = strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return last
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// overshoot returns how far beyond the limit memory may be when it is stopped.
func (s *suite) overshoot() int64 {
	if s.report.Limits[sandbox.Memory].Enforcement == sandbox.Hard {
		return memoryLimit * 5 / 4
	}
	return memoryLimit * 2
}

func (s *suite) memoryOne(t *testing.T, sess *session) {
	r := sess.exec(t, `
kept = []
for i in range(1, 129):
    kept.append(bytearray(b"\x5a") * (16 << 20))
    print("have", i * (16 << 20), flush=True)
del kept
`)
	have := lastNumber(r.Stdout, "have")
	t.Logf("allocated %d MB of %d", have>>20, memoryLimit>>20)
	if have > s.overshoot() {
		t.Errorf("allocated %d MB where %d are allowed", have>>20, memoryLimit>>20)
	}
	if have < memoryLimit/4 {
		t.Errorf("allocated only %d MB where %d are allowed", have>>20, memoryLimit>>20)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

// memoryAtOnce makes one allocation far over the limit, as fast as memory can
// be written. It leaves a watcher the least time to notice.
func (s *suite) memoryAtOnce(t *testing.T, sess *session) {
	m, metered := sandbox.As[sandbox.Meter](sess.run)
	e := sess.begin(t, "import sys\nkept = b'x' * min(3 << 30, sys.maxsize - 64)")
	var peak int64
	for done := false; !done; {
		select {
		case <-e.x.Done():
			done = true
		case <-time.After(5 * time.Millisecond):
			if metered {
				if u, err := m.Usage(t.Context()); err == nil {
					peak = max(peak, u.MemoryBytes)
				}
			}
		}
	}
	r := e.wait(t, execTimeout)
	t.Logf("at most %d MB of %d", peak>>20, memoryLimit>>20)
	if peak > s.overshoot() {
		t.Errorf("allocated %d MB where %d are allowed", peak>>20, memoryLimit>>20)
	}
	if r.alive() && !strings.Contains(r.Stderr, "MemoryError") {
		t.Errorf("3 GB were allocated: %s", r.Status)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

// memoryForty starts processes of which none alone exceeds the limit, but all
// together do. Each reports its own use, since no process may survive to add it
// up. A kernel may kill one process after another: their memory is free again
// and does not count.
func (s *suite) memoryForty(t *testing.T, sess *session) {
	s.needProcesses(t)
	r := sess.exec(t, `
import os, time, signal
children = []
for i in range(40):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        try:
            kept = []
            for j in range(16):
                kept.append(bytearray(b"\x5a") * (1 << 20))
                os.write(1, b"MB of %d\n" % os.getpid())
                time.sleep(0.05)
            time.sleep(5)
            os._exit(0)
        finally:
            os._exit(1)
    children.append(pid)
time.sleep(5)
for pid in children:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended and status:
        os.write(1, b"ended: %d\n" % pid)  # by a signal, or a MemoryError
    elif not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
`)
	had := map[string]int64{}
	var have int64
	for line := range strings.Lines(r.Stdout) {
		if pid, ok := strings.CutPrefix(line, "MB of "); ok {
			had[pid]++
			have += 1 << 20
		} else if pid, ok := strings.CutPrefix(line, "ended: "); ok {
			have -= had[pid] << 20
		}
	}
	t.Logf("allocated %d MB of %d", have>>20, memoryLimit>>20)
	if have > s.overshoot() {
		t.Errorf("allocated %d MB where %d are allowed", have>>20, memoryLimit>>20)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

// memoryFiles tests that the contents of shared and anonymous files count, too.
func (s *suite) memoryFiles(t *testing.T, sess *session) {
	s.needProcesses(t)
	r := sess.exec(t, `
import os, mmap
kept, have = [], 0
def chunk(n):
    m = mmap.mmap(-1, n)  # shared
    for i in range(0, n, 4096):
        m[i] = 1
    return m
def anonymous(n):
    fd = os.memfd_create("x")
    for i in range(n >> 20):
        os.write(fd, b"x" * (1 << 20))
    return fd
for i in range(64):
    kept.append(chunk(8 << 20))
    kept.append(anonymous(8 << 20))
    have += 16 << 20
    print("have", have, flush=True)
for k in kept:
    k.close() if hasattr(k, "close") else os.close(k)
`)
	have := lastNumber(r.Stdout, "have")
	t.Logf("allocated %d MB of %d", have>>20, memoryLimit>>20)
	if have > s.overshoot() {
		t.Errorf("allocated %d MB where %d are allowed", have>>20, memoryLimit>>20)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

func (s *suite) forkBomb(t *testing.T, sess *session) {
	s.needProcesses(t)
	before := hostProcesses()
	e := sess.begin(t, `
import os, time
r, w = os.pipe()
end = time.monotonic() + 3
refused = 0
mine = os.getpid()
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            os.write(w, b"x")
    except OSError:
        refused += 1
        time.sleep(0.01)
if os.getpid() != mine:
    time.sleep(1)  # or one that is late takes the place of one that has ended
    os._exit(0)
os.close(w)
count = 0
while True:
    got = os.read(r, 65536)
    if not got:
        break
    count += len(got)
while True:
    try:
        os.waitpid(-1, 0)
    except OSError:
        break
print("born", count)
print("refused", refused)
`)
	// One process in the sandbox may be a few on the host, not thousands.
	worst := 0
	for done := false; !done; {
		select {
		case <-e.x.Done():
			done = true
		case <-time.After(100 * time.Millisecond):
			worst = max(worst, hostProcesses()-before)
		}
	}
	r := e.wait(t, execTimeout)
	t.Logf("%d processes were born, %d refused to one; the host had at most %d more", lastNumber(r.Stdout, "born"), lastNumber(r.Stdout, "refused"), worst)
	// On a busy machine some start so late that others have already ended.
	if born := lastNumber(r.Stdout, "born"); born > processLimit*5/4 {
		t.Errorf("%d processes where %d are allowed", born, processLimit)
	}
	if r.alive() && lastNumber(r.Stdout, "refused") == 0 {
		t.Error("no fork was refused")
	}
	if worst > 20*processLimit {
		t.Errorf("the host had %d processes more", worst)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory, sandbox.Exited)
}

func (s *suite) disk(t *testing.T, sess *session) {
	for _, tt := range []struct {
		dir  string
		size int64
	}{{"/workspace", workspaceLimit}, {"/tmp", tmpLimit}, {sandbox.PackagesDir, packagesLimit}} {
		out := sess.must(t, fmt.Sprintf(`
import os, errno
path, wrote, why = %q + "/fill", 0, ""
fd = os.open(path, os.O_WRONLY | os.O_CREAT)
try:
    while wrote < 1 << 30:
        wrote += os.write(fd, b"x" * 65536)
except OSError as e:
    why = errno.errorcode[e.errno]
os.close(fd)
print("wrote", wrote)
print(why)
try:
    free = os.statvfs(%[1]q)
except OSError as e:
    if e.errno != errno.ENOSYS: raise
os.unlink(path)
`, tt.dir))
		wrote := lastNumber(out, "wrote")
		if wrote > tt.size || wrote < tt.size*8/10 {
			t.Errorf("%s took %d bytes where %d are allowed", tt.dir, wrote, tt.size)
		}
		if !strings.Contains(out, "ENOSPC") {
			t.Errorf("%s: the end of the disk is %q", tt.dir, out)
		}
		if got := sess.must(t, fmt.Sprintf("open(%q, 'w').write('x' * 100000)", tt.dir+"/again")); got != "100000\n" {
			t.Errorf("%s: after the file is removed: %q", tt.dir, got)
		}
	}
}

// smallFiles tests that many small files are bounded by the disk or memory
// limit.
func (s *suite) smallFiles(t *testing.T, sess *session) {
	m, metered := sandbox.As[sandbox.Meter](sess.run)
	e := sess.begin(t, `
import os, time
n, end = 0, time.monotonic() + 20
try:
    while time.monotonic() < end:
        os.mkdir("/tmp/%d" % n)
        os.close(os.open("/tmp/%d/%s" % (n, "f" * 200), os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError as e:
    print(e)
print("made", n)
`)
	var peak int64
	for done := false; !done; {
		select {
		case <-e.x.Done():
			done = true
		case <-time.After(200 * time.Millisecond):
			if metered {
				if u, err := m.Usage(t.Context()); err == nil {
					peak = max(peak, u.MemoryBytes)
				}
			}
		}
	}
	r := e.wait(t, execTimeout)
	t.Logf("%d small files and directories; at most %d MB", 2*lastNumber(r.Stdout, "made"), peak>>20)
	if s.enforced(sandbox.Memory) && peak > s.overshoot() {
		t.Errorf("%d MB where %d are allowed", peak>>20, memoryLimit>>20)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

func (s *suite) descriptors(t *testing.T, sess *session) {
	out := sess.must(t, `
import os, errno
fds, why = [], ""
try:
    while len(fds) < 100000:
        fds.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    why = errno.errorcode[e.errno]
print("had", len(fds))
print(why)
for fd in fds:
    os.close(fd)
`)
	had := lastNumber(out, "had")
	if had > fileLimit || had < fileLimit/2 || !strings.Contains(out, "EMFILE") {
		t.Errorf("%d descriptors where %d are allowed: %s", had, fileLimit, out)
	}
	// A leak in user code must not cut off the guest.
	sess.must(t, `
leak = []
try:
    while True:
        leak.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
`)
	sess.must(t, "print('still here')")
	sess.must(t, "[os.close(fd) for fd in leak]; leak = None")
	sess.usable(t, "the session after a leak")
}

// processors tests that half a core stays half a core, whatever is started.
func (s *suite) processors(t *testing.T) {
	s.needLimit(t, sandbox.CPU)
	spec := s.spec()
	spec.Limits.CPUs = 0.5
	sess := s.start(t, s.backend(t), spec)
	m, ok := sandbox.As[sandbox.Meter](sess.run)
	if !ok {
		Skip(t, s.cfg.Engine+".limits.processors", "the engine does not meter")
	}
	e := sess.begin(t, `
import os, time
end = time.monotonic() + 4
for i in range(3):
    if hasattr(os, "fork") and os.fork() == 0:
        while time.monotonic() < end: pass
        os._exit(0)
print("go", flush=True)
while time.monotonic() < end: pass
`)
	e.saw(t, "go", execTimeout)
	a, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.Sleep(2 * time.Second)
	z, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	share := float64(z.CPU-a.CPU) / float64(time.Since(began))
	if share > 0.75 || share <= 0 {
		t.Errorf("%.2f cores were used where 0.5 are allowed", share)
	}
	e.wait(t, execTimeout)
}

//go:build linux

package sandboxtest

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"
)

//go:embed single.py
var singleBefore string

//go:embed hostile_single.py
var hostileSingle string

//go:embed single_after.py
var singleAfter string

// prelude returns what comes before the probes in a sandbox.
func (s *suite) prelude() string {
	if s.report.Single {
		return singleBefore + prelude + singleAfter
	}
	return prelude
}

// hostileProgram returns what comes before an assault.
func (s *suite) hostileProgram() string {
	if s.report.Single {
		return singleBefore + hostileProgram + hostileSingle
	}
	return hostileProgram
}

// neighbour returns the program of a neighbour in a sandbox.
func (s *suite) neighbour(n neighbourParams) string {
	if s.report.Single {
		// It plants what it can, first of all files.
		return singleBefore + strings.Replace(n.program(), "\nneighbour_plant", "\nwith contextlib.suppress(OSError, AttributeError): neighbour_plant", 1)
	}
	return n.program()
}

// needProcesses skips t if code cannot start processes, or use what a kernel offers to
// them: sockets, memory that is shared, machine code.
func (s *suite) needProcesses(t *testing.T) {
	t.Helper()
	if s.report.Single {
		Skip(t, s.cfg.Engine+".processes", "code is one process here, without sockets and machine code")
	}
}

// beginning is what a session has in goesOn before its snapshot, and ending what it
// says after it, where code is a single process.
const (
	singleBeginning = `
import os, threading, time, asyncio, sys
variable = {"a": [1, 2.5, None]}
def function(x): return x + 1
file = open("file", "w+")
file.write("before ")
file.flush()
clock, monotonic = time.time(), time.monotonic()
os.symlink("file", "link"); os.mkdir("dir")
gone = open("gone", "w+"); gone.write("of a file without a name"); gone.flush(); os.unlink("gone")
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.01)
        ticks += 1
task = asyncio.create_task(tick())
await asyncio.sleep(0.02)
big = os.urandom(8 << 20)
digest = hash(big)
None
`
	singleEnding = `
file.write("after"); file.seek(0); gone.seek(0)
before = ticks
await asyncio.sleep(0.2)
print(variable, function(1), file.read(), gone.read(), ticks > before, hash(big) == digest, open("link").read(), os.listdir("dir"))
print(0 <= time.time() - clock < 600, 0 <= time.monotonic() - monotonic < 600, open("given").read(), os.environ["GIVEN"])
print(await asyncio.sleep(0.01, "slept"))
`
	singleWant = `{'a': [1, 2.5, None]} 2 before after of a file without a name True True before after []
True True given yes
slept
`
)

// tooMuch defines functions that fill a file and open descriptors until an error, whose
// name they return.
const tooMuch = `
import errno, os
def full(path):
    try:
        with open(path, "wb", 0) as f:
            for _ in range(64):
                f.write(bytes(1 << 20))
        return "unlimited"
    except OSError as e:
        os.unlink(path)
        return errno.errorcode[e.errno]
def many():
    kept = []
    try:
        while len(kept) < 1000:
            kept.append(os.open("/dev/null", os.O_RDONLY))
        return "unlimited"
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        for fd in kept:
            os.close(fd)
`

// singleLimits tests the limits of a restored sandbox where code is a single process.
const singleLimits = tooMuch + `
print(full("/workspace/f"), full("/tmp/f"), many())
for path in ("/x", "/etc/x", "/usr/x", "/opt/x"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError as e:
        pass
`

// singlePlace lists the directories in which code can make files, where it is a single
// process.
const singlePlace = `
import json, os
found = set()
for d, _, _ in os.walk("/"):
    try:
        with open(d + "/.write-test", "x"):
            pass
        os.unlink(d + "/.write-test")
        found.add(d)
    except OSError:
        pass
print(json.dumps(sorted(found)))
`

// nothingThere tests that what a single process lacks is absent, and not an error of
// another kind.
func (s *suite) nothingThere(t *testing.T, sess *session) {
	out := sess.must(t, `
import json, os
there = [name for name in ("fork", "forkpty", "posix_spawn", "execv", "setuid", "mount", "ptrace") if hasattr(os, name)]
for module in ("_posixsubprocess", "mmap", "fcntl", "resource", "_posixshmem", "_multiprocessing"):
    try:
        __import__(module)
        there.append(module)
    except ImportError:
        pass
there += [path for path in ("/proc", "/sys", "/etc/shadow", "/root", "/home", "/dev/mem", "/dev/shm") if os.path.exists(path)]
print(json.dumps(there))
`)
	var there []string
	if err := json.Unmarshal([]byte(out), &there); err != nil {
		t.Fatal(err)
	}
	if len(there) > 0 {
		t.Errorf("code finds %s", strings.Join(there, ", "))
	}
}

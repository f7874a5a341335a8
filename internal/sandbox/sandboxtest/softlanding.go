//go:build linux

package sandboxtest

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// softLanding tests that ordinary code which needs more memory than there is gets
// a MemoryError, and that its session goes on with its variables.
func (s *suite) softLanding(t *testing.T) {
	s.needLimit(t, sandbox.Memory)
	b := s.backend(t)
	start := func(t *testing.T) *session {
		t.Helper()
		spec := s.spec()
		spec.Limits = sandbox.Limits{MemoryBytes: memoryLimit}
		return s.start(t, b, spec)
	}
	const own = "import resource\nany(resource.getrlimit(r)[0] not in (-1, resource.getrlimit(r)[1]) for r in (resource.RLIMIT_AS, resource.RLIMIT_DATA))"
	if r := start(t).exec(t, own); r.Stdout != "True\n" {
		Skip(t, s.cfg.Engine+".limits.soft landing", "the guest cannot see the limit: "+r.Stdout+lastLine(r.Stderr))
	}
	// The mapping of a large file, and limits of the code's own, are as without ours.
	const others = `
import mmap, resource, threading
with open("sparse", "wb+") as f:
    f.truncate(1 << 30)
    with mmap.mmap(f.fileno(), 0) as m:
        print(len(m))
own, kinds = 128 << 20, (resource.RLIMIT_AS, resource.RLIMIT_DATA)
for kind in kinds:
    resource.setrlimit(kind, (own, resource.getrlimit(kind)[1]))
threading.Thread(target=int).start()
import decimal
try: bytearray(own)
except MemoryError: print([resource.getrlimit(kind)[0] == own for kind in kinds])
bytes(own)`
	sess := start(t)
	if r := sess.exec(t, others); r.Stdout != "1073741824\n[True, True]\n" || !strings.Contains(r.Stderr, "MemoryError") {
		t.Errorf("a large mapping and limits of the code's own: got %q, %s", r.Stdout, r.Stderr)
	}
	if got := sess.must(t, "[resource.getrlimit(kind)[0] == own for kind in kinds]"); got != "[True, True]\n" {
		t.Errorf("got %q for limits of the code's own after a MemoryError, want both kept", got)
	}
	// C code that cannot do without memory ends the interpreter, which says so.
	const crash = "import ctypes\ngrown = []\ntry:\n    while True: grown.append(len(grown) + 0.5)\nexcept MemoryError: pass\nctypes.string_at(0)"
	if r := start(t).exec(t, crash); r.alive() || !strings.Contains(r.Stderr, "crashed when little memory was left") || !strings.Contains(r.Stderr, "(limits.memory)") {
		t.Errorf("a crash without memory: alive %t, standard error %q, want what may have caused it", r.alive(), r.Stderr)
	}
	const again = "import time\nfor _ in range(600):\n    try:\n        print(len(b'x' * (100 << 20)))\n        break\n    except MemoryError: time.sleep(0.1)"
	for _, tt := range []struct{ name, code string }{
		{"a list", "grown = []\nwhile True: grown.append(len(grown) + 0.5)"},
		{"a list in a function", "def f():\n    grown = []\n    while True: grown.append([])\nf()"},
		{"a dict", "grown = {}\nwhile True: grown[len(grown)] = str(len(grown))"},
		{"a nested list", "nested = []\nwhile True: nested = [nested, bytes(1000)]"},
		{"a str that doubles", "text = 'x' * 1024\nwhile True: text += text"},
		{"a bytearray that grows", "grown = bytearray()\nwhile True: grown += bytes(1 << 20)"},
		{"at once", "bytes(b'x') * (300 << 20)"},
		{"a file", "with open('f', 'wb') as f:\n    for _ in range(20): f.write(b'line\\n' * 200_000)\nlines = []\nwhile True: lines += open('f').read().splitlines()"},
		{"after fork", "import os\npid = os.fork()\nif pid == 0:\n    grown = []\n    while True: grown.append(len(grown) + 0.5)\nos.waitpid(pid, 0)\nraise MemoryError"},
		{"a child", "import subprocess, sys\nr = subprocess.run([sys.executable, '-c', 'grown = []\\nwhile True: grown.append(len(grown) + 0.5)'], capture_output=True, text=True)\nraise eval(r.stderr.split()[-1])"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sess := start(t)
			sess.must(t, "kept = 42")
			r := sess.exec(t, tt.code)
			if !r.alive() {
				t.Fatalf("the sandbox ended: %+v", sess.exit(t))
			}
			if !strings.Contains(r.Stderr, "MemoryError") {
				t.Errorf("got %s: %s, want a MemoryError", r.Status, r.Stderr)
			}
			if got := sess.must(t, "print(kept)"); got != "42\n" {
				t.Errorf("got %q for a variable, want 42", got)
			}
			sess.must(t, "for name in ('grown', 'nested', 'text', 'lines'): globals().pop(name, None)")
			// The memory of a process that has ended is free a moment later.
			if got := sess.must(t, again); got != "104857600\n" {
				t.Errorf("got %q for what fits again, want 104857600", got)
			}
		})
	}
}

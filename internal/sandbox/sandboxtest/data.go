//go:build linux

package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

func (s *suite) data(t *testing.T) {
	b := s.backend(t)
	sess := s.start(t, b, s.spec())
	for _, tt := range []struct{ name, code, want string }{
		{"text", "print('hello')", "hello\n"},
		{"no newline", "import sys; sys.stdout.write('a') and None", "a"},
		{"unicode", `print('Zażółć 中文 🐍 \u200f\x00\x7f')`, "Zażółć 中文 🐍 \u200f\x00\x7f\n"},
		{"unicode in code", "s = 'ü🐍'; print(len(s), s)", "2 ü🐍\n"},
		{"binary", "import sys; sys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()", string(every())},
		{"not UTF-8 by descriptor", "import os; os.write(1, b'\\xff\\xfe\\x00') and None", "\xff\xfe\x00"},
		{"child's output", "import subprocess; subprocess.run(['/bin/sh', '-c', 'echo from a child']) and None", "from a child\n"},
		{"no echo of None", "None", ""},
		{"echo", "1 + 1", "2\n"},
		{"echo is repr", "'a\\n'", "'a\\n'\n"},
		{"no echo of statements", "y = 5", ""},
		{"persistence", "y += 1; print(y)", "6\n"},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.code, "subprocess") {
				s.needProcesses(t)
			}
			r := sess.exec(t, tt.code)
			if r.Err != nil || r.Status != wire.StatusOK || r.Stdout != tt.want || r.Stderr != "" {
				t.Errorf("%s %v: stdout %q, want %q; stderr %q", r.Status, r.Err, r.Stdout, tt.want, r.Stderr)
			}
		})
	}
	t.Run("standard error", func(t *testing.T) {
		r := sess.exec(t, "import sys, os; print('out'); print('err', file=sys.stderr); os.write(2, b'\\xff')")
		if r.Stdout != "out\n1\n" && r.Stdout != "out\n" || !strings.HasPrefix(r.Stderr, "err\n") || !strings.Contains(r.Stderr, "\xff") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("exception", func(t *testing.T) {
		r := sess.exec(t, "1 / 0")
		if r.Status != wire.StatusError || r.ExitCode != 1 || !strings.Contains(r.Stderr, "ZeroDivisionError") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("exit status", func(t *testing.T) {
		r := sess.exec(t, "import sys; sys.exit(3)")
		if r.Status != wire.StatusExit || r.ExitCode != 3 {
			t.Errorf("%+v", r)
		}
		sess.usable(t, "a session after sys.exit")
	})
	t.Run("large", func(t *testing.T) { large(t, sess) })
	t.Run("files", func(t *testing.T) { s.files(t, b) })
	t.Run("environment", func(t *testing.T) { s.environment(t, b) })
	t.Run("place", func(t *testing.T) { s.place(t, sess) })
	if s.report.Isolation >= sandbox.ContainerIsolation {
		t.Run("identity", func(t *testing.T) {
			if s.report.Single {
				s.nothingThere(t, sess)
				return
			}
			identity(t, sess)
		})
	}
}

func every() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// large moves 10 MB in each direction, in every possible way.
func large(t *testing.T, sess *session) {
	const size = 10 << 20
	t.Run("out", func(t *testing.T) {
		got := sess.must(t, fmt.Sprintf("for i in range(%d): print('%%01023d' %% i)", size/1024))
		if len(got) != size || !strings.HasPrefix(got, "000000") || !strings.HasSuffix(got, fmt.Sprintf("%d\n", size/1024-1)) {
			t.Errorf("got %d bytes, want %d", len(got), size)
		}
	})
	t.Run("out in one write", func(t *testing.T) {
		got := sess.must(t, fmt.Sprintf("import sys\nsys.stdout.write('é' * %d) and None", size/2))
		if got != strings.Repeat("é", size/2) {
			t.Errorf("got %d bytes, want %d of the same", len(got), size)
		}
	})
	t.Run("in as code", func(t *testing.T) {
		got := sess.must(t, "s = '"+strings.Repeat("0123456789abcdef", size/16)+"'\nprint(len(s), s[-3:])")
		if got != fmt.Sprintf("%d def\n", size) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("call and reply", func(t *testing.T) {
		blob := strings.Repeat("x", size)
		e := sess.beginWith(t, wire.Exec{
			Code:   fmt.Sprintf("from mcp import runtime\nr = await runtime.call_tool('big', 'echo', {'text': 'y' * %d})\nprint(len(str(r)) >= %d)", size, size),
			Grants: []string{"big"},
			Define: []wire.Server{{Name: "big", Alias: "big", Tools: []tool.Tool{{Name: "echo", Alias: "echo"}}}},
		}, func(_ context.Context, c wire.Call) (json.RawMessage, error) {
			if c.Method != wire.MethodCallTool || len(c.Params) < size {
				return nil, fmt.Errorf("call %s with %d bytes", c.Method, len(c.Params))
			}
			return json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": blob}}})
		})
		if r := e.wait(t, execTimeout); r.Err != nil || r.Stdout != "True\n" {
			t.Errorf("%s %v: %.200q %.2000s", r.Status, r.Err, r.Stdout, r.Stderr)
		}
	})
}

// files puts files into /workspace before the start.
func (s *suite) files(t *testing.T, b sandbox.Engine) {
	spec := s.spec()
	noise := make([]byte, 4<<20)
	rng := mathrand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(noise)
	spec.Files = []sandbox.File{
		{Path: "plain.txt", Data: []byte("plain\n")},
		{Path: "deep/er/file", Data: []byte("deep")},
		{Path: "empty"},
		{Path: "noise.bin", Data: noise},
		{Path: "name with ü and spaces", Data: []byte("x")},
		{Path: "tool.sh", Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		{Path: "secret", Data: []byte("s"), Mode: 0o600},
	}
	sess := s.start(t, b, spec)
	got := sess.must(t, `
import os, hashlib
print(open('plain.txt').read().strip(), open('deep/er/file').read(), os.path.getsize('empty'), open('name with ü and spaces').read())
print(hashlib.sha256(open('/workspace/noise.bin', 'rb').read()).hexdigest())
print('%o %o %o' % tuple(os.stat(p).st_mode & 0o777 for p in ('plain.txt', 'tool.sh', 'secret')))
open('plain.txt', 'a').write('more')
os.rename('deep/er', 'moved')
os.unlink('empty')
print(sorted(os.listdir('/workspace')))
`)
	modes := "644 755 600"
	if s.report.Single {
		modes = "644 644 644" // WASI has no permission bits: the interpreter makes them up
	}
	want := "plain deep 0 x\n" + sha256hex(noise) + "\n" + modes + "\n['deep', 'moved', 'name with ü and spaces', 'noise.bin', 'plain.txt', 'secret', 'tool.sh']\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// environment tests that code sees the declared variables and none of the
// host's.
func (s *suite) environment(t *testing.T, _ sandbox.Engine) {
	secret := randomToken()
	t.Setenv("SALLYPORT_SUITE_SECRET", secret)
	t.Setenv("PYTHONSTARTUP", "/tmp/"+secret)
	t.Setenv("LD_PRELOAD_"+secret, "x")
	b := s.backend(t) // made under that environment
	spec := s.spec()
	spec.Env = map[string]string{"DECLARED": "déclaré = \"x\" $HOME\n'", "EMPTY": ""}
	sess := s.start(t, b, spec)
	text := sess.must(t, "import os, json; print(json.dumps(dict(os.environ)))")
	var env map[string]string
	if err := json.Unmarshal([]byte(text), &env); err != nil {
		t.Fatal(err)
	}
	for k, v := range spec.Env {
		if got, ok := env[k]; !ok || got != v {
			t.Errorf("%s is %q, want %q", k, got, v)
		}
	}
	if strings.Contains(text, secret) {
		t.Errorf("the host's environment shows: %s", text)
	}
	usual := []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "PWD", "SHELL", "HOSTNAME", "TZ", "LD_LIBRARY_PATH"}
	for _, kv := range spec.Program.Env {
		k, _, _ := strings.Cut(kv, "=")
		usual = append(usual, k)
	}
	for k := range env {
		if spec.Env[k] == "" && k != "EMPTY" && !slices.Contains(usual, k) && !strings.HasPrefix(k, "PYTHON") && !strings.HasPrefix(k, "MPL") && !strings.HasPrefix(k, "XDG_") {
			t.Errorf("unexpected variable %s=%q", k, env[k])
		}
	}
	// The value of a host variable must not appear under another name.
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		if got, ok := env[k]; ok && got == v && !slices.Contains([]string{"PATH", "LANG", "LC_ALL", "TERM", "TZ", "SHELL", "PWD", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TMPDIR"}, k) && v != "" {
			t.Errorf("%s has the host's value %q", k, v)
		}
	}
	if s.report.Single {
		return // there are no children
	}
	if child := sess.must(t, "import subprocess; print(subprocess.run(['/usr/bin/env'], capture_output=True, text=True).stdout)"); strings.Contains(child, secret) {
		t.Errorf("a child's environment shows the host's: %s", child)
	}
}

// place tests where code starts and where it can write.
func (s *suite) place(t *testing.T, sess *session) {
	got := sess.must(t, `
import os
print(os.getcwd(), os.environ.get('HOME'))
for d in ('/workspace', '/tmp', os.environ.get('HOME') or '/workspace'):
    with open(d + '/write-test', 'w') as f:
        f.write('x')
    os.unlink(d + '/write-test')
print('written')
`)
	if s.report.Isolation < sandbox.ContainerIsolation {
		if !strings.HasSuffix(got, "written\n") {
			t.Errorf("got %q", got)
		}
		return
	}
	if got != "/workspace /workspace\nwritten\n" {
		t.Errorf("got %q", got)
	}
	walk := prelude + `
found = set()
for d in walk(["/"], 400000, ()):
    if d.startswith("/proc/") or not os.path.isdir(d) or os.path.islink(d):
        continue
    p = d + "/.write-test"
    try:
        os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(p)
        found.add(d)
    except OSError:
        pass
print(json.dumps(sorted(found)))
`
	if s.report.Single {
		walk = singlePlace
	}
	out := sess.must(t, walk)
	var writable []string
	if err := json.Unmarshal([]byte(out), &writable); err != nil {
		t.Fatal(err)
	}
	for _, d := range writable {
		// /dev/mqueue is mounted in a namespace of its own, and bounded.
		if d != "/workspace" && d != "/tmp" && d != "/dev/shm" && d != "/dev/mqueue" && d != sandbox.PackagesDir && !strings.HasPrefix(d, "/workspace/") && !strings.HasPrefix(d, "/tmp/") {
			t.Errorf("%s is writable", d)
		}
	}
	for _, d := range []string{"/workspace", "/tmp", sandbox.PackagesDir} {
		if !slices.Contains(writable, d) {
			t.Errorf("%s is not writable", d)
		}
	}
}

// identity tests that code runs as an ordinary user without any privilege.
func identity(t *testing.T, sess *session) {
	out := sess.must(t, `
import os, json
status = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
print(json.dumps(dict(uids=os.getresuid(), gids=os.getresgid(), groups=os.getgroups(),
                      status={k: v.strip() for k, v in status.items()})))
`)
	var id struct {
		UIDs, GIDs, Groups []int
		Status             map[string]string
	}
	if err := json.Unmarshal([]byte(out), &id); err != nil {
		t.Fatal(err)
	}
	nobody := []int{65534, 65534, 65534}
	if !slices.Equal(id.UIDs, nobody) || !slices.Equal(id.GIDs, nobody) {
		t.Errorf("uids %v, gids %v", id.UIDs, id.GIDs)
	}
	for _, g := range id.Groups {
		if g != 65534 {
			t.Errorf("groups %v", id.Groups)
		}
	}
	for _, k := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v, ok := id.Status[k]; ok && strings.Trim(v, "0") != "" {
			t.Errorf("%s is %s", k, v)
		}
	}
	if _, ok := id.Status["CapEff"]; !ok {
		t.Error("/proc/self/status shows no capabilities")
	}
	out = sess.must(t, "import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))")
	if strings.TrimSpace(out) != "1" {
		t.Errorf("no_new_privs is %q", out)
	}
	if v, ok := id.Status["NoNewPrivs"]; ok && v != "1" {
		t.Errorf("NoNewPrivs is %s", v)
	}
}

// beginWith starts an execution that may make calls.
func (sess *session) beginWith(t testing.TB, e wire.Exec, answer func(context.Context, wire.Call) (json.RawMessage, error)) *execution {
	t.Helper()
	h := &collector{limit: 64 << 20, wrote: make(chan struct{}, 1), answer: answer}
	x, err := sess.conn.Start(e, h)
	if err != nil {
		h.failed = err
		return &execution{h: h}
	}
	return &execution{x: x, h: h}
}

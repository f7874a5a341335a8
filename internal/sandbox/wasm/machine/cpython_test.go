//go:build linux

package machine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// calculator is a program of CPython's: it evaluates a line at a time, and says the
// value or the exception. Interrupts at other times do nothing.
const calculator = `
import json, posix, signal, sys
parked = 1 << 62
calls = 0
busy = False
def interrupted(*_):
    global busy
    if busy:
        busy = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)
def does(code):
    try:
        exec(code, globals())
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)
def run():
    global calls, busy
    calls += 1
    if calls == 1:
        sys.stdin.reconfigure(newline="\n")
        return parked
    line = posix.read(0, 4096).decode()
    if not line:
        posix._exit(3)
    try:
        busy = True
        value = repr(eval(line, globals()))
        busy = False
    except BaseException as e:
        busy = False
        value = type(e).__name__
    posix.write(1, value.encode() + b"\n")
    return parked
`

// openPython returns an image of the embedded interpreter with the calculator. Because
// compiling takes seconds, tests with it run where a directory for the compiled code is
// named: the suite that has all of the engine's names one.
func openPython(t *testing.T) *Image {
	t.Helper()
	dir := os.Getenv("SALLYPORT_TEST_WASM")
	if dir == "" {
		t.Skip("SALLYPORT_TEST_WASM does not name a directory for compiled code")
	}
	i, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	i.Scripts = map[string]string{"boot.py": calculator}
	m := openKept(t, dir, i)
	return bootTiny(t, m)
}

// A calculation is a session with the calculator.
type calculation struct {
	*talk
	lines *bufio.Reader
}

func calculate(k *talk) *calculation { return &calculation{k, bufio.NewReader(k.out)} }

// hears returns the next line.
func (c *calculation) hears() string {
	c.t.Helper()
	c.out.SetReadDeadline(time.Now().Add(hang))
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// is fails unless an expression has a value.
func (c *calculation) is(expression, want string) {
	c.t.Helper()
	c.say(expression)
	if got := c.hears(); got != want {
		c.t.Errorf("%s: got %s, want %s", expression, got, want)
	}
}

// does fails unless statements end with an exception, or without one.
func (c *calculation) does(code, want string) {
	c.t.Helper()
	if want != "None" {
		want = "'" + want + "'"
	}
	c.is(fmt.Sprintf("does(%q)", code), want)
}

func TestCPython(t *testing.T) {
	img := openPython(t)
	t.Run("one image", func(t *testing.T) {
		if got, want := bootTiny(t, img.machine).ID(), img.ID(); got != want {
			t.Errorf("another boot gave the image %s, want %s", got, want)
		}
	})
	t.Run("values", func(t *testing.T) {
		c := calculate(start(t, img, sandbox.Limits{}))
		for _, test := range []struct{ expression, want string }{
			{"1 + 1", "2"},
			{"(lambda f: f(f))(lambda f: f(f))", "RecursionError"},
			{"bytes(600 << 20)", "MemoryError"},
			{"open('/etc/passwd')", "FileNotFoundError"},
			{"open('/workspace/a', 'w').write('hello')", "5"},
			{"__import__('time').sleep(0.001)", "None"},
			{"sum(range(1000))", "499500"},
			{"open('/dev/zero', 'rb', 0).readinto(bytearray(64 << 20))", "4194304"}, // no call takes long
		} {
			c.is(test.expression, test.want)
		}
	})
	t.Run("files", func(t *testing.T) {
		s, in, out := pipes(t)
		s.Files = []sandbox.File{{Path: "in/b", Data: []byte("given")}}
		s.Env = []string{"COLOUR=blue"}
		session, err := img.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		c := calculate(attach(t, session, in, out))
		c.is("open('/workspace/in/b').read()", "'given'")
		c.is("json.load(open('/run/sallyport/start.json'))['env']", "{'COLOUR': 'blue'}")
		if err := c.Put("c", strings.NewReader("put"), 3); err != nil {
			t.Fatal(err)
		}
		c.is("open('/workspace/c').read()", "'put'")
	})
	t.Run("interrupts", func(t *testing.T) {
		c := calculate(start(t, img, sandbox.Limits{}))
		for _, code := range []string{
			"[0 for _ in iter(int, 1)]",
			"__import__('time').sleep(1000)",
			"__import__('re').match('(a*)*b', 'a' * 40)",
			"(lambda c: [c.memset(b, 1, 1 << 24) for b in iter(lambda: c.create_string_buffer(1 << 24), 1)])(__import__('ctypes'))",
		} {
			before := c.Usage().CPU
			c.say(code)
			heard := make(chan string)
			go func() { heard <- c.hears() }()
			until(t, "the interpreter has begun", func() bool { return c.Usage().CPU > before })
			got := ""
			until(t, "the interrupt of "+code, func() bool {
				c.Interrupt()
				select {
				case got = <-heard:
					return true
				case <-time.After(10 * time.Millisecond):
					return false
				}
			})
			if got != "KeyboardInterrupt" {
				t.Errorf("%s: got %s, want KeyboardInterrupt", code, got)
			}
		}
		c.is("1", "1")
	})
	t.Run("snapshot", func(t *testing.T) {
		c := calculate(start(t, img, sandbox.Limits{}))
		c.is("globals().update(f=open('/workspace/log', 'w+'), n=[*range(100000)])", "None")
		c.is("f.write('before ')", "7")
		var data bytes.Buffer
		if err := c.Snapshot(t.Context(), &data, false); err != nil {
			t.Fatal(err)
		}
		r := calculate(restore(t, img, data.Bytes()))
		r.is("f.write('after')", "5")
		r.is("(f.flush(), f.seek(0), f.read(), sum(n))", "(None, 0, 'before after', 4999950000)")
	})
	t.Run("end", func(t *testing.T) {
		c := calculate(start(t, img, sandbox.Limits{}))
		c.is("1", "1")
		c.in.Close()
		if got, want := c.ends(), (sandbox.Exit{Code: 3, Reason: sandbox.Exited}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestStartFile: the session's variables replace the program's.
func TestStartFile(t *testing.T) {
	s := &Session{image: &Image{program: Program{
		Argv: []string{sandbox.InterpreterArg, sandbox.ProgramDir + "/main.py", "single"},
		Env:  []string{"A=1", "B=2=3"},
	}}}
	data, err := s.startFile([]string{"A=4"}, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got startDocument
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Env) != 2 || got.Env["A"] != "4" || got.Env["B"] != "2=3" {
		t.Errorf("the environment is %v", got.Env)
	}
	if want := Executable + " " + sandbox.ProgramDir + "/main.py single"; strings.Join(got.Argv, " ") != want {
		t.Errorf("the command is %q, want %q", got.Argv, want)
	}
	if len(got.Seed) != 64 {
		t.Errorf("the seed has %d digits, want 64", len(got.Seed))
	}
	if data, err := s.startFile([]string{"=x"}, 0); err == nil {
		t.Errorf("a variable without a name gave %s", data)
	}
}

//go:build unix

package python_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/wire"
)

// bombs are definitions whose methods print "go" and never return.
const bombs = `
import sys
def spin(*a):
    sys.__stdout__.write('go\n'); sys.__stdout__.flush()
    while True: pass
class E(Exception): __str__ = spin
class R(Exception): __repr__ = spin
class Meta(type):
    def __getattribute__(cls, name):
        return spin() if name in ('__qualname__', '__name__') else type.__getattribute__(cls, name)
class M(Exception, metaclass=Meta): pass
class P(Exception):
    __traceback__ = __cause__ = __context__ = property(spin)
class Dir:
    __dir__ = spin
class Stream:
    def write(self, text): spin()
    def flush(self): spin()
class Code(SystemExit):
    code = property(spin)
class Loader:
    get_source = spin
class Held:
    __del__ = spin
class Int(int):
    __and__ = spin
class Go:
    def __repr__(self):
        sys.__stdout__.write('go\n'); sys.__stdout__.flush()
        return 'go'
class L(list): pass
much = L([1])
for _ in range(60): much = L([much, much])
endless = L([Go(), much])  # its repr runs no Python code
`

// TestWhatCodeLeavesIsInterrupted: what runs after code has ended may call
// methods of its objects. An interrupt ends those too, and the session goes on.
func TestWhatCodeLeavesIsInterrupted(t *testing.T) {
	tests := []struct {
		name, code string
		status     wire.Status
		stderr     string
	}{
		{"text of an exception", "raise E", wire.StatusInterrupted, "E\n(its traceback cannot be shown: an interrupt came first)\n"},
		{"texts of many exceptions", "e = E()\nfor i in range(100):\n    n = E(); n.__context__ = e; e = n\nraise e", wire.StatusInterrupted, "an interrupt came first"},
		{"name of a class", "raise M('known')", wire.StatusInterrupted, "M: known\n(its traceback cannot be shown: an interrupt came first)\n"},
		{"notes", "e = ValueError('known'); e.__notes__ = [E()] * 1000; raise e", wire.StatusInterrupted, "ValueError: known\n"},
		{"suggestions", "Dir().x", wire.StatusInterrupted, "AttributeError: "},
		{"source", "exec(compile('1/0', 'elsewhere', 'exec'), {'__loader__': Loader(), '__name__': 'x'})", wire.StatusInterrupted, "ZeroDivisionError: division by zero\n"},
		{"hook", "sys.excepthook = spin\n1/0", wire.StatusInterrupted, "ZeroDivisionError: division by zero\n"},
		{"exit code", "raise Code", wire.StatusExit, ""},
		{"exit message", "sys.exit(E())", wire.StatusExit, ""},
		{"repr of a value", "endless", wire.StatusInterrupted, "KeyboardInterrupt\n"},
		{"repr of an item", "[endless]", wire.StatusInterrupted, "KeyboardInterrupt\n"},
		{"repr in an exit message", "sys.exit(endless)", wire.StatusExit, ""},
		{"repr in an exception that a hook shows", "sys.excepthook = lambda *a: None\nraise ValueError(endless)", wire.StatusInterrupted, ""},
		{"repr in a note", "e = ValueError('known'); e.__notes__ = [endless]; raise e", wire.StatusInterrupted, "ValueError: known\n"},
		{"argument of a tool", "print('go', flush=True)\nawait mcp_my_echo.say(result=much)", wire.StatusInterrupted, "KeyboardInterrupt\n"},
		{"wrong argument of a tool", "print('go', flush=True)\nawait mcp_my_echo.echo(text=much)", wire.StatusInterrupted, "KeyboardInterrupt\n"},
		{"standard error", "sys.stderr = Stream()\n1/0", wire.StatusInterrupted, "ZeroDivisionError: division by zero\n"},
		{"standard output", "sys.stdout = Stream()", wire.StatusOK, ""},
		{"warning", "import warnings\nwarnings.simplefilter('always')\nwarnings.showwarning = spin\nexec('1 is 1')", wire.StatusInterrupted, "KeyboardInterrupt"},
		{"what an exception held", "def f():\n    h = Held()\n    raise SystemExit(3)\nf()", wire.StatusExit, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t)
			if strings.Contains(tt.name, "note") && p.exec(t, "import sys\nsys.version_info < (3, 11)").stdout == "True\n" || tt.name == "suggestions" && p.exec(t, "import sys\nsys.version_info < (3, 12)").stdout == "True\n" {
				t.Skip("this interpreter does not look at it")
			}
			if r := p.exec(t, bombs); r.err != nil || r.Status != wire.StatusOK {
				t.Fatal(r.err, r.stderr)
			}
			o, h, err := interrupted(t, p, wire.Exec{Code: tt.code, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}})
			if err != nil || o.Status != tt.status || !strings.Contains(h.Stderr(), tt.stderr) {
				t.Errorf("status %s, %v; stderr %q, want %q in it", o.Status, err, h.Stderr(), tt.stderr)
			}
			if r := p.exec(t, "print('on')"); r.err != nil || r.stdout != "on\n" {
				t.Errorf("afterwards: %q, %v", r.stdout, r.err)
			}
		})
	}
}

// interrupted returns how code ends that is interrupted where it stays.
func interrupted(t *testing.T, p *process, exec wire.Exec) (wire.Done, *guesttest.Handler, error) {
	t.Helper()
	h := guesttest.NewHandler(nil)
	x, err := p.Start(exec, h)
	if err != nil {
		t.Fatal(err)
	}
	<-h.Arrived
	p.interrupt()
	select {
	case <-x.Done():
	case <-time.After(time.Minute):
		t.Fatalf("not interrupted; stderr %q", h.Stderr())
	}
	done, err := x.Result()
	return done, h, err
}

// TestWhatCodeChangesIsInterrupted: what one execution leaves runs at the
// beginning of the next, and an interrupt ends it there.
func TestWhatCodeChangesIsInterrupted(t *testing.T) {
	for name, code := range map[string]string{
		"stream":  "class S:\n    __del__ = spin\nsys.stdout = S()",
		"warning": "import warnings\nwarnings.simplefilter('always')\nwarnings.showwarning = spin",
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t)
			if r := p.exec(t, bombs+code); r.err != nil || r.Status != wire.StatusOK {
				t.Fatal(r.err, r.stderr)
			}
			if _, h, err := interrupted(t, p, wire.Exec{Code: "1 is 1"}); err != nil {
				t.Error(err, h.Stderr())
			}
			if r := p.exec(t, "print('on')"); r.err != nil || r.stdout != "on\n" {
				t.Errorf("afterwards: %q, %v", r.stdout, r.err)
			}
		})
	}
}

// TestReportsAreBounded: a report takes no longer for more than it shows, and
// the next code finds the exception where Python leaves it.
func TestReportsAreBounded(t *testing.T) {
	p := launch(t)
	tests := []struct{ name, code, stderr string }{
		{"endless recursion", "import sys\nsys.setrecursionlimit(200_000 if sys.version_info >= (3, 11) else 15_000)\ndef f(n): return f(n+1)\ntry: f(0)\nfinally: sys.setrecursionlimit(1000)", "more times]\nRecursionError: maximum recursion depth exceeded\n"},
		{"and nothing of it is kept", "print(getattr(sys, 'last_value', None), file=sys.stderr)", "None\n"},
		{"chain", "e = None\nfor i in range(100_000):\n    n = KeyError(i); n.__context__ = e; e = n\nraise e", "[… 99,989 exceptions left out …]\n"},
		{"chain again", "e = None\nimport traceback", ""},
		{"libraries", "import json\njson.loads('{')", "JSONDecodeError: "},
		// In CPython 3.12 and 3.13, print_last does not look at what it should.
		{"print_last has all of it", "if sys.version_info >= (3, 12): traceback.print_exception(sys.last_exc)\nelse: traceback.print_last()", "    return _default_decoder.decode(s)\n"},
		{"and none of ours", "import io\nf = io.StringIO()\ntraceback.print_exception(sys.last_type, sys.last_value, sys.last_traceback, file=f)\nprint('sallyport' in f.getvalue(), file=sys.stderr)", "False\n"},
		{"the exception", "print(type(sys.last_value).__name__, sys.last_type is type(sys.last_value), file=sys.stderr)", "JSONDecodeError True\n"},
		{"of what cannot be compiled", "x = = 1", "SyntaxError: invalid syntax\n"},
		{"the traceback of that", "traceback.print_exception(sys.last_type, sys.last_value, sys.last_traceback)", "    x = = 1\n"},
		{"many names", "for i in range(200_000): globals()['name%d' % i] = i\nnama5", "NameError: name 'nama5' is not defined"},
		{"many tasks", "import asyncio\nasync def f(): await asyncio.sleep(1000)\nfor i in range(20_000): asyncio.create_task(f())\nprint('-', file=sys.stderr)", "-\n"},
	}
	for _, tt := range tests {
		r := p.exec(t, tt.code)
		if r.err != nil || !strings.Contains(r.stderr, tt.stderr) || len(r.stderr) > 20_000 {
			t.Fatalf("%s: %v, status %s, %d bytes; stderr %.1000q, want %q in it", tt.name, r.err, r.Status, len(r.stderr), r.stderr, tt.stderr)
		}
	}
}

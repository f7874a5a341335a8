//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

func run(t *testing.T, b *desk, code string, servers ...string) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return b.Execute(ctx, Request{Principal: user, Servers: servers, Submission: Submission{Code: code, Timeout: 20 * time.Second}})
}

// want compares what matters of a result.
func want(t *testing.T, r *Result, status Status, exit int, stdout string) {
	t.Helper()
	got := -1
	if r.ExitCode != nil {
		got = *r.ExitCode
	}
	if r.Status != status || got != exit || strings.Join(r.Stdout, "\n") != stdout {
		t.Errorf("got %s, exit %d, stdout %q; want %s, %d, %q\n%+v", r.Status, got, r.Stdout, status, exit, stdout, r)
	}
}

func TestOneSession(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	want(t, run(t, b, "x = 41"), Success, 0, "")
	want(t, run(t, b, "x + 1"), Success, 0, "42")
	want(t, run(t, b, "print('a'); print(); print('  '); print('()')"), Success, 0, "a\n\n  \n()")
	r := run(t, b, "print(x)\n1/0")
	want(t, r, Failed, 1, "41")
	if r.Error != "Uncaught exception: ZeroDivisionError: division by zero" || r.Summary != r.Error || !strings.HasPrefix(r.Stderr[0], "Traceback") {
		t.Errorf("exception: %+v", r)
	}
	if r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1/0", Filename: "report.py"}}); !strings.Contains(strings.Join(r.Stderr, " "), `File "report.py", line 1`) {
		t.Errorf("a file's name: %q", r.Stderr)
	}
	r = run(t, b, "import sys; print('bye'); sys.exit(3)")
	want(t, r, Failed, 3, "bye")
	if r.Error != "The code exited with status 3" {
		t.Errorf("exit: %+v", r)
	}
	want(t, run(t, b, "sys.exit(0)"), Success, 0, "")
	want(t, run(t, b, "sys.exit()"), Success, 0, "")
	want(t, run(t, b, "x"), Success, 0, "41")
	if n := e.starts.Load(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
	r = run(t, b, "import os; print('last', flush=True); os._exit(7)")
	want(t, r, Failed, 7, "last")
	if !strings.Contains(r.Error, "ended with status 7") || r.StateLost != r.Error {
		t.Errorf("os._exit: %+v", r)
	}
	r = run(t, b, "'x' in globals()")
	want(t, r, Success, 0, "False")
	if r.StateLost != "" {
		t.Errorf("the loss is said twice: %+v", r)
	}
	r = run(t, b, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
	want(t, r, Failed, 128+11, "")
}

func TestNothingIsStartedBeforeCodeArrives(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	for _, req := range []Request{{}, {Submission: Submission{Code: " \n\t"}}, {Servers: []string{"nope"}, Submission: session.Submission{Code: "1"}}, {Session: "../x", Submission: session.Submission{Code: "1"}}} {
		req.Principal = user
		if r := b.Execute(t.Context(), req); r.Status == Success {
			t.Errorf("%+v: %+v", req, r)
		}
	}
	if e.starts.Load()+e.probes.Load() != 0 {
		t.Error("the engine was bothered")
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "\n"}})
	if r.Status != ValidationError || r.Error != "Missing 'code' argument" || r.Summary != r.Error || r.ExitCode != nil {
		t.Errorf("no code: %+v", r)
	}
	r = b.Execute(t.Context(), Request{Principal: user, Servers: []string{"maht"}, Submission: Submission{Code: "1"}})
	if r.Status != Failed || r.Error != "Unknown MCP server: maht (nearest: math, broken)" || r.Summary != "Sandbox error: "+r.Error || r.Servers[0] != "maht" {
		t.Errorf("unknown server: %+v", r)
	}
	for asked, granted := range map[time.Duration]time.Duration{
		0: 30 * time.Second, time.Millisecond: time.Second, -time.Hour: time.Second, time.Minute: time.Minute, time.Hour: 120 * time.Second,
	} {
		if got := b.timeout(asked); got != granted {
			t.Errorf("timeout %v became %v, want %v", asked, got, granted)
		}
	}
}

func TestTimeoutThatCodeSurvives(t *testing.T) {
	dependsOnSpeed(t, "code must print within a second")
	t.Parallel()
	b, e := newBroker(t, func(p *parts) { p.sessions.Grace = time.Minute })
	want(t, run(t, b, "kept = 1"), Success, 0, "")
	began := time.Now()
	r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "import time\nprint('partial', flush=True)\ntime.sleep(600)", Timeout: time.Second}})
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("took %v", took)
	}
	want(t, r, Timeout, -1, "partial")
	if !r.Interrupted || r.StateLost != "" || r.Summary != "Timeout: execution exceeded 1s" ||
		r.Error != "Execution timed out after 1s; the code was interrupted, the session's variables are kept" || r.TimeoutSeconds != 1 {
		t.Errorf("%+v", r)
	}
	want(t, run(t, b, "kept"), Success, 0, "1")
	for _, loop := range []string{"while True: pass", "import asyncio\nawait asyncio.sleep(60)", "import subprocess\nsubprocess.run(['sleep', '60'])"} {
		r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: loop, Timeout: time.Second}})
		if r.Status != Timeout || !r.Interrupted {
			t.Errorf("%s: %+v", loop, r)
		}
	}
	want(t, run(t, b, "kept"), Success, 0, "1")
	if e.starts.Load() != 1 {
		t.Errorf("%d sandboxes", e.starts.Load())
	}
}

func TestTimeoutThatKills(t *testing.T) {
	dependsOnSpeed(t, "code must print within a second")
	t.Parallel()
	b, _ := newBroker(t, func(p *parts) { p.sessions.Grace = 300 * time.Millisecond })
	want(t, run(t, b, "kept = 1"), Success, 0, "")
	r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Timeout: time.Second, Code: `
print('stubborn', flush=True)
while True:
    try:
        for i in range(1 << 60): i + 1
    except BaseException:
        print('no', flush=True)
`}})
	// Whether its "no" still comes out within the grace is the machine's affair.
	if r.Status != Timeout || r.Stdout[0] != "stubborn" || r.Interrupted || r.StateLost == "" || !strings.Contains(r.Error, "variables and files are lost") {
		t.Errorf("%+v", r)
	}
	r = run(t, b, "'kept' in globals()")
	want(t, r, Success, 0, "False")
	if r.StateLost != "" {
		t.Errorf("the loss is said twice: %+v", r)
	}
}

func TestTheWholeRunIsBounded(t *testing.T) {
	dependsOnSpeed(t, "code must call its tool within 1.5 s")
	t.Parallel()
	b, _ := newBroker(t, func(p *parts) { p.sessions.WholeRun, p.sessions.Grace = 1500*time.Millisecond, 20*time.Second })
	r := run(t, b, "await mcp_math.sleep(seconds=60)", "math")
	want(t, r, Timeout, -1, "")
	if !strings.Contains(r.Error, "timed out after 1.5s in all") || !r.Interrupted {
		t.Errorf("%+v", r)
	}
}

func TestTheAgentsOwnTime(t *testing.T) {
	dependsOnSpeed(t, "code must start within a second")
	t.Parallel()
	b, _ := newBroker(t, nil)
	run(t, b, "1", "math")
	t.Run("waiting for a tool is free", func(t *testing.T) {
		r := b.Execute(t.Context(), Request{Principal: user, Servers: []string{"math"}, Submission: Submission{Code: "await mcp_math.sleep(seconds=2)", Timeout: time.Second}})
		want(t, r, Success, 0, "0")
	})
	t.Run("a thread that spins meanwhile is not", func(t *testing.T) {
		r := b.Execute(t.Context(), Request{Principal: user, Servers: []string{"math"}, Submission: Submission{Timeout: time.Second, Code: `
import threading
stop = False
def spin():
    while not stop: pass
threading.Thread(target=spin, daemon=True).start()
try:
    await mcp_math.sleep(seconds=600)
finally:
    stop = True
`}})
		if r.Status != Timeout || !r.Interrupted {
			t.Errorf("got %+v, want an interrupt after a second of the processor", r)
		}
	})
}

func TestCancellation(t *testing.T) {
	dependsOnSpeed(t, "code must run after 200 ms")
	t.Parallel()
	b, _ := newBroker(t, func(p *parts) { p.sessions.Grace = time.Minute })
	want(t, run(t, b, "import time; kept = 1"), Success, 0, "")
	t.Run("keeps the session", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		r := b.Execute(ctx, Request{Principal: user, Submission: Submission{Code: "import time; time.sleep(600)"}})
		if r.Status != Failed || !r.Interrupted || !strings.HasPrefix(r.Error, "Cancelled by the client") {
			t.Errorf("%+v", r)
		}
		want(t, run(t, b, "kept"), Success, 0, "1")
	})
	t.Run("while it waits for its turn", func(t *testing.T) {
		var all sync.WaitGroup
		first := b.Submit(Request{Principal: user, Submission: Submission{Code: "import time; time.sleep(1)"}})
		second := b.Submit(Request{Principal: user, Submission: Submission{Code: "kept = 2"}})
		all.Go(func() { want(t, first(t.Context()), Success, 0, "") })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if r := second(ctx); r.Status != Failed || r.Error != "Cancelled before the code ran" {
			t.Errorf("%+v", r)
		}
		all.Wait()
		want(t, run(t, b, "kept"), Success, 0, "1")
	})
	t.Run("before it was run", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := b.Execute(ctx, Request{Principal: user, Submission: Submission{Code: "kept = 3"}})
		if r.Status != Failed {
			t.Errorf("%+v", r)
		}
		want(t, run(t, b, "kept"), Success, 0, "1")
	})
	t.Run("with ErrStop kills at once", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(200*time.Millisecond, func() { cancel(ErrStop) })
		began := time.Now()
		r := b.Execute(ctx, Request{Principal: user, Submission: Submission{Code: "while True:\n  try:\n    time.sleep(600)\n  except BaseException: pass"}})
		if r.StateLost == "" || time.Since(began) > 45*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), r)
		}
	})
}

func TestFlood(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, func(p *parts) { p.Template.Limits.OutputBytes = 10000 })
	r := run(t, b, "print('first')\nfor i in range(200000): print(i)\nprint('last')")
	if r.Status != Success || r.Truncated == nil || r.Truncated.Stdout < 1<<20 || r.Truncated.Stderr != 0 ||
		r.Stdout[0] != "first" || r.Stdout[len(r.Stdout)-1] != "last" {
		t.Errorf("%s, %+v, %d lines", r.Status, r.Truncated, len(r.Stdout))
	}
	text := strings.Join(r.Stdout, "\n")
	if len(text) > 10100 || !strings.Contains(text, fmt.Sprintf("[... %d bytes left out ...]", r.Truncated.Stdout)) {
		t.Errorf("%d bytes kept", len(text))
	}
	want(t, run(t, b, "i"), Success, 0, "199999")
}

func TestOutputAsItComes(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	var out, errs strings.Builder
	seen := make(chan struct{}, 1)
	done := make(chan *Result)
	go func() {
		done <- b.Execute(t.Context(), Request{
			Principal: user,
			Submission: Submission{
				Code: "import sys, os, time\nprint('one', flush=True)\ntime.sleep(0.5)\nos.write(2, b'\\xff')\nprint('two')",
				OnOutput: func(s wire.Stream, p []byte) {
					if s == wire.Stderr {
						errs.Write(p)
					} else {
						out.Write(p)
					}
					select {
					case seen <- struct{}{}:
					default:
					}
				},
			},
		})
	}()
	select {
	case <-seen:
	case <-done:
		t.Error("the output came after the end")
	}
	r := <-done
	want(t, r, Success, 0, "one\ntwo")
	if out.String() != "one\ntwo\n" || errs.String() != "\xff" || r.Stderr[0] != "\ufffd" {
		t.Errorf("streamed %q and %q, result %q", out.String(), errs.String(), r.Stderr)
	}
}

// meeting is a server whose tool returns when both sessions have called it.
type meeting struct {
	servers
	all *sync.WaitGroup
}

func (m meeting) Open(context.Context, string) (bridge.Server, error) { return m, nil }

func (m meeting) Tools(context.Context) ([]tool.Tool, error) { return mathTools, nil }

func (m meeting) CallTool(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	m.all.Done()
	m.all.Wait()
	return json.RawMessage(`{"content":[]}`), nil
}

func TestSessionsSideBySide(t *testing.T) {
	t.Parallel()
	var met sync.WaitGroup
	met.Add(2)
	b, e := newBroker(t, func(p *parts) { p.servers = meeting{all: &met} })
	var all sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		all.Go(func() {
			r := b.Execute(t.Context(), Request{Principal: user, Session: name, Servers: []string{"math"}, Submission: Submission{Code: "me = '" + name + "'\nawait mcp_math.add(a=1, b=1)"}})
			if r.Status != Success || r.Session != name {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b"} {
		want(t, b.Execute(t.Context(), Request{Principal: user, Session: name, Submission: Submission{Code: "print(me)"}}), Success, 0, name)
	}
	if e.starts.Load() != 2 {
		t.Errorf("%d sandboxes", e.starts.Load())
	}
}

func TestOneSessionOneRunAtATime(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	run(t, b, "order = []")
	var runs []func(context.Context) *Result
	for i := range 20 {
		runs = append(runs, b.Submit(Request{Principal: user, Submission: Submission{Code: fmt.Sprintf("order.append(%d)", i)}}))
	}
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			if r := runs[len(runs)-1-i](t.Context()); r.Status != Success {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
	want(t, run(t, b, "print(order == list(range(20)))"), Success, 0, "True")
}

func TestTools(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	want(t, run(t, b, "await mcp_math.add(a=1, b=2)", "math"), Success, 0, "3")
	want(t, run(t, b, "import asyncio\nsum(await asyncio.gather(*[mcp_math.add(a=i, b=1) for i in range(100)]))", "math"), Success, 0, "5050")
	r := run(t, b, "print(LOADED_MCP_SERVERS)\nawait mcp_math.add(a=1, b=2)")
	want(t, r, Success, 0, "()\n3")
	if strings.Join(r.Servers, " ") != "math" {
		t.Errorf("servers after a first use: %v", r.Servers)
	}
	want(t, run(t, b, "m = await runtime.load_server('math')\nawait m.add(a=2, b=2)"), Success, 0, "4")
	want(t, run(t, b, "print(LOADED_MCP_SERVERS)\nawait m.add(a=2, b=2)"), Success, 0, "()\n4")
	want(t, run(t, b, "runtime.discovered_servers()"), Success, 0, "('broken', 'math')")
	r = run(t, b, "print('ran')", "broken")
	want(t, r, Failed, -1, "")
	if !strings.Contains(r.Error, `MCP server "broken": did not start (the user sees why with: sallyport servers test broken)`) {
		t.Errorf("%+v", r)
	}
	want(t, run(t, b, "[d['tool'] for d in await runtime.search_tool_docs('sleep')]"), Success, 0, "['sleep']")
}

func TestArtifactsAndStrayOutput(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	r := run(t, b, "open('a.txt', 'w').write('hello') and None")
	if len(r.Artifacts) != 1 || r.Artifacts[0] != (Artifact{Path: "a.txt", Size: 5}) {
		t.Errorf("artifacts: %+v", r.Artifacts)
	}
	run(t, b, "import threading, time\ndef late():\n  time.sleep(0.3)\n  print('late news', flush=True)\nthreading.Thread(target=late).start()")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		time.Sleep(time.Second)
		r = run(t, b, "print('mine')")
		want(t, r, Success, 0, "mine")
		if len(r.Notes) > 0 {
			break
		}
	}
	if len(r.Notes) != 1 || !strings.HasSuffix(r.Notes[0], ": late news") {
		t.Errorf("notes: %q", r.Notes)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	r := run(t, b, "import time\nend = time.time() + 1.5\nwhile time.time() < end: pass")
	if r.Usage == nil || *r.Usage.CPUSeconds < 0.1 || *r.Usage.CPUSeconds > 3 {
		t.Errorf("usage: %+v", r.Usage)
	}
	if r.DurationMs < 1400 {
		t.Errorf("duration %d ms", r.DurationMs)
	}
}

func TestAHostThatIsNotGoodEnough(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, func(p *parts) { p.Gate = authz.New(authz.Config{Policy: authz.Default()}) })
	r := run(t, b, "1")
	if r.Status != Failed || !strings.Contains(r.Error, "isolation is none, at least wasm is demanded") || e.starts.Load() != 0 {
		t.Errorf("%+v", r)
	}
	e.report = func(r *sandbox.Report) {
		r.Usable = false
		r.Findings = []sandbox.Finding{
			{Title: "by the way"},
			{Fatal: true, Title: "user namespaces are forbidden", Detail: "AppArmor", Remedy: "sysctl x=0"},
		}
	}
	r = run(t, b, "1")
	if !strings.Contains(r.Error, "fake cannot run here; user namespaces are forbidden: AppArmor (to fix it: sysctl x=0). `sallyport doctor` says more") {
		t.Errorf("%+v", r)
	}
}

func TestAnEngineIsProbedOnceWhenItIsGood(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	e.report = func(r *sandbox.Report) { r.Usable = false }
	run(t, b, "1")
	e.report = nil // fixed meanwhile
	for range 3 {
		want(t, run(t, b, "1"), Success, 0, "1")
	}
	if n := e.probes.Load(); n != 2 {
		t.Errorf("%d probes", n)
	}
}

// TestAnEngineThatChanges: a report that does not know all yet is not remembered,
// nor is any of an engine that cannot be used any longer.
func TestAnEngineThatChanges(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	e.report = func(r *sandbox.Report) { r.Provisional = true }
	e.failStart = &sandbox.Error{Op: "start", Backend: "fake", Kind: sandbox.ErrUnavailable, Err: errors.New("it is not as it was")}
	run(t, b, "1")
	e.report, e.failStart = nil, nil
	want(t, run(t, b, "1"), Success, 0, "1")
	want(t, run(t, b, "1"), Success, 0, "1")
	if n := e.probes.Load(); n != 2 {
		t.Errorf("%d probes", n)
	}
	if err := b.Reset(t.Context(), session.Key{Name: DefaultSession, Client: "c"}); err != nil {
		t.Fatal(err)
	}
	e.failStart = &sandbox.Error{Op: "start", Backend: "fake", Kind: sandbox.ErrUnavailable, Err: errors.New("it is not as it was")}
	run(t, b, "1")
	e.report = func(r *sandbox.Report) { r.Usable = false }
	if r := run(t, b, "1"); !strings.Contains(r.Error, "cannot run here") || e.probes.Load() != 3 {
		t.Errorf("%+v, %d probes", r, e.probes.Load())
	}
}

func TestWithoutAnEngine(t *testing.T) {
	t.Parallel()
	b := newParts().broker(t)
	if r := run(t, b, "1"); r.Status != Failed || !strings.Contains(r.Error, "install Podman or Docker") {
		t.Errorf("%+v", r)
	}
}

func TestAStartThatFails(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	e.failStart = &sandbox.Error{Op: "start", Backend: "fake", Kind: sandbox.ErrStart, Err: errors.New("no room")}
	if r := run(t, b, "1"); r.Status != Failed || r.Error != "fake: start: no room" {
		t.Errorf("%+v", r)
	}
	e.failStart = nil
	want(t, run(t, b, "1"), Success, 0, "1")
}

// TestForgedFrames: a guest that lies on the channel harms its own execution
// at most.
func TestForgedFrames(t *testing.T) {
	t.Parallel()
	forged := func(body string) []byte { return wire.AppendControl(nil, []byte(body)) }
	tests := []struct {
		name  string
		forge []byte // sent before the frame that ends the second execution
		dies  bool
	}{
		{"the end of another execution", forged(`{"type":"done","id":7,"status":"ok","exitCode":0}`), false},
		{"a call of another execution", forged(`{"type":"call","id":1,"run":7,"method":"call_tool","params":{"server":"math","tool":"add"}}`), false},
		{"a call that is nonsense", forged(`{"type":"call","id":1,"run":2,"method":"rm -rf","params":{}}`), false},
		{"an unknown frame", forged(`{"type":"sudo"}`), true},
		{"no frame", []byte{0xff, 0xff, 0xff, 0xff, 'x'}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first := true
			b, _ := newBroker(t, func(p *parts) {
				p.Template.Engine = newEngine(t, fake.Options{Faults: func(*sandbox.Spec) fake.Faults {
					if !first {
						return fake.Faults{}
					}
					first = false
					return fake.Faults{Control: func(n int, frame []byte, _ *fake.Run) []byte {
						if n == 2 { // ready, done, done
							return append(append([]byte(nil), tt.forge...), frame...)
						}
						return frame
					}}
				}})
			})
			want(t, run(t, b, "x = 1"), Success, 0, "")
			r := run(t, b, "print('two')")
			if tt.dies {
				if r.Status != Failed || r.StateLost == "" || !strings.Contains(r.Error, "broke the protocol") {
					t.Errorf("%+v", r)
				}
			} else {
				want(t, r, Success, 0, "two")
			}
			want(t, run(t, b, "'x' in globals()"), Success, 0, fmt.Sprint(map[bool]string{true: "False", false: "True"}[tt.dies]))
		})
	}
}

func TestAnEngineWithoutAChannelIsRefused(t *testing.T) {
	t.Parallel()
	e := newEngine(t, fake.Options{})
	e.report = func(r *sandbox.Report) { r.Duplex = false }
	b, _ := newBroker(t, func(p *parts) { p.Template.Engine = e })
	if r := run(t, b, "1"); r.Status != Failed || !strings.Contains(r.Error, "no channel") || e.starts.Load() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestClose(t *testing.T) {
	dependsOnSpeed(t, "code must run after 100 ms")
	t.Parallel()
	b, _ := newBroker(t, func(p *parts) { p.sessions.Grace = time.Minute })
	run(t, b, "import time")
	done := make(chan *Result)
	go func() {
		done <- b.Execute(context.Background(), Request{Principal: user, Submission: Submission{Code: "time.sleep(600)"}})
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	b.Close()
	b.Close()
	r := <-done
	if r.Status != Failed || time.Since(began) > 45*time.Second {
		t.Errorf("after %v: %+v", time.Since(began), r)
	}
	if r := run(t, b, "1"); r.Status != Failed || !strings.Contains(r.Error, "closed") {
		t.Errorf("after Close: %+v", r)
	}
}

func TestNewWithoutAPart(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	engine := newEngine(t, fake.Options{})
	for _, tt := range []struct {
		without string
		config  Config
		want    string
	}{
		{"a gate", Config{Logger: log}, "a gate and a logger are required"},
		{"a logger", Config{Gate: lax()}, "a gate and a logger are required"},
		{"sessions", Config{Gate: lax(), Logger: log, Template: &session.Template{Engine: engine}}, "a template and sessions"},
	} {
		if _, err := New(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("without %s: got error %v, want %q", tt.without, err, tt.want)
		}
	}
}

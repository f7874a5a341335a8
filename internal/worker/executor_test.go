//go:build unix

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lax accepts an engine that isolates and enforces nothing.
func lax() authz.Config {
	p := &authz.Policy{AllowNoIsolation: true, Require: map[sandbox.Resource]sandbox.Enforcement{}}
	for _, r := range authz.Resources {
		p.Require[r] = sandbox.Absent
	}
	return authz.Config{Policy: p}
}

// executor runs jobs with the engine for tests, which isolates nothing.
func executor(t *testing.T, with func(*ExecutorConfig)) *Executor {
	t.Helper()
	interpreter, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		if interpreter, err = exec.LookPath("python3"); err != nil {
			t.Skip("no python3")
		}
	}
	b := fake.New(fake.Options{Interpreter: interpreter})
	report, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c := ExecutorConfig{
		Engine: b, Program: python.Program(), Report: report, Gate: authz.New(lax()), Logger: log, Limits: sandbox.DefaultLimits,
		Timeout: 30 * time.Second, MaxTimeout: time.Minute, PlainFiles: 1 << 20,
		Name: "sallyport test", Worker: "w1", Notes: []string{"noted"}, Seen: NewSeen(store.At(t.TempDir()), log),
	}
	if with != nil {
		with(&c)
	}
	e, err := NewExecutor(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

var serial int

func (e *Executor) try(t *testing.T, in any, emit func(job.Chunk)) Result {
	t.Helper()
	serial++
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return e.Do(t.Context(), Job{ID: fmt.Sprintf("job-%d-u1", serial), Input: b}, emit)
}

func TestPlainJob(t *testing.T) {
	e := executor(t, nil)
	r := e.try(t, map[string]any{"code": "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a.txt', 'w').write('left')\nsys.exit(3)"}, nil)
	if r.Error != "" || r.Output.Stdout != "out\n" || r.Output.Stderr != "err\n" || r.Output.ReturnCode != 3 {
		t.Errorf("%+v %+v", r, r.Output)
	}
	a := r.Output.Sallyport
	if a.End != "" || a.Report.Engine != fake.Name || a.Report.Isolation != "none" || a.Notes[0] != "noted" || a.Worker != "sallyport test" {
		t.Errorf("%+v", a)
	}
	if len(a.Files) != 1 || a.Files[0].Path != "a.txt" || string(a.Files[0].Data) != "left" {
		t.Errorf("%+v", a.Files)
	}
	if a.Usage == nil || a.Usage.CPUSeconds <= 0 || a.RanMs < 0 {
		t.Errorf("%+v", a.Usage)
	}
	r = e.try(t, map[string]any{"code": "1/0"}, nil)
	if r.Error != "" || r.Output.ReturnCode != 1 || !strings.Contains(r.Output.Stderr, "ZeroDivisionError") {
		t.Errorf("%+v %+v", r, r.Output)
	}
	for _, in := range []any{map[string]any{}, map[string]any{"code": " "}, "text", map[string]any{"code": 5}, nil} {
		if r := e.try(t, in, nil); r.Error == "" {
			t.Errorf("%v: %+v", in, r.Output)
		}
	}
}

func TestRequest(t *testing.T) {
	e := executor(t, nil)
	r := e.try(t, job.Input{Code: `
import os, sys
print(sys.argv[1:], os.environ["GIVEN"], open("d/in.bin", "rb").read(), __name__)
os.makedirs("out")
open("out/x.bin", "wb").write(bytes(3))
open("large", "wb").write(bytes(5000))
`, Sallyport: &job.Request{
		Version: 1, Run: "run-1", Script: true, Args: []string{"a", "b"}, Env: map[string]string{"GIVEN": "yes"},
		Files: []job.File{{Path: "d/in.bin", Data: []byte{1, 2}}}, Output: &job.Wanted{Files: true, FileBytes: 4000},
	}}, nil)
	if want := "['a', 'b'] yes b'\\x01\\x02' __main__\n"; r.Error != "" || r.Output.Stdout != want || r.Output.ReturnCode != 0 {
		t.Fatalf("%+v %+v", r, r.Output)
	}
	a := r.Output.Sallyport
	if a.Run != "run-1" || len(a.Files) != 1 || a.Files[0].Path != "out/x.bin" || len(a.LeftOut) != 1 || a.LeftOut[0] != (job.Omitted{Path: "large", Size: 5000}) {
		t.Errorf("%+v", a)
	}
	probe := e.try(t, job.Input{Sallyport: &job.Request{Probe: 1}}, nil)
	if probe.Error != "" || probe.Output.Sallyport.Report == nil || probe.Output.Sallyport.End != "" {
		t.Errorf("%+v", probe)
	}
}

// TestRefused: what cannot be had is refused before anything runs.
func TestRefused(t *testing.T) {
	e := executor(t, nil)
	trace := filepath.Join(t.TempDir(), "ran")
	code := fmt.Sprintf("open(%q, 'w')", trace)
	for name, req := range map[string]job.Request{
		"isolation":         {MinIsolation: "platform"},
		"unknown isolation": {MinIsolation: "perfect"},
		"limit":             {Require: map[string]string{"memory": "soft"}},
		"unknown limit":     {Require: map[string]string{"luck": "hard"}},
		"unknown word":      {Require: map[string]string{"memory": "very"}},
		"version":           {Version: job.Version + 1},
		"internet":          {Internet: true},
		"session":           {Session: "s"},
		"file above":        {Files: []job.File{{Path: "../x"}}},
		"variable":          {Env: map[string]string{"A=B": "c"}},
		"negative limit":    {Limits: &job.Limits{MemoryBytes: -1}},
		"processors":        {Limits: &job.Limits{CPUs: 1}},
	} {
		r := e.try(t, job.Input{Code: code, Sallyport: &req}, nil)
		if r.Error != "" || r.Output.Sallyport.End != job.EndRefused || r.Output.Sallyport.Error == "" || r.Output.ReturnCode == 0 {
			t.Errorf("%s: %+v %+v", name, r, r.Output)
		}
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("code that was refused has run")
	}
}

// Each job that runs code passes the gate once, and one that the machine does
// not offer enough for is refused when the worker starts.
func TestGate(t *testing.T) {
	j := journal.New(slog.New(slog.DiscardHandler))
	var decided, ended []string
	events := j.Subscribe(journal.Options{Topics: journal.Actions, Handle: func(events []journal.Event, _ int) error {
		for _, e := range events {
			switch e := e.(type) {
			case *journal.Decided:
				decided = append(decided, fmt.Sprintf("%s %s %s %s %t", e.Client, e.Session, e.Action, e.Item, e.Allowed))
			case *journal.Finished:
				ended = append(ended, e.Failure)
			}
		}
		return nil
	}})
	var config ExecutorConfig
	e := executor(t, func(c *ExecutorConfig) {
		gate := lax()
		gate.Journal = j
		c.Gate, c.Sessions = authz.New(gate), 1
		config = *c
	})
	e.try(t, job.Input{Code: "1", Sallyport: &job.Request{Session: "s"}}, nil)
	e.try(t, job.Input{Code: "import time; time.sleep(60)", Sallyport: &job.Request{TimeoutMs: 100}}, nil)
	e.try(t, job.Input{Sallyport: &job.Request{Probe: 1}}, nil)
	events.Close()
	if got, want := strings.Join(decided, "|"), "runpod s run_code fake true|runpod  run_code fake true"; got != want {
		t.Errorf("decisions: got %q, want %q", got, want)
	}
	if got, want := strings.Join(ended, "|"), "|"+job.EndTimedOut; got != want {
		t.Errorf("ends: got %q, want %q", got, want)
	}
	config.Gate = authz.New(authz.Config{Policy: authz.Default()})
	if _, err := NewExecutor(config); err == nil || !strings.Contains(err.Error(), "policy.minIsolation") {
		t.Errorf("an engine without isolation: got %v, want it refused by policy.minIsolation", err)
	}
	config.Gate = nil
	if _, err := NewExecutor(config); err == nil {
		t.Error("without a gate: got no error")
	}
}

func TestTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: code must print within 700 ms")
	}
	e := executor(t, nil)
	began := time.Now()
	r := e.try(t, job.Input{Code: "print('before', flush=True)\nimport time\ntime.sleep(60)", Sallyport: &job.Request{TimeoutMs: 700}}, nil)
	if a := r.Output.Sallyport; r.Error != "" || a.End != job.EndTimedOut || r.Output.Stdout != "before\n" || time.Since(began) > 30*time.Second {
		t.Errorf("%+v %+v", r.Output, a)
	}
	e = executor(t, func(c *ExecutorConfig) { c.Timeout = 700 * time.Millisecond })
	r = e.try(t, map[string]any{"code": "while True: pass"}, nil)
	if r.Error == "" || r.Output.Sallyport.End != job.EndTimedOut {
		t.Errorf("a plain client does not learn of it: %+v", r)
	}
	e = executor(t, func(c *ExecutorConfig) { c.MaxTimeout = 700 * time.Millisecond })
	r = e.try(t, job.Input{Code: "while True: pass", Sallyport: &job.Request{TimeoutMs: 60_000}}, nil)
	if a := r.Output.Sallyport; a.End != job.EndTimedOut || !strings.Contains(strings.Join(a.Notes, " "), "worker.maxTimeout") {
		t.Errorf("%+v", a)
	}
}

func TestCancelled(t *testing.T) {
	e := executor(t, nil)
	for cause, stopped := range map[error]bool{ErrStopped: true, ErrShutdown: false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := e.Do(ctx, Job{ID: "c-" + cause.Error(), Input: json.RawMessage(`{"code": "print('go', flush=True)\nwhile True: pass", "sallyport": {"output": {"stream": true}}}`)}, func(c job.Chunk) {
			if c.Stdout != "" {
				cancel(cause)
			}
		})
		cancel(nil)
		if a := r.Output.Sallyport; r.Stopped != stopped || a.End != job.EndCancelled || !strings.Contains(a.Error, cause.Error()) {
			t.Errorf("%v: %+v %+v", cause, r, a)
		}
	}
}

func TestStreamed(t *testing.T) {
	e := executor(t, nil)
	var mu sync.Mutex
	var chunks []job.Chunk
	r := e.try(t, job.Input{Code: "import sys, time\nprint('äöü' * 3, flush=True)\ntime.sleep(0.5)\nprint('x' * 300000, flush=True)\nprint('e', file=sys.stderr)", Sallyport: &job.Request{Output: &job.Wanted{Stream: true}}}, func(c job.Chunk) {
		mu.Lock()
		defer mu.Unlock()
		chunks = append(chunks, c)
	})
	if len(chunks) < 4 || chunks[0].Started == nil || chunks[0].Started.Worker != "w1" || chunks[0].Started.Attempt != r.Output.Sallyport.Attempt {
		t.Fatalf("%d chunks, %+v", len(chunks), chunks[0])
	}
	var out, errs strings.Builder
	for _, c := range chunks[1:] {
		to, text := &out, c.Stdout
		if c.Stderr != "" {
			to, text = &errs, c.Stderr
		}
		if c.At != int64(to.Len()) || len(text) > chunkBytes {
			t.Errorf("a chunk of %d bytes at %d, not %d", len(text), c.At, to.Len())
		}
		to.WriteString(text)
	}
	if out.String() != r.Output.Stdout || errs.String() != "e\n" {
		t.Errorf("%d bytes were streamed, %d are in the result; %q", out.Len(), len(r.Output.Stdout), errs.String())
	}
}

// TestRedelivered: a run is not run twice, by the client's own ID of it or by
// the job's.
func TestRedelivered(t *testing.T) {
	dir := t.TempDir()
	place := store.At(t.TempDir())
	same := func(c *ExecutorConfig) { c.Seen = NewSeen(place, slog.New(slog.DiscardHandler)) }
	e := executor(t, same)
	count := func() int {
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	code := fmt.Sprintf("import os, time\nopen(%q + '/%%d' %% time.time_ns(), 'w')\ntime.sleep(0.3)\nprint(os.getpid())", dir)
	input := func(run string) json.RawMessage {
		b, _ := json.Marshal(job.Input{Code: code, Sallyport: &job.Request{Run: run}})
		return b
	}
	first := e.Do(t.Context(), Job{ID: "j1", Input: input("r1")}, nil)
	again := e.Do(t.Context(), Job{ID: "j2", Input: input("r1")}, nil)
	if count() != 1 || again.Output.Stdout != first.Output.Stdout || !again.Output.Sallyport.Redelivered || first.Output.Sallyport.Redelivered {
		t.Errorf("%d runs, %+v, %+v", count(), first.Output, again.Output)
	}
	// At the same time.
	var wg sync.WaitGroup
	results := make([]Result, 4)
	for i := range results {
		wg.Go(func() { results[i] = e.Do(t.Context(), Job{ID: fmt.Sprint("k", i), Input: input("r2")}, nil) })
	}
	wg.Wait()
	redelivered := 0
	for _, r := range results {
		if r.Output.Stdout != results[0].Output.Stdout {
			t.Errorf("%+v", r.Output)
		}
		if r.Output.Sallyport.Redelivered {
			redelivered++
		}
	}
	if count() != 2 || redelivered != 3 {
		t.Errorf("%d runs, %d redelivered", count(), redelivered)
	}
	// After a restart; and where the first delivery died with the process.
	other := executor(t, same)
	again = other.Do(t.Context(), Job{ID: "j9", Input: input("r1")}, nil)
	if count() != 2 || again.Output.Stdout != first.Output.Stdout || !again.Output.Sallyport.Redelivered {
		t.Errorf("%d runs, %+v", count(), again.Output)
	}
	if _, _, err := NewSeen(place, slog.New(slog.DiscardHandler)).Begin(t.Context(), "x", "r3"); err != nil {
		t.Fatal(err)
	}
	again = other.Do(t.Context(), Job{ID: "y", Input: input("r3")}, nil)
	if a := again.Output.Sallyport; count() != 2 || a.End != job.EndFailed || !a.Redelivered || !strings.Contains(a.Error, "not run a second time") {
		t.Errorf("%d runs, %+v", count(), a)
	}
	// A plain job that failed as a job may be sent again by /retry.
	plain := json.RawMessage(fmt.Sprintf(`{"code": %q}`, code))
	slow := executor(t, func(c *ExecutorConfig) { same(c); c.Timeout = 100 * time.Millisecond })
	if r := slow.Do(t.Context(), Job{ID: "p", Input: plain}, nil); r.Error == "" {
		t.Errorf("%+v", r)
	}
	before := count()
	if r := other.Do(t.Context(), Job{ID: "p", Input: plain}, nil); r.Error != "" || count() != before+1 {
		t.Errorf("%+v", r)
	}
}

func TestSessions(t *testing.T) {
	e := executor(t, func(c *ExecutorConfig) { c.Sessions = 2 })
	in := func(session, code string) Result {
		return e.try(t, job.Input{Code: code, Sallyport: &job.Request{Session: session}}, nil)
	}
	in("a", "x = 41")
	if r := in("a", "x + 1"); r.Output.Stdout != "42\n" {
		t.Errorf("%+v", r.Output)
	}
	in("b", "x = 1")
	in("c", "x = 1") // in the place of a
	if r := in("a", "x"); r.Output.ReturnCode != 1 {
		t.Errorf("%+v", r.Output)
	}
	// A session is its owner's.
	if r := e.try(t, job.Input{Code: "x", Sallyport: &job.Request{Session: "c", Owner: "another"}}, nil); r.Output.ReturnCode != 1 {
		t.Errorf("%+v", r.Output)
	}
	// It was ended to make room, and is made with anything again.
	if r := e.try(t, job.Input{Code: "1", Sallyport: &job.Request{Session: "b", Env: map[string]string{"A": "b"}}}, nil); r.Output.Stdout != "1\n" || strings.Contains(strings.Join(r.Output.Sallyport.Notes, "\n"), "gone") {
		t.Errorf("a session that was ended: got %+v, want a fresh one", r.Output)
	}
	in("a", "x = 1")
	r := e.try(t, job.Input{Code: "1", Sallyport: &job.Request{Session: "a", Env: map[string]string{"A": "b"}}}, nil)
	if r.Output.Sallyport.End != job.EndRefused {
		t.Errorf("%+v", r.Output.Sallyport)
	}
}

// A job is refused while all sessions that may be kept run code, and nothing of
// it is run.
func TestAllSessionsInUse(t *testing.T) {
	e := executor(t, func(c *ExecutorConfig) { c.Sessions = 1 })
	started, end := make(chan struct{}), make(chan struct{})
	held := make(chan Result, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		var once sync.Once
		in, _ := json.Marshal(job.Input{Code: "print('here', flush=True)\nimport time\ntime.sleep(60)", Sallyport: &job.Request{Session: "a", Output: &job.Wanted{Stream: true}}})
		held <- e.Do(ctx, Job{ID: "held", Input: in}, func(c job.Chunk) {
			if c.Started == nil {
				once.Do(func() { close(started) })
				<-end
			}
		})
	}()
	<-started
	r := e.try(t, job.Input{Code: "print(1)", Sallyport: &job.Request{Session: "b"}}, nil)
	if a := r.Output.Sallyport; a.End != job.EndRefused || !strings.Contains(a.Error, "all 1 sessions") || r.Output.Stdout != "" {
		t.Errorf("while the only session runs: got %+v, want it refused", r.Output)
	}
	cancel(ErrStopped)
	close(end)
	if r := <-held; !r.Stopped {
		t.Errorf("the job that held it: got %+v, want it stopped", r)
	}
	if r := e.try(t, job.Input{Code: "print(1)", Sallyport: &job.Request{Session: "b"}}, nil); r.Output.Stdout != "1\n" {
		t.Errorf("when it is free: got %+v, want 1", r.Output)
	}
}

func TestFit(t *testing.T) {
	r := Result{Output: &job.Output{Stdout: strings.Repeat("ä", 5000), Sallyport: &job.Answer{Files: []job.File{{Path: "a", Data: make([]byte, 3000)}, {Path: "b", Data: make([]byte, 3000)}}}}}
	fit(&r, 6000)
	b, err := json.Marshal(r)
	if a := r.Output.Sallyport; err != nil || len(b) > 6000 || len(a.Files) != 0 || len(a.LeftOut) != 2 || a.Truncated.Stdout+int64(len(r.Output.Stdout)) < 9990 {
		t.Errorf("%d bytes, %+v", len(b), a)
	}
}

// TestGPU: what nvidia-smi tells, from a program that speaks like it.
func TestGPU(t *testing.T) {
	program := filepath.Join(t.TempDir(), "nvidia-smi")
	script := "#!/bin/sh\ncase \"$1\" in\n--query-gpu=name) echo 'NVIDIA Test'; echo 'NVIDIA Test';;\n*) echo '0, 100.0'; echo '1, 50.0'; exec sleep 60;;\nesac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	g := FindGPU(t.Context(), program)
	if g == nil || g.Count != 2 || g.Model != "NVIDIA Test" || g.String() != "2 × NVIDIA Test" {
		t.Fatalf("%+v", g)
	}
	e := executor(t, func(c *ExecutorConfig) { c.GPU = g })
	r := e.try(t, map[string]any{"code": "import time; time.sleep(0.5)"}, nil)
	if u := r.Output.Sallyport.Usage; u.GPUModel != "NVIDIA Test" || u.GPUs != 2 || u.GPUJoules < 10 || u.GPUJoules > 10000 {
		t.Errorf("%+v", u)
	}
	p := &Power{count: 2, last: map[int]reading{}}
	at := time.Unix(0, 0)
	for _, line := range []string{"0, 100", "1, 50", "0, 200", "nonsense", "1, [N/A]", "0, -5"} {
		p.add(line, at)
		at = at.Add(time.Second)
	}
	if p.joules != 300 { // 2 s of 150 W
		t.Errorf("%v J", p.joules)
	}
	if got := p.total(at); got != 300+200*4+50*5 {
		t.Errorf("got %v J in all", got)
	}
	half := &Power{count: 2, last: map[int]reading{0: {time.Unix(0, 0), 100}}}
	if got := half.total(at); got != 0 {
		t.Errorf("one of two GPUs does not tell its power: got %v J, want 0, unknown", got)
	}
	if FindGPU(t.Context(), filepath.Join(t.TempDir(), "none")) != nil {
		t.Error("a GPU where there is none")
	}
}

func api(t *testing.T, e *Executor, key string) (call func(method, path, body string) (int, map[string]any)) {
	t.Helper()
	s := NewServer(ServerOptions{Do: e.Do, Logger: slog.New(slog.DiscardHandler), Key: key})
	h := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); h.Close() })
	return func(method, path, body string) (int, map[string]any) {
		t.Helper()
		req, err := http.NewRequest(method, h.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var out map[string]any
		if err := json.NewDecoder(res.Body).Decode(&out); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return res.StatusCode, out
	}
}

func TestLocalAPI(t *testing.T) {
	call := api(t, executor(t, nil), "")
	const hello = `{"input": {"code": "print('hello')"}}`
	status, m := call("POST", "/runsync", hello)
	if status != 200 || m["status"] != "COMPLETED" || stdout(m) != "hello\n" {
		t.Errorf("%d %v", status, m)
	}
	_, m = call("POST", "/v2/any/run", hello)
	id, _ := m["id"].(string)
	if m["status"] != "IN_PROGRESS" || !strings.HasPrefix(id, "test-") {
		t.Errorf("%v", m)
	}
	if _, m = call("POST", "/status/"+id, ""); m["status"] != "COMPLETED" || stdout(m) != "hello\n" {
		t.Errorf("%v", m)
	}
	if _, m = call("GET", "/any/stream/"+id, ""); m["status"] != "COMPLETED" || len(m["stream"].([]any)) != 1 {
		t.Errorf("%v", m)
	}
	_, m = call("POST", "/run", `{"input": {"code": "while True: pass"}}`)
	id, _ = m["id"].(string)
	if _, m = call("POST", "/cancel/"+id, ""); m["status"] != "CANCELLED" {
		t.Errorf("%v", m)
	}
	if _, m = call("POST", "/runsync", `{"input": {"code": "while True: pass"}, "policy": {"executionTimeout": 300}}`); m["status"] != "FAILED" {
		t.Errorf("%v", m)
	}
	if _, m = call("GET", "/health", ""); m["jobs"].(map[string]any)["completed"] != 2.0 {
		t.Errorf("%v", m)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/run", "", 405}, {"POST", "/run", `{"input": []}`, 422}, {"POST", "/run", `{`, 422}, {"POST", "/run", `{}`, 422},
		{"POST", "/status/none", "", 404}, {"GET", "/", "", 404}, {"POST", "/a/b/run", hello, 404}, {"DELETE", "/status/x", "", 405},
	} {
		if status, m := call(tt.method, tt.path, tt.body); status != tt.status {
			t.Errorf("%s %s %s: %d %v", tt.method, tt.path, tt.body, status, m)
		}
	}
	locked := api(t, executor(t, nil), "secret")
	if status, m := locked("POST", "/runsync", hello); status != 401 {
		t.Errorf("%d %v", status, m)
	}
}

// TestLocalAPIAndBrowsers: a page cannot have code run here.
func TestLocalAPIAndBrowsers(t *testing.T) {
	s := NewServer(ServerOptions{Do: simple, Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	for name, header := range map[string]http.Header{
		"origin": {"Origin": {"https://evil.example"}, "Content-Type": {"application/json"}},
		"simple": {"Content-Type": {"text/plain"}},
	} {
		r := httptest.NewRequest("POST", "/runsync", strings.NewReader(`{"input": {"code": "1"}}`))
		r.Header = header
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code == 200 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

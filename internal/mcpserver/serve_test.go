package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stubExecutor answers from the code itself, so that the protocol can be
// tested without a sandbox.
type stubExecutor struct {
	mu         sync.Mutex
	order      []string
	principals []authz.Principal
	envs       []string
	ended      bool
}

func (e *stubExecutor) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
}

func (*stubExecutor) Written(_ context.Context, session string, cell uint64) (string, error) {
	if cell != 7 {
		return "", errors.New("no such execution")
	}
	return "all of " + session, nil
}

func (e *stubExecutor) Submit(req broker.Request) func(context.Context) *broker.Result {
	e.mu.Lock()
	e.order = append(e.order, req.Code)
	e.principals = append(e.principals, req.Principal)
	e.envs = append(e.envs, req.Env)
	e.mu.Unlock()
	return func(ctx context.Context) *broker.Result {
		zero, one := 0, 1
		verb, arg, _ := strings.Cut(req.Code, " ")
		switch verb {
		case "":
			return broker.Invalid("Missing 'code' argument")
		case "defect":
			panic("out of order")
		case "draw":
			return &broker.Result{
				Status: broker.Success, ExitCode: &zero, Artifacts: []broker.Artifact{{Path: "a.png", Size: 3}},
				Images: []broker.Image{
					{Path: "a.png", About: "Sales\n<per> month", MIMEType: "image/png", Data: []byte{0, 0xff, 7}}, {Path: "b.gif", MIMEType: "image/gif", Data: []byte("g")},
				},
				Unshown: []string{"c.png"},
			}
		case "print":
			if req.OnOutput != nil {
				req.OnOutput(wire.Stdout, []byte(arg+"\n"))
			}
			return &broker.Result{Status: broker.Success, Summary: "Success", ExitCode: &zero, Servers: req.Servers, Backend: req.Backend, Stdout: []string{arg}}
		case "raise":
			return &broker.Result{Status: broker.Failed, Summary: arg, Error: arg, ExitCode: &one, Stderr: []string{"Traceback <>&", arg}}
		case "timeout":
			return &broker.Result{Status: broker.Timeout, Summary: "Timeout", Error: fmt.Sprint(req.Timeout), TimeoutSeconds: req.Timeout.Seconds(), Interrupted: true}
		case "wait":
			if req.OnOutput != nil {
				req.OnOutput(wire.Stdout, []byte("first\nworking on it"))
			}
			d, err := time.ParseDuration(arg)
			if err != nil {
				d = time.Hour
			}
			select {
			case <-time.After(d):
				return &broker.Result{Status: broker.Success, Summary: "waited", ExitCode: &zero}
			case <-ctx.Done():
				return &broker.Result{Status: broker.Failed, Summary: context.Cause(ctx).Error()}
			}
		}
		return broker.Invalid("unknown verb " + verb)
	}
}

func (e *stubExecutor) codes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.order...)
}

// client is a raw peer of a server: what it writes is what the server reads.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	outR  *io.PipeReader
	ended chan error
}

func serve(t *testing.T, config Config) *client {
	t.Helper()
	if config.Executor == nil {
		config.Executor = &stubExecutor{}
	}
	config.Logger = slog.New(slog.DiscardHandler)
	config.Version = "1.2.3"
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &client{t: t, in: inW, out: bufio.NewReader(outR), outR: outR, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		c.ended <- s.Serve(ctx, inR, outW)
		outW.Close()
	}()
	t.Cleanup(func() {
		cancel() // what still runs
		inW.Close()
		go io.Copy(io.Discard, outR)
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Error("Serve did not return")
		}
	})
	return c
}

// send writes lines.
func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(c.in, l+"\n"); err != nil {
			c.t.Fatal(err)
		}
	}
}

// receive reads one message.
func (c *client) receive() map[string]any {
	c.t.Helper()
	return c.receiveAny().(map[string]any)
}

func (c *client) receiveAny() any {
	c.t.Helper()
	watchdog := time.AfterFunc(20*time.Second, func() { c.outR.CloseWithError(errors.New("no answer came")) })
	defer watchdog.Stop()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	return decode(c.t, line)
}

func decode(t *testing.T, line []byte) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("answer %q: %v", line, err)
	}
	return v
}

func newTestReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

// end closes the client's end and waits for the server's.
func (c *client) end() error {
	c.in.Close()
	err := <-c.ended
	c.ended <- err
	return err
}

const (
	initialize   = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	initialized  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernMeta   = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	legacyLatest = "2025-11-25"
)

func (c *client) handshake(version string) {
	c.t.Helper()
	c.send(fmt.Sprintf(initialize, version))
	got := c.receive()
	result, ok := got["result"].(map[string]any)
	if !ok || result["protocolVersion"] != version {
		c.t.Fatalf("initialize %s: %v", version, got)
	}
	c.send(initialized)
}

func call(id, code, extra string) string {
	arguments, _ := json.Marshal(code)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"run_python","arguments":{"code":%s}%s}}`, id, arguments, extra)
}

func errorCode(m map[string]any) string {
	e, ok := m["error"].(map[string]any)
	if !ok {
		return ""
	}
	return fmt.Sprint(e["code"])
}

func TestBrokenInputDoesNotEndTheConversation(t *testing.T) {
	tests := []struct {
		name, line, code string // an empty code: no answer at all
	}{
		{"blank", "", ""},
		{"spaces", "  \t \r", ""},
		{"broken JSON", `{"jsonrpc":`, "-32700"},
		{"not JSON", `hello`, "-32700"},
		{"two values", `{} {}`, "-32700"},
		{"a string", `"hello"`, "-32600"},
		{"null", `null`, "-32600"},
		{"an empty object", `{}`, "-32600"},
		{"no version", `{"id":1,"method":"ping"}`, "-32600"},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "-32600"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":7}`, "-32600"},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "-32600"},
		{"an answer that nobody asked for", `{"jsonrpc":"2.0","id":77,"result":{}}`, ""},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 5000) + `"}`, "-32700"},
		{"nested deeply", strings.Repeat("[", 3000), "-32700"},
		{"nested deeply and closed", strings.Repeat("[", 2400) + strings.Repeat("]", 2400), "-32700"},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\",\"method\":\"pin\xff\"}", "-32601"},
	}
	for _, sdkOnly := range []bool{false, true} {
		c := serve(t, Config{MaxLine: 4096, SDKOnly: sdkOnly})
		c.handshake(legacyLatest)
		for i, tt := range tests {
			c.send(tt.line)
			if tt.code != "" {
				if got := c.receive(); errorCode(got) != tt.code && !(tt.name == "nested deeply and closed" && errorCode(got) == "-32600") {
					t.Errorf("%s: answered %v, want error %s", tt.name, got, tt.code)
				}
			}
			id := fmt.Sprint(1000 + i)
			c.send(call(id, "print alive", ""))
			if got := c.receive(); fmt.Sprint(got["id"]) != id || got["result"] == nil {
				t.Fatalf("after %s: %v", tt.name, got)
			}
		}
		if err := c.end(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func TestBatchesOfOldRevisions(t *testing.T) {
	c := serve(t, Config{})
	c.handshake("2025-03-26")
	c.send("[" + call("1", "print a", "") + "," + initializedAgain + "," + call("2", "print b", "") + `,{"jsonrpc":"2.0","id":3,"method":"nope"}]`)
	answers, ok := c.receiveAny().([]any)
	if !ok || len(answers) != 3 {
		t.Fatalf("answers: %v", answers)
	}
	ids := map[string]bool{}
	for _, a := range answers {
		ids[fmt.Sprint(a.(map[string]any)["id"])] = true
	}
	if len(ids) != 3 {
		t.Errorf("ids: %v", ids)
	}
	for _, bad := range []string{`[]`, `[1]`, `[{"jsonrpc":"1.0","id":1,"method":"ping"}]`, "[" + strings.Repeat("{},", 300) + "{}]"} {
		c.send(bad)
		if got := c.receive(); errorCode(got) != "-32600" {
			t.Errorf("%.20s: %v", bad, got)
		}
	}
	c.send("["+call("4", "wait 1h", "")+"]", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`, call("5", "print on", ""))
	if got := c.receive(); fmt.Sprint(got["id"]) != "5" {
		t.Errorf("after a cancelled batch: %v", got)
	}
}

const initializedAgain = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`

func TestCancellation(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c := serve(t, Config{SDKOnly: sdkOnly})
		c.handshake(legacyLatest)
		c.send(call("1", "wait 1h", ""), call(`"two"`, "wait 1h", ""))
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"no more"}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"two"}}`)
		c.send(call("3", "print next", ""))
		got := c.receive()
		if fmt.Sprint(got["id"]) != "3" {
			t.Errorf("a cancelled request was answered: %v", got)
		}
		if err := c.end(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func TestARequestIDInUse(t *testing.T) {
	c := serve(t, Config{})
	c.handshake(legacyLatest)
	c.send(call("1", "wait 1h", ""), call("1", "print x", ""))
	if got := c.receive(); errorCode(got) != "-32600" {
		t.Errorf("the second request: %v", got)
	}
}

func TestTooManyRequests(t *testing.T) {
	c := serve(t, Config{})
	c.handshake(legacyLatest)
	for i := range maxInFlight {
		c.send(call(fmt.Sprint(i), "wait 1h", ""))
	}
	c.send(call("9999", "print x", ""))
	if got := c.receive(); errorCode(got) != fmt.Sprint(codeBusy) {
		t.Errorf("one too many: %v", got)
	}
}

func TestCallsAreQueuedInTheirOrder(t *testing.T) {
	exec := &stubExecutor{}
	c := serve(t, Config{Executor: exec})
	c.handshake(legacyLatest)
	var want []string
	for i := range 50 {
		code := fmt.Sprintf("print %d", i)
		want = append(want, code)
		c.send(call(fmt.Sprint(i), code, ""))
		c.receive()
	}
	c2 := serve(t, Config{Executor: exec})
	c2.handshake(legacyLatest)
	go func() {
		for range 50 {
			c2.out.ReadBytes('\n')
		}
	}()
	for i := range 50 {
		code := fmt.Sprintf("print %d", 50+i)
		want = append(want, code)
		c2.send(call(fmt.Sprint(i), code, ""))
	}
	if err := c2.end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := exec.codes(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("order: %v", got)
	}
}

// TestEndOfInput: what the client has sent is answered, as long as it can read that.
func TestEndOfInput(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, Config{SDKOnly: sdkOnly})
			c.handshake(legacyLatest)
			c.send(call("1", "wait 10s", ""), call("2", "wait 15s", ""))
			c.in.Close()
			for range 2 {
				if got := c.receive(); got["result"] == nil || got["result"].(map[string]any)["isError"] == true {
					t.Errorf("answer: %v", got)
				}
			}
			if err := c.end(); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	t.Run("without a word", func(t *testing.T) {
		c := serve(t, Config{})
		if err := c.end(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// failingWriter is a client that has gone.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAClientThatCannotBeWrittenToEndsTheConversation(t *testing.T) {
	s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	defer out.Close()
	go fmt.Fprintf(out, initialize+"\n", legacyLatest)
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), in, failingWriter{}) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Serve goes on")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	in, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, in, io.Discard) }()
	fmt.Fprintf(w, initialize+"\n", legacyLatest)
	fmt.Fprintln(w, initialized)
	fmt.Fprintln(w, call("1", "wait 1h", ""))
	cancel()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Serve goes on")
	}
	w.Close() // ends the read that is still in progress
}

// stuckWriter is a client that neither reads nor goes.
type stuckWriter struct{ release chan struct{} }

func (w stuckWriter) Write([]byte) (int, error) {
	<-w.release
	return 0, io.ErrClosedPipe
}

func TestAClientThatDoesNotReadCannotHoldUsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		in, w := io.Pipe()
		stuck := stuckWriter{make(chan struct{})}
		done := make(chan error, 1)
		go func() { done <- s.Serve(context.Background(), in, stuck) }()
		fmt.Fprintf(w, initialize+"\n", legacyLatest)
		w.Close()
		began := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*patienceToRead {
			t.Errorf("it took %v", took)
		}
		close(stuck.release)
	})
}

func TestNewRefusesHalfAConfiguration(t *testing.T) {
	for _, config := range []Config{{}, {Executor: &stubExecutor{}}, {Logger: slog.New(slog.DiscardHandler)}} {
		if _, err := New(config); err == nil {
			t.Errorf("New accepted %+v", config)
		}
	}
}

// A defect that shows while a request is served ends that request alone.
func TestDefects(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c := serve(t, Config{SDKOnly: sdkOnly})
		c.handshake(legacyLatest)
		for i, code := range []string{"print a", "defect", "print b"} {
			c.send(call(fmt.Sprint(i), code, ""))
			m := c.receive()
			failure, _ := m["error"].(map[string]any)
			if failed := failure != nil; failed != (code == "defect") || failed && !strings.Contains(fmt.Sprint(failure["message"]), "a defect") {
				t.Errorf("SDK only %v, %s: got %v", sdkOnly, code, m)
			}
		}
	}
}

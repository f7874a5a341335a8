package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake runs requests as a broker would.
type fake func(context.Context, broker.Request) *broker.Result

// pair is a client and a host, and how the host's Serve ended.
type pair struct {
	*Client
	end  context.CancelFunc // ends the hub
	host net.Conn
	log  bytes.Buffer
	err  chan error
}

func newPair(t *testing.T, run fake, change ...func(*Host)) *pair {
	t.Helper()
	here, there := net.Pipe()
	ctx, end := context.WithCancel(context.Background())
	p := &pair{end: end, host: there, err: make(chan error, 1)}
	p.Client = &Client{Conn: here, Log: &p.log, Patience: time.Minute, Lost: "all is lost"}
	h := &Host{Execute: run, Principal: authz.Local("test"), Files: budget.New(1 << 30)}
	for _, c := range change {
		c(h)
	}
	go func() {
		err := h.Serve(ctx, there, there)
		_ = there.Close()
		p.err <- err
	}()
	t.Cleanup(func() {
		end()
		_ = here.Close()
		<-p.err
	})
	return p
}

func success(lines ...string) *broker.Result {
	return &broker.Result{Status: broker.Success, Stdout: lines}
}

// TestRequest: the host gets the request as the client has it, and the client the
// result as the host has it.
func TestRequest(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 30_000)
	code := 3
	cpu := 0.25
	want := &broker.Result{
		Status: broker.Failed, ExitCode: &code, Stdout: []string{"a", "é\x00<"}, Error: "it failed", Session: "s",
		Truncated: &broker.Truncated{Stdout: 5}, Artifacts: []broker.Artifact{{Path: "x", Size: 1, URI: "sallyport://artifacts/a/x"}}, DurationMs: 7,
		Usage: &broker.Usage{CPUSeconds: &cpu}, Notes: []string{"note"},
		OutOfMemory: true, Details: "only for the user", NotTaken: true,
	}
	var got broker.Request
	p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
		got = r
		return want
	})
	req := broker.Request{
		Principal: authz.Local("another"), Servers: []string{"one"}, Session: "s", Env: "data",
		Mounts: []sandbox.Mount{{Source: "/d", Target: "/mnt/d", Mode: sandbox.Copy}},
		Submission: broker.Submission{
			Code: "print('<\x00>')", Filename: "f.py", Script: true, Args: []string{"a", ""}, Timeout: 90 * time.Second, Measure: true,
			Files: []sandbox.File{{Path: "a/big", Data: big, Mode: 0o755}, {Path: "empty", Data: []byte{}, Mode: 0o600}},
		},
	}
	r := p.Execute(t.Context(), req)
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got the result %+v, want %+v", r, want)
	}
	got.Files[1].Data = []byte{}
	sent := req
	sent.Principal, sent.Shown = authz.Local("test"), true
	if !reflect.DeepEqual(got, sent) {
		t.Errorf("got the request %+v, want %+v", got, sent)
	}
}

// TestAsks: a client that asks a person hears of questions; the log of another one
// has them. The client may name the execution.
func TestAsks(t *testing.T) {
	for _, tt := range []struct {
		asks      bool
		id        string
		want, log string
	}{
		{true, "abcdefghijkl", "what for", ""},
		{false, "", "", "what for\n"},
		{true, "short", "", ""},
		{true, "abcdefghijkl\n", "", ""},
	} {
		asked, got := make(chan struct{}), make(chan string, 1)
		p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
			if r.RequestID != tt.id {
				t.Errorf("got the ID %q, want %q", r.RequestID, tt.id)
			}
			<-asked
			return success()
		}, func(h *Host) {
			h.Questions = func(ctx context.Context, ask func(string)) {
				ask("what for")
				close(asked)
				<-ctx.Done()
			}
		})
		if tt.asks {
			p.Asked = func(text string) { got <- text }
		}
		r := p.Execute(t.Context(), broker.Request{RequestID: tt.id})
		text := ""
		select {
		case text = <-got:
		default:
		}
		if fails := tt.want+tt.log == ""; text != tt.want || p.log.String() != tt.log || fails != (r.Status != broker.Success) {
			t.Errorf("%+v: got %q, the log %q and %q (%s)", tt, text, p.log.String(), r.Status, r.Error)
		}
	}
}

// TestOutput: output arrives as it is written, on its stream and in its order, and
// is not sent again with the result.
func TestOutput(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	seen := make(chan struct{})
	p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
		r.OnOutput(wire.Stdout, []byte("one "))
		<-seen // it came before the end
		r.OnOutput(wire.Stderr, []byte("two "))
		r.OnOutput(wire.Stdout, []byte(long))
		return success("one", long)
	})
	var out [wire.Streams]strings.Builder
	once := sync.OnceFunc(func() { close(seen) })
	r := p.Execute(t.Context(), broker.Request{Submission: broker.Submission{Code: "1", OnOutput: func(s wire.Stream, b []byte) {
		out[s].Write(b)
		once()
	}}})
	if got := out[wire.Stdout].String(); got != "one "+long || out[wire.Stderr].String() != "two " {
		t.Errorf("got %d bytes %.20q and %q", len(got), got, out[wire.Stderr].String())
	}
	if r.Status != broker.Success || r.Stdout != nil {
		t.Errorf("got status %q with %d lines, want success without", r.Status, len(r.Stdout))
	}
}

// TestOutputWaits: a client that does not read makes the code wait.
func TestOutputWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := 0
		p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
			for range 10 {
				r.OnOutput(wire.Stdout, []byte("x"))
				written++
			}
			return success()
		})
		read := make(chan struct{})
		done := make(chan *broker.Result)
		go func() {
			done <- p.Execute(t.Context(), broker.Request{Submission: broker.Submission{Code: "1", OnOutput: func(wire.Stream, []byte) { <-read }}})
		}()
		synctest.Wait()
		if written > 2 {
			t.Errorf("got %d writes before the client has read, want at most 2", written)
		}
		close(read)
		if r := <-done; r.Status != broker.Success {
			t.Errorf("got %+v", r)
		}
	})
}

// TestInput: the code reads what it asks for, and no more of it is read.
func TestInput(t *testing.T) {
	from := strings.NewReader("one two three")
	p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
		var got []string
		for _, n := range []int{4, 3} {
			b := make([]byte, n)
			if _, err := io.ReadFull(r.Stdin, b); err != nil {
				return broker.Invalid(err.Error())
			}
			got = append(got, string(b))
		}
		return success(got...)
	})
	r := p.Execute(t.Context(), broker.Request{Submission: broker.Submission{Code: "1", Stdin: from}})
	if want := []string{"one ", "two"}; !slices.Equal(r.Stdout, want) || from.Len() != len(" three") {
		t.Errorf("got %q with %d bytes left (%s), want %q with 6", r.Stdout, from.Len(), r.Error, want)
	}
	for _, tt := range []struct {
		in   io.Reader
		want string
	}{
		{iotest.DataErrReader(strings.NewReader("all")), "all <nil>"},
		{iotest.ErrReader(errors.New("is a directory")), " is a directory"},
		{nil, "none"},
	} {
		p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
			if r.Stdin == nil {
				return success("none")
			}
			b, err := io.ReadAll(r.Stdin)
			return success(fmt.Sprintf("%s %v", b, err))
		})
		if r := p.Execute(t.Context(), broker.Request{Submission: broker.Submission{Code: "1", Stdin: tt.in}}); !slices.Equal(r.Stdout, []string{tt.want}) {
			t.Errorf("got %q (%s), want %q", r.Stdout, r.Error, tt.want)
		}
	}
}

// TestInputOutlives: the end of the code does not wait for input.
func TestInputOutlives(t *testing.T) {
	in, typed := io.Pipe()
	read := make(chan error, 1)
	p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
		go func() {
			_, err := r.Stdin.Read(make([]byte, 1))
			read <- err
		}()
		return success("ended")
	})
	if r := p.Execute(t.Context(), broker.Request{Submission: broker.Submission{Code: "1", Stdin: in}}); r.Status != broker.Success {
		t.Errorf("got %+v", r)
	}
	if err := <-read; err == nil {
		t.Error("a read of nothing has no error")
	}
	_ = typed.Close() // what the goroutine of a command waits for until its end
}

// TestFiles: files come whole, or not at all, and the host learns why not.
func TestFiles(t *testing.T) {
	big := bytes.Repeat([]byte("y"), 100<<10)
	var said []string
	p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
		for _, name := range []string{"big", "dropped", "denied", "full"} {
			w, done, err := r.TakeFiles(name)
			if err != nil {
				said = append(said, name+": "+err.Error())
				continue
			}
			_, err = w.Write(big)
			said = append(said, fmt.Sprint(name, ": ", errors.Join(err, done(name != "dropped"))))
		}
		return success()
	})
	files := map[string]string{}
	r := p.Execute(t.Context(), broker.Request{
		Submission: broker.Submission{Code: "1"},
		TakeFiles: func(name string) (io.Writer, func(bool) error, error) {
			var b bytes.Buffer
			to := io.Writer(&b)
			switch name {
			case "denied":
				return nil, nil, os.ErrPermission
			case "full":
				to = writer(func([]byte) (int, error) { return 0, errors.New("no space left") })
			}
			return to, func(whole bool) error {
				if whole {
					files[name] = b.String()
				}
				return nil
			}, nil
		},
	})
	if r.Status != broker.Success || len(files) != 1 || files["big"] != string(big) {
		t.Errorf("got %+v and %d files", r, len(files))
	}
	if want := []string{"big: <nil>", "dropped: <nil>", "denied: permission denied", "full: no space left"}; !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// waiting is code that runs until it is ended, and says by what.
func waiting(began chan<- struct{}, ends chan<- error) fake {
	return func(ctx context.Context, _ broker.Request) *broker.Result {
		close(began)
		<-ctx.Done()
		ends <- context.Cause(ctx)
		return &broker.Result{Status: broker.Failed, Error: "Cancelled by the client; " + broker.Kept}
	}
}

// TestEnds: who ends an execution, and what the code and the client learn of it.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		who   string
		end   func(p *pair, cancel context.CancelFunc)
		cause error
		want  string
	}{
		{"the client", func(_ *pair, cancel context.CancelFunc) { cancel() }, context.Canceled, "Cancelled by the client; " + broker.Kept},
		{"a killed client", func(p *pair, _ context.CancelFunc) { _ = p.Conn.Close() }, broker.ErrStop, "all is lost (io: read/write on closed pipe)"},
		{"the hub", func(p *pair, _ context.CancelFunc) { p.end() }, broker.ErrStop, "Ended with Sallyport's hub; " + broker.Kept},
		{"a killed hub", func(p *pair, _ context.CancelFunc) { _ = p.host.Close() }, broker.ErrStop, "all is lost"},
	} {
		began, ends, done := make(chan struct{}), make(chan error, 1), make(chan *broker.Result, 1)
		p := newPair(t, waiting(began, ends))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			done <- p.Execute(ctx, broker.Request{Session: "s", Submission: broker.Submission{Code: "1"}})
		}()
		<-began
		tt.end(p, cancel)
		if got := <-ends; !errors.Is(got, tt.cause) {
			t.Errorf("%s: the code got %v, want %v", tt.who, got, tt.cause)
		}
		if r := <-done; r.Error != tt.want || r.Status != broker.Failed || r.ExitCode != nil {
			t.Errorf("%s: got status %q, error %q, want %q", tt.who, r.Status, r.Error, tt.want)
		}
		cancel()
	}
}

// TestStuckHost: a host that does not answer holds no client that gives up.
func TestStuckHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		defer here.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *broker.Result)
		c := &Client{Conn: here, Patience: time.Minute, Lost: "all is lost"}
		go func() { done <- c.Execute(ctx, broker.Request{Submission: broker.Submission{Code: "1"}}) }()
		synctest.Wait()
		cancel()
		began := time.Now()
		r := <-done
		if got := time.Since(began); got != time.Minute || r.Error != "Sallyport's hub does not answer. all is lost" {
			t.Errorf("got %q after %v", r.Error, got)
		}
	})
}

// TestStatus: what the execution waits for is told when it has changed, and each
// line of the log comes before the result.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan []byte, 8)
		p := newPair(t, func(_ context.Context, r broker.Request) *broker.Result {
			for _, what := range []string{"starting", "starting", ""} {
				r.Activity.Follow(func() string { return what })
				time.Sleep(statusEvery + time.Millisecond)
			}
			lines <- []byte("last\n")
			return success()
		}, func(h *Host) {
			h.Lines = lines
			h.Before = func(_ context.Context, servers []string, status func(string)) {
				lines <- []byte(servers[0] + " is odd\n")
				status("pulling")
			}
		})
		var got []string
		r := p.Execute(t.Context(), broker.Request{Servers: []string{"x"}, Submission: broker.Submission{Code: "1"}, OnStatus: func(s string) { got = append(got, s) }})
		if want := []string{"pulling", "starting", ""}; r.Status != broker.Success || !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if log := p.log.String(); log != "x is odd\nlast\n" {
			t.Errorf("got the log %q", log)
		}
	})
}

// TestRefused: what a host does not run.
func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*broker.Request, *Host){
		"outside the workspace": func(r *broker.Request, _ *Host) { r.Files = []sandbox.File{{Path: "../x"}} },
		"as many files":         func(_ *broker.Request, h *Host) { h.Files = budget.New(1) },
	} {
		req := broker.Request{Submission: broker.Submission{Code: "1", Files: []sandbox.File{{Path: "x", Data: []byte("12")}}}}
		p := newPair(t, nil, func(h *Host) { change(&req, h) })
		if r := p.Execute(t.Context(), req); r.Status != broker.ValidationError || !strings.HasPrefix(r.Error, "the hub cannot run this: ") {
			t.Errorf("%s: got %q: %s", name, r.Status, r.Error)
		}
	}
}

// FuzzHost: whatever a client sends, the host ends, and holds nothing.
func FuzzHost(f *testing.F) {
	frames := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	frame := func(k wire.Kind, payload string) []byte { return wire.AppendOutput(nil, k, []byte(payload)) }
	h, err := json.Marshal(head{Code: 1, Input: true, Take: true, Output: true, Files: []file{{"x", 0o644, 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frames(frame(kindRequest, string(h)+"112"), frame(kindRequest, ""), frame(kindInput, "a"), frame(kindTaken, ""), frame(kindCancel, "")))
	f.Add(frames(frame(kindRequest, `{"code":-1}`), frame(kindRequest, "")))
	f.Add(frames(frame(kindRequest, `{"files":[{"path":"/","size":1e9}]}`), frame(kindTaken, "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		files := budget.New(1 << 20)
		host := &Host{Principal: authz.Local("test"), Files: files, Execute: func(_ context.Context, r broker.Request) *broker.Result {
			if r.Stdin != nil {
				_, _ = r.Stdin.Read(make([]byte, 8))
			}
			if r.TakeFiles != nil {
				if w, done, err := r.TakeFiles("x"); err == nil {
					_, _ = w.Write([]byte("y"))
					_ = done(true)
				}
			}
			return success()
		}}
		_ = host.Serve(t.Context(), bytes.NewReader(data), io.Discard)
		if got := files.Used(); got != 0 {
			t.Errorf("%d bytes of files are held", got)
		}
	})
}

// FuzzClient: whatever a host sends, the client has a result, and every file is
// ended once.
func FuzzClient(f *testing.F) {
	var all []byte
	for _, frame := range []struct {
		kind    wire.Kind
		payload string
	}{
		{wire.KindStdout, "o"}, {kindStatus, "s"}, {kindLog, "l"}, {kindWant, "\x00\x00\x00\x02"}, {kindFile, "f"}, {kindData, "d"}, {kindWhole, ""},
		{kindFile, "g"}, {kindDropped, ""}, {kindResult, `{"result":{"status":"success"}}`}, {kindResult, ""},
	} {
		all = wire.AppendOutput(all, frame.kind, []byte(frame.payload))
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		open := 0
		c := &Client{Conn: &script{Reader: bytes.NewReader(data)}, Log: io.Discard}
		r := c.Execute(t.Context(), broker.Request{
			Submission: broker.Submission{Code: "1", Stdin: strings.NewReader("some"), OnOutput: func(wire.Stream, []byte) {}},
			OnStatus:   func(string) {},
			TakeFiles: func(string) (io.Writer, func(bool) error, error) {
				open++
				return io.Discard, func(bool) error { open--; return nil }, nil
			},
		})
		if r == nil || open != 0 {
			t.Errorf("got the result %+v with %d files open", r, open)
		}
	})
}

// script is a connection to a host that says what is written down.
type script struct {
	net.Conn
	*bytes.Reader
}

func (s *script) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *script) Write(p []byte) (int, error) { return len(p), nil }

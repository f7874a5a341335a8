package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/socket"
	"github.com/sallyport/sallyport/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// script is what a hub does with one connection of a frontend.
type script func(in *bufio.Reader, out io.Writer)

// serve runs a frontend between a client and hubs that follow their scripts, one
// after the other. It returns what the client has heard when its input has ended.
func serve(t *testing.T, client func(say func(string), hear func() string), hubs ...script) {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	var work sync.WaitGroup
	var met atomic.Int32
	f := &Frontend{Log: discard, Connect: func(context.Context, Hello) (*Conn, error) {
		n := int(met.Add(1))
		if n > len(hubs) {
			return nil, errors.New("no more hubs")
		}
		here, there, err := pair()
		if err != nil {
			return nil, err
		}
		work.Go(func() {
			defer there.Close()
			hubs[n-1](bufio.NewReader(there), there)
		})
		return &Conn{Conn: here, Hub: n, in: bufio.NewReader(here)}, nil
	}}
	served := make(chan error, 1)
	go func() {
		served <- f.Serve(context.Background(), inRead, outWrite)
		_ = outWrite.Close()
	}()
	lines := bufio.NewReader(outRead)
	client(func(line string) { _, _ = io.WriteString(inWrite, line+"\n") }, func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	})
	_ = inWrite.Close()
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	if err := <-served; err != nil {
		t.Errorf("Serve: got %v, want nil", err)
	}
	work.Wait()
	if got := int(met.Load()); got != len(hubs) {
		t.Errorf("got %d connections, want %d", got, len(hubs))
	}
}

// pair returns the ends of a connection that can be closed one way.
func pair() (here, there net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err == nil {
		there, err = l.Accept()
	}
	return here, there, err
}

// expect reads a line and compares it.
func expect(t *testing.T, in *bufio.Reader, want string) {
	t.Helper()
	line, err := in.ReadString('\n')
	if got := strings.TrimSpace(line); got != want {
		t.Errorf("a hub: got %q (%v), want %q", got, err, want)
	}
}

const (
	begin1  = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`
	begin2  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	begun   = `{"jsonrpc":"2.0","id":"i","result":{}}`
	call    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_python","arguments":{"session":"work"}}}`
	list    = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	listed  = `{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}`
	pinged  = `{"jsonrpc":"2.0","id":3,"result":{}}`
	ping    = `{"jsonrpc":"2.0","id":3,"method":"ping"}`
	drop    = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`
	ask     = `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`
	replied = `{"jsonrpc":"2.0","id":7,"result":{"roots":[]}}`
)

// rest reads until the frontend closes its end.
func rest(t *testing.T, in *bufio.Reader) {
	if data, _ := io.ReadAll(in); len(data) > 0 {
		t.Errorf("a hub: got %q, want nothing more", data)
	}
}

func lost(t *testing.T, got string) {
	t.Helper()
	if !strings.Contains(got, `"id":1,`) || !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "Session work goes on") {
		t.Errorf("the call that was lost: got %s", got)
	}
}

func say(out io.Writer, lines ...string) {
	_, _ = io.WriteString(out, strings.Join(lines, "\n")+"\n")
}

// A call is answered where its hub dies, and never said again; what the client
// has said of itself is, and its second answer is not passed on.
func TestAnotherHub(t *testing.T) {
	lostNow := make(chan struct{})
	serve(t, func(send func(string), hear func() string) {
		send(begin1)
		if got := hear(); got != begun {
			t.Errorf("got %s, want %s", got, begun)
		}
		send(begin2)
		send(call)
		lost(t, hear())
		close(lostNow)
		send(list)
		if got := hear(); got != listed {
			t.Errorf("got %s, want %s", got, listed)
		}
	}, func(in *bufio.Reader, out io.Writer) {
		expect(t, in, begin1)
		say(out, begun)
		expect(t, in, begin2)
		expect(t, in, call)
		_, _ = io.WriteString(out, `{"jsonrpc":"2.0","id":1,"resu`) // it dies within a line
	}, func(in *bufio.Reader, out io.Writer) {
		<-lostNow
		expect(t, in, begin1)
		say(out, begun)
		expect(t, in, begin2)
		expect(t, in, list)
		say(out, listed)
		rest(t, in)
	})
}

// Of a batch with a call, another hub gets the rest alone.
func TestBatchIsNotRunTwice(t *testing.T) {
	serve(t, func(send func(string), hear func() string) {
		send("[" + call + "," + list + "," + ping + "]")
		lost(t, hear())
		for _, want := range []string{listed, pinged} {
			if got := hear(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}, func(in *bufio.Reader, _ io.Writer) {
		expect(t, in, "["+call+","+list+","+ping+"]")
	}, func(in *bufio.Reader, out io.Writer) {
		expect(t, in, list)
		expect(t, in, ping)
		say(out, listed, pinged)
		rest(t, in)
	})
}

// A request that ends each hub is answered after the third.
func TestNoHubForEver(t *testing.T) {
	die := func(in *bufio.Reader, _ io.Writer) { expect(t, in, list) }
	serve(t, func(send func(string), hear func() string) {
		send(list)
		if got := hear(); !strings.Contains(got, `"id":2,"error"`) {
			t.Errorf("got %s, want an error", got)
		}
	}, die, die, die)
}

// What the client has cancelled is not said again, and its answer to a question
// of a hub that is no more goes nowhere.
func TestForgotten(t *testing.T) {
	serve(t, func(send func(string), hear func() string) {
		send(ping)
		if got := hear(); got != ask {
			t.Errorf("got %s, want %s", got, ask)
		}
		send(drop)
		send(call)
		lost(t, hear())
		send(replied)
		send(list)
		if got := hear(); got != listed {
			t.Errorf("got %s, want %s", got, listed)
		}
	}, func(in *bufio.Reader, out io.Writer) {
		expect(t, in, ping)
		say(out, ask)
		expect(t, in, drop)
		expect(t, in, call)
	}, func(in *bufio.Reader, out io.Writer) {
		expect(t, in, list)
		say(out, listed)
		rest(t, in)
	})
}

// A hub that dies after the client has closed its end leaves no request without an
// answer.
func TestLastAnswers(t *testing.T) {
	inRead, inWrite := io.Pipe()
	var out bytes.Buffer
	here, there, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	f := &Frontend{Log: discard, Connect: func(context.Context, Hello) (*Conn, error) {
		return &Conn{Conn: here, Hub: 7, in: bufio.NewReader(here)}, nil
	}}
	served := make(chan error, 1)
	go func() { served <- f.Serve(context.Background(), inRead, &out) }()
	_, _ = io.WriteString(inWrite, call+"\n"+list+"\n"+ping+"\n"+drop+"\n")
	_ = inWrite.Close()
	if _, err := io.ReadAll(there); err != nil { // until the frontend closes its end
		t.Fatal(err)
	}
	_ = there.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: got %v, want nil", err)
	}
	heard := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(heard) != 2 {
		t.Fatalf("got %q, want two answers", heard)
	}
	lost(t, heard[0])
	if !strings.Contains(heard[1], `"id":2,"error":{"code":-32000,`) || !strings.Contains(heard[1], "process 7") {
		t.Errorf("the list: got %s, want an error", heard[1])
	}
}

// dead is a client that ends with its input.
type dead struct{}

func (dead) Serve(_ context.Context, in io.Reader, _ io.Writer) error {
	_, err := io.Copy(io.Discard, in)
	return err
}
func (dead) Close() {}

func place(t *testing.T) Place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "hub")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return Place{Dir: dir, Key: "abc", Log: discard}
}

// hubAt runs a hub, until stop is called or it ends.
func hubAt(t *testing.T, p Place, change func(*Config)) (s *Server, ended chan error) {
	t.Helper()
	l, err := socket.Listen(p.Dir, p.socket(), discard)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Place: p, Listeners: []net.Listener{l}, Log: discard,
		Open: func(context.Context, Hello) (Client, error) { return dead{}, nil },
		Busy: func() bool { return false }, Outdated: func() bool { return false }, Close: func() {},
	}
	if change != nil {
		change(&c)
	}
	s, ended = NewServer(c), make(chan error, 1)
	go func() { ended <- s.Serve(context.Background()) }()
	return s, ended
}

// Ten clients that come at once start one hub.
func TestOneStart(t *testing.T) {
	p := place(t)
	var starts atomic.Int32
	var s *Server
	var ended chan error
	start := func(context.Context) error {
		starts.Add(1)
		s, ended = hubAt(t, p, nil)
		return nil
	}
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() {
			c, err := p.Connect(context.Background(), Hello{Client: "x"}, start)
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	}
	work.Wait()
	if got := starts.Load(); got != 1 {
		t.Errorf("got %d starts, want 1", got)
	}
	s.Stop()
	<-ended
}

// A hub that ends before it is ready, and does not say why, has a successor; the
// third is the last.
func TestStartsAgain(t *testing.T) {
	for _, tt := range []struct {
		why         error
		fails, want int // starts that fail, and in all
	}{{ErrUnready, 2, 3}, {ErrUnready, 9, 3}, {errors.New("no room"), 1, 1}} {
		p := place(t)
		stop := func() {}
		starts := 0
		c, err := p.Connect(context.Background(), Hello{Client: "x"}, func(context.Context) error {
			if starts++; starts <= tt.fails {
				return fmt.Errorf("%w; see the log", tt.why)
			}
			s, ended := hubAt(t, p, nil)
			stop = func() { s.Stop(); <-ended }
			return nil
		})
		if starts != tt.want {
			t.Errorf("%v, %d times: got %d starts, want %d", tt.why, tt.fails, starts, tt.want)
		}
		if tt.fails < tt.want {
			if err != nil {
				t.Errorf("%v, %d times: %v", tt.why, tt.fails, err)
			} else {
				_ = c.Close()
			}
		} else if !errors.Is(err, tt.why) {
			t.Errorf("got %v, want %v", err, tt.why)
		}
		stop()
	}
}

// The place stays locked after the end, whatever is collected: another hub begins
// only once the process has ended.
func TestPlaceStaysLocked(t *testing.T) {
	p := place(t)
	s, ended := hubAt(t, p, nil)
	s.Stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s = nil
	for range 3 {
		runtime.GC()
	}
	if unlock, ok, err := store.At(p.Dir).TryLock(p.Key); ok || err != nil {
		t.Errorf("the lock is free: %v", err)
		if ok {
			unlock()
		}
	}
}

// A hub whose program was replaced ends with its last client, even one that stays
// for ever otherwise; one that is busy stays until it is not.
func TestEnds(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"outdated": func(c *Config) { c.Outdated = func() bool { return true } },
		"idle":     func(c *Config) { c.Idle = time.Millisecond },
		"busy": func(c *Config) {
			var asked atomic.Int32
			c.Idle, c.Busy = time.Millisecond, func() bool { return asked.Add(1) == 1 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			_, ended := hubAt(t, p, change)
			// The idle hub may have ended before.
			if c, err := p.dial(context.Background(), p.socket(), Hello{Key: p.Key, Client: "x"}); err == nil {
				_ = c.Close()
			}
			if err := <-ended; !errors.Is(err, ErrIdle) {
				t.Errorf("got %v, want ErrIdle", err)
			}
		})
	}
}

// A client that has left just now begins the time of idleness anew.
func TestUnused(t *testing.T) {
	s := NewServer(Config{})
	if !s.unused() {
		t.Error("a hub without clients is used")
	}
	here, there := net.Pipe()
	defer there.Close()
	s.conns[here] = nil
	if s.unused() {
		t.Error("a hub with a client is unused")
	}
	s.gone(here)
	if s.unused() {
		t.Error("a hub whose client has left just now is unused")
	}
}

// The hub says why it does not serve a client.
func TestRefused(t *testing.T) {
	p := place(t)
	s, ended := hubAt(t, p, func(c *Config) {
		c.Open = func(context.Context, Hello) (Client, error) { return nil, errors.New("no room") }
	})
	var refused *Refused
	if _, err := p.Connect(context.Background(), Hello{Client: "x"}, nil); !errors.As(err, &refused) || refused.Reason != "no room" {
		t.Errorf("got %v, want no room", err)
	}
	if _, err := p.dial(context.Background(), p.socket(), Hello{Key: "other", Client: "x"}); !errors.Is(err, errElsewhere) {
		t.Errorf("got %v, want errElsewhere", err)
	}
	named, err := json.Marshal(Hello{Protocol: protocol, Key: p.Key, Client: "x"}) // without pipes
	if err != nil {
		t.Fatal(err)
	}
	for _, hello := range []string{"garbage\n", "{}\n", "half", string(named) + "\n", strings.Repeat("x", maxHello+1) + "\n"} {
		conn, err := socket.Dial(context.Background(), p.Dir, p.socket())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, hello)
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(conn)
		if bytes.Contains(answer, []byte(`"process":`)) && !bytes.Contains(answer, []byte("elsewhere")) {
			t.Errorf("%.20q was welcomed: %s", hello, answer)
		}
		_ = conn.Close()
	}
	s.Stop()
	<-ended
}

func FuzzResponseID(f *testing.F) {
	for _, line := range []string{begun, listed, ask, call, begin2, `{"jsonrpc":"2.0","id":"a,\"result\":","result":1}`, `{"jsonrpc":"2.0","id":null,"error":{}}`, "[" + listed + "]"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		parse(line)
		id, _ := responseID(line)
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method *string         `json:"method"`
		}
		if id == nil || !json.Valid(line) || bytes.Count(line, []byte(`"id"`)) > 1 || bytes.Contains(bytes.ToLower(line), []byte("method")) {
			return
		}
		if json.Unmarshal(line, &m) == nil && m.ID != nil && string(m.ID) != string(bytes.TrimSpace(id)) {
			t.Errorf("%q: got the ID %q, want %q", line, id, m.ID)
		}
	})
}

// A client that comes at the moment when the idle hub ends is served, by that hub or
// by the next.
func TestConnectsWhileItEnds(t *testing.T) {
	const rounds = 300
	p := place(t)
	ends := make(chan struct{}, 1) // a hub is about to, or has
	now := func() {
		select {
		case ends <- struct{}{}:
		default:
		}
	}
	var hubs sync.WaitGroup
	var starts atomic.Int32
	start := func(context.Context) error {
		starts.Add(1)
		_, ended := hubAt(t, p, func(c *Config) {
			c.Idle = 5 * time.Millisecond
			c.Busy = func() bool { // it is asked right before
				now()
				time.Sleep(rand.N(200 * time.Microsecond)) // now the client is first, now the hub
				return false
			}
		})
		hubs.Go(func() {
			<-ended
			kept.Range(func(k, unlock any) bool { // as the end of its process does
				kept.Delete(k)
				unlock.(func())()
				return true
			})
			now()
		})
		return nil
	}
	now()
	for round := range rounds {
		<-ends
		c, err := p.Connect(context.Background(), Hello{Client: "x"}, start)
		if err != nil {
			t.Errorf("round %d: %v", round, err)
			break
		}
		_ = c.Close()
	}
	hubs.Wait()
	t.Logf("%d hubs for %d rounds", starts.Load(), rounds)
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), 16)
		want, _, whole := bytes.Cut(data, []byte("\n"))
		got, err := readLine(r)
		if whole != (err == nil) || whole && !bytes.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

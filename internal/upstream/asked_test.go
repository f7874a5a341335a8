//go:build unix

package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// askingServer is a server of the first era whose tools do what their arguments say.
type askingServer struct {
	in *bufio.Reader

	mu      sync.Mutex
	waiting map[string]chan json.RawMessage // for an answer, by id
	calls   int
	done    map[string]bool // elicitations in URL mode
}

func (a *askingServer) print(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (a *askingServer) run() {
	for {
		line, err := a.in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name, Level  string
				Arguments    json.RawMessage
				Capabilities json.RawMessage
				Meta         struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			Result, Error json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil {
			os.Exit(9)
		}
		switch {
		case m.ID == nil:
		case m.Method == "":
			a.mu.Lock()
			waiting := a.waiting[string(m.ID)]
			a.mu.Unlock()
			waiting <- append(m.Result, m.Error...)
		case m.Method == "initialize":
			fmt.Fprintf(os.Stderr, "capabilities %s\n", m.Params.Capabilities)
			if os.Getenv("STRICT") != "" && strings.Contains(string(m.Params.Capabilities), "form") {
				a.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"Unrecognized field \"form\""}}`, m.ID)
				break
			}
			a.print(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"a","version":"1"}}}`, m.ID)
		case m.Method == "logging/setLevel":
			fmt.Fprintf(os.Stderr, "level %s\n", m.Params.Level)
			a.print(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		case m.Method == "tools/call":
			go a.call(m.ID, m.Params.Name, m.Params.Arguments, m.Params.Meta.ProgressToken)
		default:
			a.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
		}
	}
}

func (a *askingServer) call(id json.RawMessage, name string, args, token json.RawMessage) {
	answer := func(text string) {
		quoted, _ := json.Marshal(text)
		a.print(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, quoted)
	}
	switch name {
	case "hold":
	case "ask": // {method, params}
		a.mu.Lock()
		a.calls++
		question := fmt.Sprintf(`"q%d"`, a.calls)
		waiting := make(chan json.RawMessage, 1)
		a.waiting[question] = waiting
		a.mu.Unlock()
		a.print(`{"jsonrpc":"2.0","id":%s,%s`, question, args[1:])
		answer(string(<-waiting))
	case "tell": // a list of notifications, where TOKEN is the call's token
		var notes []json.RawMessage
		if json.Unmarshal(args[len(`{"notes":`):len(args)-1], &notes) != nil {
			os.Exit(9)
		}
		for _, note := range notes {
			a.print(`{"jsonrpc":"2.0",%s`, strings.ReplaceAll(string(note[1:]), `"TOKEN"`, string(token)))
		}
		answer("told")
	case "open": // {"elicitations": [...]}, until they are all complete
		a.mu.Lock()
		a.calls++
		done := a.done["p1"] && a.done["p2"]
		a.mu.Unlock()
		if done {
			answer("opened")
			return
		}
		a.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"open this first","data":%s}}`, id, args)
	case "complete": // {"elicitationId": ID}
		a.mu.Lock()
		if a.done == nil {
			a.done = map[string]bool{}
		}
		a.done[strings.Split(string(args), `"`)[3]] = true
		a.mu.Unlock()
		a.print(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":%s}`, args)
		answer("completed")
	}
}

const (
	form = `{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object","properties":{` +
		`"name":{"type":"string","default":"Ada"},"age":{"type":"integer"}}}}}`
	page     = `{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","elicitationId":"p1","url":"https://example.com/in"}}`
	sampling = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"2+2?"}}],"maxTokens":10}}`
	roots    = `{"method":"roots/list"}`
)

func TestRequestsOfAProgram(t *testing.T) {
	elicits := inquiry.Takes{Forms: true}
	tests := []struct {
		name     string
		may      inquiry.Takes
		host     *fakeHost
		question string
		want     []string // in the answer
		asked    int
	}{
		{"form", everything, &fakeHost{takes: everything}, form, []string{`"action":"accept"`, `"name":"Ada"`}, 1},
		{"page", everything, &fakeHost{takes: everything}, page, []string{`{"action":"accept"}`}, 1},
		{"sampling", everything, &fakeHost{takes: everything}, sampling, []string{`"role":"assistant"`, "four"}, 1},
		{"roots", everything, &fakeHost{takes: everything}, roots, []string{"file:///work"}, 1},
		{"may not", elicits, &fakeHost{takes: everything}, sampling, []string{"-32601", "does not offer sampling"}, 0},
		{"may not in this mode", elicits, &fakeHost{takes: everything}, page, []string{"-32602", "of this kind"}, 0},
		{"may nothing", inquiry.Takes{}, &fakeHost{takes: everything}, form, []string{"-32601", "does not offer elicitation"}, 0},
		{"is not taken", everything, &fakeHost{takes: elicits}, roots, []string{`"code":-1,`, "does not take roots"}, 0},
		{"no host", everything, nil, form, []string{`"code":-1,`, "made for no one"}, 0},
		{"invalid", everything, &fakeHost{takes: everything}, `{"method":"elicitation/create","params":{"message":7}}`, []string{"-32602"}, 0},
		{"unknown", everything, &fakeHost{takes: everything}, `{"method":"make/coffee"}`, []string{"-32601"}, 0},
		{"refused form", everything, &fakeHost{takes: everything, ask: refusing("asked too often")}, form, []string{"-32603", "asked too often"}, 1},
		{"refused sampling", everything, &fakeHost{takes: everything, ask: refusing("asked too often")}, sampling, []string{`"code":-1,`, "asked too often"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := manage(t, Options{May: lets(tt.may)}, define(t, "x", "asking"))
			s := running(t, m, "x")
			ctx := t.Context()
			if tt.host != nil {
				ctx = WithHost(ctx, tt.host)
			}
			got := text(t, must(t)(s.CallTool(ctx, "ask", json.RawMessage(tt.question))))
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %s, want in it %s", got, want)
				}
			}
			if tt.host != nil {
				if asked, _, _ := tt.host.heard(); len(asked) != tt.asked {
					t.Errorf("got %d questions, want %d", len(asked), tt.asked)
				}
			}
			want := "capabilities " + string(tt.may.Capabilities()) + "\n"
			waitFor(t, func() bool { return strings.Contains(s.Diagnosis().Stderr, "\n") }) // it is read apart
			if got := s.Diagnosis().Stderr; !strings.HasPrefix(got, want) {
				t.Errorf("got %q at initialize, want %q", got, want)
			}
		})
	}
}

// hold makes a call that does not end before the test, and waits until it is in
// flight.
func hold(t *testing.T, s *Server, host Host) {
	t.Helper()
	before := s.inFlight.Load()
	ctx, cancel := context.WithCancel(context.Background())
	if host != nil {
		ctx = WithHost(ctx, host)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if _, err := s.CallTool(ctx, "hold", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}()
	t.Cleanup(func() { cancel(); <-over })
	waitFor(t, func() bool { return s.inFlight.Load() > before })
}

// TestWhomAProgramAsks: a message on a stream of the whole connection may be about
// any call in flight.
func TestWhomAProgramAsks(t *testing.T) {
	ann := func() *fakeHost { return &fakeHost{origin: "ann", takes: everything} }
	tests := []struct {
		name  string
		other Host
		want  string
	}{
		{"the same client", ann(), "accept"},
		{"another client", &fakeHost{origin: "bob", takes: everything}, "calls of several clients"},
		{"no client", nil, "calls of several clients"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manage(t, Options{May: lets(everything)}, define(t, "x", "asking"))
			s := running(t, m, "x")
			hold(t, s, tt.other)
			host := ann()
			got := text(t, must(t)(s.CallTool(WithHost(t.Context(), host), "ask", json.RawMessage(form))))
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want in it %s", got, tt.want)
			}
			tell := `{"notes":[{"method":"notifications/message","params":{"level":"info","data":"hi"}}]}`
			must(t)(s.CallTool(WithHost(t.Context(), host), "tell", json.RawMessage(tell)))
			if _, _, logs := host.heard(); (len(logs) == 1) != (tt.want == "accept") {
				t.Errorf("got the log messages %v, want them: %t", logs, tt.want == "accept")
			}
		})
	}
	t.Run("another client whose call was cancelled", func(t *testing.T) {
		m := manage(t, Options{May: lets(everything)}, define(t, "x", "asking"))
		s := running(t, m, "x")
		ctx, cancel := context.WithCancel(WithHost(t.Context(), &fakeHost{origin: "bob", takes: everything}))
		go func() {
			waitFor(t, func() bool { return s.inFlight.Load() > 0 })
			cancel()
		}()
		if _, err := s.CallTool(ctx, "hold", nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want %v", err, context.Canceled)
		}
		got := text(t, must(t)(s.CallTool(WithHost(t.Context(), ann()), "ask", json.RawMessage(form))))
		if want := errSeveral.Error(); !strings.Contains(got, want) {
			t.Errorf("got %s, want in it %s", got, want)
		}
	})
	t.Run("no call", func(t *testing.T) {
		s := &Server{may: everything, live: &live{}}
		_, err := s.requested(t.Context(), inquiry.Roots, nil)
		if err == nil || err.Code != codeRefused || err.Message != errNoCall.Error() {
			t.Errorf("got %v, want %v", err, errNoCall)
		}
	})
}

// TestQuestionsTakeTheirTime: the time of a call does not run while its host is
// asked, and a question ends with its call.
func TestQuestionsTakeTheirTime(t *testing.T) {
	def := define(t, "x", "asking")
	def.CallTimeout = 100 * time.Millisecond
	m := manage(t, Options{May: lets(everything)}, def)
	s := running(t, m, "x")
	host := &fakeHost{takes: everything, ask: func(_ context.Context, r *inquiry.Request) (json.RawMessage, error) {
		about, err := s.doing.meant(context.Background())
		if err != nil || len(about) != 1 {
			return nil, fmt.Errorf("calls in flight: %d, %w", len(about), err)
		}
		l := about[0].limit
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.paused != 1 || l.timer != nil {
			return nil, fmt.Errorf("paused %d times, running: %t", l.paused, l.timer != nil)
		}
		return r.Check(inquiry.Declined)
	}}
	if got, want := text(t, must(t)(s.CallTool(WithHost(t.Context(), host), "ask", json.RawMessage(form)))), "decline"; !strings.Contains(got, want) {
		t.Errorf("got %s, want in it %s", got, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	host.ask = func(ctx context.Context, _ *inquiry.Request) (json.RawMessage, error) {
		cancel()
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	if _, err := s.CallTool(WithHost(ctx, host), "ask", json.RawMessage(form)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	<-ended
}

// TestStrictServers: servers that refuse capabilities that they do not know start
// without, and every server that has log messages is asked for them.
func TestStrictServers(t *testing.T) {
	m := manage(t, Options{May: lets(everything)}, define(t, "x", "asking", "STRICT=1"))
	s := running(t, m, "x")
	want := []string{`capabilities {"elicitation"`, "capabilities {}", "level info"}
	waitFor(t, func() bool { return strings.Contains(s.Diagnosis().Stderr, want[2]) })
	stderr := s.Diagnosis().Stderr
	for _, text := range want {
		_, rest, ok := strings.Cut(stderr, text)
		if !ok {
			t.Errorf("got %s, want in it, in their order, %q", s.Diagnosis().Stderr, want)
		}
		stderr = rest
	}
}

// TestRefusesOffer: a server that does not know the handshake at all is not asked
// twice.
func TestRefusesOffer(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&jsonrpc.Error{Code: -32603}, true},
		{&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}, true},
		{&remote.StatusError{Status: 400}, true},
		{&jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}, false},
		{&jsonrpc.Error{Code: codeUnsupportedVersion}, false},
		{&remote.StatusError{Status: 401}, false},
		{errSpeaksStateless, false},
		{nil, false},
	} {
		if got := refusesOffer(tt.err); got != tt.want {
			t.Errorf("%v: got %t, want %t", tt.err, got, tt.want)
		}
	}
}

// TestTokensAsStrings: some servers repeat the token of a call as a string.
func TestTokensAsStrings(t *testing.T) {
	var l progressListeners
	var got []Progress
	token, forget := l.listen(func(p Progress) { got = append(got, p) })
	defer forget()
	l.tell(fmt.Appendf(nil, `{"progressToken":"%d","progress":2,"total":3}`, token))
	if want := []Progress{{Progress: 2, Total: 3}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhatAServerTells(t *testing.T) {
	note := func(method, params string) string { return fmt.Sprintf(`{"method":%q,"params":%s}`, method, params) }
	log := func(params string) string { return note("notifications/message", params) }
	m := manage(t, Options{}, define(t, "x", "asking", "SECRET=hunter22"))
	s := running(t, m, "x")
	host := &fakeHost{}
	notes := strings.Join([]string{
		log(`{"level":"info","logger":"l\u001b[31mög","data":"one\ntwo hunter22"}`),
		log(`{"level":"warning","data":{"a": [1]}}`),
		log(`{"level":"loud","data":"not a level"}`),
		log(`{"level":"error","data":"` + strings.Repeat("ä", maxLogText) + `"}`),
		note("notifications/progress", `{"progressToken":"TOKEN","progress":1,"message":"`+strings.Repeat("é", maxProgressMessage)+`"}`),
		note("notifications/progress", `{"progressToken":"TOKEN","progress":2,"total":4,"message":"with hunter22\u0007"}`),
		note("notifications/progress", `{"progressToken":4711,"progress":3}`),
	}, ",")
	must(t)(s.CallTool(WithHost(t.Context(), host), "tell", json.RawMessage(`{"notes":[`+notes+`]}`)))
	_, progress, logs := host.heard()
	wantLogs := []Message{
		{"info", "lög", "one two ${SECRET}"}, {"warning", "", `{"a": [1]}`}, {"error", "", strings.Repeat("ä", maxLogText/2)},
	}
	if got, want := fmt.Sprintf("%q", logs), fmt.Sprintf("%q", wantLogs); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wantProgress := []Progress{{1, 0, strings.Repeat("é", maxProgressMessage/2)}, {2, 4, "with ${SECRET}"}}
	if got, want := fmt.Sprint(progress), fmt.Sprint(wantProgress); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPagesToOpenFirst(t *testing.T) {
	const (
		one   = `{"mode":"url","elicitationId":"p1","url":"https://example.com/1","message":"one"}`
		two   = `{"mode":"url","elicitationId":"p2","url":"https://example.com/2","message":"two"}`
		pages = `{"elicitations":[` + one + `,` + two + `]}`
	)
	accepting := func(s *Server) *fakeHost {
		return &fakeHost{takes: everything, ask: func(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
			if _, err := s.CallTool(ctx, "complete", fmt.Appendf(nil, `{"elicitationId":%q}`, r.ElicitationID)); err != nil {
				return nil, err
			}
			return r.Check(json.RawMessage(`{"action":"accept"}`))
		}}
	}
	fixed := func(h *fakeHost) func(*Server) *fakeHost { return func(*Server) *fakeHost { return h } }
	tests := []struct {
		name, data string
		may        inquiry.Takes
		host       func(*Server) *fakeHost
		want       string // of the result, or in the error
		kind       error
	}{
		{"opened", pages, everything, accepting, "opened", nil},
		{"opened in vain", `{"elicitations":[` + one + `]}`, everything, accepting, "asks again", ErrInputRequired},
		{"declined", pages, everything, fixed(&fakeHost{takes: everything, ask: func(context.Context, *inquiry.Request) (json.RawMessage, error) {
			return inquiry.Declined, nil
		}}), "does not open the address", ErrInputRequired},
		{"not allowed", pages, inquiry.Takes{Forms: true}, accepting, "servers.may", ErrInputRequired},
		{"not taken", pages, everything, fixed(&fakeHost{}), "does not take it", ErrInputRequired},
		{"no address", `{"elicitations":[{"message":"a form"}]}`, everything, accepting, "no address", ErrInputRequired},
		{"too many", `{"elicitations":[` + strings.Repeat(one+",", 4) + one + `]}`, everything, accepting, "open this first", nil},
		{"none", `{}`, everything, accepting, "open this first", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manage(t, Options{May: lets(tt.may)}, define(t, "x", "asking"))
			s := running(t, m, "x")
			result, err := s.CallTool(WithHost(t.Context(), tt.host(s)), "open", json.RawMessage(tt.data))
			got := fmt.Sprint(err)
			if err == nil {
				got = text(t, result)
			}
			if !strings.Contains(got, tt.want) || tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Errorf("got %s, want %v with %s", got, tt.kind, tt.want)
			}
		})
	}
}

// quietConn is a connection on which nothing happens.
type quietConn struct{ transport }

func (quietConn) Done() <-chan struct{} { return nil }

// TestPatienceWithPages: a server need not say that an address is done with.
func TestPatienceWithPages(t *testing.T) {
	pages := []asks{{nil, inquiry.Elicitation, json.RawMessage(`{"mode":"url","elicitationId":"p1","url":"https://example.com/1","message":"one"}`)}}
	for _, tt := range []struct{ limit, want time.Duration }{
		{0, maxCompletion}, {time.Hour, maxCompletion}, {time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{may: everything, callTimeout: tt.limit, live: &live{conn: quietConn{}}}
			host := &fakeHost{takes: everything, ask: func(_ context.Context, r *inquiry.Request) (json.RawMessage, error) {
				time.Sleep(time.Hour)
				return r.Check(json.RawMessage(`{"action":"accept"}`))
			}}
			d, leave := s.enter(WithHost(t.Context(), host))
			began := time.Now()
			err := d.visit(pages)
			if got, want := time.Since(began), time.Hour+tt.want; err != nil || got != want {
				t.Errorf("limit %v: got %v, %v, want %v", tt.limit, got, err, want)
			}
			leave(nil)
			if len(s.completions.list)+len(s.doing.list) != 0 {
				t.Errorf("got %v and %v left over", s.completions.list, s.doing.list)
			}
		})
	}
}

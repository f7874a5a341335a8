package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
	"github.com/sallyport/sallyport/internal/wire"
)

// locked is a source of one server that wants a login: to start, to list its tools or
// for a call.
type locked struct {
	login *oauth.Login
	at    string // open, list or call
	kind  error  // of the failure
	page  string // where the user signs in

	signedIn      atomic.Bool
	opened, calls atomic.Int64
	signIns       atomic.Int64
	signIn        func(ctx context.Context) error // instead of a visit; nil: none
	fails         error                           // after the visit
	redirect      string                          // the latest
}

func newLocked(t *testing.T, at string) *locked {
	logins := oauth.New(store.At(t.TempDir()), oauth.Options{})
	return &locked{login: logins.At(oauth.Server{Name: "docs", URL: "https://docs.example/mcp"}), at: at, page: "https://as.example/authorize"}
}

func (l *locked) wants(at string) error {
	if at != l.at || l.signedIn.Load() {
		return nil
	}
	return &upstream.Error{Server: "docs", Kind: l.kind, Err: &oauth.SignInError{Login: l.login}}
}

func (l *locked) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "docs", Alias: "docs", URL: "https://docs.example/mcp"}}
}

func (l *locked) Open(context.Context, string) (Server, error) {
	l.opened.Add(1)
	return l, l.wants("open")
}

func (l *locked) Tools(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{newTool("find", "finds")}, l.wants("list")
}

func (l *locked) CallTool(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	l.calls.Add(1)
	return json.RawMessage(`{"content":[]}`), l.wants("call")
}

func (l *locked) SignIn(ctx context.Context, name string, open func(string) (oauth.Redirect, error)) (oauth.Status, error) {
	l.signIns.Add(1)
	if l.signIn != nil {
		err := l.signIn(ctx)
		l.signedIn.Store(err == nil)
		return oauth.Status{}, err
	}
	r, err := open("")
	if err != nil {
		return oauth.Status{}, err
	}
	defer r.Close()
	l.redirect = r.URL()
	back, err := r.Visit(ctx, l.page+"?state=the-state&redirect_uri="+url.QueryEscape(r.URL()))
	switch {
	case err != nil:
		return oauth.Status{}, err
	case l.fails != nil:
		return oauth.Status{}, l.fails
	case !strings.HasSuffix(back, "?state=the-state&code=the-code"):
		return oauth.Status{}, errors.New("not the answer")
	}
	l.signedIn.Store(true)
	return oauth.Status{}, nil
}

// person is who is asked.
type person struct {
	mu     sync.Mutex
	asked  []*inquiry.Request
	answer func(ctx context.Context, address string) (json.RawMessage, error)
}

func (p *person) Inquire(ctx context.Context, _ authz.Principal, _ *authz.Server, r *inquiry.Request) (json.RawMessage, error) {
	p.mu.Lock()
	p.asked = append(p.asked, r)
	p.mu.Unlock()
	return p.answer(ctx, r.URL)
}

var accepted = json.RawMessage(`{"action":"accept"}`)

// visit is what the browser does at the end of a sign-in.
func visit(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	resp, err := http.Get(u.Query().Get("redirect_uri") + "?state=" + u.Query().Get("state") + "&code=the-code")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// agree signs in.
func agree(_ context.Context, address string) (json.RawMessage, error) {
	return accepted, visit(address)
}

// late signs in, and forgets the question.
func late(ctx context.Context, address string) (json.RawMessage, error) {
	if err := visit(address); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func say(result json.RawMessage) func(context.Context, string) (json.RawMessage, error) {
	return func(context.Context, string) (json.RawMessage, error) { return result, nil }
}

var clickable = authz.Principal{Owner: authz.LocalOwner, Takes: inquiry.Takes{URLs: true}}

// between returns a bridge between a source and a person, and its log.
func between(t *testing.T, source Source, p *person) (*Bridge, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	config := Config{Source: source, Gate: authz.New(authz.Config{Policy: authz.Default()}), Log: slog.New(slog.NewTextHandler(&log, nil))}
	if p != nil {
		config.Inquiries = p
	}
	b, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, &log
}

// call has an execution call the server's tool.
func call(ctx context.Context, x *Execution) error {
	_, err := x.Call(ctx, wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"docs","tool":"find","arguments":{}}`)})
	return err
}

func TestSignInIsOffered(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, tt := range []struct {
		name, at string
		answer   func(context.Context, string) (json.RawMessage, error)
		with     func(*locked, *authz.Principal)
		ok       bool
		offers   int // of three tries
	}{
		{name: "agreed", answer: agree, ok: true, offers: 1},
		{name: "agreed, to list tools", at: "list", answer: agree, ok: true, offers: 1},
		{name: "agreed, for a call", at: "call", answer: agree, ok: true, offers: 1},
		{name: "in the browser alone", answer: late, ok: true, offers: 1},
		{name: "declined", answer: say(inquiry.Declined), offers: 1},
		{name: "declined, for a call", at: "call", answer: say(inquiry.Declined), offers: 1},
		{name: "cancelled", answer: say(inquiry.Cancelled), offers: 1},
		{name: "an answer that is none", answer: say(json.RawMessage(`[]`)), offers: 1},
		{name: "no answer", answer: func(context.Context, string) (json.RawMessage, error) { return nil, errors.New("no one is there") }, offers: 1},
		{name: "a sign-in that fails", answer: agree, with: func(l *locked, _ *authz.Principal) { l.fails = errors.New("no token") }, offers: 1},
		{name: "a client without URLs", answer: agree, with: func(_ *locked, p *authz.Principal) { p.Takes = inquiry.Takes{Forms: true} }},
		{name: "a page that is not shown", answer: agree, with: func(l *locked, _ *authz.Principal) { l.page = "javascript:alert(1)" }},
		{name: "a call that may have begun", at: "call", answer: agree, with: func(l *locked, _ *authz.Principal) { l.kind = upstream.ErrGone }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLocked(t, tt.at)
			if l.at == "" {
				l.at, l.kind = "open", upstream.ErrStart
			}
			p, client := &person{answer: tt.answer}, clickable
			if tt.with != nil {
				tt.with(l, &client)
			}
			// What a client hears that cannot be asked.
			unasked, _ := between(t, l, nil)
			run := func(b *Bridge) error {
				x := b.Begin(client, []string{"docs"})
				var errs [3]error
				for i := range errs {
					if _, err := x.Prepare(t.Context()); err != nil {
						errs[i] = callError(t.Context(), err)
					} else {
						errs[i] = call(t.Context(), x)
					}
				}
				if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) || fmt.Sprint(errs[0]) != fmt.Sprint(errs[2]) {
					t.Errorf("got %v, want three times the same", errs)
				}
				return errs[0]
			}
			want := run(unasked)
			if want == nil || l.kind != upstream.ErrGone && !strings.Contains(want.Error(), "sallyport servers login docs") {
				t.Fatalf("unasked: got the error %v, want one with the command", want)
			}
			b, log := between(t, l, p)
			got := run(b)
			if tt.ok && got != nil || !tt.ok && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got the error %v, want %v", got, map[bool]error{false: want}[tt.ok])
			}
			if len(p.asked) != tt.offers {
				t.Errorf("asked %d times, want %d", len(p.asked), tt.offers)
			}
			for _, r := range p.asked {
				const want = `Sign in at "docs" (https://docs.example/mcp): the page of as.example opens`
				if r.Method != inquiry.Elicitation || !strings.HasPrefix(r.Message, want) || !strings.HasPrefix(r.URL, l.page) || len(r.ElicitationID) < 16 {
					t.Errorf("asked %+v, want %q", r, want)
				}
			}
			if text := log.String(); strings.Contains(text, "the-state") || strings.Contains(text, "the-code") {
				t.Errorf("the log has secrets: %s", text)
			}
			if l.redirect != "" {
				u, _ := url.Parse(l.redirect)
				if c, err := net.Dial("tcp", u.Host); err == nil {
					c.Close()
					t.Errorf("%s still listens", l.redirect)
				}
			}
		})
	}
}

// TestOneOfferForAll: calls and executions that need the same login at a time wait for
// one offer.
func TestOneOfferForAll(t *testing.T) {
	for _, outcome := range []error{nil, errNotSignedIn} {
		synctest.Test(t, func(t *testing.T) {
			l, answer := newLocked(t, "call"), make(chan error)
			l.signIn = func(context.Context) error { return <-answer }
			first, _ := between(t, l, &person{})
			second, _ := between(t, l, &person{})
			done := make(chan error)
			executions := []*Execution{first.Begin(clickable, []string{"docs"}), first.Begin(clickable, []string{"docs"}), second.Begin(clickable, []string{"docs"})}
			for _, x := range executions {
				for range 2 {
					go func() { done <- call(t.Context(), x) }()
				}
			}
			synctest.Wait()
			answer <- outcome
			for range 2 * len(executions) {
				if err := <-done; (err == nil) != (outcome == nil) {
					t.Errorf("after %v: got the error %v", outcome, err)
				}
			}
			want := int64(1)
			if got := l.signIns.Load(); got != want {
				t.Errorf("after %v: %d offers, want %d", outcome, got, want)
			}
		})
	}
}

// TestOfferEnds: an offer ends with the call that it was made for, and another call
// that waits makes its own; and it ends with the time for it.
func TestOfferEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, answer := newLocked(t, "call"), make(chan error)
		l.signIn = func(ctx context.Context) error {
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		b, _ := between(t, l, &person{})
		begin := func() (cancel func(), done chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			done = make(chan error, 1)
			go func() { done <- call(ctx, b.Begin(clickable, []string{"docs"})) }()
			synctest.Wait()
			return cancel, done
		}
		check := func(what string, err error, want string, offers int64) {
			t.Helper()
			if got := l.signIns.Load(); fmt.Sprint(err) == "<nil>" != (want == "") || !strings.Contains(fmt.Sprint(err), want) || got != offers {
				t.Errorf("%s: got %v after %d offers, want %q after %d", what, err, got, want, offers)
			}
		}
		cancel, first := begin()
		_, second := begin()
		cancel()
		check("the call that was cancelled", <-first, "has ended", 1)
		synctest.Wait()
		answer <- nil
		check("the call that waited", <-second, "", 2)

		l.signedIn.Store(false)
		cancel, alone := begin()
		cancel()
		check("a call alone", <-alone, "has ended", 3)
		began := time.Now()
		_, forgotten := begin()
		check("a call that no one answers", <-forgotten, "sallyport servers login docs", 4)
		if took := time.Since(began); took != signInTime {
			t.Errorf("the offer was open for %s, want %s", took, signInTime)
		}
	})
}

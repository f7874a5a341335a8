package oauth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// parallel authorizes so many requests at the same time, and returns how many got
// which header.
func parallel(t testing.TB, l *Login, requests int) map[string]int {
	var mu sync.Mutex
	got := map[string]int{}
	var group sync.WaitGroup
	begin := make(chan struct{})
	for range requests {
		group.Go(func() {
			<-begin
			header, _, err := authorize(t, l, resource)
			if err != nil {
				header = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			got[header]++
		})
	}
	close(begin)
	group.Wait()
	return got
}

func TestParallelRenewal(t *testing.T) {
	as := newAuthServer(t)
	l := as.login(t, store.At(t.TempDir()), as.record(time.Now()))
	got := parallel(t, l, 500)
	if got["Bearer access-1"] != 500 {
		t.Errorf("got %v, want 500 with the new token", got)
	}
	if sent := as.received("refresh_token"); len(sent) != 1 {
		t.Errorf("got refreshes with %q, want one", sent)
	}
	if sent := as.received("resource"); sent[0] != resource {
		t.Errorf("got resource %q, want %q", sent[0], resource)
	}
}

const (
	childVariable = "OAUTH_TEST_DIRECTORY"
	childRequests = 167
)

// TestProcess is a process of its own for other tests: it authorizes requests, once
// its input has a line, and prints what it got.
func TestProcess(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return
	}
	l := (&authServer{}).login(t, store.At(dir), nil)
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for header, n := range parallel(t, l, childRequests) {
		fmt.Printf("got %d %s\n", n, header)
	}
}

// child is a process of TestProcess.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newChild starts a process, and waits until it is ready.
func newChild(t *testing.T, dir store.Dir) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProcess$")
	cmd.Env = append(os.Environ(), childVariable+"="+dir.Path(""))
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	c := &child{cmd, in, bufio.NewReader(out)}
	if line := c.line(t); line != "ready" {
		t.Fatalf("a process printed %q, want %q", line, "ready")
	}
	return c
}

func (c *child) begin(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Errorf("a process ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// TestProcessesRenew: three processes with 167 requests each renew a token once.
func TestProcessesRenew(t *testing.T) {
	as := newAuthServer(t)
	dir := store.At(t.TempDir())
	as.login(t, dir, as.record(time.Now()))
	var children []*child
	for range 3 {
		children = append(children, newChild(t, dir))
	}
	for _, c := range children {
		c.begin(t)
	}
	for i, c := range children {
		if got, want := c.line(t), fmt.Sprintf("got %d Bearer access-1", childRequests); got != want {
			t.Errorf("process %d: got %q, want %q", i, got, want)
		}
	}
	if sent := as.received("refresh_token"); len(sent) != 1 {
		t.Errorf("got refreshes with %q, want one", sent)
	}
}

// TestKilled: a process is killed when the authorization server has used the refresh
// token, and its answer was not read. The next process works where the server
// tolerates the token's second use, and else says what to do.
func TestKilled(t *testing.T) {
	for _, tolerant := range []bool{true, false} {
		as := newAuthServer(t)
		as.tolerant = tolerant
		reached, release := make(chan struct{}), make(chan struct{})
		as.after = func() {
			close(reached)
			<-release
		}
		dir := store.At(t.TempDir())
		as.login(t, dir, as.record(time.Now()))
		c := newChild(t, dir)
		c.begin(t)
		select {
		case <-reached:
		case <-time.After(hang):
			t.Fatal("the process does not renew its token")
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.cmd.Wait()
		as.after = nil
		close(release)

		l := as.login(t, dir, nil)
		header, _, err := authorize(t, l, resource)
		status, ok, _ := l.Status()
		if tolerant {
			if header != "Bearer access-2" || err != nil || status.Ended != "" {
				t.Errorf("a tolerant server: got %q, %v, %+v; want a new token", header, err, status)
			}
			continue
		}
		if header != "" || !errors.Is(err, ErrSignIn) || !strings.HasSuffix(err.Error(), "sign in with 'sallyport servers login docs'") {
			t.Errorf("a strict server: got %q, %v; want what to do", header, err)
		}
		if !ok || !strings.Contains(status.Ended, "invalid_grant") {
			t.Errorf("a strict server: got status %+v, want why the login ended", status)
		}
		before := len(as.received("grant_type"))
		if _, _, err := authorize(t, as.login(t, dir, nil), resource); !errors.Is(err, ErrSignIn) || len(as.received("grant_type")) != before {
			t.Errorf("and again: got %v with %d requests, want %v with none", err, len(as.received("grant_type"))-before, ErrSignIn)
		}
	}
}

// TestGivenUp: a caller that gives up does not stop a renewal, whose answer would be
// lost.
func TestGivenUp(t *testing.T) {
	as := newAuthServer(t)
	reached, release := make(chan struct{}), make(chan struct{})
	as.after = func() {
		close(reached)
		<-release
	}
	l := as.login(t, store.At(t.TempDir()), as.record(time.Now()))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		<-reached
		cancel(why)
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Authorize(r); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	close(release)
	if header, _, err := authorize(t, l, resource); header != "Bearer access-1" || err != nil {
		t.Errorf("afterwards: got %q, %v, want the new token", header, err)
	}
	if sent := as.received("refresh_token"); len(sent) != 1 {
		t.Errorf("got refreshes with %q, want one", sent)
	}
}

// TestRenewalFails: only an answer that says so ends a login. Until its token has
// really expired, it is used.
func TestRenewalFails(t *testing.T) {
	fails := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, status, map[string]any{"error": code})
			return true
		}
	}
	for _, tt := range []struct {
		name      string
		before    func(http.ResponseWriter, *http.Request) bool
		valid     bool // the old token, a while yet
		clientID  string
		header    string
		err       string
		ended     bool // and the user has to sign in
		forgotten bool // the registration
	}{
		{name: "unavailable", before: fails(503, ""), valid: true, header: "Bearer access-0"},
		{name: "unavailable, expired", before: fails(503, ""), err: `the login at server "docs" could not be renewed: the authorization server answered with status 503`},
		{name: "unreachable", before: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, err: "cannot be reached"},
		{name: "another error", before: fails(400, "invalid_target"), err: "could not be renewed: invalid_target"},
		{name: "a newline in the token", before: func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, 200, map[string]any{"access_token": "a\nb"})
			return true
		}, err: "other characters than tokens have"},
		{name: "ended", before: fails(400, "invalid_grant"), valid: true, err: "does not renew it (invalid_grant): sign in with", ended: true},
		{name: "registration gone", before: fails(401, "invalid_client"), err: "sign in with", ended: true, forgotten: true},
		{name: "given credentials wrong", before: fails(401, "invalid_client"), clientID: "client", err: "could not be renewed: invalid_client"},
	} {
		as := newAuthServer(t)
		as.before = tt.before
		expires := time.Now()
		if tt.valid {
			expires = expires.Add(renewBefore / 2)
		}
		logins := New(store.At(t.TempDir()), Options{})
		l := logins.At(Server{Name: "docs", URL: resource, HTTP: http.DefaultClient, Client: Client{ID: tt.clientID}})
		rec := as.record(expires)
		if err := errors.Join(logins.save(t.Context(), nil, l.key, rec), logins.keep(t.Context(), nil, as.URL, &rec.Party)); err != nil {
			t.Fatal(err)
		}
		header, _, err := authorize(t, l, resource)
		if header != tt.header || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrSignIn) != tt.ended {
			t.Errorf("%s: got %q, %v, want %q, %q, sign in: %v", tt.name, header, err, tt.header, tt.err, tt.ended)
		}
		if status, ok, err := l.Status(); !ok || (status.Ended != "") != tt.ended {
			t.Errorf("%s: got status %+v, %v, want ended: %v", tt.name, status, err, tt.ended)
		}
		if p, err := logins.registration(t.Context(), nil, as.URL); (p == nil) != tt.forgotten || err != nil {
			t.Errorf("%s: got registration %v, %v, want forgotten: %v", tt.name, p, err, tt.forgotten)
		}
		before := len(as.received("grant_type"))
		if tt.valid && !tt.ended {
			// The next request does not wait for another failure.
			if header, _, err := authorize(t, l, resource); header != tt.header || err != nil || len(as.received("grant_type")) != before {
				t.Errorf("%s, again: got %q, %v and %d requests, want the old token and none", tt.name, header, err, len(as.received("grant_type"))-before)
			}
		}
	}
}

//go:build linux

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/session"
)

// noSessions are those of a process that has none.
type noSessions struct{ sessions }

type sessions = control.Sessions

func (noSessions) Sessions() []session.Info { return nil }

// askedUser is a user of a process whose servers ask.
type askedUser struct {
	*hubUser
	*approval.Book
}

func newAskedUser(t *testing.T) *askedUser {
	t.Helper()
	h := newHubUser(t, "TERM=xterm", "NO_COLOR=1")
	log := slog.New(slog.DiscardHandler)
	u := &askedUser{h, approval.New(approval.Config{Timeout: time.Hour, Log: log})}
	dir := filepath.Join(h.runtime, "sallyport", "control")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	server, err := control.Listen(dir, control.Config{
		Sessions: noSessions{}, Approvals: u.Book, Log: log,
		About: func() control.Process { return control.Process{PID: os.Getpid(), Started: time.Now()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return u
}

// asks has a server ask, and returns the address of the question. The outcome is the
// result or an error.
func (u *askedUser) asks(method, params string) (address string, outcome chan string) {
	u.t.Helper()
	r, err := inquiry.Parse(method, json.RawMessage(params))
	if err != nil {
		u.t.Fatal(err)
	}
	outcome = make(chan string, 1)
	before := map[string]bool{}
	for _, q := range u.List() {
		before[q.ID] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	u.t.Cleanup(cancel)
	go func() {
		result, err := u.Inquire(ctx, authz.Local("tests"), &authz.Server{Name: "github", Started: "npx github-mcp"}, r)
		outcome <- fmt.Sprintf("%s %v", result, err)
	}()
	q, err := u.Next(ctx, func(q *approval.Question) bool { return !before[q.ID] })
	if err != nil {
		u.t.Fatal(err)
	}
	return q.Address(), outcome
}

func (u *askedUser) gets(outcome chan string, want string) {
	u.t.Helper()
	if got := <-outcome; got != want {
		u.t.Errorf("got %s, want %s", got, want)
	}
}

const mergeForm = `{"message":"How to merge?","requestedSchema":{"type":"object","properties":{
	"branch":{"type":"string","title":"Branch","default":"main"},
	"how":{"type":"string","oneOf":[{"const":"squash","title":"Squash it"},{"const":"rebase","title":"Rebase"}]},
	"labels":{"type":"array","items":{"type":"string","enum":["bug","ui","docs"]}},
	"times":{"type":"integer","minimum":1},
	"draft":{"type":"boolean"}},"required":["how","times"]}}`

// TestServersAskOnCommandLine: what a server asks is listed and answered by commands.
func TestServersAskOnCommandLine(t *testing.T) {
	u := newAskedUser(t)
	fails := func(want string, args ...string) {
		t.Helper()
		cmd := exec.Command(u.bin, append([]string{"approvals"}, args...)...)
		cmd.Env = u.env
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: got %s, %v, want %q", args, out, err, want)
		}
	}
	says := func(want string, args ...string) {
		t.Helper()
		if got := u.approvals(args...); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %q", args, got, want)
		}
	}
	address, form := u.asks(inquiry.Elicitation, mergeForm)
	says("an answer to github, ")
	says("sallyport approvals approve " + address + " --answer NAME=VALUE | sallyport approvals deny " + address)
	says("| How to merge?", "show", address)
	says(`"name": "labels"`, "list", "--json")
	fails(`field "how" is missing`, "approve", address)
	fails(`field "times" takes a whole number of at least 1`, "approve", address, "--answer", "how=squash", "--answer", "times=0")
	fails(`no field "other"`, "approve", address, "--answer", "how=squash", "--answer", "times=1", "--answer", "other=1")
	fails("--answer takes NAME=VALUE", "approve", address, "--answer", "how")
	fails("--answer for what a server asks", "approve", address, "--answer", "how=squash", "--for", "tool")
	fails(`cannot be answered with "tool"`, "approve", address, "--for", "tool")
	fails("name the revision", "approve", strings.TrimSuffix(address, ".1"), "--answer", "how=squash")
	says("sent to github.", "approve", address, "--answer", "how=Rebase", "--answer", "times=2", "--answer", "labels=bug", "--answer", "labels=docs")
	u.gets(form, `{"action":"accept","content":{"branch":"main","how":"rebase","labels":["bug","docs"],"times":2}} <nil>`)
	fails("answered already: sent to github by sallyport approvals", "deny", address)

	address, declined := u.asks(inquiry.Elicitation, mergeForm)
	says("declined.", "deny", address)
	u.gets(declined, `{"action":"decline"} <nil>`)

	address, link := u.asks(inquiry.Elicitation, `{"mode":"url","message":"Log in","url":"https://github.com/login","elicitationId":"1"}`)
	says("sallyport approvals approve " + address + " | ")
	fails("asks for no values", "approve", address, "--answer", "a=b")
	says("accepted.\nNow open https://github.com/login\n", "approve", address)
	u.gets(link, `{"action":"accept"} <nil>`)

	address, model := u.asks(inquiry.Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"Write a haiku"}}],"maxTokens":100}`)
	says("No call waits for approval.")
	says(address, "list", "--json")
	says("user      | Write a haiku", "show", address)
	fails("the client answers this", "approve", address)
	says("refused.", "deny", address)
	u.gets(model, " the user refused")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = u.Ask(ctx, authz.Local("tests"), authz.CallTool{Server: &authz.Server{Name: "files"}, Tool: "write"}, authz.Decision{})
	}()
	q, err := u.Next(ctx, func(*approval.Question) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	fails("is about calls", "approve", q.Address(), "--answer", "a=b")
}

// TestServersAskOnTerminal: a form is filled in field by field, and what does not fit is
// asked again.
func TestServersAskOnTerminal(t *testing.T) {
	u := newAskedUser(t)
	s := startShell(t, u.env, u.home, u.bin, "approvals", "--watch")
	s.until("No call waits for approval.")
	_, model := u.asks(inquiry.Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"Write a haiku"}}],"maxTokens":100}`)
	address, form := u.asks(inquiry.Elicitation, mergeForm)
	step := func(typed, want string) {
		t.Helper()
		if typed != "" {
			s.send(typed)
		}
		if got := strings.ReplaceAll(s.until("\n? "), "\r", ""); !strings.Contains(got, want) {
			t.Errorf("after %q: got %q, want %q", typed, got, want)
		}
	}
	step("", address+": an answer to github, ")
	step("x\n", "x: choose one of these answers.\n  a: fill in and send; d: decline; Enter: leave it open")
	step("a\n", "  1 of 5, branch: string\n  a value; Enter: the default, \"main\"; a colon: back")
	step("dev\n", "  2 of 5, how: one of the options, required\n    1: squash (Squash it)\n    2: rebase (Rebase)\n  a number; a colon: back")
	step(":\n", "a: fill in and send")
	step("a\n", "1 of 5")
	step("\n", "2 of 5")
	step("\n", "the server requires this field.\n  2 of 5")
	step("3\n", `field "how" takes one of "squash", "rebase".`)
	step("2\n", "  3 of 5, labels: any of the options\n    1: bug\n    2: ui\n    3: docs\n  numbers, with commas between; Enter: leave it out; a colon: back")
	step("3, 1\n", "4 of 5, times: integer, required\n  a value; a colon: back")
	step("many\n", `field "times" takes a whole number of at least 1.`)
	step("2\n", "5 of 5, draft: true or false")
	s.send("\n")
	s.until("sent to github.")
	u.gets(form, `{"action":"accept","content":{"branch":"main","how":"rebase","labels":["docs","bug"],"times":2}} <nil>`)

	_, link := u.asks(inquiry.Elicitation, `{"mode":"url","message":"Log in","url":"https://github.com/login","elicitationId":"1"}`)
	step("", "a: accept, and open the address yourself; d: decline; Enter: leave it open")
	s.send("d\n")
	s.until("declined.")
	u.gets(link, `{"action":"decline"} <nil>`)

	// An answer from elsewhere ends a form that is half filled in, and leaves nothing for
	// the next one.
	address, form = u.asks(inquiry.Elicitation, mergeForm)
	step("", "How to merge?")
	step("a\n", "1 of 5")
	u.approvals("deny", address)
	s.until("was answered already: declined by sallyport approvals")
	u.gets(form, `{"action":"decline"} <nil>`)
	_, form = u.asks(inquiry.Elicitation, mergeForm)
	step("", "a: fill in and send")
	s.send("\x04")
	if status, rest := s.exits(); status != 0 {
		t.Errorf("got status %d and %q, want 0", status, rest)
	}
	select {
	case got := <-model:
		t.Errorf("got %s, want the client's question open", got)
	case got := <-form:
		t.Errorf("got %s, want the question open", got)
	default:
	}
}

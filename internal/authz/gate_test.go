package authz_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox"
)

var (
	me      = authz.Local("test")
	anyTool = func(string) bool { return true }
	usable  = &authz.Server{Name: "fs", ToolAllowed: anyTool}
)

// TestRules names the rule that decides on each action, so that each place that
// ever decided has its case here.
func TestRules(t *testing.T) {
	policy := authz.Default()
	policy.Servers = []string{"fs", "off", "new", "pattern", "a b", "theirs"}
	gate := authz.New(authz.Config{Policy: policy, RefuseChanged: true, Requests: []string{"npx good-*", "https://x/*"}, May: func(server string) inquiry.Takes {
		return inquiry.Takes{Forms: server == "fs", URLs: server == "fs", Sampling: server == "a b", Roots: server != "new"}
	}})
	form := &inquiry.Request{Method: inquiry.Elicitation, Message: "m", Fields: []inquiry.Field{{Name: "f", Type: "string"}}}
	page := &inquiry.Request{Method: inquiry.Elicitation, Message: "m", URL: "https://x/"}
	model, roots := &inquiry.Request{Method: inquiry.Sampling, MaxTokens: 5}, &inquiry.Request{Method: inquiry.Roots}
	sampler, quiet := &authz.Server{Name: "a b"}, &authz.Server{Name: "new"}
	secret := &authz.Server{Name: "secret", ToolAllowed: anyTool}
	off := &authz.Server{Name: "off", Disabled: true, ToolAllowed: anyTool}
	offered := &authz.Server{Name: "theirs", Offer: "offered", ToolAllowed: anyTool}
	changed := &authz.Server{Name: "theirs", Offer: "changed", ToolAllowed: anyTool}
	some := &authz.Server{Name: "fs", ToolAllowed: func(tool string) bool { return tool == "read" }}
	unknown := &authz.Server{Name: "fs"}
	kernel := report(sandbox.KernelIsolation, sandbox.Hard)
	tests := []struct {
		name   string
		action authz.Action
		rule   string // empty: allowed
		want   string // part of the reason
	}{
		{"no action", nil, "principal", "no action"},
		{"code on a kernel of its own", authz.RunCode{Engine: kernel}, "", ""},
		{"code without isolation", authz.RunCode{Engine: report(sandbox.NoIsolation, sandbox.Hard)}, "engine", "policy.minIsolation: none"},
		{"code on an engine that was not probed", authz.RunCode{}, "engine", "not been probed"},
		{"code at a batch service", authz.RunBatch{Service: "kaggle"}, "", ""},
		{"find no server", authz.FindServer{}, "servers", "no server"},
		{"call at no server", authz.CallTool{Granted: true, Tool: "t", Form: authz.FormAccepted}, "servers", "no server"},
		{"find", authz.FindServer{Server: off}, "", ""},
		{"find what the policy hides", authz.FindServer{Server: secret}, "servers", "policy.servers"},
		{"describe", authz.DescribeServer{Server: usable}, "", ""},
		{"describe a disabled server", authz.DescribeServer{Server: off}, "definition", "sallyport servers enable off"},
		{"load", authz.LoadServer{Server: usable}, "", ""},
		{"load what the policy hides", authz.LoadServer{Server: secret}, "servers", "policy.servers"},
		{"load a disabled server", authz.LoadServer{Server: off}, "definition", "is disabled"},
		{"load a project's server", authz.LoadServer{Server: offered}, "definition", "sallyport servers trust"},
		{"load a project's server that changed", authz.LoadServer{Server: changed}, "definition", "it changed since"},
		{"list", authz.ListServer{Server: usable, Granted: true}, "", ""},
		{"list without a grant", authz.ListServer{Server: usable}, "grant", "await runtime.load_server('fs')"},
		{"call", authz.CallTool{Server: usable, Granted: true, Tool: "t", Form: authz.FormAccepted}, "", ""},
		{"call without a grant", authz.CallTool{Server: usable, Tool: "t", Form: authz.FormAccepted}, "grant", "not granted"},
		{"call what the policy hides", authz.CallTool{Server: secret, Granted: true, Tool: "t", Form: authz.FormAccepted}, "servers", "policy.servers"},
		{"call at a server that was disabled", authz.CallTool{Server: off, Granted: true, Tool: "t", Form: authz.FormAccepted}, "definition", "is disabled"},
		{"call an allowed tool", authz.CallTool{Server: some, Granted: true, Tool: "read", Form: authz.FormAccepted}, "", ""},
		{"call another tool", authz.CallTool{Server: some, Granted: true, Tool: "write", Form: authz.FormAccepted}, "tools", "does not allow this tool"},
		{"call at a server of unknown lists", authz.CallTool{Server: unknown, Granted: true, Tool: "t", Form: authz.FormAccepted}, "tools", "does not allow this tool"},
		{"call a changed tool", authz.CallTool{Server: usable, Granted: true, Tool: "a b", Form: authz.FormChanged}, "changes", "sallyport tools show fs 'a b'"},
		{"call a new tool", authz.CallTool{Server: usable, Granted: true, Tool: "t", Form: authz.FormNew}, "changes", "did not have it"},
		{"call a tool that was not compared", authz.CallTool{Server: usable, Granted: true, Tool: "t"}, "changes", "not compared"},
		{"call a tool while the record is broken", authz.CallTool{Server: usable, Granted: true, Tool: "t", Form: authz.FormUnreadable}, "changes", "cannot be read"},
		{"read", authz.ReadResource{Server: usable, Granted: true, URI: "u", Form: authz.FormAccepted}, "", ""},
		{"read without a grant", authz.ReadResource{Server: usable, URI: "u", Form: authz.FormAccepted}, "grant", "not granted"},
		{"read a changed resource", authz.ReadResource{Server: usable, Granted: true, URI: "u", Form: authz.FormDiffers}, "changes", "resource u of server 'fs'"},
		{"read what is not listed", authz.ReadResource{Server: usable, Granted: true, URI: "u", Form: authz.FormUnlisted}, "changes", "does not list it"},
		{"get", authz.GetPrompt{Server: usable, Granted: true, Prompt: "p", Form: authz.FormAccepted}, "", ""},
		{"get without a grant", authz.GetPrompt{Server: usable, Prompt: "p", Form: authz.FormAccepted}, "grant", "not granted"},
		{"get a prompt while the record is broken", authz.GetPrompt{Server: usable, Granted: true, Prompt: "p", Form: authz.FormUnreadable}, "changes", "the log says why"},
		{"request", authz.RequestServer{Server: &authz.Server{Name: "new"}, Command: []string{"npx", "good-one"}}, "", ""},
		{"request a URL", authz.RequestServer{Server: &authz.Server{Name: "new"}, URL: "https://x/a"}, "", ""},
		{"request another command", authz.RequestServer{Server: &authz.Server{Name: "new"}, Command: []string{"npx", "bad"}}, "requests", "policy.requests"},
		{"request a definition that says more", authz.RequestServer{Server: &authz.Server{Name: "new"}}, "requests", "policy.requests"},
		{"ask nothing", authz.Inquire{Server: usable}, "inquiries", "nothing was asked"},
		{"ask for no server", authz.Inquire{Request: form}, "servers", "no server"},
		{"ask for a server that was disabled", authz.Inquire{Server: off, Request: form}, "definition", "is disabled"},
		{"ask with a form", authz.Inquire{Server: usable, Request: form}, "", ""},
		{"ask with a page", authz.Inquire{Server: usable, Request: page}, "", ""},
		{"ask for the model", authz.Inquire{Server: usable, Request: model}, "inquiries", "add fs=sample to servers.may"},
		{"ask for the roots", authz.Inquire{Server: usable, Request: roots}, "", ""},
		{"a sampler asks for the model", authz.Inquire{Server: sampler, Request: model}, "", ""},
		{"a sampler asks with a form", authz.Inquire{Server: sampler, Request: form}, "inquiries", "add a b=elicit to servers.may"},
		{"a sampler asks with a page", authz.Inquire{Server: sampler, Request: page}, "inquiries", "add a b=elicit to servers.may"},
		{"a quiet server asks for the roots", authz.Inquire{Server: quiet, Request: roots}, "inquiries", "that is not new=none"},
		{"ask something else", authz.Inquire{Server: usable, Request: &inquiry.Request{Method: "x"}}, "inquiries", "servers.may"},
		{"request a name that the policy hides", authz.RequestServer{Server: secret, Command: []string{"npx", "good-one"}}, "servers", "policy.servers"},
	}
	for _, tt := range tests {
		d := gate.Decide(me, tt.action)
		want := authz.Deny
		switch tt.rule {
		case "":
			want = authz.Allow
		case "requests":
			want = authz.Ask
		}
		if d.Effect != want || d.Rule != tt.rule || tt.want != "" && !strings.Contains(d.Reason.Error(), tt.want) {
			t.Errorf("%s: got %v by rule %q (%v), want %v by rule %q with %q", tt.name, d.Effect, d.Rule, d.Reason, want, tt.rule, tt.want)
		}
		// What a denying gate, or no one, wants is always denied.
		for name, denied := range map[string]authz.Decision{
			"the zero gate": authz.New(authz.Config{}).Decide(me, tt.action),
			"a nil gate":    (*authz.Gate)(nil).Decide(me, tt.action),
			"no owner":      gate.Decide(authz.Principal{Client: "admin"}, tt.action),
		} {
			if denied.Effect != authz.Deny || denied.Reason == nil {
				t.Errorf("%s, %s: got %+v, want a denial with a reason", tt.name, name, denied)
			}
		}
	}
}

// TestNobodyMayAsk: without settings no server may ask anything.
func TestNobodyMayAsk(t *testing.T) {
	gate := authz.New(authz.Config{Policy: authz.Default()})
	for _, method := range []string{inquiry.Elicitation, inquiry.Sampling, inquiry.Roots} {
		if d := gate.Decide(me, authz.Inquire{Server: usable, Request: &inquiry.Request{Method: method}}); d.Effect != authz.Deny || d.Rule != "inquiries" {
			t.Errorf("%s: got %+v, want a denial by the rule inquiries", method, d)
		}
	}
}

// TestFormsAreNotLookedAt: without RefuseChanged no form is refused.
func TestFormsAreNotLookedAt(t *testing.T) {
	gate := authz.New(authz.Config{Policy: authz.Default()})
	if d := gate.Decide(me, authz.CallTool{Server: usable, Granted: true, Tool: "t", Form: authz.FormChanged}); d.Effect != authz.Allow {
		t.Errorf("got %+v, want it allowed", d)
	}
}

type person struct {
	answer bool
	words  string
	err    error
	asked  []authz.Action
}

func (p *person) Ask(_ context.Context, _ authz.Principal, a authz.Action, _ authz.Decision) (authz.Answer, error) {
	p.asked = append(p.asked, a)
	return authz.Answer{Allowed: p.answer, Words: p.words}, p.err
}
func (p *person) Waiting(string) string { return "" }
func (p *person) Ended(string)          {}

func TestAsking(t *testing.T) {
	request := authz.RequestServer{Server: &authz.Server{Name: "new"}, Command: []string{"x"}}
	admit := func(asker authz.Asker, a authz.Action) error {
		_, err := authz.New(authz.Config{Policy: authz.Default(), Asker: asker}).Admit(t.Context(), me, a)
		return err
	}
	var denied *authz.Denied
	err := admit(nil, request)
	if !errors.As(err, &denied) || denied.Effect != authz.Ask || !strings.Contains(err.Error(), "policy.requests") || !strings.Contains(err.Error(), "no one could be asked") {
		t.Errorf("without anyone to ask: got %v, want why and that no one could be asked", err)
	}
	if err := admit(&person{answer: true}, request); err != nil {
		t.Errorf("a yes: got %v", err)
	}
	err = admit(&person{words: "not today"}, request)
	if !errors.As(err, &denied) || denied.Answer == nil || !strings.Contains(err.Error(), "did not allow new: not today") {
		t.Errorf("a no: got %v, want the person's words", err)
	}
	if err := admit(&person{answer: true, err: errors.New("it took too long")}, request); err == nil || !strings.Contains(err.Error(), "it took too long") {
		t.Errorf("no answer in time: got %v, want the reason", err)
	}
	// No one is asked about what a rule denies.
	p := &person{answer: true}
	if err := admit(p, authz.LoadServer{Server: &authz.Server{Name: "off", Disabled: true}}); err == nil || len(p.asked) != 0 {
		t.Errorf("got %v after %d questions, want a denial without any", err, len(p.asked))
	}
}

// TestJournal: each decision to act, and how the action ended, is published.
func TestJournal(t *testing.T) {
	j := journal.New(slog.New(slog.DiscardHandler))
	var got []string
	events := j.Subscribe(journal.Options{Topics: journal.Actions, Handle: func(events []journal.Event, _ int) error {
		for _, e := range events {
			switch e := e.(type) {
			case *journal.Decided:
				got = append(got, fmt.Sprintf("%s %d %s %s %s %s: %s %t %s", e.Owner, e.Call, e.Action, e.Server, e.Item, e.Arguments, e.Effect, e.Allowed, e.Rule))
			case *journal.Finished:
				got = append(got, fmt.Sprintf("%s %d %s %s %s: %d bytes, %s, %t", e.Owner, e.Call, e.Action, e.Server, e.Item, e.Bytes, e.Failure, e.Took > 0))
			}
		}
		return nil
	}})
	gate := authz.New(authz.Config{Policy: authz.Default(), Journal: j})
	gate.Decide(me, authz.LoadServer{Server: usable}) // of a list: nothing happens
	call := authz.CallTool{Server: usable, Granted: true, Tool: "t", Arguments: []byte(`{"key":"value"}`)}
	permit, err := gate.Admit(t.Context(), me, call)
	if err != nil {
		t.Fatal(err)
	}
	permit.Done(7, "timeout")
	call.Granted = false
	if _, err := gate.Admit(t.Context(), me, call); err == nil {
		t.Error("got a permit without a grant")
	}
	if _, err := gate.Admit(t.Context(), me, authz.InstallPackages{Requirements: []string{"a==2"}, Adds: []string{"a 2.0", "b 1.0"}}); err == nil {
		t.Error("got a permit for packages without a policy")
	}
	if _, err := gate.Admit(t.Context(), me, authz.InstallPackages{Requirements: slices.Repeat([]string{"aaaa"}, 200)}); err == nil {
		t.Error("got a permit for packages without a policy")
	}
	events.Close()
	long := got[len(got)-1]
	got = got[:len(got)-1]
	if want := "local 4 install_packages  " + strings.Repeat("aaaa ", 100) + "… "; !strings.HasPrefix(long, want) {
		t.Errorf("got %q, want %q in it", long, want)
	}
	want := []string{
		`local 1 call_tool fs t {"key":"value"}: allow true `,
		`local 1 call_tool fs t: 7 bytes, timeout, true`,
		`local 2 call_tool fs t {"key":"value"}: deny false grant`,
		`local 3 install_packages  a 2.0, b 1.0 {"packages":["a==2"],"adds":["a 2.0","b 1.0"]}: deny false packages`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnrecorded: where someone requires a record of each decision, what cannot
// be recorded is denied.
func TestUnrecorded(t *testing.T) {
	j := journal.New(slog.New(slog.DiscardHandler))
	full := errors.New("the disk is full")
	events := j.Subscribe(journal.Options{Topics: journal.Actions, Required: true, Handle: func([]journal.Event, int) error { return full }})
	gate := authz.New(authz.Config{Policy: authz.Default(), Journal: j})
	call := authz.CallTool{Server: usable, Granted: true, Tool: "t"}
	if permit, err := gate.Admit(t.Context(), me, call); !errors.Is(err, full) || permit.Action() != nil {
		t.Errorf("got %v and the error %v, want no permit, because the disk is full", permit.Action(), err)
	}
	events.Close()
	if _, err := gate.Admit(t.Context(), me, call); err != nil {
		t.Errorf("without that subscriber: got %v, want a permit", err)
	}
}

// TestUnrecordedNamesNoPath: code learns the cause, and not where the log is.
func TestUnrecordedNamesNoPath(t *testing.T) {
	const dir = "/home/someone/.local/state/sallyport/audit"
	for _, test := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: dir + "/1.jsonl", Err: syscall.EACCES}, "permission denied"},
		{fmt.Errorf("%s: %w", dir, &os.LinkError{Op: "rename", Old: dir + "/a", New: dir + "/b", Err: syscall.ENOSPC}), "no space left on device"},
		{errors.Join(&fs.PathError{Op: "write", Path: dir, Err: syscall.EROFS}, &fs.PathError{Op: "truncate", Path: dir, Err: syscall.EIO}), "read-only file system"},
		{&fs.PathError{Op: "lock", Path: dir, Err: fs.ErrNotExist}, "file does not exist"},
		{&private.Rejected{Path: dir, Cause: dir + " is open to others", Remedy: "chmod 700 " + dir}, "the audit log cannot be written; Sallyport's own log says why"},
		{errors.New(dir + ": its seal does not fit"), "the audit log cannot be written; Sallyport's own log says why"},
	} {
		j := journal.New(slog.New(slog.DiscardHandler))
		events := j.Subscribe(journal.Options{Topics: journal.Actions, Required: true, Handle: func([]journal.Event, int) error { return test.err }})
		_, err := authz.New(authz.Config{Policy: authz.Default(), Journal: j}).Admit(t.Context(), me, authz.CallTool{Server: usable, Granted: true, Tool: "t"})
		events.Close()
		if want := "it cannot be recorded, which audit.mode: strict requires: " + test.want; err == nil || err.Error() != want || !errors.Is(err, test.err) {
			t.Errorf("%v: got %v, want %s", test.err, err, want)
		}
	}
}

// TestZeroPermit: a permit that no gate made allows nothing.
func TestZeroPermit(t *testing.T) {
	var p authz.Permit
	p.Done(1, "") // reports nothing
	if p.Action() != nil || p.Observed() {
		t.Errorf("got %+v, want no action", p)
	}
}

func BenchmarkAdmitCall(b *testing.B) {
	gate := authz.New(authz.Config{Policy: authz.Default()})
	b.ReportAllocs()
	for b.Loop() {
		permit, err := gate.Admit(b.Context(), me, authz.CallTool{Server: usable, Granted: true, Tool: "t", Arguments: []byte(`{}`)})
		if err != nil {
			b.Fatal(err)
		}
		permit.Done(2, "")
	}
}

package authz_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
)

// verdict has the same verdict for all calls.
type verdict struct {
	authz.Verdict
	broken error
}

func (v *verdict) DecideCall(authz.Principal, authz.Action) authz.Verdict { return v.Verdict }
func (v *verdict) Broken(bool) error                                      { return v.broken }

func TestToolRules(t *testing.T) {
	call := authz.CallTool{Server: usable, Granted: true, Tool: "t"}
	read := authz.ReadResource{Server: usable, Granted: true, URI: "x:y"}
	prompt := authz.GetPrompt{Server: usable, Granted: true, Prompt: "p"}
	allow, ask := authz.Verdict{Effect: authz.Allow, Rule: "r"}, authz.Verdict{Effect: authz.Ask, Rule: "r"}
	deny := authz.Verdict{Rule: "config.yaml:3", Because: "it is Friday"}
	for _, tt := range []struct {
		name    string
		rules   authz.Verdict
		action  authz.Action
		want    authz.Effect
		says    string
		visible bool
	}{
		{"allow", allow, call, authz.Allow, "", true},
		{"deny", deny, call, authz.Deny, "tool 't' of server 'fs' is denied by the rule config.yaml:3: it is Friday", false},
		{"ask", ask, call, authz.Ask, "needs the user's consent, says the rule r", true},
		{"the zero verdict", authz.Verdict{}, call, authz.Deny, "denied", false},
		{"deny a resource", deny, read, authz.Deny, "a resource of server 'fs' is denied", false},
		{"ask about a prompt", ask, prompt, authz.Ask, "prompt 'p'", true},
		{"what is not a call", deny, authz.LoadServer{Server: usable}, authz.Allow, "", true},
		{"what another rule denies", allow, authz.CallTool{Server: usable, Tool: "t"}, authz.Deny, "not granted", false},
	} {
		gate := authz.New(authz.Config{Policy: authz.Default(), Tools: &verdict{Verdict: tt.rules}})
		d := gate.Decide(me, tt.action)
		if d.Effect != tt.want || (d.Reason == nil) != (tt.says == "") || d.Reason != nil && !strings.Contains(d.Reason.Error(), tt.says) {
			t.Errorf("%s: got %v %v, want %v %q", tt.name, d.Effect, d.Reason, tt.want, tt.says)
		}
		if got := gate.Visible(me, tt.action); got != tt.visible {
			t.Errorf("%s: got visible %v, want %v", tt.name, got, tt.visible)
		}
	}
	broken := authz.New(authz.Config{Policy: authz.Default(), Packages: func() []string { return []string{"any"} }, Tools: &verdict{Verdict: allow, broken: errors.New("config.yaml:3: no")}})
	if d := broken.Decide(me, authz.InstallPackages{Requirements: []string{"a"}}); d.Effect != authz.Deny || d.Reason.Error() != "config.yaml:3: no" {
		t.Errorf("packages with broken rules: got %v %v, want a denial", d.Effect, d.Reason)
	}
	if d := broken.Decide(me, authz.RunBatch{Service: "kaggle"}); d.Effect != authz.Deny || d.Reason.Error() != "config.yaml:3: no" {
		t.Errorf("code with broken rules: got %v %v, want a denial", d.Effect, d.Reason)
	}
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := func(l authz.Limits) *authz.Gate {
			return authz.New(authz.Config{Policy: authz.Default(), Tools: &verdict{Verdict: authz.Verdict{Effect: authz.Allow, Rule: "r", Limits: &l}}})
		}
		admit := func(g *authz.Gate, counts *authz.Counts, arguments string) string {
			_, err := g.Admit(t.Context(), me, authz.CallTool{Server: usable, Granted: true, Tool: "t", Counts: counts, Arguments: json.RawMessage(arguments)})
			if err == nil {
				return ""
			}
			var denied *authz.Denied
			if !errors.As(err, &denied) || denied.Effect != authz.Deny || denied.Rule != "policy.tools" {
				t.Errorf("got %#v, want a denial", err)
			}
			return err.Error()
		}
		check := func(what, got, want string) {
			t.Helper()
			if !strings.Contains(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		g := gate(authz.Limits{PerExecution: 2})
		var one, other authz.Counts
		check("first", admit(g, &one, ""), "")
		check("second", admit(g, &one, ""), "")
		check("third", admit(g, &one, ""), "tool 't' of server 'fs' exceeds a limit of the rule r: it allows 2 calls per execution")
		check("another execution", admit(g, &other, ""), "")
		check("no counts", admit(g, nil, ""), "2 calls per execution")

		g = gate(authz.Limits{PerMinute: 2})
		check("first", admit(g, nil, ""), "")
		time.Sleep(40 * time.Second)
		check("second", admit(g, nil, ""), "")
		check("third", admit(g, nil, ""), "2 calls per minute; there is room in 20s")
		time.Sleep(20 * time.Second)
		check("when the first is a minute old", admit(g, nil, ""), "")
		check("and one more", admit(g, nil, ""), "there is room in 40s")

		g = gate(authz.Limits{ArgumentBytes: 9})
		check("few bytes", admit(g, nil, `{"a":"b"}`), "")
		check("many bytes", admit(g, nil, `{"a":"bc"}`), "the arguments take 10 bytes, and it allows 9")
	})
}

func TestCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := authz.New(authz.Config{Policy: authz.Default(), Tools: &verdict{Verdict: authz.Verdict{Effect: authz.Allow, Rule: "r", Limits: &authz.Limits{InFlight: 1}}}})
		permit := func() authz.Permit {
			p, err := gate.Admit(t.Context(), me, authz.CallTool{Server: usable, Granted: true, Tool: "t"})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		first, second := permit(), permit()
		if err := first.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- second.Enter(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a second call whose execution ended: got %v, want %v", err, context.Canceled)
		}
		go func() { ended <- second.Enter(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the second call did not wait: %v", err)
		default:
		}
		first.Leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		second.Leave()
	})
}

// fickle is a person who agrees while the user's rules change: from one to the next
// with each question.
type fickle struct {
	verdict
	next []authz.Verdict
	said []string // the rules of the questions
}

func (f *fickle) Ask(_ context.Context, _ authz.Principal, _ authz.Action, why authz.Decision) (authz.Answer, error) {
	f.said = append(f.said, why.Verdict.Rule)
	f.Verdict, f.next = f.next[0], f.next[1:]
	return authz.Answer{Allowed: true, Server: "id"}, nil
}
func (f *fickle) Waiting(string) string { return "" }
func (f *fickle) Ended(string)          {}

// TestRulesChangeWhileAsking: a yes is for the rule that asked. What denies or asks
// by then counts.
func TestRulesChangeWhileAsking(t *testing.T) {
	asks := func(id string) authz.Verdict { return authz.Verdict{Effect: authz.Ask, Rule: "rule " + id, ID: id} }
	allow, deny := authz.Verdict{Effect: authz.Allow, Rule: "free", ID: "f"}, authz.Verdict{Rule: "no", ID: "n"}
	a := asks("a")
	for _, tt := range []struct {
		name  string
		next  []authz.Verdict
		asked int
		want  string // part of the error
	}{
		{"nothing changes", []authz.Verdict{a}, 1, ""},
		{"it is allowed", []authz.Verdict{allow}, 1, ""},
		{"it is denied", []authz.Verdict{deny}, 1, "denied by the rule no"},
		{"another rule asks", []authz.Verdict{asks("b"), asks("b")}, 2, ""},
		{"another one, and it is denied", []authz.Verdict{asks("b"), deny}, 2, "denied by the rule no"},
		{"another one each time", []authz.Verdict{asks("b"), asks("c"), asks("d")}, 3, "the rules changed each time"},
	} {
		f := &fickle{verdict: verdict{Verdict: a}, next: tt.next}
		p, err := authz.New(authz.Config{Policy: authz.Default(), Tools: f, Asker: f}).Admit(t.Context(), me, authz.CallTool{Server: usable, Granted: true, Tool: "t"})
		if len(f.said) != tt.asked || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %q asked and %v, want %d and %q", tt.name, f.said, err, tt.asked, tt.want)
		}
		if want := map[bool]string{true: "id"}[tt.want == ""]; p.Consented() != want {
			t.Errorf("%s: got consent to server %q, want %q", tt.name, p.Consented(), want)
		}
	}
}

package toolpolicy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// TestApprovedDecidesLast: what was approved for good counts in the place of the
// profile, and weakens no rule, whatever the files are called.
func TestApprovedDecidesLast(t *testing.T) {
	files := map[string]string{
		"config.yaml":            "policy: {profile: careful}\n",
		"policy.d/approved.yaml": "- {server: bank, tool: pay, action: allow}\n- {server: bank, tool: scan, action: deny}\n",
		"policy.d/zz-big.yaml":   "- {server: bank, tool: pay, if: args.amount > 100, action: ask, name: big}\n- {server: bank, tool: pay, if: args.amount == 7, action: allow, limits: {perMinute: 1}, name: seven}\n",
	}
	r, dir := rules(t, files)
	for _, tt := range []struct{ tool, args, want string }{
		{"pay", `{"amount":5}`, "allow policy.d/approved.yaml:1"},
		{"pay", `{"amount":7}`, "allow seven"},
		{"pay", `{"amount":100000}`, "ask big"},
		{"pay", `{}`, "ask big"}, // its condition cannot be evaluated
		{"scan", `{}`, "deny policy.d/approved.yaml:2"},
		{"fund", `{}`, "ask profile careful"},
	} {
		v := r.DecideCall(me, call("bank", tt.tool, tt.args, tool.Annotations{}))
		if got := fmt.Sprint(v.Effect, " ", v.Rule); got != tt.want {
			t.Errorf("%s(%s): got %s, want %s", tt.tool, tt.args, got, tt.want)
		}
	}
	if view := r.View(); view.Rules[len(view.Rules)-1].File != dir+"/policy.d/approved.yaml" {
		t.Errorf("got %s last, want approved.yaml", view.Rules[len(view.Rules)-1].File)
	}
}

// TestApprovedMayGo: to remove what was approved takes a permission back, and is no
// accident with rules.
func TestApprovedMayGo(t *testing.T) {
	for _, profile := range []string{"", "careful"} {
		_, dir := rules(t, map[string]string{"policy.d/approved.yaml": "- {server: bank, tool: pay, action: allow}\n"})
		r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml"), Profile: profile})
		if err := os.Remove(filepath.Join(dir, "policy.d/approved.yaml")); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"": "allow ", "careful": "ask profile careful"}[profile]
		if err := r.Broken(true); err != nil {
			t.Errorf("profile %q: got %v", profile, err)
		}
		v := r.DecideCall(me, call("bank", "pay", "{}", tool.Annotations{}))
		if got := fmt.Sprint(v.Effect, " ", v.Rule); got != want {
			t.Errorf("profile %q: got %s, want %s", profile, got, want)
		}
	}
}

// TestAnother: a rule is about a tool whatever session, client or arguments it
// wants.
func TestAnother(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{`- {name: it, server: bank, tool: pay, if: args.amount > 100, action: ask}`, "it"},
		{`- {name: it, server: "b*", tool: [x, p*], session: other, client: other, action: allow}`, "it"},
		{`- {name: it, action: deny, if: size(args) > 9}`, "it"},
		{`- {name: it, annotations: {readOnly: false}, action: ask}`, "it"},
		{`- {name: it, annotations: {readOnly: true}, action: allow}`, ""},
		{`- {name: it, server: bank, tool: fund, action: deny}`, ""},
		{`- {name: it, server: shop, tool: pay, action: deny}`, ""},
		{`- {name: it, server: bank, resource: "*", action: deny}`, ""},
	} {
		for _, file := range []string{"policy.d/10.yaml", "policy.d/approved.yaml"} {
			r, _ := rules(t, map[string]string{"config.yaml": "policy: {profile: careful}\n", file: tt.rule + "\n"})
			want := tt.want
			if file == "policy.d/approved.yaml" && tt.rule[:len(`- {name: it, action: deny`)] != `- {name: it, action: deny` {
				want = "" // it is what was approved
			}
			if got := r.Another(call("bank", "pay", "{}", tool.Annotations{})); got != want {
				t.Errorf("%s in %s: got %q, want %q", tt.rule, file, got, want)
			}
		}
	}
}

// TestIdentity: a rule that says something else is another one, and one that moved
// is not.
func TestIdentity(t *testing.T) {
	id := func(before, rule string) string {
		r, _ := rules(t, map[string]string{"policy.d/1.yaml": before + rule + "\n"})
		return r.DecideCall(me, call("fs", "x", "{}", tool.Annotations{})).ID
	}
	same := `- {server: fs, action: ask, because: it writes}`
	if a, b := id("", same), id("- {server: other, action: deny}\n", same); a != b || a == "" {
		t.Errorf("got %q and %q, want the same", a, b)
	}
	seen := map[string]string{id("", same): same}
	for _, other := range []string{
		`- {server: fs, action: ask}`, `- {server: fs, tool: x, action: ask, because: it writes}`, `- {server: fs, action: ask, because: it writes, if: "true"}`,
		`- {server: fs, action: ask, because: it writes, limits: {perMinute: 2}}`, `- {server: fs, action: ask, because: it writes, audit: {arguments: omit}}`,
		`- {server: fs, action: ask, because: it writes, session: "*"}`, `- {name: n, server: fs, action: ask, because: it writes}`,
	} {
		got := id("", other)
		if before := seen[got]; before != "" {
			t.Errorf("%s and %s: got the same identity", before, other)
		}
		seen[got] = other
	}
}

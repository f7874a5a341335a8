package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
)

// TestAlways: a rule that an answer writes allows that tool and no other one.
func TestAlways(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("policy.profile: careful\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := toolpolicy.Open(toolpolicy.Config{Path: config})
	decide := func(tool string) string { // what was written counts at once
		return rules.DecideCall(authz.Local("tests"), authz.CallTool{Server: &authz.Server{Name: "files"}, Tool: tool}).Effect.String()
	}
	w := approvedRules{filepath.Join(filepath.Dir(config), toolpolicy.Directory, toolpolicy.ApprovedFile), rules}
	call := func(server, tool string) authz.CallTool {
		return authz.CallTool{Server: &authz.Server{Name: server}, Tool: tool}
	}
	careful := rules.DecideCall(authz.Local("tests"), call("files", "write"))
	for _, tool := range []string{"write", "edit", "write"} {
		rule, err := w.Propose(call("files", tool), careful)
		if err == nil {
			err = w.Write(rule)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(w.path)
	if err != nil || strings.Count(string(got), "action: allow") != 2 {
		t.Errorf("got %s, %v, want each rule once", got, err)
	}
	for tool, want := range map[string]string{"write": "allow", "edit": "allow", "other": "ask"} {
		if got := decide(tool); got != want {
			t.Errorf("%s: got %s, want %s", tool, got, want)
		}
	}
	for name, refused := range map[string]struct {
		call authz.CallTool
		asks authz.Verdict
	}{
		"a pattern":               {call("files", "wri*e"), careful},
		"two lines":               {call("a\nb", "write"), careful},
		"a rule asks":             {call("files", "other"), authz.Verdict{Effect: authz.Ask, Rule: "policy.d/1.yaml:1", ID: "1"}},
		"a rule named as profile": {call("files", "other"), authz.Verdict{Effect: authz.Ask, Rule: careful.Rule, ID: "1"}},
	} {
		if rule, err := w.Propose(refused.call, refused.asks); err == nil {
			t.Errorf("%s: got %q, want it refused", name, rule.Text)
		}
	}
	// Where another rule is about the tool, it is for the user to change.
	big := filepath.Join(filepath.Dir(w.path), "10-big.yaml")
	if err := os.WriteFile(big, []byte("- {server: files, tool: other, if: args.n > 100, action: ask}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rule, err := w.Propose(call("files", "other"), careful); err == nil || !strings.Contains(err.Error(), "10-big.yaml") {
		t.Errorf("got %q, %v, want it refused because of 10-big.yaml", rule.Text, err)
	}
}

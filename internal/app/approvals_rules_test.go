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
	decide := func(tool string) string {
		if err := rules.Broken(true); err != nil {
			t.Fatal(err)
		}
		return rules.DecideCall(authz.Local("tests"), authz.CallTool{Server: &authz.Server{Name: "files"}, Tool: tool}).Effect.String()
	}
	w := approvedRules{filepath.Join(filepath.Dir(config), toolpolicy.Directory, approvedFile)}
	for _, tool := range []string{"write", "edit", "write"} {
		rule, err := w.Propose("files", tool, "profile careful")
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
	for _, refused := range [][3]string{{"files", "wri*e", "profile careful"}, {"a\nb", "write", "profile careful"}, {"files", "write", "policy.d/1.yaml:1"}} {
		if rule, err := w.Propose(refused[0], refused[1], refused[2]); err == nil {
			t.Errorf("%v: got %q, want it refused", refused, rule.Text)
		}
	}
}

package toolpolicy_test

import (
	"fmt"
	"testing"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

func TestPlan(t *testing.T) {
	lines := func(rules []*toolpolicy.Rule) (out []int) {
		for _, r := range rules {
			out = append(out, r.Line)
		}
		return out
	}
	on := func(tool string) toolpolicy.Subject { return toolpolicy.Subject{Server: "a", Tool: tool} }
	for _, c := range []struct {
		name, rules string // of the configuration file, the first in line 3
		subject     toolpolicy.Subject
		action      string
		want        string
	}{
		{"no rules", ``, on("x"), "allow", "at 0, same -1, deny [], first []"},
		{"before a rule for the server", `
    - {server: b, action: ask}
    - {server: a, action: ask}`, on("x"), "allow", "at 1, same -1, deny [], first []"},
		{"after rules for some tools", `
    - {server: a, tool: y, action: ask}
    - {server: a, action: ask}`, on(""), "allow", "at 2, same 1, deny [], first [4]"},
		{"after rules with conditions", `
    - {server: a, tool: x, if: args.n > 1, action: ask}
    - {tool: [x, y], action: ask}`, on("x"), "allow", "at 1, same -1, deny [], first [4]"},
		{"the same, too late", `
    - {server: a, action: ask}
    - {server: a, tool: x, action: allow}`, on("x"), "allow", "at 0, same 1, deny [], first []"},
		{"the opposite", `
    - {server: a, tool: x, action: deny}`, on("x"), "allow", "at 1, same 0, deny [], first []"},
		{"denied by a pattern", `
    - {server: a, tool: x*, action: deny}`, on("xy"), "ask", "at 1, same -1, deny [4], first []"},
		{"some denied", `
    - {server: a, annotations: {destructive: true}, action: deny}
    - {server: a, tool: get_secret, action: deny}
    - {server: a, tool: put_*, action: deny}
    - {server: a, resource: "*", action: deny}`, on("get_*"), "allow", "at 4, same -1, deny [], first [4 5]"},
		{"denial needs no place", `
    - {server: a, tool: x, action: allow}
    - {server: a, action: ask}`, on(""), "deny", "at 2, same 1, deny [], first []"},
		{"before a rule for all tools", `
    - {server: "*", tool: "*", action: ask}`, on(""), "allow", "at 0, same -1, deny [], first []"},
		{"of another server", `
    - {server: "b*", action: deny}`, on(""), "allow", "at 1, same -1, deny [], first []"},
	} {
		r, _ := rules(t, map[string]string{"config.yaml": "policy:\n  tools:\n" + c.rules + "\n"})
		if err := r.Broken(true); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		p := r.Plan(c.subject, c.action)
		if got := fmt.Sprintf("at %d, same %d, deny %v, first %v", p.At, p.SameAt, lines(p.Deny), lines(p.First)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestPlanOfOtherFiles: a rule of the configuration file comes before those of
// others, unless these deny.
func TestPlanOfOtherFiles(t *testing.T) {
	r, _ := rules(t, map[string]string{
		"policy.d/10.yaml":       "- {server: a, action: ask}\n- {server: a, tool: x, action: deny}\n",
		"policy.d/approved.yaml": "- {server: a, tool: y, action: ask}\n",
	})
	if p := r.Plan(toolpolicy.Subject{Server: "a", Tool: "y"}, "allow"); p.Same != nil || len(p.Deny)+len(p.First) != 0 || p.At != 0 {
		t.Errorf("got %+v, want a new rule that decides", p)
	}
	if p := r.Plan(toolpolicy.Subject{Server: "a", Tool: "x"}, "allow"); len(p.Deny) != 1 {
		t.Errorf("got %+v, want the rule that denies", p)
	}
}

// TestUsual: what looks at arguments, sessions and clients is left out.
func TestUsual(t *testing.T) {
	r, _ := rules(t, config(`
- {server: a, if: args.n > 1, action: deny}
- {server: a, client: cursor, action: deny}
- {server: a, annotations: {readOnly: true}, action: allow}
- {server: a, action: ask}`))
	for _, readOnly := range []bool{true, false} {
		want := map[bool]string{true: "allow", false: "ask"}[readOnly]
		if got := r.Usual(call("a", "x", "", tool.Annotations{ReadOnly: readOnly})).Effect.String(); got != want {
			t.Errorf("read-only %v: got %s, want %s", readOnly, got, want)
		}
	}
}

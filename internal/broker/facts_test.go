package broker

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/session"
)

// Code learns the limits of its own session's template, not the default one's.
func TestFactsOfTheTemplate(t *testing.T) {
	b, _ := newBroker(t, func(p *parts) {
		p.Template.Limits = sandbox.Limits{MemoryBytes: 300 << 20}
		p.Templates = map[string]*session.Template{
			"large": {Engine: newEngine(t, fake.Options{}), Program: python.Program(), Limits: sandbox.Limits{MemoryBytes: 700 << 20, Processes: 77}},
		}
	})
	for template, want := range map[string][]string{"": {"300 MiB"}, "large": {"700 MiB", "77"}} {
		r := b.Execute(t.Context(), Request{Principal: user, Template: template, Session: "s" + template, Submission: Submission{Code: "from mcp import runtime\nprint(runtime.capability_summary())"}})
		stdout := strings.Join(r.Stdout, "\n")
		for _, text := range want {
			if r.Status != Success || !strings.Contains(stdout, text) {
				t.Errorf("template %q: got %s, %q (%s), want %q in it", template, r.Status, stdout, r.Error, text)
			}
		}
	}
}

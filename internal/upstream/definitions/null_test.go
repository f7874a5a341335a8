package definitions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A member that is null is as good as absent.
func TestNullMembers(t *testing.T) {
	var null []string
	for _, key := range slices.Concat(knownKeys, otherKeys) {
		if key != "command" && key != "env" {
			null = append(null, fmt.Sprintf("%q: null", key))
		}
	}
	defs, problems := load(t, `{"description": null, "mcpServers": {
		"a": {"command": "x", "env": {"A": null, "B": "b"}, `+strings.Join(null, ", ")+`},
		"b": {"url": "https://h.example/mcp", "command": null, "headers": {"A": null}, "tls": {"caFile": null, "insecure": null, "serverName": "n"}}
	}}`)
	if len(problems) != 0 || len(defs) != 2 {
		t.Fatalf("got %d definitions, %s, want two", len(defs), show(problems))
	}
	if got := defs[0].Launch(); got.Command != "x" || len(got.Env) != 1 || got.Env["B"] != "b" || defs[0].Disabled || defs[0].AllowTools != nil {
		t.Errorf("got %+v, want the command with B alone", got)
	}
	if got := defs[1].Remote(); got == nil || len(got.Headers) != 0 || got.TLS.ServerName != "n" {
		t.Errorf("got %+v, want the address with one member of tls", got)
	}
	// What a server cannot do without is said to be missing.
	for _, text := range []string{`{"command": null}`, `{"url": null}`} {
		if _, problems := load(t, `{"mcpServers": {"a": `+text+`}}`); len(problems) != 1 || !strings.Contains(problems[0].Reason, "has no command") {
			t.Errorf("%s: got %s, want a missing command", text, show(problems))
		}
	}
}

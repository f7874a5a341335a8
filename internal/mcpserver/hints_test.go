package mcpserver

import (
	"strings"
	"testing"
)

// TestArgumentHints has, for each hint, arguments that get it, and arguments that
// are nearly the same and get none.
func TestArgumentHints(t *testing.T) {
	tests := []struct{ name, arguments, want, near string }{
		{"another name for code", `{"source":"1"}`, `run_python has no argument "source": the name is "code"`, `{"code":"1"}`},
		{"another name for servers", `{"code":"1","server":"fs"}`, `run_python has no argument "server": the name is "servers"`, `{"code":"1","servers":["fs"]}`},
		{"another name for session", `{"code":"1","session_id":"a"}`, `the name is "session"`, `{"code":"1","session":"a"}`},
		{"packages", `{"code":"1","packages":["pandas"]}`, "packages cannot be installed by a call", `{"code":"import packages"}`},
		{"unknown", `{"code":"1","verbose":true}`, `run_python has no argument "verbose": it has code, servers, timeout and session`, `{"code":"verbose"}`},
		{"a long name is cut", `{"code":"1","` + strings.Repeat("é", 500) + `":1}`, `éé…": it has code`, `{"code":"1","backend":"gvisor"}`},
		{"servers as text", `{"code":"1","servers":"fs"}`, `write "servers": ["fs"]`, `{"code":"1","servers":7}`},
		{"servers as JSON in text", `{"code":"1","servers":"[\"a\", \"b\"]"}`, `write "servers": ["a", "b"]`, `{"code":"1","servers":{"a":1}}`},
		{"timeout as text", `{"code":"1","timeout":"60s"}`, `write "timeout": 60`, `{"code":"1","timeout":"long"}`},
		{"several", `{"code":"1","a":1,"b":2,"c":3,"d":4}`, `no argument "c"`, `{"code":"1","timeout":5.5}`},
	}
	hints := func(arguments string) []string {
		_, invalid, hints := parseArguments([]byte(arguments))
		if invalid != nil {
			return withHints(invalid, hints).Notes
		}
		return hints
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := hints(tt.arguments)
			if len(got) == 0 || len(got) > maxArgumentHints || !strings.HasPrefix(got[len(got)-1], "Hint: ") || !strings.Contains(got[len(got)-1], tt.want) {
				t.Errorf("%s\ngot %q, want %q", tt.arguments, got, tt.want)
			}
			if got := hints(tt.near); len(got) != 0 {
				t.Errorf("%s\ngot %q, want no hint", tt.near, got)
			}
		})
	}
}

package mcpserver

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
)

// A call can name the user's environments and the host's, also where the schema does
// not have them, and no others.
func TestEnvironmentArgument(t *testing.T) {
	for _, tt := range []struct{ environments, arguments, want, refused string }{
		{"data", `{"code":"draw"}`, "", ""},
		{"data", `{"code":"draw","env":null}`, "", ""},
		{"data", `{"code":"draw","env":"data"}`, "data", ""},
		{"data", `{"code":"draw","env":"host"}`, "host", ""},
		{"", `{"code":"draw","env":"host"}`, "host", ""},
		{"data", `{"code":"draw","env":"3f2a"}`, "", `no environment "3f2a"`}, // the ID of a script's
		{"", `{"code":"draw","env":"data"}`, "", "none is configured"},
		{"data", `{"code":"draw","env":7}`, "", "'env' must be a string"},
	} {
		executor := &stubExecutor{}
		s, err := New(Config{Executor: executor, Logger: slog.New(slog.DiscardHandler), Environments: strings.Fields(tt.environments), Environment: "data"})
		if err != nil {
			t.Fatal(err)
		}
		r := (&conn{server: s}).submit(authz.Local("c"), []byte(tt.arguments), nil, false).run(context.Background())
		if refused := r.Status == broker.ValidationError; refused != (tt.refused != "") || !strings.Contains(r.Error, tt.refused) {
			t.Errorf("%s of %q: got %s, %q, want %q", tt.arguments, tt.environments, r.Status, r.Error, tt.refused)
		}
		if got := strings.Join(executor.envs, " "); got != tt.want {
			t.Errorf("%s: got environment %q, want %q", tt.arguments, got, tt.want)
		}
	}
}

// TestArgumentHints has, for each hint, arguments that get it, and arguments that
// are nearly the same and get none.
func TestArgumentHints(t *testing.T) {
	tests := []struct{ name, arguments, want, near string }{
		{"another name for code", `{"source":"1"}`, `run_python has no argument "source": the name is "code"`, `{"code":"1"}`},
		{"another name for servers", `{"code":"1","server":"fs"}`, `run_python has no argument "server": the name is "servers"`, `{"code":"1","servers":["fs"]}`},
		{"another name for session", `{"code":"1","session_id":"a"}`, `the name is "session"`, `{"code":"1","session":"a"}`},
		{"another name for env", `{"code":"1","environment":"data"}`, `the name is "env"`, `{"code":"1","env":"data"}`},
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

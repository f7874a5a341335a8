package mcpserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// maxArgumentHints bounds the hints of one request.
const maxArgumentHints = 3

// argumentNames are the names that models give to the arguments of run_python.
var argumentNames = map[string][]string{
	"code":    {"source", "script", "python", "python_code", "program", "cmd", "command", "input", "content"},
	"servers": {"server", "mcp_servers", "mcpServers", "tools"},
	"session": {"session_id", "sessionId", "session_name", "name"},
	"env":     {"environment", "environment_name", "environmentName", "venv"},
	"timeout": {"timeout_seconds", "timeoutSeconds", "time_limit", "max_time"},
}

// unknownArgument returns the hint for an argument that run_python does not have.
func unknownArgument(name string) string {
	for right, wrong := range argumentNames {
		if slices.Contains(wrong, name) {
			return fmt.Sprintf("%srun_python has no argument %q: the name is %q", broker.HintPrefix, name, right)
		}
	}
	if slices.Contains([]string{"packages", "requirements", "dependencies", "pip", "install"}, name) {
		return broker.HintPrefix + "packages cannot be installed by a call: capability_summary() lists those that are installed"
	}
	if len(name) > 50 {
		name = strings.ToValidUTF8(name[:50], "") + "…"
	}
	return fmt.Sprintf("%srun_python has no argument %q: it has code, servers, timeout and session", broker.HintPrefix, name)
}

// wrongType returns the answer to an argument of the wrong type, with a hint if
// its value shows what was meant.
func wrongType(name, message string, value json.RawMessage) *broker.Result {
	r := broker.Invalid(message)
	var s string
	if len(value) > 200 || jsonscan.Kind(value) != '"' || json.Unmarshal(value, &s) != nil {
		return r
	}
	meant := ""
	switch name {
	case "servers":
		meant = s
		if jsonscan.Kind(json.RawMessage(s)) != '[' || !json.Valid([]byte(s)) {
			list, _ := json.Marshal([]string{s}) // strings can always be encoded
			meant = string(list)
		}
	case "timeout":
		if n, err := strconv.ParseFloat(strings.TrimRight(s, " second"), 64); err == nil && n == float64(int(n)) {
			meant = strconv.Itoa(int(n))
		}
	}
	if meant != "" {
		r.Notes = []string{fmt.Sprintf("%swrite %q: %s", broker.HintPrefix, name, meant)}
	}
	return r
}

// withHints returns a result with more notes. Others may read r, so it stays as
// it is.
func withHints(r *broker.Result, hints []string) *broker.Result {
	if len(hints) == 0 {
		return r
	}
	c := *r
	c.Notes = slices.Concat(r.Notes, hints)
	return &c
}

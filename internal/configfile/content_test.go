package configfile_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/configfile"
)

const sample = `# My settings.

# The engine.
engine:   gvisor      # always

limits:
  # lots
  memory: 512m    # enough

  cpus: 2
servers:
  inherit:
    - A
    - "B"
  sources: [mcps,  mcp] # two
timeouts: {default: 11, max:   30}   # flow
policy.minIsolation: kernel
carbon:
#  enabled: false
worker:
    engine: auto

# the end
`

func TestSet(t *testing.T) {
	for _, tt := range []struct{ name, in, key, value, old, new string }{
		{"a scalar keeps its comment", sample, "engine", "docker", "engine:   gvisor      # always", "engine: docker # always"},
		{"in a section", sample, "limits.memory", "1g", "  memory: 512m    # enough", "  memory: 1g # enough"},
		{"a string in quotes", sample, "engine", `"a: b"`, "engine:   gvisor      # always", `engine: "a: b" # always`},
		{"a list in lines", sample, "servers.inherit", "[X, Y]", "  inherit:\n    - A\n    - \"B\"\n", "  inherit: [X, Y]\n"},
		{"a list in brackets", sample, "servers.sources", "[cursor]", "  sources: [mcps,  mcp] # two", "  sources: [cursor] # two"},
		{"in braces", sample, "timeouts.max", "60", "timeouts: {default: 11, max:   30}   # flow", "timeouts: {default: 11, max: 60} # flow"},
		{"with dots", sample, "policy.minIsolation", "none", "policy.minIsolation: kernel", "policy.minIsolation: none"},
		{"new in a section", sample, "limits.processes", "99", "  cpus: 2\n", "  cpus: 2\n  processes: 99\n"},
		{"new in an indented section", sample, "worker.concurrency", "2", "    engine: auto\n", "    engine: auto\n    concurrency: 2\n"},
		{"new in an empty section", sample, "carbon.keep", "48h", "carbon:\n", "carbon:\n  keep: 48h\n"},
		{"new in braces", sample, "timeouts.grace", "1s", "timeouts: {default: 11, max:   30}   # flow", "timeouts: {default: 11, max: 30, grace: 1s} # flow"},
		{"a new section", sample, "log.level", "info", "# the end\n", "# the end\nlog:\n  level: info\n"},
		{"a new section in a section", sample, "servers.x.y", "1", "  sources: [mcps,  mcp] # two\n", "  sources: [mcps,  mcp] # two\n  x:\n    y: 1\n"},
		{"an empty file", "", "limits.memory", "1g", "", "limits:\n  memory: 1g\n"},
		{"a file of comments", "# nothing yet", "engine", "auto", "# nothing yet", "# nothing yet\nengine: auto\n"},
		{"no line break at the end", "engine: auto", "limits.memory", "1g", "engine: auto", "engine: auto\nlimits:\n  memory: 1g\n"},
		{"lines that end in CRLF", "log:\r\n  level: warn # w\r\nengine: auto\r\n", "log.level", "info", "warn", "info"},
		{"a new section after CRLF", "engine: auto\r\n", "log.level", "info", "auto\r\n", "auto\r\nlog:\r\n  level: info\r\n"},
		{"after a byte order mark", "\uFEFFengine: auto\nlog:\n  level: warn\n", "engine", "gvisor", "auto", "gvisor"},
		{"JSON", `{"limits": {"cpus": 1}}`, "limits.cpus", "2", `{"limits": {"cpus": 1}}`, `{"limits": {"cpus": 2}}` + "\n"},
	} {
		want := strings.Replace(tt.in, tt.old, tt.new, 1)
		got, err := configfile.Set([]byte(tt.in), tt.key, tt.value)
		if err != nil || string(got) != want {
			t.Errorf("%s: got (%v)\n%s\nwant\n%s", tt.name, err, got, want)
		}
	}
}

func TestUnset(t *testing.T) {
	for _, tt := range []struct{ name, in, key, old, new string }{
		{"a scalar", sample, "limits.cpus", "\n  cpus: 2\n", ""},
		{"a list", sample, "servers.inherit", "  inherit:\n    - A\n    - \"B\"\n", ""},
		{"the last of a section", "a: 1\nlog:\n  level: info\nb: 2\n", "log.level", "log:\n  level: info\n", ""},
		{"the last of all", "log:\n  level: info\n", "log.level", "log:\n  level: info\n", ""},
		{"not set", sample, "log.level", "", ""},
		{"in braces", sample, "timeouts.max", "timeouts: {default: 11, max:   30}   # flow", "timeouts: {default: 11} # flow"},
		{"with dots", sample, "policy.minIsolation", "policy.minIsolation: kernel\n", ""},
	} {
		want := strings.Replace(tt.in, tt.old, tt.new, 1)
		got, err := configfile.Unset([]byte(tt.in), tt.key)
		if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(want) {
			t.Errorf("%s: got (%v)\n%s\nwant\n%s", tt.name, err, got, want)
		}
	}
}

// TestByHand: what cannot be changed safely is not changed.
func TestByHand(t *testing.T) {
	for _, in := range []string{"a: [", "- a\n", "a: 1\n---\nb: 2\n", "servers:\n  inherit:\n    - A # first\n    - B # second\n"} {
		if got, err := configfile.Set([]byte(in), "servers.inherit", "[X]"); !errors.Is(err, configfile.ErrByHand) {
			t.Errorf("%q: got %q, %v; want ErrByHand", in, got, err)
		}
	}
}

// FuzzSet: a change that succeeds can be made again without effect, and undone.
func FuzzSet(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("{a: 1}"))
	f.Add([]byte("a:\n- 1\r\nb: |\n  x\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		set, err := configfile.Set(content, "limits.memory", "1g")
		if err != nil {
			return
		}
		again, err := configfile.Set(set, "limits.memory", "1g")
		if err != nil || !bytes.Equal(set, again) {
			t.Errorf("%q became %q and then %q (%v)", content, set, again, err)
		}
	})
}

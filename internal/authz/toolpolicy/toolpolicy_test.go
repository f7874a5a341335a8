package toolpolicy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

var me = authz.Principal{Owner: authz.LocalOwner, Client: "cursor", Session: "work-1", Request: "r"}

// rules opens rules from files by name: config.yaml, policy.d/10.yaml.
func rules(t testing.TB, files map[string]string) (*toolpolicy.Rules, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml")}), dir
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file that changed a moment ago is read again each time: see below for those.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

func call(server, name, args string, a tool.Annotations) authz.CallTool {
	return authz.CallTool{Server: &authz.Server{Name: server}, Tool: name, Arguments: json.RawMessage(args), Annotations: a}
}

// config makes a configuration file of rules.
func config(rules string) map[string]string {
	return map[string]string{"config.yaml": "policy:\n  tools:\n    " + strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n    ") + "\n"}
}

func TestMatching(t *testing.T) {
	reads, plain := tool.Annotations{ReadOnly: true}, tool.Annotations{}
	gentle := tool.Annotations{NonDestructive: true, Idempotent: true, ClosedWorld: true}
	read := authz.ReadResource{Server: &authz.Server{Name: "fs"}, URI: "file:///a"}
	prompt := authz.GetPrompt{Server: &authz.Server{Name: "fs"}, Prompt: "fix"}
	for _, tt := range []struct {
		name, rules string
		action      authz.Action
		want        string // effect and rule
	}{
		{"no rule", `[]`, call("fs", "x", "", plain), "allow "},
		{"server", `- {server: fs, action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"another server", `- {server: fs, action: deny}`, call("fs2", "x", "", plain), "allow profile open"},
		{"a pattern", `- {server: "f*", action: ask}`, call("fs2", "x", "", plain), "ask config.yaml:3"},
		{"a list", `- {server: [a, fs], tool: [read_*, stat], action: deny}`, call("fs", "stat", "", plain), "deny config.yaml:3"},
		{"none of a list", `- {server: [a, fs], tool: [read_*, stat], action: deny}`, call("fs", "write", "", plain), "allow profile open"},
		{"a name", `- {name: mine, action: deny}`, call("fs", "x", "", plain), "deny mine"},
		{"read-only", `- {annotations: {readOnly: true}, action: ask}`, call("fs", "x", "", reads), "ask config.yaml:3"},
		{"not read-only", `- {annotations: {readOnly: true}, action: ask}`, call("fs", "x", "", plain), "allow profile open"},
		{"unannotated writes", `- {annotations: {readOnly: false}, action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"unannotated destroys", `- {annotations: {destructive: true, idempotent: false, openWorld: true}, action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"gentle", `- {annotations: {destructive: false, idempotent: true, openWorld: false}, action: deny}`, call("fs", "x", "", gentle), "deny config.yaml:3"},
		{"what reads does not destroy", `- {annotations: {destructive: true}, action: deny}`, call("fs", "x", "", reads), "allow profile open"},
		{"session", `- {session: work-*, action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"another session", `- {session: play-*, action: deny}`, call("fs", "x", "", plain), "allow profile open"},
		{"client", `- {client: cursor, action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"another client", `- {client: zed, action: deny}`, call("fs", "x", "", plain), "allow profile open"},
		{"a condition", `- {if: 'args.path.startsWith("/etc")', action: deny}`, call("fs", "x", `{"path":"/etc/x"}`, plain), "deny config.yaml:3"},
		{"a condition that does not hold", `- {if: 'args.path.startsWith("/etc")', action: deny}`, call("fs", "x", `{"path":"/home"}`, plain), "allow profile open"},
		{"a condition on everything else", `- {if: 'server == "fs" && tool == "x" && session == "work-1" && client == "cursor"', action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"numbers", `- {if: 'args.n > 9007199254740992 && args.f < 0.5 && size(args.l) == 2', action: deny}`, call("fs", "x", `{"n":9007199254740994,"f":1e-1,"l":[1,{}]}`, plain), "deny config.yaml:3"},
		{"an optional", `- {if: 'args.?path.orValue("") == ""', action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"several keys", `- {server: fs, tool: x, client: zed, action: deny}`, call("fs", "x", "", plain), "allow profile open"},

		{"deny in trouble", `- {if: 'args.path == "a"', action: deny}`, call("fs", "x", "", plain), "deny config.yaml:3"},
		{"ask in trouble", `- {if: 'args.path == "a"', action: ask}`, call("fs", "x", "", plain), "ask config.yaml:3"},
		{"allow in trouble", "- {if: 'args.path == \"a\"', action: allow}\n- {action: ask}", call("fs", "x", "", plain), "ask config.yaml:4"},
		{"a key twice", `- {if: 'args.path == "/etc"', action: deny}`, call("fs", "x", `{"path":"/etc","path":"/home"}`, plain), "deny config.yaml:3"},
		{"arguments that are too large", `- {if: 'args.path == "/etc"', action: deny}`, call("fs", "x", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`, plain), "deny config.yaml:3"},
		{"arguments that are too deep", `- {if: 'args.path == "/etc"', action: deny}`, call("fs", "x", `{"path":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`, plain), "deny config.yaml:3"},
		{"not UTF-8", `- {if: 'args.path == "/etc"', action: deny}`, call("fs", "x", "{\"path\":\"\xff\"}", plain), "deny config.yaml:3"},
		{"a number that is too large", `- {if: 'args.n == 1', action: deny}`, call("fs", "x", `{"n":1e999}`, plain), "deny config.yaml:3"},
		{"too much work", `- {if: 'args.l.all(a, args.l.all(b, args.l.all(c, a + b + c < 0)))', action: ask}`, call("fs", "x", `{"l":[`+strings.Repeat("-1,", 300)+`-1]}`, plain), "ask config.yaml:3"},
		{"not true or false", `- {if: 'args.x', action: deny}`, call("fs", "x", `{"x":1}`, plain), "deny config.yaml:3"},
		{"arguments that the condition does not read", `- {if: 'tool == "x"', action: allow}`, call("fs", "x", `{"a":1,"a":2}`, plain), "allow config.yaml:3"},

		{"a resource", `- {resource: "file:///*", action: deny}`, read, "deny config.yaml:3"},
		{"another resource", `- {resource: "https://*", action: deny}`, read, "allow profile open"},
		{"a prompt", `- {prompt: fix, action: ask}`, prompt, "ask config.yaml:3"},
		{"a rule for resources and a prompt", `- {resource: "*", action: deny}`, prompt, "allow profile open"},
		{"a rule for prompts and a tool", `- {prompt: "*", action: deny}`, call("fs", "x", "", plain), "allow profile open"},
		{"a rule for a server and a resource", `- {server: fs, action: deny}`, read, "deny config.yaml:3"},
		{"a rule for tools and a resource", `- {server: fs, tool: "*", action: deny}`, read, "allow profile open"},
		{"a condition and a prompt", `- {if: 'true', action: deny}`, prompt, "allow profile open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := rules(t, config(tt.rules))
			if err := r.Broken(true); err != nil {
				t.Fatal(err)
			}
			if got := decide(r, me, tt.action); got != tt.want {
				t.Errorf("got %q, want %q (%+v)", got, tt.want, r.Explain(me, tt.action))
			}
		})
	}
}

func decide(r *toolpolicy.Rules, p authz.Principal, a authz.Action) string {
	v := r.DecideCall(p, a)
	return v.Effect.String() + " " + v.Rule
}

func TestPrecedence(t *testing.T) {
	x := call("fs", "x", "", tool.Annotations{})
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"the first of a file", config("- {action: ask}\n- {action: allow}"), "ask config.yaml:3"},
		{"a deny after it", config("- {action: allow}\n- {action: deny}"), "deny config.yaml:4"},
		{"the configuration before policy.d", map[string]string{
			"config.yaml": "policy: {profile: locked, tools: [{action: allow}]}", "policy.d/1.yaml": "- action: ask"}, "allow config.yaml:1"},
		{"policy.d before the profile", map[string]string{
			"config.yaml": "policy.profile: locked", "policy.d/1.yaml": "- action: ask"}, "ask policy.d/1.yaml:1"},
		{"policy.d by name", map[string]string{
			"policy.d/20.yaml": "- action: ask", "policy.d/10.yaml": "- action: allow"}, "allow policy.d/10.yaml:1"},
		{"a deny in the last file", map[string]string{
			"config.yaml": "policy.tools: [{action: allow}]", "policy.d/1.yaml": "- action: ask", "policy.d/2.yaml": "- {name: no, action: deny}"}, "deny no"},
		{"the profile", map[string]string{"config.yaml": "policy: {profile: locked}"}, "deny profile locked"},
		{"files that are none of ours", map[string]string{"policy.d/.1.yaml": "x", "policy.d/README": "x", "policy.d/1.yaml~": "x"}, "allow "},
		{"nothing", nil, "allow "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := rules(t, tt.files)
			if got := decide(r, me, x); got != tt.want {
				t.Errorf("got %q, want %q; broken: %v", got, tt.want, r.Broken(true))
			}
		})
	}
}

// TestTheGuide: the guide's rules are right, and do what it says.
func TestTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/GUIDE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## Rules for calls\n")
	_, rest, _ := strings.Cut(section, "```yaml\n")
	content, _, _ := strings.Cut(rest, "```")
	r, _ := rules(t, map[string]string{"config.yaml": content})
	if err := r.Broken(true); err != nil {
		t.Fatal(err)
	}
	for want, x := range map[string]authz.CallTool{
		"deny never delete repositories": call("github", "delete_repo", `{"repo":"x"}`, tool.Annotations{}),
		"allow config.yaml:9":            call("filesystem", "write_file", `{"path":"/home/me/notes/x"}`, tool.Annotations{}),
		"ask profile careful":            call("filesystem", "write_file", `{"path":"/home/me/notes/../x"}`, tool.Annotations{}),
		"allow config.yaml:14":           call("docs", "search", "", tool.Annotations{ReadOnly: true}),
	} {
		if got := decide(r, me, x); got != want {
			t.Errorf("%s %s: got %q, want %q", x.Tool, x.Arguments, got, want)
		}
	}
}

func TestProfiles(t *testing.T) {
	read := authz.ReadResource{Server: &authz.Server{Name: "fs"}, URI: "file:///a"}
	prompt := authz.GetPrompt{Server: &authz.Server{Name: "fs"}, Prompt: "fix"}
	for _, tt := range []struct {
		file, floor string
		want        string // of reading, writing, a resource, a prompt
	}{
		{"open", "", "allow allow allow allow"},
		{"careful", "", "allow ask allow allow"},
		{"locked", "", "deny deny deny deny"},
		{"", "careful", "allow ask allow allow"},
		{"open", "locked", "deny deny deny deny"},
		{"locked", "open", "deny deny deny deny"}, // what starts the program cannot weaken the file
	} {
		content := "python: python3\n"
		if tt.file != "" {
			content = "policy:\n  profile: " + tt.file + "\n"
		}
		dir := t.TempDir()
		write(t, dir, "config.yaml", content)
		r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml"), Profile: tt.floor})
		got := []string{}
		for _, a := range []authz.Action{call("fs", "x", "", tool.Annotations{ReadOnly: true}), call("fs", "x", "", tool.Annotations{}), read, prompt} {
			effect, _, _ := strings.Cut(decide(r, me, a), " ")
			got = append(got, effect)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s, started with %q: got %s, want %s", tt.file, tt.floor, got, tt.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	r, dir := rules(t, config(`
- name: searches
  server: github
  action: allow
  limits: {perExecution: 5, perMinute: 60, inFlight: 2, argumentBytes: 64k, resultBytes: 1m, time: 30s}
  cache: {for: 10m, force: true}
  audit: {arguments: hash}
- server: shell
  action: ask
  because: |
    it can do
    anything`))
	if err := r.Broken(true); err != nil {
		t.Fatal(err)
	}
	v := r.DecideCall(me, call("github", "x", "", tool.Annotations{}))
	if want := (authz.Limits{PerExecution: 5, PerMinute: 60, InFlight: 2, ArgumentBytes: 64 << 10, ResultBytes: 1 << 20, Time: 30 * time.Second}); v.Limits == nil || *v.Limits != want {
		t.Errorf("got the limits %+v, want %+v", v.Limits, want)
	}
	if want := (authz.CacheRule{For: 10 * time.Minute, Force: true}); v.Cache == nil || *v.Cache != want {
		t.Errorf("got the cache %+v, want %+v", v.Cache, want)
	}
	if v.Audit != authz.AuditHash || v.Rule != "searches" {
		t.Errorf("got %+v", v)
	}
	e := r.Explain(me, call("shell", "x", "", tool.Annotations{}))
	if e.Verdict.Because != "it can do\nanything" || e.Rule == nil || e.Rule.File != filepath.Join(dir, "config.yaml") || e.Rule.Line != 9 || e.Rule.Matches() != "server shell" {
		t.Errorf("got %+v, %+v", e, e.Rule)
	}
	if view := r.View(); len(view.Rules) != 2 || view.Profile != "open" || len(view.Files) != 1 {
		t.Errorf("got %+v", view)
	}
}

func TestBrokenFiles(t *testing.T) {
	many := map[string]string{}
	for i := range 201 {
		many[fmt.Sprintf("policy.d/%d.yaml", i)] = "[]"
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"an unknown key", config(`- {serer: x, action: deny}`), `config.yaml:3: a rule has no key "serer"; did you mean server?`},
		{"a key like none", config(`- {zzzzzzzzzzzz: x, action: deny}`), `config.yaml:3: a rule has no key "zzzzzzzzzzzz"; it has name, server,`},
		{"an unknown action", config(`- {action: denny}`), `config.yaml:3: action: there is no "denny"; did you mean deny?`},
		{"no action", config("\n\n- {server: x}"), `config.yaml:3: the rule has no action: write action: allow, deny or ask`},
		{"an unknown profile", map[string]string{"config.yaml": "policy:\n  profile: lokked"}, `config.yaml:2: policy.profile: there is no "lokked"; did you mean locked?`},
		{"an unknown annotation", config(`- {annotations: {readonly: true}, action: deny}`), `config.yaml:3: annotations has no key "readonly"; did you mean readOnly?`},
		{"an annotation that is a word", config(`- {annotations: {readOnly: "yes"}, action: deny}`), `readOnly: the string "yes" stands where true or false is expected`},
		{"an unknown limit", config("- action: allow\n  limits:\n    perMinutes: 3"), `config.yaml:5: limits has no key "perMinutes"; did you mean perMinute?`},
		{"a limit of nothing", config(`- {action: allow, limits: {perMinute: 0}}`), `perMinute: "0": not a number from 1 to 100000`},
		{"no time", config(`- {action: allow, limits: {time: 0s}}`), `time: "0s": it must be more than zero`},
		{"a size that is none", config(`- {action: allow, limits: {resultBytes: much}}`), `resultBytes: "much": not a size`},
		{"a cache without a duration", config(`- {action: allow, cache: {force: true}}`), `cache has no duration`},
		{"an unknown mode", config(`- {action: allow, audit: {arguments: hashed}}`), `arguments: there is no "hashed"; did you mean hash?`},
		{"limits of a deny", config(`- {action: deny, limits: {perMinute: 3}}`), `the rule denies, so that limits and cache have no meaning`},
		{"two kinds", config(`- {tool: x, resource: y, action: deny}`), `write one rule for each`},
		{"a condition on a resource", config(`- {resource: y, if: 'true', action: deny}`), `are for tools`},
		{"a name twice", config("- {name: a, action: deny}\n- {name: a, action: ask}"), `config.yaml:4: "a" is already the name of the rule in config.yaml:3`},
		{"a key twice", config("- server: a\n  server: b\n  action: deny"), `config.yaml:4: `},
		{"an empty name", config(`- {server: "", action: deny}`), `config.yaml:3: server: it is empty`},
		{"an empty list", config(`- {server: [], action: deny}`), `config.yaml:3: server: the list is empty`},
		{"a number as a name", config(`- {server: 3, action: deny}`), `config.yaml:3: server: the number 3 stands where a string is expected`},
		{"nothing as a name", config("- server:\n  action: deny"), `config.yaml:3: server: nothing stands where a string is expected`},
		{"not a list", map[string]string{"config.yaml": "policy:\n  tools:\n    server: x"}, `config.yaml:3: a section stands where a list of rules is expected`},
		{"not a rule", config("- x"), `config.yaml:3: the string "x" stands where a rule is expected`},
		{"an alias", config("- &a {action: deny}\n- *a"), `config.yaml:3: an anchor (&) stands where a rule is expected`},
		{"twice", map[string]string{"config.yaml": "policy.tools: []\npolicy: {tools: []}"}, `config.yaml:2: policy.tools is already set, in line 1`},
		{"bad YAML", map[string]string{"config.yaml": "policy: [\n"}, `config.yaml:1: `},
		{"bad YAML next to it", map[string]string{"policy.d/1.yaml": "- a: b: c\n"}, `policy.d/1.yaml:1: `},
		{"an empty file", map[string]string{"policy.d/1.yaml": ""}, `policy.d/1.yaml: it is empty`},
		{"another name", map[string]string{"policy.d/1.yml": "- action: deny"}, `policy.d/1.yml: only files named *.yaml are read here: rename it`},
		{"too many files", many, `policy.d: it has more than 200 files`},
		{"a large file", map[string]string{"policy.d/1.yaml": strings.Repeat("# more\n", 40_000)}, `policy.d/1.yaml: it is larger than 256 KiB`},
		{"not UTF-8", map[string]string{"policy.d/1.yaml": "- action: deny\n# \xff"}, `policy.d/1.yaml:2: it is not valid UTF-8`},
		{"bad CEL", config("- action: deny\n  if: 'args.x ='"), `config.yaml:4: if: Syntax error`},
		{"an unknown variable", config("- action: deny\n  if: 'arg.x == 1'"), `config.yaml:4: if: there is no variable "arg"; did you mean args?`},
		{"an unknown function", config("- action: deny\n  if: 'frobnicate(args.x)'"), `config.yaml:4: if: there is no "frobnicate"; the variables are args, server`},
		{"a line in a block", config("- action: deny\n  if: |\n    tool == \"x\" &&\n    sesion == \"y\""), `config.yaml:6: if: there is no variable "sesion"; did you mean session?`},
		{"a condition that says a number", config("- action: deny\n  if: '1 + 1'"), `config.yaml:4: if: it says int, and must be true or false`},
		{"wrong types", config("- action: deny\n  if: 'tool == 1'"), `config.yaml:4: if: found no matching overload`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := rules(t, tt.files)
			err := r.Broken(true)
			if err == nil || !strings.Contains(err.Error(), "so no code runs: "+strings.TrimPrefix(tt.want, "…")) && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if v := r.DecideCall(me, call("fs", "x", "", tool.Annotations{ReadOnly: true})); v.Effect != authz.Deny {
				t.Errorf("got %v, want a denial", v)
			}
			if v := r.DecideCall(me, authz.GetPrompt{Server: &authz.Server{Name: "fs"}, Prompt: "x"}); v.Effect != authz.Deny {
				t.Errorf("got %v, want a denial", v)
			}
		})
	}
}

func TestFilesOfOthers(t *testing.T) {
	const some, none = "policy.tools: [{action: ask}]", "python: python3"
	for _, tt := range []struct {
		config, path string
		mode         os.FileMode
		want         string
	}{
		{some, "config.yaml", 0o602, "config.yaml: it belongs to"},
		{some, "policy.d/1.yaml", 0o606, "policy.d/1.yaml: it belongs to"},
		{none, "policy.d/1.yaml", 0o606, "policy.d/1.yaml: it belongs to"},
		{some, "policy.d", 0o777, "policy.d: it belongs to"},
		{some, ".", 0o777, "config.yaml: its directory: it belongs to"},
		{some, ".", os.ModeSticky | 0o777, ""},
		{some, "config.yaml", 0o644, ""},
		{none, "config.yaml", 0o606, ""}, // as before there were rules
		{none, ".", 0o777, ""},
	} {
		r, dir := rules(t, map[string]string{"config.yaml": tt.config, "policy.d/1.yaml": "[]"})
		if err := r.Broken(true); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, tt.path), tt.mode); err != nil {
			t.Fatal(err)
		}
		err := r.Broken(true)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s with mode %v: got %v, want %q", tt.config, tt.path, tt.mode, err, tt.want)
		}
	}
}

// TestChanges: files are read again when they change, by an execution at once and
// by calls after a moment.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "config.yaml", "python: python3")
	synctest.Test(t, func(t *testing.T) {
		r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml")})
		x := call("fs", "x", "", tool.Annotations{})
		expect := func(when, want string) {
			t.Helper()
			if got := decide(r, me, x); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		later := func() { time.Sleep(300 * time.Millisecond) }
		later()
		expect("at first", "allow ")
		write(t, dir, "policy.d/1.yaml", "- action: deny")
		later()
		expect("with a new file", "deny policy.d/1.yaml:1")
		write(t, dir, "policy.d/1.yaml", "- {name: please, action: ask}")
		if err := r.Broken(true); err != nil {
			t.Fatal(err)
		}
		expect("right after an execution began", "ask please")
		write(t, dir, "policy.d/1.yaml", "- action: askk")
		later()
		expect("with a broken file", "deny policy.tools")
		if err := r.Broken(false); err == nil || !strings.Contains(err.Error(), "policy.d/1.yaml:1") {
			t.Errorf("got %v, want the file and the line", err)
		}
		write(t, dir, "policy.d/1.yaml", "- action: ask")
		later()
		expect("with a file that was fixed", "ask policy.d/1.yaml:1")
		if err := os.Remove(filepath.Join(dir, "policy.d", "1.yaml")); err != nil {
			t.Fatal(err)
		}
		later()
		expect("without the file", "allow ")

		write(t, dir, "config.yaml", "policy.tools: [{action: ask}]")
		later()
		expect("with a rule in the configuration", "ask config.yaml:1")
		write(t, dir, "config.yaml", "")
		later()
		expect("while the file is written", "deny policy.tools")
		write(t, dir, "config.yaml", "policy: [")
		later()
		expect("while it is not YAML", "deny policy.tools")
		if err := os.Remove(filepath.Join(dir, "config.yaml")); err != nil {
			t.Fatal(err)
		}
		later()
		expect("while the file is replaced", "deny policy.tools")
		write(t, dir, "config.yaml", "policy.profile: open")
		later()
		expect("without rules", "allow ")
	})
}

func FuzzLoad(f *testing.F) {
	for _, content := range []string{
		"policy.tools: []", "policy: {profile: careful, tools: [{server: a, action: deny}]}",
		config("- {name: n, server: [a, b*], tool: x, annotations: {readOnly: true}, session: s, client: c, if: 'args.x == 1', action: allow, because: b, limits: {perMinute: 3, time: 3s, resultBytes: 1k}, cache: {for: 1m, force: true}, audit: {arguments: omit}}")["config.yaml"],
		"policy:\n  tools:\n    - resource: '*'\n      action: ask", "- action: deny", "policy.tools: {a: b}", "? x\n: y", "policy: &a\n  tools: *a",
		"policy.tools: [{action: deny, if: |\n  x\n}]",
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		r, dir := rules(t, map[string]string{"config.yaml": content})
		view := r.View()
		err := r.Broken(true)
		if (err == nil) != (len(view.Problems) == 0) {
			t.Fatalf("got %v and the problems %v", err, view.Problems)
		}
		v := r.DecideCall(me, call("a", "x", `{"x":1}`, tool.Annotations{}))
		if err != nil && v.Effect != authz.Deny {
			t.Errorf("got %v from a broken file: %v", v, err)
		}
		for _, p := range view.Problems {
			if p.File != filepath.Join(dir, "config.yaml") || p.Message == "" || strings.Contains(p.Message, "\n") {
				t.Errorf("got the problem %+v", p)
			}
		}
		if len(view.Rules) == 0 && err == nil && view.Profile == "open" && v.Effect != authz.Allow {
			t.Errorf("got %v without rules", v)
		}
	})
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"x":1}`, `{"x":{"y":[1.5,null,true,"z"]}}`, `{"x":1,"x":2}`, `[]`, `{"x":-0}`, "{\"x\":\"\\ud800\"}"} {
		f.Add(s)
	}
	r, _ := rules(f, config(`- {if: 'args.x == 1', action: allow}`+"\n"+`- {action: ask}`))
	f.Fuzz(func(t *testing.T, args string) {
		v := r.DecideCall(me, call("a", "x", args, tool.Annotations{}))
		var got struct{ X any }
		err := json.Unmarshal([]byte(args), &got)
		if n, _ := got.X.(float64); v.Effect == authz.Allow && (err != nil || n != 1) {
			t.Errorf("%q was allowed", args)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	var many strings.Builder
	for i := range 200 {
		action := []string{"allow", "ask", "deny"}[i%3]
		fmt.Fprintf(&many, "- {server: server-%d, tool: 'delete_*', annotations: {readOnly: false}, action: %s}\n", i, action)
	}
	for _, bb := range []struct {
		name  string
		files map[string]string
	}{
		{"none", nil},
		{"rules=200", config(many.String())},
		{"rules=200+cel", config(many.String() + "- {server: fs, if: 'args.path.startsWith(\"/home/\")', action: ask}")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r, _ := rules(b, bb.files)
			if err := r.Broken(true); err != nil {
				b.Fatal(err)
			}
			x := call("fs", "read_file", `{"path":"/home/x","head":10}`, tool.Annotations{})
			b.ReportAllocs()
			for b.Loop() {
				r.DecideCall(me, x)
			}
		})
	}
}

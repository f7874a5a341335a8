package definitions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVariables(t *testing.T) {
	env := environment(map[string]string{
		"HOME": "/home/ann", "SET": "v", "EMPTY": "", "REF": "${SET}", "ProgramFiles(x86)": "C:\\P", "a.b": "dotted", "NULL": "null",
	})
	for _, tt := range []struct {
		dialect  *dialect
		in, want string
		trouble  string
	}{
		{claudeCode, "${T_DIR:-${HOME}/x}:/m:ro", "/home/ann/x:/m:ro", ""},
		{claudeCode, "${SET:-${HOME}/x}:/m:ro", "v:/m:ro", ""},
		{claudeCode, "${EMPTY:-${NO:-${SET}}}", "v", ""},
		{claudeCode, "${NO:-a${SET}b${SET}c}", "avbvc", ""},
		{claudeCode, "${NO:-}", "", ""},
		{claudeCode, "${NO:-${EMPTY}}", "", ""},
		{claudeCode, "${NO:-${NO2}}", "${NO2}", ""},
		{claudeCode, "${NO:-${REF}}", "${SET}", ""}, // a value is not expanded
		{claudeCode, "${REF:-x}", "${SET}", ""},
		{claudeCode, "${NO:-$SET}", "$SET", ""},
		{claudeCode, "${NO:-{x}}", "{x}", ""},
		{claudeCode, "${SET:-{x}}", "v}", ""}, // as in a shell
		{claudeCode, "${NO:-a:-b}", "a:-b", ""},
		{claudeCode, "${a.b}${a.b:-x}${no.b}${no.b:-x}", "dotteddotted${no.b}${no.b:-x}", ""},
		{claudeCode, "${${SET}}", "${v}", ""},
		{claudeCode, "${ SET }", "${ SET }", ""},
		{claudeCode, "a}b${SET}}", "a}bv}", ""},
		{claudeCode, "$${SET}", "$v", ""},
		{claudeCode, "${SET", "${SET", "${SET is not closed"},
		{claudeCode, "x ${NO:-${SET} y", "x ${NO:-v y", "${NO is not closed"},
		{claudeCode, "${", "${", ""},
		{claudeCode, "${1", "${1", ""},
		{claudeCode, strings.Repeat("${NO:-", maxNested) + "x" + strings.Repeat("}", maxNested), "x", ""},
		{claudeCode, strings.Repeat("${NO:-", 1000) + "x" + strings.Repeat("}", 1000), "", "nested more than 50 levels"},
		{gemini, "${NO:-$HOME/${SET}}", "/home/ann/v", ""},
		{kiro, "${NO:-${SET}}", "v", ""},
		{cursor, "${env:SET}${env:ProgramFiles(x86)}${env:no(x86)}", "vC:\\P${env:no(x86)}", ""},
		{cursor, "${env:SET:-x}", "${env:SET:-x}", ""},
		{cursor, "${env:SET", "${env:SET", "${env is not closed"},
		{vscode, "${workspaceFolder}${/}${pathSeparator}${userHome}", "/p//" + "/home/ann", ""},
		{opencode, "{env:SET}{env:NO}{env:SET", "v{env:SET", ""},
		{own, "${NO:-${SET}}/${NO:-${file:/x}}", "v/${file:/x}", ""},
		{claudeDesktop, "${NO:-${SET}}$SET${SET", "${NO:-${SET}}$SET${SET", ""},
	} {
		e := newExpander(env, "/home/ann", tt.dialect.vars)
		e.folder = "/p"
		got, trouble := e.variables(tt.in), ""
		if len(e.troubles) > 0 {
			trouble = e.troubles[0].reason
		}
		if got != tt.want || !strings.Contains(trouble, tt.trouble) || (trouble == "") != (tt.trouble == "") {
			t.Errorf("%.60s: got %.60q, trouble %q, want %q, %q", tt.in, got, trouble, tt.want, tt.trouble)
		}
	}
}

// A default that is used is translated with the rest, and means the same then.
func TestTranslatedDefaults(t *testing.T) {
	for in, want := range map[string]string{
		"${A:-${B}/x}:/m":    "${A:-${B}/x}:/m",
		"${A:-$B}":           "${A:-${B}}",
		"${A:-${B:-$C}}":     "${A:-${B:-${C}}}",
		"${A:-${file:/etc}}": "${A:-${file:/etc}}",
	} {
		e := newExpander(environment(map[string]string{"A": "no"}), "/home/ann", gemini.vars)
		e.translate = true
		if got := e.variables(in); got != want || e.literal != strings.Contains(in, "file:") {
			t.Errorf("%s: got %s, literal %v, want %s", in, got, e.literal, want)
		}
	}
}

// What variables add is bounded, and what is written takes time in proportion to
// its length.
func TestVariablesAreBounded(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	for name, value := range map[string]string{
		"many uses":     strings.Repeat("$BIG", 200_000),
		"many defaults": strings.Repeat("${NO:-${BIG}}", 70_000),
	} {
		e := newExpander(environment(map[string]string{"BIG": big}), "", gemini.vars)
		if got := e.variables(value); len(got) > maxExpanded+len(value) || len(e.troubles) != 1 || e.troubles[0].warning {
			t.Errorf("%s: got %d bytes, %v, want an error", name, len(got), e.troubles)
		}
	}
	for _, unit := range []string{"${", "${A", "${A:-", "{env:", "{file:", "}", "$"} {
		for _, d := range []*dialect{own, opencode, gemini, vscode} {
			value := strings.Repeat(unit, maxString/len(unit))
			for _, value := range []string{value, value + "}", "$" + strings.Repeat("A", maxString)} {
				e := newExpander(environment(nil), "", d.vars)
				if got := e.variables(value); len(got) < len(value)-len("${A:-}") {
					t.Errorf("%s: got %d bytes, want what was written", unit, len(got))
				}
			}
		}
	}
}

// Troubles have the file and the line.
func TestTroublesOfVariables(t *testing.T) {
	defs, problems := load(t, "{\"mcpServers\": {\"a\": {\n\"command\": \"x\",\n\"args\": [\"${TOKEN\"]}, \"b\": {\"command\": \"y\",\n\"args\": [\""+strings.Repeat("${N:-", 60)+strings.Repeat("}", 60)+"\"]}}}")
	got := show(problems)
	if len(defs) != 1 || len(problems) != 2 || !strings.Contains(got, "f.json:3: server a: warning: ${TOKEN is not closed with }") || !strings.Contains(got, "f.json:4: server b: its variables are nested") {
		t.Errorf("got %d definitions, %s, want one and two problems", len(defs), got)
	}
}

func TestVariablesOfClaudeCode(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) string {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const servers = `{"mcpServers": {"%": {"command": "x", "args": ["${A:-none}", "${B:-none}", "${C:-none}", "${D:-none}", "${E:-none}", "${F:-none}"]}}}`
	write(home, ".claude/settings.json", `{"env": {"A": "user", "B": "user", "C": 7, "D": null, "": "x", "F": "${A}"}, "permissions": {}}`)
	write(home, ".claude/settings.local.json", `{"env": {"B": "user's local"}}`)
	write(project, ".claude/settings.json", `{"env": {"A": "project", "E": "project"}}`)
	own := write(home, ".claude.json", strings.Replace(servers, "%", "mine", 1))
	theirs := write(project, ".mcp.json", strings.Replace(servers, "%", "theirs", 1))
	other := write(home, "other.json", strings.Replace(servers, "%", "other", 1))
	read := func() map[string]Definition {
		env := environment(map[string]string{"A": "process", "E": "process", "D": "process"})
		defs, problems := Load([]Source{
			{Name: "claude-code", File: own, dialect: claudeCode}, {Name: "config", File: other},
			{Name: NameProject, File: theirs, Project: project, dialect: claudeCode},
		}, Options{Env: env, Home: home, Dir: project, Places: Places{OS: "linux", Home: home, Dir: project, Env: env}})
		if len(problems) != 0 {
			t.Fatal(show(problems))
		}
		out := map[string]Definition{}
		for _, d := range defs {
			out[d.Name] = d
		}
		return out
	}
	defs := read()
	for name, want := range map[string]string{
		"mine":   "user|user's local|7|process|process|${A}",
		"theirs": "project|user's local|7|process|project|${A}",
		"other":  "process|none|none|process|process|none",
	} {
		d := defs[name]
		if got := strings.Join(d.Launch().Args, "|"); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	// What the project sets is part of what the user trusts; what it does not use is not.
	write(project, ".claude/settings.json", `{"env": {"A": "project", "E": "project", "Z": "unused"}}`)
	if again := read(); again["theirs"].Digest() != defs["theirs"].Digest() {
		t.Error("got another digest, want the same: the entry does not use the variable")
	}
	write(project, ".claude/settings.json", `{"env": {"A": "evil", "E": "project"}}`)
	again := read()
	if again["theirs"].Digest() == defs["theirs"].Digest() || again["mine"].Digest() != defs["mine"].Digest() {
		t.Error("got the digest of the project's entry unchanged, or that of the user's changed")
	}
	if d := again["theirs"]; !strings.Contains(strings.Join(d.launch.also, "\n"), "from the project's settings of Claude Code: A=evil") {
		t.Errorf("got %q, want the project's variable", d.launch.also)
	}
}

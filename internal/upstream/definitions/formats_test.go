package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailscale/hujson"

	"github.com/sallyport/sallyport/internal/edit"
)

// checkTree checks what holds of every tree, and that lines are in the file.
func checkTree(t *testing.T, data []byte, root node, err error) {
	t.Helper()
	lines := strings.Count(string(data), "\n") + 1
	var bad *parseError
	if errors.As(err, &bad) && (bad.line < 1 || bad.line > lines || bad.reason == "") {
		t.Fatalf("%q: %v, in %d lines", data, err, lines)
	}
	if err != nil {
		return
	}
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		if n.line < 1 || n.line > lines || depth > 2*maxDepth || strings.IndexByte(`{["0tfn`, n.kind) < 0 {
			t.Fatalf("%q: %+v, in %d lines, at depth %d", data, n, lines, depth)
		}
		for i := range n.members {
			walk(&n.members[i].value, depth+1)
		}
		for i := range n.items {
			walk(&n.items[i], depth+1)
		}
	}
	walk(&root, 0)
}

// checkEntries checks what holds of all that is read from a file.
func checkEntries(t *testing.T, data []byte, d *dialect, root node, err error) {
	t.Helper()
	if err != nil {
		return
	}
	for _, translate := range []bool{false, true} {
		l := newLoader(Options{Env: environment(map[string]string{"A": "value-of-a"}), Home: "/home/ann", Dir: "/p", translate: translate})
		l.take(Source{Name: "x", File: "/nonexistent/f", dialect: d}, d, &root)
		l.finish()
		for _, p := range l.problems {
			if p.Line < 0 || p.Line > strings.Count(string(data), "\n")+1 || p.Reason == "" {
				t.Fatalf("%q: %+v", data, p)
			}
		}
		for _, d := range l.defs {
			if d.Name == "" || (strings.TrimSpace(d.Launch().Command) == "") == (d.Remote() == nil) || len(d.Args) != len(d.Launch().Args) || d.Transport == "" {
				t.Fatalf("%q: %+v", data, d)
			}
		}
		for _, tr := range l.translated {
			// What we write we can read, unless it names a file that is not there.
			if _, err := Parse(tr.Name, tr.Entry, Options{AllowSelf: true}, true); err != nil && !strings.Contains(err.Error(), "the file of variables") {
				t.Fatalf("%q: %s: %v", data, tr.Entry, err)
			}
		}
	}
}

// dialectNamed returns how a client writes its first file.
func dialectNamed(name string) *dialect {
	c, ok := ClientNamed(name)
	if !ok {
		return nil
	}
	return c.user(Places{OS: "linux", Home: "/h"})[0].dialect
}

// seeds are the texts of all tests of one form.
func seeds(f *testing.F, format edit.Format) {
	for _, s := range shapes {
		if d := dialectNamed(s.source); d != nil && d.format == format {
			f.Add([]byte(s.text))
		}
	}
}

func FuzzJSONC(f *testing.F) {
	seeds(f, edit.JSONC)
	seeds(f, edit.JSON)
	f.Add([]byte("// only a comment"))
	f.Add([]byte("{\"mcpServers\": {/* c */ \"a\": {\"command\": \"x\",},},}//"))
	f.Add([]byte("{\"servers\": {\"a\": {\"url\": \"https://${input:x}\"}}, \"inputs\": [{\"id\": \"x\"}]}"))
	f.Add([]byte("{\"a\": 1, // x\n \"a\": 2}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseJSONC(data, nil)
		checkTree(t, data, root, err)
		if err == nil {
			plain := strings.TrimPrefix(string(data), "\xef\xbb\xbf")
			standard, huErr := hujson.Standardize([]byte(plain + "\n"))
			if huErr != nil && !json.Valid([]byte(plain)) {
				t.Fatalf("%q was accepted, though %v", data, huErr)
			}
			var want any
			if dec := json.NewDecoder(strings.NewReader(string(standard))); huErr == nil {
				dec.UseNumber()
				if dec.Decode(&want) != nil || !reflect.DeepEqual(value(root), want) {
					t.Fatalf("%q was read as %v", data, value(root))
				}
			}
		}
		for _, name := range []string{"claude-code", "cursor", "vscode", "zed", "gemini", "opencode", "copilot"} {
			checkEntries(t, data, dialectNamed(name), root, err)
		}
		pruned, err := parseJSONC(data, claudeCode.prune)
		checkTree(t, data, pruned, err)
		checkEntries(t, data, claudeCode, pruned, err)
	})
}

func FuzzTOML(f *testing.F) {
	seeds(f, edit.TOML)
	f.Add([]byte("a = 1979-05-27T07:32:00Z\n[[mcp_servers.x.y]]\nb = [1, 2.5, inf, nan, true]\n"))
	f.Add([]byte("mcp_servers = {a = {command = 'x'}, \"b.c\" = {command = \"\"\"\ny\"\"\"}}\n"))
	f.Add([]byte("[mcp_servers.'a.b' . \"c\"]\ncommand=1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseTOML(data)
		checkTree(t, data, root, err)
		checkEntries(t, data, codex, root, err)
	})
}

func FuzzYAML(f *testing.F) {
	seeds(f, edit.YAML)
	f.Add([]byte("extensions:\n  ? a\n  : {cmd: |\n    x\n    y\n  }\n---\nb: 1\n"))
	f.Add([]byte("extensions: {a: {type: stdio, cmd: c, args: [1, 0x1f, 1e3, .inf, ~, on], envs: {A: 1}}}\n"))
	f.Add([]byte("a: !!binary x\nb: &x [*x]\n<<: *x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseYAML(data)
		checkTree(t, data, root, err)
		checkEntries(t, data, goose, root, err)
	})
}

func FuzzVariables(f *testing.F) {
	for _, s := range []string{"${A}", "${A:-b}$A{env:A}${env:A}", "${", "${}", "$", "{", "${file:/x}${keyring:y}", "${input:i d}", "${workspaceFolder}${/}", "${A:-${A}}", "{file:~/x}", "${A:-", "${B:-${C:-${A}}}", "${B:-$A{env:A}}", "${B:-${", "${B:-${C", "}${}", "${B:-${file:/x}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		env := environment(map[string]string{"A": "\x01${A}$A{env:A}\x02"})
		for _, vars := range []syntax{own.vars, claudeCode.vars, vscode.vars, gemini.vars, opencode.vars, {}} {
			e := newExpander(env, "/home/ann", vars)
			e.folder = "/p"
			got := e.variables(s)
			if vars == (syntax{}) && got != s {
				t.Fatalf("%q became %q, though nothing is expanded", s, got)
			}
			// What was put in was not looked at again.
			if strings.Count(got, "\x01")-strings.Count(s, "\x01") != strings.Count(got, "\x02")-strings.Count(s, "\x02") {
				t.Fatalf("%q became %q", s, got)
			}
			for name := range e.miss {
				if !isName(name) || name == "A" {
					t.Fatalf("%q misses %q", s, name)
				}
			}
		}
	})
}

func TestLargeFilesOfClients(t *testing.T) {
	// Claude Code keeps megabytes beside its servers.
	var b strings.Builder
	b.WriteString(`{"history": [`)
	for range 20_000 {
		b.WriteString(`{"display": "` + strings.Repeat("x", 200) + `", "mcpServers": {}},` + "\n")
	}
	b.WriteString(`{}], "projects": {"/p": {"history": ["mcpServers"], "mcpServers": {"local": {"command": "c"}}}}, "mcpServers": {"user": {"command": "c"}}}`)
	file := write(t, filepath.Join(t.TempDir(), ".claude.json"), b.String())
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	cache := NewCache()
	source := Source{Name: "claude-code", File: file, Optional: true, dialect: claudeCode}
	for range 2 {
		r := Read([]Source{source}, Options{Dir: "/p", Cache: cache})
		if namesOf(r.Definitions) != "local user" || len(r.Problems) != 0 || r.Definitions[1].Line != 20_001 {
			t.Errorf("%+v %v", r.Definitions, r.Problems)
		}
	}
	if len(cache.files) != 1 {
		t.Error("the file was not remembered")
	}
	write(t, file, `{"mcpServers": {"other": {"command": "c"}}}`)
	if r := Read([]Source{source}, Options{Dir: "/p", Cache: cache}); namesOf(r.Definitions) != "other" {
		t.Errorf("%+v", r.Definitions)
	}
}

func TestDeepFiles(t *testing.T) {
	for name, decode := range map[string]func([]byte) (node, error){
		"jsonc": func(b []byte) (node, error) { return parseJSONC(b, nil) }, "toml": parseTOML, "yaml": parseYAML,
	} {
		for _, text := range []string{
			strings.Repeat("[", 100_000), "a = " + strings.Repeat("[", 100_000), strings.Repeat("{a: ", 50_000),
			strings.Repeat("- ", 50_000) + "x", strings.Repeat("[a.", 50_000), "/*" + strings.Repeat("{\"a\":", 10_000),
		} {
			if _, err := decode([]byte(text)); err == nil {
				t.Errorf("%s: %.20q was read", name, text)
			}
		}
	}
}

func TestRemoteSecretsDoNotShow(t *testing.T) {
	const text = `{"mcpServers": {"a": {
		"url": "https://me:url-s3cr3t@h/mcp?api_key=query-s3cr3t&page=2&x=${TOKEN}",
		"headers": {"Authorization": "Bearer head-s3cr3t", "X-Key": "key-s3cr3t", "Accept": "text/html", "K": "${file:KEYFILE}"}
	}}}`
	keyFile := write(t, filepath.Join(t.TempDir(), "key"), "file-s3cr3t\n")
	defs, problems := load(t, strings.Replace(text, "KEYFILE", filepath.ToSlash(keyFile), 1))
	if len(problems) != 0 {
		t.Fatal(show(problems))
	}
	d := defs[0]
	if got := d.CommandLine(); got != "https://me:***@h/mcp?api_key=***&page=2&x=${TOKEN}" {
		t.Errorf("shown as %s", got)
	}
	if !slices.Equal(d.Uses, []string{"TOKEN", "file:" + keyFile}) || !slices.Equal(d.HeaderNames, []string{"Accept", "Authorization", "K", "X-Key"}) {
		t.Errorf("%q %q", d.Uses, d.HeaderNames)
	}
	resolved, err := d.Resolve(t.Context(), func(_ context.Context, kind, name string) (string, error) {
		data, err := ReadFile(name, 100)
		return string(data), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := resolved.Remote(); r.Headers["K"] != "file-s3cr3t" || r.Headers["Accept"] != "text/html" || !strings.HasSuffix(r.URL, "x=s3cr3t-value") {
		t.Errorf("%q %q", r.URL, r.Headers)
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "d", resolved, "r", resolved.Remote(), "any", []any{resolved, resolved.Remote()})
	all := fmt.Sprintf("%v %+v %#v %v %#v %s %s", resolved, &resolved, resolved, resolved.Remote(), resolved.Remote(), asJSON(t, resolved), asJSON(t, resolved.Remote())) + logged.String() +
		resolved.Redact("it says url-s3cr3t query-s3cr3t Bearer head-s3cr3t, head-s3cr3t, key-s3cr3t, s3cr3t-value, file-s3cr3t")
	for _, secret := range []string{"url-s3cr3t", "query-s3cr3t", "head-s3cr3t", "key-s3cr3t", "s3cr3t-value", "file-s3cr3t"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s shows", secret)
		}
	}
	if got := resolved.Redact("text/html"); got != "text/html" {
		t.Error(got)
	}
	if _, err := d.Resolve(t.Context(), func(context.Context, string, string) (string, error) { return "", errors.New("locked") }); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Error(err)
	}
	if _, err := d.Resolve(t.Context(), nil); err == nil {
		t.Error("nobody read it")
	}
}

// TestAnInputThatNobodyAnswers: the error names the variable that would.
func TestAnInputThatNobodyAnswers(t *testing.T) {
	locked := func(context.Context, string, string) (string, error) { return "", errors.New("locked") }
	defs, problems := machine(t, "linux", map[string]string{
		"home/.config/Code/User/mcp.json": `{"servers": {"x": {"command": "c", "env": {"K": "${input:other key}"}}}}`,
	}).load("vscode")
	if len(defs) != 1 || len(problems) != 0 {
		t.Fatal(defs, show(problems))
	}
	if _, err := defs[0].Resolve(t.Context(), locked); err == nil || err.Error() != "${input:other key}: the variable INPUT_OTHER_KEY is not set, and locked" {
		t.Error(err)
	}
}

package library

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a person's machine.
type place struct {
	t       *testing.T
	home    string
	project string
	config  Config
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project")}
	for _, d := range []string{p.home, p.project} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"TOKEN": "s3cr3t-token"}
	p.config = Config{
		Places: definitions.Places{OS: "linux", Home: p.home, Dir: p.project, Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		}},
		Names: []string{"*"},
		State: store.At(filepath.Join(dir, "state")),
	}
	return p
}

func (p *place) open() *Library {
	p.t.Helper()
	l := New(p.config)
	p.t.Cleanup(l.Close)
	return l
}

// write writes a file below the home directory or, with a leading slash, the
// project.
func (p *place) write(path, text string) string {
	p.t.Helper()
	base := p.home
	if rest, ok := strings.CutPrefix(path, "/"); ok {
		base, path = p.project, rest
	}
	path = filepath.Join(base, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// names are the servers with their states.
func names(s *Snapshot) string {
	var out []string
	for _, d := range s.Definitions {
		name := d.Name
		if state := d.State(); state != "ready" {
			name += ":" + state
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func check(t *testing.T, s *Snapshot, want string) {
	t.Helper()
	if got := names(s); got != want {
		t.Errorf("servers are %q, want %q (problems: %v)", got, want, s.Problems)
	}
}

const (
	serverA = `{"mcpServers": {"a": {"command": "a"}}}`
	serverB = `{"mcpServers": {"b": {"command": "b"}}}`
)

func TestChangesAreSeen(t *testing.T) {
	p := newPlace(t)
	var versions []uint64
	l := p.open()
	l.OnChange(func(s *Snapshot) { versions = append(versions, s.Version) })
	check(t, l.Current(true), "")
	// A folder that was not there, a file in it, a change in place, another
	// file in its place, a client's first file, and all gone again.
	path := p.write("MCPs/x.json", serverA)
	check(t, l.Current(true), "a")
	p.write("MCPs/x.json", serverB)
	check(t, l.Current(true), "b")
	other := p.write("MCPs/y.tmp", serverA)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "a")
	p.write(".codeium/windsurf/mcp_config.json", serverB)
	check(t, l.Current(true), "a b")
	p.write("MCPs/x.json", `{"mcpServers": {`)
	s := l.Current(true)
	check(t, s, "b")
	if len(s.Problems) != 1 || s.Problems[0].Line != 1 {
		t.Errorf("problems %v", s.Problems)
	}
	if err := errors.Join(os.Remove(path), os.RemoveAll(filepath.Join(p.home, ".codeium"))); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "")
	if len(versions) != 6 || !slices.IsSorted(versions) {
		t.Errorf("told of %v", versions)
	}
	before := l.Current(true)
	// What makes no difference is no change.
	p.write("MCPs/notes.txt", "x")
	p.write(".cursor/mcp.json", "{}")
	if now := l.Current(true); now.Version != before.Version {
		t.Errorf("version %d became %d", before.Version, now.Version)
	}
}

func TestTheNextLookSeesAChange(t *testing.T) {
	p := newPlace(t)
	l := p.open()
	p.write("MCPs/x.json", serverA)
	for deadline := time.Now().Add(time.Minute); names(l.Current(false)) != "a"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody looked again")
		}
	}
}

func TestLargeFilesAreReadAside(t *testing.T) {
	p := newPlace(t)
	l := p.open()
	var b strings.Builder
	b.WriteString(`{"history": [`)
	for b.Len() < 2*large {
		b.WriteString(`"` + strings.Repeat("x", 1000) + `",`)
	}
	b.WriteString(`0], "mcpServers": {"a": {"command": "a"}}}`)
	path := p.write(".claude.json", b.String())
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); names(l.Current(false)) != "a"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file was never read")
		}
	}
	p.write("MCPs/x.json", serverB)
	check(t, l.Current(true), "a b")
}

func TestManyAtATime(t *testing.T) {
	p := newPlace(t)
	l := p.open()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				s := l.Current(i%2 == 0)
				if len(s.Definitions) > 1 {
					t.Errorf("%v", s.Definitions)
				}
			}
		})
	}
	for i := range 20 {
		p.write("MCPs/x.json", []string{serverA, serverB}[i%2])
	}
	all.Wait()
	check(t, l.Current(true), "b")
}

func TestNeitherPipesNorLoopsBlock(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no named pipes in folders")
	}
	p := newPlace(t)
	p.write("MCPs/a.json", serverA)
	mkfifo(t, filepath.Join(p.home, "MCPs", "pipe.json"))
	mkfifo(t, filepath.Join(p.project, ".mcp.json"))
	mkfifo(t, filepath.Join(p.project, "mcp-servers"))
	command := filepath.Join(p.project, "command")
	mkfifo(t, command)
	if err := os.Chmod(command, 0o700); err != nil {
		t.Fatal(err)
	}
	p.write("/.cursor/mcp.json", `{"mcpServers": {"piped": {"command": "${workspaceFolder}/command"}}}`)
	loop := filepath.Join(p.home, "MCPs", "loop.json")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	s := p.open().Current(true)
	check(t, s, "a piped:offered")
	if len(s.Problems) != 3 {
		t.Errorf("problems %v", s.Problems)
	}
}

const project = `{"mcpServers": {"x": {"command": "run", "args": ["${TOKEN}"]}, "y": {"command": "y"}}}`

// What an entry names and does not hold is shown, and asks again when it
// changes.
func TestTrustOfAdditions(t *testing.T) {
	p := newPlace(t)
	settings := `{"inputs": [{"id": "a", "default": "${file:/etc/secret}"}, {"id": "b"}, {"id": "c", "default": "unused"}],
		"servers": {"v": {"command": "run", "args": ["${input:a}", "${input:b}"], "env": {"A": "1", "T": "${env:TOKEN}"}, "envFile": "vars"}}}`
	p.write("/.vscode/mcp.json", settings)
	p.write("/vars", "NODE_OPTIONS=--require ./evil.js\nA=2\n")
	p.write("/mcp-servers/own.json", `{"description": "one", "mcpServers": {"o": {"command": "o"}}}`)
	l := p.open()
	check(t, l.Current(true), "o:offered v:offered")
	v, _ := l.Snapshot().Get("v")
	want := []string{"from the file of variables: A=2", "from the file of variables: NODE_OPTIONS=--require ./evil.js", "for the input a: ${file:/etc/secret}"}
	if !slices.Equal(v.Also(), want) {
		t.Errorf("%q", v.Also())
	}
	if o, _ := l.Snapshot().Get("o"); !slices.Equal(o.Also(), []string{"the file's description: one"}) {
		t.Errorf("%q", o.Also())
	}
	if err := l.Trust(l.Snapshot().Offered()); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "o v")
	// A value that looks like a reference is not read: nobody was told of it.
	v, _ = l.Snapshot().Get("v")
	resolved, err := v.Resolve(t.Context(), func(_ context.Context, kind, name string) (string, error) {
		if kind != "keyring" || name != "input/b" {
			t.Errorf("%s %s is read", kind, name)
		}
		return "from the keyring", nil
	})
	if err != nil || !slices.Equal(resolved.Launch().Args, []string{"${file:/etc/secret}", "from the keyring"}) {
		t.Error(err, resolved.Launch().Args)
	}
	p.write("/mcp-servers/own.json", `{"description": "two", "mcpServers": {"o": {"command": "o"}}}`)
	p.write("/vars", "NODE_OPTIONS=--require ./other.js\n")
	check(t, l.Current(true), "o:changed v:changed")
}

func TestTrust(t *testing.T) {
	p := newPlace(t)
	p.write("/.mcp.json", project)
	p.write("MCPs/a.json", serverA)
	l := p.open()
	check(t, l.Current(true), "a x:offered y:offered")
	x, _ := l.Snapshot().Get("x")
	if x.Written() != `{"command":"run","args":["${TOKEN}"]}` || !slices.Equal(x.Uses, []string{"TOKEN"}) {
		t.Errorf("%s uses %v", x.Written(), x.Uses)
	}
	if err := l.Trust([]Definition{x}); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "a x y:offered")
	// Another library, as the next start has it, knows.
	check(t, p.open().Snapshot(), "a x y:offered")

	// The order of lines does not matter, a word does.
	p.write("/.mcp.json", "\n\n"+project)
	check(t, l.Current(true), "a x y:offered")
	p.write("/.mcp.json", strings.Replace(project, `"run"`, `"run2"`, 1))
	check(t, l.Current(true), "a x:changed y:offered")
	p.write("/.mcp.json", strings.Replace(project, `["${TOKEN}"]`, `["${TOKEN}", "-v"]`, 1))
	check(t, l.Current(true), "a x:changed y:offered")
	p.write("/.mcp.json", strings.Replace(project, `"run"`, `"run", "env": {"LD_PRELOAD": "./evil.so"}`, 1))
	check(t, l.Current(true), "a x:changed y:offered")
	// The same words in another file are another matter.
	if err := os.Remove(filepath.Join(p.project, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	p.write("/.cursor/mcp.json", project)
	check(t, l.Current(true), "a x:changed y:offered")
	p.write("/.mcp.json", project)
	check(t, l.Current(true), "a x y:offered")

	if n, err := l.Distrust(); n != 1 || err != nil {
		t.Error(n, err)
	}
	check(t, l.Current(true), "a x:offered y:offered")
}

func TestTrustIsOfOneFolder(t *testing.T) {
	p := newPlace(t)
	p.write("/.mcp.json", project)
	l := p.open()
	if err := l.Trust(l.Snapshot().Offered()); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "x y")

	// The same words elsewhere are offered.
	elsewhere := newPlace(t)
	elsewhere.config.State = p.config.State
	elsewhere.write("/.mcp.json", project)
	check(t, elsewhere.open().Snapshot(), "x:offered y:offered")

	// By another name of the same folder they are trusted, and no more when
	// that name leads elsewhere.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(p.project, link); err != nil {
		t.Skip(err)
	}
	p.config.Places.Dir = link
	check(t, p.open().Snapshot(), "x y")
	if err := errors.Join(os.Remove(link), os.Symlink(elsewhere.project, link)); err != nil {
		t.Fatal(err)
	}
	check(t, p.open().Snapshot(), "x:offered y:offered")
}

func TestALinkThatLeadsElsewhereIsAChange(t *testing.T) {
	p := newPlace(t)
	good := p.write("/good.json", project)
	evil := p.write("/evil.json", strings.Replace(project, `"run"`, `"evil"`, 1))
	link := filepath.Join(p.project, ".mcp.json")
	if err := os.Symlink(good, link); err != nil {
		t.Skip(err)
	}
	l := p.open()
	if err := l.Trust(l.Snapshot().Offered()); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "x y")
	if err := errors.Join(os.Remove(link), os.Symlink(evil, link)); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "x:changed y")
}

func TestFilesOfVariablesAreTrustedToo(t *testing.T) {
	p := newPlace(t)
	p.write("/.vscode/mcp.json", `{"servers": {"x": {"command": "x", "envFile": "${workspaceFolder}/.env"}}}`)
	p.write("/.env", "A=1\n")
	l := p.open()
	if err := l.Trust(l.Snapshot().Offered()); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "x")
	p.write("/.env", "A=1\nNODE_OPTIONS=--require=./evil.js\n")
	check(t, l.Current(true), "x:changed")
}

func TestARecordThatCannotBeReadTrustsNothing(t *testing.T) {
	p := newPlace(t)
	p.write("/.mcp.json", project)
	l := p.open()
	if err := l.Trust(l.Snapshot().Offered()); err != nil {
		t.Fatal(err)
	}
	path := l.trustState().Path(trustName(l.folder))
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := l.Current(true)
	check(t, s, "x:offered y:offered")
	if len(s.Problems) != 1 || s.Problems[0].File != path {
		t.Errorf("problems %v", s.Problems)
	}
}

func TestAProjectTakesNothingAway(t *testing.T) {
	p := newPlace(t)
	fallback := p.write("fallback.json", `{"mcpServers": {"y": {"command": "mine"}}}`)
	p.write("MCPs/x.json", `{"mcpServers": {"x": {"command": "mine"}}}`)
	p.write("/.mcp.json", project)
	p.config.Fallback = fallback
	s := p.open().Snapshot()
	check(t, s, "x y")
	for _, d := range s.Definitions {
		if d.Command != "mine" || len(d.Shadowed) != 1 {
			t.Errorf("%+v", d)
		}
	}
}

// TestAProjectsNamesAreTold: what code writes for a server of the user's may mean a
// project's as well, once that is trusted; the user sees so before.
func TestAProjectsNamesAreTold(t *testing.T) {
	define := func(names ...string) string {
		servers := map[string]any{}
		for _, name := range names {
			servers[name] = map[string]string{"command": "x"}
		}
		text, _ := json.Marshal(map[string]any{"mcpServers": servers})
		return string(text)
	}
	for _, tt := range []struct {
		own, project []string
		want         string // the project's servers of which the user is told
	}{
		{[]string{"DB Prod"}, []string{"db_prod", "db.prod", "other"}, "db.prod db_prod"},
		{[]string{"db_prod", "DB Prod"}, []string{"db.prod", "DB-Prod"}, ""}, // nothing else has the name
		{[]string{"db_prod"}, []string{"DB Prod"}, ""},
		{[]string{"a"}, []string{"a.b", "a-b"}, ""},
	} {
		p := newPlace(t)
		p.write("MCPs/x.json", define(tt.own...))
		p.write("/.mcp.json", define(tt.project...))
		var got []string
		for _, problem := range p.open().Snapshot().Problems {
			if !problem.Warning || !strings.Contains(problem.Reason, "mcp_db_prod, which is your server \"DB Prod\" now") {
				t.Errorf("got %v", problem)
			}
			got = append(got, problem.Server)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q and a project's %q: told of %q, want %s", tt.own, tt.project, got, tt.want)
		}
	}
}

func TestSwitch(t *testing.T) {
	p := newPlace(t)
	p.write(".cursor/mcp.json", `{"mcpServers": {"on": {"command": "x"}, "off": {"command": "x", "disabled": true}}}`)
	l := p.open()
	check(t, l.Snapshot(), "off:disabled on")
	if err := errors.Join(l.Switch("on", false), l.Switch("off", true)); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "off on:disabled")
	check(t, p.open().Snapshot(), "off on:disabled")
	if err := l.Unswitch("on", "off", "none"); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "off:disabled on")
	// What a project offers does not come into force by being switched on.
	p.write("/.mcp.json", project)
	if err := l.Switch("x", true); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "off:disabled on x:offered y:offered")
}

func TestAddAndRemove(t *testing.T) {
	p := newPlace(t)
	l := p.open()
	entry := json.RawMessage(`{"command":"npx","args":["<&>"],"env":{"K":"${TOKEN}"}}`)
	path, err := l.Add("my server/x", entry)
	if err != nil || path != filepath.Join(p.home, "MCPs", "my_server_x.json") {
		t.Fatal(path, err)
	}
	check(t, l.Current(true), "my server/x")
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if text, _ := os.ReadFile(path); !strings.Contains(string(text), `"<&>"`) || strings.Contains(string(text), "s3cr3t") {
		t.Errorf("%s", text)
	}
	if _, err := l.Add("my server/x", entry); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	// Another name that makes the same file.
	if path, err := l.Add("my server:x", entry); err != nil || filepath.Base(path) != "my_server_x-2.json" {
		t.Error(path, err)
	}
	for _, bad := range []string{`{}`, `{"command": 5}`, `[]`, `{"command": "x"`, `{"url": "ftp://x"}`, `{"command": "/usr/bin/sallyport"}`} {
		if path, err := l.Add("bad", json.RawMessage(bad)); err == nil {
			t.Errorf("%s became %s", bad, path)
		}
	}
	hand := p.write("MCPs/hand.json", "{\n  \"mcpServers\": {\n    \"one\": {\"command\": \"x\"},   \n    \"a/b~c\": {\"command\": \"y\"}\n  }\n}\n")
	for _, name := range []string{"my server/x", "my server:x", "a/b~c"} {
		if _, err := l.Remove(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("an empty file was left")
	}
	if text, _ := os.ReadFile(hand); !strings.Contains(string(text), `    "one": {"command": "x"}`) || strings.Contains(string(text), "a/b") {
		t.Errorf("%s", text)
	}
	p.write(".cursor/mcp.json", serverA)
	if _, err := l.Remove("a"); err == nil || !strings.Contains(err.Error(), "disable") {
		t.Error(err)
	}
	if _, err := l.Remove("none"); err == nil {
		t.Error("what is not there was removed")
	}
	entries, err := os.ReadDir(filepath.Join(p.home, "MCPs"))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func TestImport(t *testing.T) {
	p := newPlace(t)
	p.write(".codex/config.toml", "[mcp_servers.r]\nurl = \"https://h/mcp\"\nbearer_token_env_var = \"TOKEN\"\nenabled_tools = [\"one\"]\n[mcp_servers.p]\ncommand = \"p\"\nenv_vars = [\"TOKEN\"]\n")
	l := p.open()
	found, problems, err := l.Translate("codex")
	if err != nil || len(found) != 2 || len(problems) != 0 {
		t.Fatal(found, problems, err)
	}
	want := map[string]string{
		"p": `{"command":"p","env":{"TOKEN":"${TOKEN}"}}`,
		"r": `{"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer ${TOKEN}"},"enabledTools":["one"]}`,
	}
	for _, f := range found {
		if string(f.Entry) != want[f.Name] {
			t.Errorf("%s is %s", f.Name, f.Entry)
		}
		if _, err := l.Add(f.Name, f.Entry); err != nil {
			t.Error(err)
		}
	}
	s := l.Current(true)
	check(t, s, "p r")
	r, _ := s.Get("r")
	if r.Source != definitions.NameMCPs || r.Remote().Headers["Authorization"] != "Bearer s3cr3t-token" || r.ToolAllowed("two") {
		t.Errorf("%+v", r)
	}
	if _, _, err := l.Translate("corsor"); err == nil || !strings.Contains(err.Error(), "cursor") {
		t.Error(err)
	}
}

package library

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sallyport/internal/state"
	"sallyport/internal/upstream/definitions"
)

func parse(t *testing.T, entry string) Definition {
	t.Helper()
	d, err := definitions.Parse("x", json.RawMessage(entry), definitions.Options{}, false)
	if err != nil {
		t.Fatalf("%s: %v", entry, err)
	}
	return d
}

func TestGrants(t *testing.T) {
	const npx = "npx -y @modelcontextprotocol/server-*"
	for _, tt := range []struct {
		pattern, entry string
		want           bool
	}{
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-memory"]}`, true},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x","evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x@npm:evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x/../../evil"]}`, false},
		{npx, `{"command":"npx -y","args":["@modelcontextprotocol/server-x"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"],"env":{"NODE_OPTIONS":"--require ./evil"}}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"],"cwd":"/tmp"}`, false},
		{npx + " ...", `{"command":"npx","args":["-y","@modelcontextprotocol/server-x","/data","--flag"]}`, true},
		{npx + " ...", `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"]}`, true},
		{npx + " ...", `{"command":"npx","args":["-y","evil"]}`, false},
		{"...", `{"command":"evil"}`, false},
		{"*", `{"command":"/bin/sh"}`, false},
		{"uvx mcp-*-server", `{"command":"uvx","args":["mcp-git-server"]}`, true},
		{"uvx mcp-*-server", `{"command":"uvx","args":["mcp--server"]}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp"}`, true},
		{"https://*.example.com/mcp", `{"url":"https://a.b.example.com/mcp","headers":{"X":"y"}}`, true},
		{"https://*.example.com/mcp", `{"url":"https://evil.com/.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://evil.com:1/.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://u@a.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"http://a.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp?x=1"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp","tls":{"insecure":true}}`, false},
		{"https://x/*", `{"url":"https://x/a"}`, true},
		{"https://x/*", `{"url":"https://x/a/b"}`, false},
		{"https://x/*", `{"command":"https://x/a"}`, true},
	} {
		if got := Grants([]string{"no such thing", tt.pattern}, parse(t, tt.entry)); got != tt.want {
			t.Errorf("%s grants %s: %v", tt.pattern, tt.entry, got)
		}
	}
	if Grants(nil, parse(t, `{"command":"x"}`)) {
		t.Error("nothing grants something")
	}
}

func FuzzMatches(f *testing.F) {
	f.Add("npx*", "npx-1")
	f.Add("a*b*c", "aXbXbXc")
	f.Add("**", "x")
	f.Fuzz(func(t *testing.T, pattern, word string) {
		if len(pattern) > 100 || len(word) > 1000 || !matches(pattern, word) {
			return
		}
		// What an asterisk stands for has none of what separates.
		for _, c := range []string{" ", "/", ":", "@", "\x00"} {
			if strings.Count(word, c) != strings.Count(pattern, c) {
				t.Fatalf("%q matches %q", pattern, word)
			}
		}
		if len(word) < len(pattern) {
			t.Fatalf("%q matches %q", pattern, word)
		}
	})
}

func TestRequests(t *testing.T) {
	p := newPlace(t)
	p.write("MCPs/a.json", serverA)
	p.config.Grant = []string{"good-server *"}
	l := p.open()
	var changes int
	l.config.Changed = func(*Snapshot) { changes++ }

	granted, err := l.Request("g", json.RawMessage(`{"command":"good-server","args":["1"]}`))
	if !granted || err != nil || changes != 1 {
		t.Fatal(granted, err, changes)
	}
	check(t, l.Snapshot(), "a g")
	if g, _ := l.Snapshot().Get("g"); g.Source != "requested" {
		t.Errorf("%+v", g)
	}
	// It goes with the process.
	check(t, p.open().Snapshot(), "a")

	granted, err = l.Request("w", json.RawMessage(`{"command":"sh","args":["-c","id"],"env":{"K":"${TOKEN}"},"description":"\u001b[2Jnice"}`))
	if granted || err != nil {
		t.Fatal(granted, err)
	}
	check(t, l.Current(true), "a g")
	for _, bad := range []string{
		`{"command":"x","envFile":"/home/u/.env"}`, `{"command":"x","wibble":1}`, `{}`, `{"command":"x","command":"y"}`, `"x"`,
		`{"url":"https://x","bearer_token_env_var":"TOKEN"}`, `{"url":"file:///x"}`, `{"command":"sallyport"}`, ``,
		`{"command":"` + strings.Repeat("x", maxRequest) + `"}`,
	} {
		if _, err := l.Request("bad", json.RawMessage(bad)); err == nil {
			t.Errorf("%.80s was taken", bad)
		} else if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), p.home) {
			t.Errorf("%v says too much", err)
		}
	}
	if _, err := l.Request("a", json.RawMessage(`{"command":"x"}`)); err == nil {
		t.Error("a configured server was asked for")
	}
	if _, err := l.Request("bad\nname", json.RawMessage(`{"command":"x"}`)); err == nil {
		t.Error("a name with a line break was taken")
	}

	requests := p.open().Requests()
	if len(requests) != 1 || requests[0].Name != "w" || fmt.Sprint(requests[0].Parsed.Uses) != "[TOKEN]" || requests[0].Folder != l.Folder() {
		t.Fatalf("%+v", requests)
	}
	path, err := l.Approve(requests[0])
	if err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "a g w")
	if w, _ := l.Snapshot().Get("w"); w.File != path || w.Launch().Env["K"] != "s3cr3t-token" {
		t.Errorf("%+v", w)
	}
	if len(l.Requests()) != 0 {
		t.Error("the request waits still")
	}
}

func TestRequestsAreBounded(t *testing.T) {
	p := newPlace(t)
	l := p.open()
	entry := json.RawMessage(`{"command":"x"}`)
	for i := range maxRequests {
		if _, err := l.Request(fmt.Sprint(i), entry); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Request("one more", entry); err == nil {
		t.Error("there is no bound")
	}
	// A newer wish takes the place of an older one.
	if _, err := l.Request("0", json.RawMessage(`{"command":"y"}`)); err != nil {
		t.Error(err)
	}
	if got := l.Requests(); len(got) != maxRequests || got[0].Parsed.Command != "y" {
		t.Errorf("%d requests", len(got))
	}
	if err := l.Refuse("0"); err != nil {
		t.Error(err)
	}
	if err := l.Refuse("0"); err != nil {
		t.Error("what is gone already:", err)
	}
	if got := len(l.Requested()); got != maxRequests-1 {
		t.Errorf("%d requests", got)
	}
	// What somebody else wrote there is left out.
	if err := os.WriteFile(l.requestState().Path("other.json"), []byte(`{"name":"x","definition":{"command":"x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := len(l.Requests()); got != maxRequests-1 {
		t.Errorf("%d requests", got)
	}
	p.config.Grant = []string{"x"}
	l = p.open()
	for i := range maxGranted {
		if granted, err := l.Request(fmt.Sprint("g", i), entry); !granted || err != nil {
			t.Fatal(granted, err)
		}
	}
	if _, err := l.Request("one more", entry); err == nil {
		t.Error("there is no bound")
	}
}

func TestWithoutAPlaceForState(t *testing.T) {
	p := newPlace(t)
	p.config.State = state.At("")
	p.write("/.mcp.json", project)
	l := p.open()
	check(t, l.Snapshot(), "x:offered y:offered")
	if err := l.Trust(l.Snapshot().Offered()); err == nil {
		t.Error("trusted nowhere")
	}
	if _, err := l.Request("w", json.RawMessage(`{"command":"x"}`)); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Error(err)
	}
}

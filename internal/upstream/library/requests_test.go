package library

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/store"
)

// request does what a caller does with a request that may be added or not.
func (l *Library) request(name string, definition json.RawMessage, allowed bool) error {
	d, err := l.ParseRequest(name, definition)
	switch {
	case err != nil:
		return err
	case allowed:
		return l.AddRequested(d)
	default:
		return l.NoteRequest(name, definition)
	}
}

func TestRequests(t *testing.T) {
	p := newPlace(t)
	p.write("MCPs/a.json", serverA)
	l := p.open()
	var changes int
	l.OnChange(func(*Snapshot) { changes++ })

	if err := l.request("g", json.RawMessage(`{"command":"good-server","args":["1"]}`), true); err != nil || changes != 1 {
		t.Fatalf("got %v and %d changes, want one change", err, changes)
	}
	check(t, l.Snapshot(), "a g")
	if g, _ := l.Snapshot().Get("g"); g.Source != "requested" {
		t.Errorf("%+v", g)
	}
	// It goes with the process.
	check(t, p.open().Snapshot(), "a")

	if err := l.request("w", json.RawMessage(`{"command":"sh","args":["-c","id"],"env":{"K":"${TOKEN}"},"description":"\u001b[2Jnice"}`), false); err != nil {
		t.Fatal(err)
	}
	check(t, l.Current(true), "a g")
	for _, bad := range []string{
		`{"command":"x","envFile":"/home/u/.env"}`, `{"command":"x","wibble":1}`, `{}`, `{"command":"x","command":"y"}`, `"x"`,
		`{"url":"https://x","bearer_token_env_var":"TOKEN"}`, `{"url":"file:///x"}`, `{"command":"sallyport"}`, ``,
		`{"command":"` + strings.Repeat("x", maxRequest) + `"}`,
	} {
		if err := l.request("bad", json.RawMessage(bad), false); err == nil {
			t.Errorf("%.80s was taken", bad)
		} else if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), p.home) {
			t.Errorf("%v says too much", err)
		}
	}
	if err := l.request("a", json.RawMessage(`{"command":"x"}`), false); err == nil {
		t.Error("a configured server was asked for")
	}
	if err := l.request("bad\nname", json.RawMessage(`{"command":"x"}`), false); err == nil {
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
		if err := l.request(fmt.Sprint(i), entry, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.request("one more", entry, false); err == nil {
		t.Error("there is no bound")
	}
	// A newer wish takes the place of an older one.
	if err := l.request("0", json.RawMessage(`{"command":"y"}`), false); err != nil {
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
	l = p.open()
	for i := range maxGranted {
		if err := l.request(fmt.Sprint("g", i), entry, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.request("one more", entry, true); err == nil {
		t.Error("there is no bound")
	}
}

func TestWithoutAPlaceForState(t *testing.T) {
	p := newPlace(t)
	p.config.State = store.At("")
	p.write("/.mcp.json", project)
	l := p.open()
	check(t, l.Snapshot(), "x:offered y:offered")
	if err := l.Trust(l.Snapshot().Offered()); err == nil {
		t.Error("trusted nowhere")
	}
	if err := l.request("w", json.RawMessage(`{"command":"x"}`), false); err == nil || !strings.Contains(err.Error(), "no state directory") {
		t.Error(err)
	}
}

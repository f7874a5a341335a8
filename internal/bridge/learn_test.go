package bridge

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestLearnedShapes: what calls return is shown in signatures, for tools that do
// not declare it, until the tool changes.
func TestLearnedShapes(t *testing.T) {
	s := newStub()
	s.servers["fs"].tools[1].OutputSchema = json.RawMessage(`{"type":"object","properties":{"content":{"type":"string"}}}`)
	answer := `[{"id":17,"title":"hunter2","labels":["hunter2"]},{"id":18,"title":"hunter2"}]`
	s.servers["fs"].call = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		text, err := json.Marshal(answer)
		return json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`), err
	}
	source := NewListable(s, authz.New(authz.Config{Policy: authz.Default()}), nil, nil, nil)
	kept := catalog.New(catalog.Config{Source: source})
	b, err := New(Config{Source: s, Gate: authz.New(authz.Config{Policy: authz.Default()}), Catalog: kept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	t.Cleanup(kept.Close)
	x := b.Begin(self, []string{"fs"})
	call := func(tool string) {
		t.Helper()
		if _, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"` + tool + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	signatures := func() (version, all string) {
		t.Helper()
		definitions, err := x.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return definitions[0].Version, definitions[0].Tools[0].Signature + "\n" + definitions[0].Tools[1].Signature
	}
	before, got := signatures()
	if want := "()\n() -> str"; got != want {
		t.Errorf("before any call: got %s, want %s", got, want)
	}
	for range 2 * firstLessons {
		call("read-file")
		call("write_file")
	}
	const learned = "() -> list[{'id': int, 'title': str, 'labels': NotRequired[list[str]]}]  # learned"
	waitFor(t, func() bool { return kept.Shapes("fs") != nil })
	after, got := signatures()
	if want := learned + "\n() -> str"; got != want {
		t.Errorf("after calls: got %s, want %s", got, want)
	}
	if before == after {
		t.Error("the sandbox does not get the new signature")
	}
	if again, _ := signatures(); again != after {
		t.Error("the version changes without a reason")
	}
	docs := docsOf(t, x, "query_tool_docs", `{"server":"fs"}`)
	if docs[0].Signature != learned {
		t.Errorf("documents: got %s, want %s", docs[0].Signature, learned)
	}
	if strings.Contains(got+docs[0].Signature, "hunter2") {
		t.Error("a value is in a signature")
	}
	changed := newTool("read-file", "reads something else")
	s.servers["fs"].tools = append(s.servers["fs"].tools[:0:0], changed, s.servers["fs"].tools[1])
	if _, got := signatures(); strings.Contains(got, "learned") {
		t.Errorf("a changed tool keeps what was learned: %s", got)
	}
}

// waitFor waits until a background task has had its effect.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for !done() {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// shelf is a server with tools, prompts, resources, templates and instructions.
type shelf struct {
	stubServer
	prompts, resources, templates, instructions, said string
	read                                              int
}

func (s *shelf) Info() upstream.Info { return upstream.Info{Instructions: s.instructions} }

func (s *shelf) Resources(context.Context) (json.RawMessage, error) {
	return json.RawMessage(s.resources), nil
}

func (s *shelf) ResourceTemplates(context.Context) (json.RawMessage, error) {
	return json.RawMessage(s.templates), nil
}

func (s *shelf) Prompts(context.Context) (json.RawMessage, error) {
	if s.prompts == "" {
		return nil, &upstream.Error{Server: "shelf", Op: "prompts/list", Kind: upstream.ErrNotOffered}
	}
	return json.RawMessage(s.prompts), nil
}

func (s *shelf) ReadResource(_ context.Context, uri string) (json.RawMessage, error) {
	s.read++
	return json.RawMessage(`{"contents":[{"uri":"u:1","text":"a\u200bb"}]}`), nil
}

func (s *shelf) GetPrompt(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	s.read++
	return json.RawMessage(s.said), nil
}

type shelfSource struct{ s *shelf }

func (shelfSource) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "shelf", Alias: "shelf"}}
}
func (s shelfSource) Open(context.Context, string) (Server, error) { return s.s, nil }

func newShelf() *shelf {
	return &shelf{
		stubServer: stubServer{tools: []tool.Tool{newTool("put", "puts")}, call: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{}`), nil
		}},
		prompts:      `[{"name":"p","title":"old title","arguments":[{"name":"a","description":"old argument"}]}]`,
		resources:    `[{"uri":"u:1","name":"one","description":"old resource"},{"uri":"u:2","name":"two"}]`,
		templates:    `[{"uriTemplate":"t:{n}","name":"old template"}]`,
		instructions: "Old instructions",
		said:         `{"messages":[]}`,
	}
}

// begin is an execution that was granted the shelf, by a bridge that remembers.
func begin(t *testing.T, s *shelf, dir store.Dir, refuse bool) *Execution {
	t.Helper()
	b, err := New(Config{Source: shelfSource{s}, Gate: authz.New(authz.Config{Policy: authz.Default(), RefuseChanged: refuse}), Pins: pins.Open(dir, slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	x := b.Begin(self, []string{"shelf"})
	if _, err := x.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

func answer(t *testing.T, x *Execution, method, params string) string {
	t.Helper()
	result, err := x.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)})
	var refused *wire.CallError
	if errors.As(err, &refused) {
		return refused.Kind + ": " + refused.Message
	}
	return string(result)
}

const onShelf = `{"server":"shelf"}`

// everything is all that code can read of what the shelf says of itself.
func everything(t *testing.T, x *Execution) string {
	t.Helper()
	text := ""
	for _, method := range []string{"list_tools", "query_tool_docs", wire.MethodListPrompts, wire.MethodListResources, wire.MethodListResourceTemplates, wire.MethodServers} {
		text += answer(t, x, method, onShelf) + "\n"
	}
	return text
}

func TestChangedOffers(t *testing.T) {
	get := func(name string) [2]string {
		if strings.HasPrefix(name, "prompt ") {
			return [2]string{wire.MethodGetPrompt, `{"server":"shelf","name":"` + name[len("prompt "):] + `"}`}
		}
		return [2]string{wire.MethodReadResource, `{"server":"shelf","uri":"` + name + `"}`}
	}
	for _, tt := range []struct {
		name    string
		change  func(*shelf)
		differs string   // in the report
		refused []string // what cannot be read any more
		allowed []string
		lost    string // what cannot be read of the texts: new ones
		kept    string // what is read in their place
	}{
		{"nothing", func(*shelf) {}, "", nil, []string{"prompt p", "u:1", "u:9"}, "", "old title"},
		{"a prompt", func(s *shelf) { s.prompts = strings.Replace(s.prompts, "old title", "evil", 1) }, "prompt p", []string{"prompt p", "prompt q"}, []string{"u:1", "t:1"}, "evil", "old title"},
		{"a prompt's argument", func(s *shelf) { s.prompts = strings.Replace(s.prompts, "old argument", "evil", 1) }, "prompt p", []string{"prompt p"}, []string{"u:1"}, "evil", "old argument"},
		{"a new prompt", func(s *shelf) { s.prompts = `[{"name":"q","description":"evil"}]` }, "prompt q", []string{"prompt q"}, []string{"prompt p"}, "evil", ""},
		{"a resource", func(s *shelf) { s.resources = strings.Replace(s.resources, "old resource", "evil", 1) }, "resource u:1", []string{"u:1", "t:1"}, []string{"u:2", "prompt p"}, "evil", "old resource"},
		{"a resource's _meta", func(s *shelf) { s.resources = `[{"uri":"u:2","name":"two","_meta":{"x":"evil"}}]` }, "resource u:2", []string{"u:2"}, []string{"u:1"}, "evil", `"two"`},
		{"a template", func(s *shelf) { s.templates = strings.Replace(s.templates, "old", "evil", 1) }, "template t:{n}", []string{"t:1"}, []string{"u:1", "prompt p"}, "evil", "old template"},
		{"instructions", func(s *shelf) { s.instructions = "Evil instructions" }, "instructions", nil, []string{"u:1", "prompt p"}, "Evil", "Old instructions"},
		{"annotations of a tool", func(s *shelf) {
			s.tools = []tool.Tool{newTool("put", "puts")}
			s.tools[0].Raw = json.RawMessage(`{"name":"put","description":"puts","inputSchema":{"type":"object"},"annotations":{"title":"evil"}}`)
		}, "put", nil, []string{"u:1"}, "evil", "puts"},
		{"_meta of a tool", func(s *shelf) {
			s.tools = []tool.Tool{newTool("put", "puts")}
			s.tools[0].Raw = json.RawMessage(`{"name":"put","description":"puts","inputSchema":{"type":"object"},"_meta":{"x":"evil"}}`)
		}, "put", nil, []string{"u:1"}, "evil", "puts"},
	} {
		for _, refuse := range []bool{true, false} {
			s, dir := newShelf(), store.At(t.TempDir())
			if got := everything(t, begin(t, s, dir, refuse)); !strings.Contains(got, "old title") || !strings.Contains(got, "Old instructions") {
				t.Fatalf("at first: %s", got)
			}
			tt.change(s)
			// Without a list before it: a server may change and be asked at once.
			x := begin(t, s, dir, refuse)
			for _, name := range tt.refused {
				call := get(name)
				before := s.read
				got := answer(t, x, call[0], call[1])
				if refused := strings.HasPrefix(got, "denied: ") && s.read == before; refused != refuse {
					t.Errorf("%s, refuse %v: %s: got %s", tt.name, refuse, name, got)
				}
			}
			for _, name := range tt.allowed {
				call := get(name)
				if got := answer(t, x, call[0], call[1]); !strings.HasPrefix(got, "{") {
					t.Errorf("%s, refuse %v: %s: got %s", tt.name, refuse, name, got)
				}
			}
			got := everything(t, x)
			if refuse && (tt.lost != "" && strings.Contains(got, tt.lost) || !strings.Contains(got, tt.kept)) {
				t.Errorf("%s: code reads %s, want %q and not %q", tt.name, got, tt.kept, tt.lost)
			}
			note := strings.Join(x.Notes(), "\n")
			wantsNote := tt.differs != "" && (refuse || !strings.Contains(tt.name, "new"))
			if strings.Contains(note, tt.differs) != wantsNote && tt.differs != "" || tt.differs == "" && note != "" {
				t.Errorf("%s, refuse %v: note %q, want %q: %v", tt.name, refuse, note, tt.differs, wantsNote)
			}
			// It is accepted: nothing is in the way any more.
			book := pins.Open(dir, slog.New(slog.DiscardHandler))
			done, err := book.Approve(Pinned(shelfSource{}.Definitions()[0]))
			if strings.Join(done, ",") != tt.differs || err != nil {
				t.Errorf("%s: accepted %q, %v; want %q", tt.name, done, err, tt.differs)
			}
			for _, name := range append(tt.refused, tt.allowed...) {
				call := get(name)
				if got := answer(t, x, call[0], call[1]); !strings.HasPrefix(got, "{") {
					t.Errorf("%s: %s, after it was accepted: got %s", tt.name, name, got)
				}
			}
			if got := everything(t, x); tt.lost != "" && tt.name != "instructions" && !strings.Contains(got, tt.lost) {
				t.Errorf("%s, after it was accepted: code reads %s", tt.name, got)
			}
		}
	}
}

// TestLaterOffers: a server that had no prompts has some later.
func TestLaterOffers(t *testing.T) {
	s, dir := newShelf(), store.At(t.TempDir())
	s.prompts = ""
	answer(t, begin(t, s, dir, true), wire.MethodListPrompts, onShelf)
	s.prompts = newShelf().prompts
	x := begin(t, s, dir, true)
	if got := answer(t, x, wire.MethodListPrompts, onShelf); got != "[]" {
		t.Errorf("got %s, want none", got)
	}
	if got := answer(t, x, wire.MethodGetPrompt, `{"server":"shelf","name":"p"}`); !strings.HasPrefix(got, "denied") {
		t.Errorf("got %s, want it denied", got)
	}
}

// TestHiddenCharacters: none reaches what code reads as prose. What a call needs
// stays.
func TestHiddenCharacters(t *testing.T) {
	const z = `\u200b\u202e\udb40\udc41\u0007`
	s := newShelf()
	raw := `{"name":"put","title":"T` + z + `","description":"D` + z + `","inputSchema":{"type":"object","title":"IT` + z + `","properties":{"p":{"description":"PD` + z + `","enum":["E\u200b"],"enumDescriptions":["ED` + z + `"],"examples":["X` + z + `"],"default":"DF` + z + `"}}},` +
		`"annotations":{"title":"AT` + z + `"},"_meta":{"k` + z + `":["M` + z + `"]},"icons":[{"src":"S` + z + `"}]}`
	var members struct{ InputSchema json.RawMessage }
	if err := json.Unmarshal([]byte(raw), &members); err != nil {
		t.Fatal(err)
	}
	s.tools = []tool.Tool{{Name: "put", Alias: "put", Title: "T\u200b", Description: "D\u200b\u202e", InputSchema: members.InputSchema, Raw: json.RawMessage(raw)}}
	s.prompts = `[{"name":"p","description":"D` + z + `","arguments":[{"name":"a","description":"A` + z + `"}]}]`
	s.resources = `[{"uri":"u:1","name":"one","description":"D` + z + `","_meta":{"k":"M` + z + `"}}]`
	s.templates = `[{"uriTemplate":"t:{n}","name":"n","title":"T` + z + `"}]`
	s.instructions = "Do\u200b this"
	s.said = `{"description":"D` + z + `","messages":[{"role":"user","content":{"type":"text","text":"say` + z + `"}}]}`
	b, err := New(Config{Source: shelfSource{s}, Gate: authz.New(authz.Config{Policy: authz.Default()}), Pins: pins.Open(store.At(t.TempDir()), slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	x := b.Begin(self, []string{"shelf"})
	definitions, err := x.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defined, err := json.Marshal(definitions)
	if err != nil {
		t.Fatal(err)
	}
	texts := string(defined) + "\n" + everything(t, x) + answer(t, x, "query_tool_docs", `{"server":"shelf","detail":"full"}`) +
		answer(t, x, "query_tool_docs", `{"server":"shelf","tool":"put"}`) + answer(t, x, wire.MethodGetPrompt, `{"server":"shelf","name":"p"}`)
	for _, text := range strings.Split(texts, "\n") {
		// A value that an argument may have stays.
		rest := strings.NewReplacer("E\u200b", "E", `E\u200b`, "E").Replace(text)
		if got := append(invisible.In(rest), invisible.InJSON(json.RawMessage(rest))...); len(got) > 0 {
			t.Errorf("%s in %q", invisible.Names(got), rest)
		}
	}
	for _, want := range []string{`"title":"AT"`, `"k":["M"]`, `"examples":["X"]`, `"enum":["E` + "\u200b" + `"]`, `"text":"say"`, `"description":"A"`, `"Do this"`} {
		if !strings.Contains(texts, want) {
			t.Errorf("want %s in %s", want, texts)
		}
	}
	// What a resource holds is data.
	if got := answer(t, x, wire.MethodReadResource, `{"server":"shelf","uri":"u:1"}`); !strings.Contains(got, `a\u200bb`) {
		t.Errorf("got %q", got)
	}
	if note := strings.Join(x.Notes(), "\n"); !strings.Contains(note, "hides characters in put, ") || !strings.Contains(note, "prompt p") || !strings.Contains(note, "instructions") || !strings.Contains(note, "what prompt p says") {
		t.Errorf("note %q", note)
	}
}

// TestChangedAnnotations: a server that changes what it says of a tool does not
// become less dangerous by it for the rules.
func TestChangedAnnotations(t *testing.T) {
	const writes, reads = `{"name":"put","annotations":{"idempotentHint":true}}`, `{"name":"put","annotations":{"readOnlyHint":true,"idempotentHint":true}}`
	for _, tt := range []struct {
		first, then string
		readOnly    bool
	}{
		{reads, reads, true}, {writes, reads, false}, {reads, writes, false}, {writes, writes, false},
	} {
		dir := store.At(t.TempDir())
		var got tool.Annotations
		for _, raw := range []string{tt.first, tt.then} {
			s := newShelf()
			put, ok := tool.Parse(json.RawMessage(raw))
			if !ok {
				t.Fatal(raw)
			}
			s.tools = []tool.Tool{put}
			got = begin(t, s, dir, false).bridge.factsOfTool("shelf", "put").annotations
		}
		if want := (tool.Annotations{ReadOnly: tt.readOnly, Idempotent: true}); got != want {
			t.Errorf("first %s, then %s: got %+v, want %+v", tt.first, tt.then, got, want)
		}
	}
}

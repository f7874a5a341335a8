package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAnnotations(t *testing.T) {
	for _, tt := range []struct {
		raw         string
		want        Annotations
		destructive bool
	}{
		{`{"name":"a"}`, Annotations{}, true},
		{`{"name":"a","annotations":{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`, Annotations{NonDestructive: true, Idempotent: true, ClosedWorld: true}, false},
		{`{"name":"a","annotations":{"readOnlyHint":true,"destructiveHint":true}}`, Annotations{ReadOnly: true}, false},
		{`{"name":"a","annotations":{"readOnlyHint":"true","destructiveHint":0,"idempotentHint":1,"openWorldHint":null}}`, Annotations{}, true},
	} {
		got, _ := Parse(json.RawMessage(tt.raw))
		if got.Annotations != tt.want || got.Destructive() != tt.destructive {
			t.Errorf("%s: got %+v, destructive %v, want %+v, %v", tt.raw, got.Annotations, got.Destructive(), tt.want, tt.destructive)
		}
	}
	if got := (Annotations{ReadOnly: true, Idempotent: true}).Both(Annotations{Idempotent: true, ClosedWorld: true}); got != (Annotations{Idempotent: true}) {
		t.Errorf("got %+v, want what both say", got)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"all members", `{"name":"a","title":"T","description":"D","inputSchema":{"x":1},"outputSchema":{},"annotations":{"title":"U","readOnlyHint":true},"_meta":{}}`,
			`a "T" "D" {"x":1} {} true`},
		{"a title in the annotations", `{"annotations":{"title":"U"},"name":"a"}`, `a "U" "" {"type":"object"}  false`},
		{"members of other types", `{"name":"a","title":1,"description":["D"],"inputSchema":true,"outputSchema":null,"annotations":{"title":7,"readOnlyHint":"true"}}`,
			`a "" "" {"type":"object"}  false`},
		{"no name", `{"title":"T"}`, "refused"},
		{"a name of another type", `{"name":5}`, "refused"},
		{"a name that is too long", `{"name":"` + strings.Repeat("x", maxName+1) + `"}`, "refused"},
		{"not an object", `[]`, "refused"},
		{"not JSON", `{"name":"a"`, "refused"},
	} {
		got := "refused"
		if p, ok := Parse(json.RawMessage(tt.raw)); ok {
			got = fmt.Sprintf("%s %q %q %s %s %v", p.Name, p.Title, p.Description, p.InputSchema, p.OutputSchema, p.ReadOnly)
			if string(p.Raw) != tt.raw {
				t.Errorf("%s: raw %s, want %s", tt.name, p.Raw, tt.raw)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

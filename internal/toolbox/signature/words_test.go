package signature_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/signature"
)

const issue = `{"type": "object", "required": ["title"], "properties": {
	"title": {"type": "string", "description": "Its title"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
	"open": {"type": "boolean"}, "labels": {"type": "array", "items": {"type": "string"}}, "ids": {"type": "array", "items": {"type": "integer"}},
	"meta": {"$ref": "#/$defs/meta"}, "kind": {"enum": ["bug", "task", 3]}, "any": {}, "user-id": {"type": ["string", "null"]},
	"ref": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
	"$defs": {"meta": {"type": "object", "properties": {"size": {"type": "integer"}, "in": {"$ref": "#/$defs/meta"}}}}}`

func files(name string) ([]byte, error) {
	switch name {
	case "text":
		return []byte("5 <b>\n"), nil
	case "-":
		return []byte(`{"title": "in", "count": 1}`), nil
	case "bytes":
		return []byte{0xff}, nil
	}
	return nil, errors.New("no such file")
}

func TestFromWords(t *testing.T) {
	for _, test := range []struct{ words, want string }{
		{"title=a b|count=3|ratio=1e3|open=true", `{"count":3,"open":true,"ratio":1e3,"title":"a b"}`},
		{"title=5", `{"title":"5"}`},
		{"title=true|any=true|ref=5", `{"any":true,"ref":5,"title":"true"}`},
		{"title={\"a\": 1}|any={\"a\": 1}", `{"any":{"a":1},"title":"{\"a\": 1}"}`},
		{"title=|any=x y|ref=x", `{"any":"x y","ref":"x","title":""}`},
		{"title=a=b", `{"title":"a=b"}`},
		{"title:=5", `{"title":5}`},
		{"title=x|labels=a|labels=b,c", `{"labels":["a","b,c"],"title":"x"}`},
		{`title=x|labels=["a"]|ids=7|ids=[8, 9]`, `{"ids":[7,8,9],"labels":["a"],"title":"x"}`},
		{"title=x|meta.size=1|meta.in.size=2", `{"meta":{"in":{"size":2},"size":1},"title":"x"}`},
		{`title=x|meta={"size": 2}`, `{"meta":{"size":2},"title":"x"}`},
		{"title=x|kind=bug", `{"kind":"bug","title":"x"}`},
		{"title=x|kind=3", `{"kind":3,"title":"x"}`},
		{"title=x|user_id=7", `{"title":"x","user-id":"7"}`},
		{"title=@text", `{"title":"5 <b>\n"}`},
		{"@-|open=false", `{"count":1,"open":false,"title":"in"}`},
		{`{"title": "x", "unknown": 1}`, `{"title":"x","unknown":1}`},

		{"count=3", "title is missing: title=STRING, Its title"},
		{"titel=x", "there is no argument titel; did you mean title? (arguments: title, count, ratio, open, labels, ids, meta, kind, any, user-id, ref)"},
		{"title=x|count=3.5", `count: "3.5" is no integer`},
		{"title=x|count=three", `count: "three" is no integer`},
		{"title=x|count=", `count: "" is no integer`},
		{"title=x|open=yes", `open: "yes" is no boolean`},
		{"title=x|ids=a", `ids: "a" is no integer`},
		{"title=x|ids=[1", `ids: it is not valid JSON`},
		{"title=x|meta=1", `meta: "1" is no object`},
		{"title=x|meta={", `meta: it is not valid JSON`},
		{"title=x|meta.siz=1", "there is no argument siz; did you mean size? (arguments: size, in)"},
		{"title=x|count.a=1", "count has no members: it is integer"},
		{"title=x|meta={}|meta.size=1", "meta is given twice"},
		{"title=x|kind=fix", `kind: "fix" is not one of bug, task, 3`},
		{"title=x|title=y", "title is given twice"},
		{`title=x|{"title": "y"}`, "title is given twice"},
		{"x=1", "there is no argument x (arguments: title, count, ratio, open, labels, ids, meta, kind, any, user-id, ref)"},
		{"title", `"title" gives no argument: write key=value (arguments: title, count, ratio, open, labels, ids, meta, kind, any, user-id, ref)`},
		{"title:=x", "title: what follows := is not valid JSON"},
		{"title=@joe", `title: no such file; for the text itself, write title:='"@joe"'`},
		{"title=@bytes", "title: bytes is not UTF-8 text"},
		{"{", `the arguments are not a JSON object, such as '{"path": "/tmp"}'`},
	} {
		got, err := signature.FromWords(json.RawMessage(issue), strings.Split(test.words, "|"), files)
		text := string(got)
		if err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s: got %s, want %s", test.words, text, test.want)
		}
	}
	for _, test := range []struct{ schema, word, want string }{
		{"", "a=1", `{"a":1}`},
		{`{"type": "object"}`, "a.b=x", `{"a.b":"x"}`},
		{`{"properties": {"a": {"type": "string"}}, "additionalProperties": true}`, "b=x", `{"b":"x"}`},
		{`{"properties": {}, "additionalProperties": false}`, "b=x", "there is no argument b (it takes none)"},
		{`{"properties": {"a": {"anyOf": [{"const": "x"}, {"enum": ["y"]}]}}}`, "a=z", `a: "z" is not one of x, y`},
	} {
		got, err := signature.FromWords(json.RawMessage(test.schema), []string{test.word}, files)
		text := string(got)
		if err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s of %s: got %s, want %s", test.word, test.schema, text, test.want)
		}
	}
}

// FuzzFromWords: whatever schema and words are, the result is an object that has
// the required arguments.
func FuzzFromWords(f *testing.F) {
	f.Add(issue, "title=x", "meta.in.size=2")
	f.Add(`{"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}`, "a=[", "a.a=1")
	f.Add(`{"properties": {"a": {"type": "array", "items": {"type": "array"}}}}`, "a=", "a=]")
	f.Fuzz(func(t *testing.T, schema, first, second string) {
		got, err := signature.FromWords(json.RawMessage(schema), []string{first, second}, files)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(got, &object) != nil || object == nil {
			t.Fatalf("%q, %q: %s is no object", first, second, got)
		}
		for _, a := range signature.Arguments(json.RawMessage(schema)) {
			if _, ok := object[a.Name]; a.Required && !ok {
				t.Errorf("%q, %q: %s has no %q", first, second, got, a.Name)
			}
		}
		signature.Keys(json.RawMessage(schema))
	})
}

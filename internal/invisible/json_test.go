package invisible

import (
	"encoding/json"
	"testing"
)

func TestStripJSON(t *testing.T) {
	for _, tt := range []struct {
		name  string
		place Place
		raw   string
		want  string
	}{
		{"nothing hidden stays as it is", Item, `{ "a" : "ü\u0041", "n": 1.50 }`, `{ "a" : "ü\u0041", "n": 1.50 }`},
		{"literal and escaped", Item, "{\"description\":\"a\u200bb\\u202ec\\udb40\\udc41\"}", `{"description":"abc"}`},
		{"names and addresses", Item, `{"name":"a\u200b","uri":"x:\u200b","uriTemplate":"\u200b","title":"t\u200b"}`,
			"{\"name\":\"a\u200b\",\"uri\":\"x:\u200b\",\"uriTemplate\":\"\u200b\",\"title\":\"t\"}"},
		{"annotations, _meta and what is unknown", Item, `{"annotations":{"title":"a\u200b","name":"b\u200b"},"_meta":{"k\u200b":["v\u200b"]},"x":[{"uri":"\u2060u"}]}`,
			`{"annotations":{"title":"a","name":"b"},"_meta":{"k":["v"]},"x":[{"uri":"u"}]}`},
		{"arguments of a prompt", Item, `{"arguments":[{"name":"n\u200b","description":"d\u200b"}]}`,
			"{\"arguments\":[{\"name\":\"n\u200b\",\"description\":\"d\"}]}"},
		{"a schema", Item, `{"inputSchema":{"properties":{"z\u200b":{"title":"t\u200b","enum":["e\u200b"],"enumDescriptions":["d\u200b"]},"a":{"const":"c\u200b","examples":[{"x":"\u200bx"}],"default":"d\u200b"}},"required":["z\u200b"]}}`,
			"{\"inputSchema\":{\"properties\":{\"z\u200b\":{\"title\":\"t\",\"enum\":[\"e\u200b\"],\"enumDescriptions\":[\"d\"]},\"a\":{\"const\":\"c\u200b\",\"examples\":[{\"x\":\"x\"}],\"default\":\"d\"}},\"required\":[\"z\u200b\"]}}"},
		{"properties called as keywords", Schema, `{"properties":{"enum":{"description":"\u200bd"},"properties":{"properties":{"const":{"title":"\u200bt"}}}}}`,
			`{"properties":{"enum":{"description":"d"},"properties":{"properties":{"const":{"title":"t"}}}}}`},
		{"schemas in lists", Schema, `{"anyOf":[{"items":{"description":"\u200bd","enum":["\u200b"]}}]}`,
			"{\"anyOf\":[{\"items\":{\"description\":\"d\",\"enum\":[\"\u200b\"]}}]}"},
		{"a large number and markup stay", Prose, `{"a":123456789012345678901.50,"b":"<\u200b>"}`, `{"a":123456789012345678901.50,"b":"<>"}`},
		{"no JSON", Prose, "{\"a\u200b\":", `null`},
	} {
		if got := string(StripJSON(json.RawMessage(tt.raw), tt.place)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func FuzzStripJSON(f *testing.F) {
	f.Add("{\"description\":\"a\u200bb\",\"inputSchema\":{\"properties\":{\"\\u200b\":true}}}")
	f.Add("[\"\\ud83d\u200d\"]")
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) {
			return
		}
		once := StripJSON(json.RawMessage(raw), Prose)
		if !json.Valid(once) || len(InJSON(once)) > 0 {
			t.Errorf("%q became %q", raw, once)
		}
		if again := StripJSON(once, Prose); string(again) != string(once) {
			t.Errorf("%q became %q and then %q", raw, once, again)
		}
	})
}

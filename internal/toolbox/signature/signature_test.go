package signature

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/invisible"
)

func TestSignatures(t *testing.T) {
	tests := []struct {
		name, schema, output string
		brief, whole         string // whole empty: as brief
	}{
		{"none", `{}`, "", "()", ""},
		{"no object", `[]`, "", "()", ""},
		{"nothing", ``, "", "()", ""},
		{"required first", `{"properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["b"]}`, "", "(b: int, a: str = ...)", ""},
		{"required but not described", `{"properties":{"a":{"type":"string"}},"required":["b","a","b",7]}`, "", "(a: str, b)", ""},
		{"types", `{"properties":{"a":{"type":"number"},"b":{"type":"boolean"},"c":{"type":"array"},"d":{"type":"object"},"e":{"type":"null"},"f":{}},"required":["a","b","c","d","e","f"]}`, "",
			"(a: float, b: bool, c: list, d: dict, e: None, f)", ""},
		{"nullable", `{"properties":{"a":{"type":["null","string"]},"b":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null}},"required":["a"]}`, "",
			"(a: str | None, b: int | None = None)", ""},
		{"unions", `{"properties":{"a":{"oneOf":[{"type":"integer"},{"type":"number"},{"type":"string"}]},"b":{"anyOf":[{"type":"string"},{}]}},"required":["a","b"]}`, "",
			"(a: float | str, b)", ""},
		{"lists", `{"properties":{"a":{"type":"array","items":{"type":"string"}},"b":{"items":{"items":{"type":"integer"}}},"c":{"type":"array","items":[{"type":"string"}]}},"required":["a","b","c"]}`, "",
			"(a: list[str], b: list[list[int]], c: list)", ""},
		{"defaults", `{"properties":{"a":{"type":"boolean","default":false},"b":{"type":"integer","default":-1},"c":{"default":"x"},"d":{"type":"array","default":[1,{"k":null}]},"e":{"type":"string","default":"it's"}}}`, "",
			`(a=False, b=-1, c='x', d: list = [1, {'k': None}], e="it's")`,
			`(a: bool = False, b: int = -1, c='x', d: list = [1, {'k': None}], e: str = "it's")`},
		{"large integer", `{"properties":{"a":{"default":12345678901234567}}}`, "", "(a=...)", "(a=12345678901234567)"},
		{"enumerations", `{"properties":{"a":{"type":"string","enum":["x","y"]},"b":{"enum":[1,2,null]},"c":{"const":"only"},"d":{"type":"string","enum":["1","2","3","4","5","6"]}},"required":["a","b","c","d"]}`, "",
			"(a: Literal['x', 'y'], b: Literal[1, 2] | None, c: Literal['only'], d: str)",
			"(a: Literal['x', 'y'], b: Literal[1, 2] | None, c: Literal['only'], d: Literal['1', '2', '3', '4', '5', '6'])"},
		{"an enumeration of odd values", `{"properties":{"a":{"enum":[{"x":1},"y"]},"b":{"enum":[]},"c":{"type":"string","enum":["` + strings.Repeat("x", 300) + `"]}},"required":["a","b","c"]}`, "",
			"(a: dict | str, b, c: str)", ""},
		{"objects", `{"properties":{"a":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"size":{"type":"integer"}},"required":["name"]}},"b":{"type":"object","additionalProperties":{"type":"string"}}},"required":["a","b"]}`, "",
			"(a: list[{'name': str, 'size': NotRequired[int]}], b: dict[str, str])", ""},
		{"three levels of objects", `{"properties":{"a":{"properties":{"b":{"properties":{"c":{"properties":{"d":{}}}}}}}}}`, "",
			"(a: {'b': NotRequired[dict]} = ...)", "(a: {'b': NotRequired[{'c': NotRequired[dict]}]} = ...)"},
		{"references", `{"properties":{"a":{"$ref":"#/$defs/color"},"b":{"$ref":"#/definitions/x~1y"},"c":{"$ref":"#/nowhere"},"d":{"$ref":"http://example.com/x"}},"required":["a","b","c","d"],"$defs":{"color":{"enum":["red"]}},"definitions":{"x/y":{"allOf":[{"type":"integer"}]}}}`, "",
			"(a: Literal['red'], b: int, c, d)", ""},
		{"anchors and identities", `{"$id":"https://x.test/root","properties":{"a":{"$ref":"#color"},"b":{"$ref":"https://x.test/size"},"c":{"$ref":"https://x.test/size#/$defs/unit"},"d":{"$ref":"https://x.test/root#color"},"e":{"$ref":"#old"},"f":{"$ref":"#none"},"g":{"$ref":"https://y.test/"}},"required":["a","b","c","d","e","f","g"],"$defs":{"x":{"$anchor":"color","enum":["red"]},"y":{"$id":"https://x.test/size","type":"integer","$defs":{"unit":{"type":"number"}}},"z":{"id":"#old","type":"boolean"}}}`, "",
			"(a: Literal['red'], b: int, c: float, d: Literal['red'], e: bool, f, g)", ""},
		{"a root that is an anchor", `{"$ref":"#in","$defs":{"a":[{"$anchor":"in","properties":{"path":{"type":"string"}},"required":["path"]}]}}`, "", "(path: str)", ""},
		{"a default beside a reference", `{"properties":{"a":{"$ref":"#/$defs/n","default":3},"b":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer","default":4}}}`, "",
			"(a=3, b=4)", "(a: int = 3, b: int = 4)"},
		{"a cycle", `{"properties":{"a":{"$ref":"#/$defs/node"},"b":{"$ref":"#/$defs/loop"}},"$defs":{"node":{"type":"array","items":{"$ref":"#/$defs/node"}},"loop":{"$ref":"#/$defs/loop"}}}`, "", "", ""},
		{"names that are none", `{"properties":{"user-id":{"type":"string"},"class":{"type":"string"},"ok":{},"x` + "\u200b" + `y":{"type":"integer"},"größe":{}},"required":["ok","class","größe"]}`, "",
			"(class_: str, ok, größe, user_id: str = ..., x_y: int = ...)", ""},
		{"identifiers that would stand for two names", `{"properties":{"a-b":{"type":"string"},"a.b":{},"class":{},"class_":{}},"required":["class_"]}`, "",
			"(class_, **{'a-b': str, 'a.b': Any, 'class': Any})", "(class_, **{'a-b': str, 'a.b': Any, 'class': Any})"},
		{"nullable", `{"properties":{"a":{"type":"string","nullable":true}},"required":["a"]}`, "", "(a: str | None)", ""},
		{"a root made of others", `{"$ref":"#/$defs/base","allOf":[{"properties":{"b":{"type":"integer"}},"required":["b"]},{"$ref":"#"}],"anyOf":[{"properties":{"c":{}},"required":["c"]},{"properties":{"d":{}}}],"$defs":{"base":{"properties":{"a":{"type":"string"}},"required":["a"]}}}`, "",
			"(a: str, b: int, c=..., d=...)", ""},
		{"hidden in a default", `{"properties":{"a":{"default":"x\u202ey\u001b"}}}`, "", `(a='x\u202ey\x1b')`, ""},
		{"what is returned", `{}`, `{"properties":{"result":{"type":"array","items":{"type":"string"}}}}`, "()", "() -> list[str]"},
		{"one property, a string", `{}`, `{"properties":{"content":{"type":"string"}},"required":["content"]}`, "()", "() -> str"},
		{"one property, an enumeration of strings", `{}`, `{"$ref":"#/$defs/r","$defs":{"r":{"properties":{"state":{"enum":["on","off"]}}}}}`, "()", "() -> Literal['on', 'off']"},
		{"one property, no string", `{}`, `{"properties":{"items":{"type":"array"}},"required":["items"]}`, "()", "() -> {'items': list}"},
		{"one property, maybe a string", `{}`, `{"properties":{"text":{"type":["string","null"]}},"required":["text"]}`, "()", "() -> {'text': str | None}"},
		{"one property of several forms", `{}`, `{"properties":{"text":{"type":"string"}},"required":["text"],"anyOf":[{"required":["more"]}],"type":"object"}`, "()", "() -> {'text': str}"},
		{"a result and more", `{}`, `{"properties":{"result":{"type":"string"},"more":{"type":"string"}},"required":["result","more"]}`, "()", "() -> {'result': str, 'more': str}"},
		{"an object returned", `{}`, `{"properties":{"n":{"type":"integer"},"of":{"type":"string"}},"required":["n"]}`, "()", "() -> {'n': int, 'of': NotRequired[str]}"},
		{"optional ones are left out", `{"properties":{"a":{"type":"string"},"one_more":{"type":"string"},"another_one":{"type":"string"},"the_last_one":{"type":"string"}},"required":["a"]}`, "",
			"(a: str, one_more: str = ..., another_one: str = ..., ...)",
			"(a: str, one_more: str = ..., another_one: str = ..., the_last_one: str = ...)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			brief, whole := Brief(json.RawMessage(tt.schema), nil), Whole(json.RawMessage(tt.schema), json.RawMessage(tt.output))
			if tt.brief == "" { // that it ends is enough
				return
			}
			if brief != tt.brief {
				t.Errorf("brief %s\n want %s", brief, tt.brief)
			}
			if tt.whole == "" {
				tt.whole = tt.brief
			}
			if whole != tt.whole {
				t.Errorf("whole %s\n want %s", whole, tt.whole)
			}
		})
	}
}

// TestBriefReturns: a list of tools shows what they return one level deep.
func TestBriefReturns(t *testing.T) {
	for _, tt := range []struct{ output, want string }{
		{`{"properties":{"content":{"type":"string"}},"required":["content"]}`, "() -> str"},
		{`{"properties":{"items":{"type":"array","items":{"properties":{"a":{"type":"string"}}}}},"required":["items"]}`, "() -> {'items': list[dict]}"},
		{`{"properties":{"result":{"type":"array","items":{"properties":{"a":{"type":"string"}},"required":["a"]}}},"required":["result"]}`, "() -> list[{'a': str}]"},
		{`{"properties":{"number":{"type":"integer"},"title_of_it":{"type":"string"},"body_of_it":{"type":"string"},"state":{"type":"string"},"labels":{"type":"array"}},"required":["number","title_of_it","body_of_it","state","labels"]}`,
			"() -> {'number': int, 'title_of_it': str, 'body_of_it': str, ...: ...}"},
		{`{"properties":{"a_property_with_a_name_as_long_as_a_whole_line_of_text_may_be":{}, "b":{}}}`, "() -> dict"},
		{`{"type":"object"}`, "() -> dict"},
		{``, "()"},
	} {
		if got := Brief(nil, json.RawMessage(tt.output)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.output, got, tt.want)
		}
	}
}

// TestManyRequired: all are told, those without room by their names.
func TestManyRequired(t *testing.T) {
	properties, required := map[string]any{}, []string{}
	for c := 'a'; c <= 'z'; c++ {
		name := strings.Repeat(string(c), 8)
		properties[name] = map[string]any{"type": "string"}
		required = append(required, name)
	}
	schema, err := json.Marshal(map[string]any{"properties": properties, "required": required})
	if err != nil {
		t.Fatal(err)
	}
	brief := Brief(schema, nil)
	if !strings.HasPrefix(brief, "(aaaaaaaa: str, ") || !strings.HasSuffix(brief, ", zzzzzzzz)") {
		t.Error(brief)
	}
}

// TestExplosion: a schema that says little and stands for very much.
func TestExplosion(t *testing.T) {
	defs := map[string]any{}
	for c := 'a'; c < 'z'; c++ {
		next := map[string]string{"$ref": "#/$defs/" + string(c+1)}
		properties := map[string]any{}
		for _, name := range []string{"p", "q", "r", "s"} {
			properties[name] = map[string]any{"anyOf": []any{next, next, map[string]any{"type": "array", "items": next}}}
		}
		defs[string(c)] = map[string]any{"type": "object", "properties": properties}
	}
	schema, err := json.Marshal(map[string]any{"$defs": defs, "properties": map[string]any{"x": map[string]string{"$ref": "#/$defs/a"}}})
	if err != nil {
		t.Fatal(err)
	}
	if whole := Whole(schema, schema); len(whole) > 2*maxWhole {
		t.Errorf("%d characters", len(whole))
	}
}

// TestPointersIntoLargeDocuments: many references with long pointers through a large
// schema do not have it read for each of their parts.
func TestPointersIntoLargeDocuments(t *testing.T) {
	const levels, references = 40, 200
	large := strings.Repeat(`{"":`, levels) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", levels)
	w := &writer{document: json.RawMessage(`{"d":` + large + `}`)}
	for i := range references {
		w.follow(json.RawMessage(fmt.Sprintf(`"#/d%s%d"`, strings.Repeat("/", levels-1), i)))
	}
	if one := 1 << 20; w.pointed > maxPointed+references*2*one {
		t.Errorf("%d MB were read, want about %d", w.pointed>>20, maxPointed>>20)
	}
}

// TestPythonReadsThem checks that every signature of the golden file is Python.
func TestPythonReadsThem(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	var program strings.Builder
	for _, c := range goldenCases(t) {
		for _, s := range []string{Brief(c.InputSchema, c.OutputSchema), Whole(c.InputSchema, c.OutputSchema)} {
			// Neither "..." for what is left out nor ** of a dict is a parameter.
			s = strings.NewReplacer(", ...)", ")", "(...)", "()", ", ..., **", ", **", "(..., **", "(**").Replace(s)
			if i := strings.Index(s, "**{"); i >= 0 {
				s = s[:i] + "**more: " + s[i+2:]
			}
			program.WriteString("def f" + s + ": pass\n")
		}
	}
	cmd := exec.Command(python, "-c", "import ast, sys\nast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(program.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestArguments(t *testing.T) {
	arguments := Arguments(json.RawMessage(`{"properties":{"a":{"description":"first"},"b":{"description":7}},"required":["b"]}`))
	if len(arguments) != 2 || arguments[0].Name != "b" || !arguments[0].Required || arguments[1].Description != "first" {
		t.Errorf("%+v", arguments)
	}
}

func FuzzSignature(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"type":["string","null"],"enum":["x"]},"b-c":{"$ref":"#/properties/a"}},"required":["a","z"]}`))
	f.Add([]byte(`{"$defs":{"a":{"$ref":"#/$defs/a"}},"properties":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"items":{}}]}}}`))
	f.Add([]byte(`{"properties":{"\u202e":{"default":{"\u0000":[1e999]}}}}`))
	f.Add([]byte(`{"properties":`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		for _, s := range []string{Brief(schema, schema), Whole(schema, schema)} {
			if !strings.HasPrefix(s, "(") || strings.ContainsAny(s, "\n\r") || len(invisible.In(s)) > 0 {
				t.Errorf("%q of %q", s, schema)
			}
		}
	})
}

package remote

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestMirroredArguments(t *testing.T) {
	schema := func(properties string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
	}
	for text, want := range map[string]string{
		`"a":{"type":"number","x-mcp-header":"A"}`:                                                               `with the type "number"`,
		`"a":{"type":["string"],"x-mcp-header":"A"}`:                                                             "with the type",
		`"a":{"x-mcp-header":"A"}`:                                                                               "with the type",
		`"a":{"type":"string","x-mcp-header":""}`:                                                                "must be a non-empty string",
		`"a":{"type":"string","x-mcp-header":7}`:                                                                 "must be a non-empty string",
		`"a":{"type":"string","x-mcp-header":"A B"}`:                                                             "not the name of a header",
		`"a":{"type":"string","x-mcp-header":"A\r\nX: y"}`:                                                       "not the name of a header",
		`"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}`:                      "twice",
		`"o":{"type":"object","properties":{"i":{"type":"array","x-mcp-header":"I"}}}`:                           `"o.i"`,
		`"a":{"type":"string","x-mcp-header":"A"},"o":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}`: "twice",
	} {
		if _, err := MirroredArguments(schema(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	many := make([]string, maxMirrored+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"a%d":{"type":"string","x-mcp-header":"A%d"}`, i, i)
	}
	if _, err := MirroredArguments(schema(strings.Join(many, ","))); err == nil || !strings.Contains(err.Error(), "more than 64") {
		t.Error(err)
	}
	if got, err := MirroredArguments(schema(strings.Join(many[1:], ","))); err != nil || len(got) != maxMirrored {
		t.Error(len(got), err)
	}
	mirrored, err := MirroredArguments(schema(`"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},` +
		`"b":{"type":"boolean","x-mcp-header":"B"},"o":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}},"plain":{"type":"string"},"odd":true`))
	if err != nil || len(mirrored) != 4 {
		t.Fatal(mirrored, err)
	}
	for args, want := range map[string]map[string]string{
		`{"region":"eu","n":42,"b":false,"o":{"deep":"x"},"plain":"p"}`: {"Mcp-Param-Region": "eu", "Mcp-Param-N": "42", "Mcp-Param-B": "false", "Mcp-Param-Deep": "x"},
		`{"region":null,"n":1.5,"b":"true","o":[]}`:                     {"Mcp-Param-B": "true"},
		`{"region":" x","n":9007199254740993}`:                          {"Mcp-Param-Region": "=?base64?IHg=?="},
		`{"region":"=?base64?eA==?=","n":-3.0}`:                         {"Mcp-Param-Region": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=", "Mcp-Param-N": "-3"},
		`{"region":"a\r\nX: y","n":1e2}`:                                {"Mcp-Param-Region": "=?base64?YQ0KWDogeQ==?=", "Mcp-Param-N": "100"},
		`{}`:                                                            nil,
	} {
		if got := ArgumentHeaders(mirrored, json.RawMessage(args)); !maps.Equal(got, want) {
			t.Errorf("%s: %v", args, got)
		}
	}
	// Schemas without end are not followed without end.
	deep := `{"type":"string","x-mcp-header":"Deep"}`
	for range 1000 {
		deep = `{"properties":{"a":` + deep + `}}`
	}
	if got, err := MirroredArguments(json.RawMessage(deep)); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	for _, odd := range []string{`true`, `{}`, `{"properties":[]}`, `{"properties":{"a":7}}`} {
		if got, err := MirroredArguments(json.RawMessage(odd)); err != nil || got != nil {
			t.Error(odd, got, err)
		}
	}
}

// FuzzMirroredArguments: whatever a schema and arguments are, what comes out can
// stand in headers.
func FuzzMirroredArguments(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"o":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`), []byte(`{"a":"ü","o":{"n":1e3}}`))
	f.Add([]byte(`{"properties":{"a":{"type":"boolean","x-mcp-header":"A"}}}`), []byte(`{"a":true,"a":" =?base64?x?= "}`))
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		mirrored, err := MirroredArguments(schema)
		if err != nil {
			return
		}
		for name, value := range ArgumentHeaders(mirrored, args) {
			if !isToken(name) {
				t.Errorf("name %q", name)
			}
			for i := range len(value) {
				if value[i] < ' ' || value[i] > '~' {
					t.Errorf("value %q", value)
				}
			}
		}
	})
}

package inquiry

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// everythingForm is what trigger-elicitation-request of
// @modelcontextprotocol/server-everything 2026.8.31 asks.
const everythingForm = `{"message":"Please provide inputs for the following fields:","requestedSchema":{"type":"object","properties":{` +
	`"name":{"title":"String","type":"string","description":"Your full, legal name"},` +
	`"check":{"title":"Boolean","type":"boolean","description":"Agree to the terms and conditions"},` +
	`"firstLine":{"title":"String with default","type":"string","description":"Favorite first line of a story","default":"It was a dark and stormy night."},` +
	`"email":{"title":"String with email format","type":"string","format":"email","description":"Your email address (will be verified, and never shared with anyone else)"},` +
	`"homepage":{"type":"string","format":"uri","title":"String with uri format","description":"Portfolio / personal website"},` +
	`"birthdate":{"title":"String with date format","type":"string","format":"date","description":"Your date of birth"},` +
	`"integer":{"title":"Integer","type":"integer","description":"Your favorite integer (do not give us your phone number, pin, or other sensitive info)","minimum":1,"maximum":100,"default":42},` +
	`"number":{"title":"Number in range 1-1000","type":"number","description":"Favorite number (there are no wrong answers)","minimum":0,"maximum":1000,"default":3.14},` +
	`"untitledSingleSelectEnum":{"type":"string","title":"Untitled Single Select Enum","description":"Choose your favorite friend","enum":["Monica","Rachel","Joey","Chandler","Ross","Phoebe"],"default":"Monica"},` +
	`"untitledMultipleSelectEnum":{"type":"array","title":"Untitled Multiple Select Enum","description":"Choose your favorite instruments","minItems":1,"maxItems":3,"items":{"type":"string","enum":["Guitar","Piano","Violin","Drums","Bass"]},"default":["Guitar"]},` +
	`"titledSingleSelectEnum":{"type":"string","title":"Titled Single Select Enum","description":"Choose your favorite hero","oneOf":[{"const":"hero-1","title":"Superman"},{"const":"hero-2","title":"Green Lantern"},{"const":"hero-3","title":"Wonder Woman"}],"default":"hero-1"},` +
	`"titledMultipleSelectEnum":{"type":"array","title":"Titled Multiple Select Enum","description":"Choose your favorite types of fish","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"fish-1","title":"Tuna"},{"const":"fish-2","title":"Salmon"},{"const":"fish-3","title":"Trout"}]},"default":["fish-1"]},` +
	`"legacyTitledEnum":{"type":"string","title":"Legacy Titled Single Select Enum","description":"Choose your favorite type of pet","enum":["pet-1","pet-2","pet-3","pet-4","pet-5"],"enumNames":["Cats","Dogs","Birds","Fish","Reptiles"],"default":"pet-1"}` +
	`},"required":["name"]}}`

// nullableForm is what Pydantic makes of a model with optional fields.
const nullableForm = `{"message":"Hi","requestedSchema":{"title":"Answer","$defs":{},"additionalProperties":false,"type":"object","properties":{` +
	`"age":{"anyOf":[{"type":"integer","minimum":0},{"type":"null"}],"default":null,"title":"Age"},` +
	`"city":{"type":["string","null"],"examples":["Bonn"]}}}}`

func TestParseForm(t *testing.T) {
	for _, test := range []struct {
		properties string
		want       []Field
		again      string // the properties in Params; empty: as given
	}{
		{``, nil, ""},
		{`"z":{"type":"string"},"a":{"type":"boolean"}`, []Field{{Name: "z", Type: "string"}, {Name: "a", Type: "boolean"}}, ""},
		{`"a":{"format":"date","type":"string","title":"T","description":"D","default":"2026-01-31"}`,
			[]Field{{Name: "a", Type: "string", Title: "T", Description: "D", Format: "date", Default: json.RawMessage(`"2026-01-31"`)}},
			`"a":{"type":"string","title":"T","description":"D","format":"date","default":"2026-01-31"}`},
		{`"a":{"type":"string","format":"hostname","minLength":1.0,"maxLength":1e20}`,
			[]Field{{Name: "a", Type: "string", MinLength: 1, MaxLength: 1 << 30}},
			`"a":{"type":"string","minLength":1,"maxLength":1073741824}`},
		{`"a":{"type":"number","minimum":-0.5,"maximum":9007199254740993,"default":7.50}`,
			[]Field{{Name: "a", Type: "number", Minimum: "-0.5", Maximum: "9007199254740993", Default: json.RawMessage(`7.50`)}}, ""},
		{`"a":{"type":"integer","default":3e1}`, []Field{{Name: "a", Type: "integer", Default: json.RawMessage(`30`)}}, `"a":{"type":"integer","default":30}`},
		{`"a":{"type":"string","enum":["x",""]}`, []Field{{Name: "a", Type: "string", Options: []Option{{Value: "x"}, {}}}}, ""},
		{`"a":{"enum":["x"],"maxLength":0}`, []Field{{Name: "a", Type: "string", Options: []Option{{Value: "x"}}}}, `"a":{"type":"string","enum":["x"]}`},
		{`"a":{"type":"string","enum":["x","y"],"enumNames":["X","y"]}`,
			[]Field{{Name: "a", Type: "string", Options: []Option{{"x", "X"}, {"y", ""}}, named: true}}, ""},
		{`"a":{"type":"string","enum":["x"],"enumNames":["x"]}`,
			[]Field{{Name: "a", Type: "string", Options: []Option{{"x", ""}}}}, `"a":{"type":"string","enum":["x"]}`},
		{`"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}]}`,
			[]Field{{Name: "a", Type: "string", Options: []Option{{"x", "X"}, {"y", ""}}}},
			`"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"y"}]}`},
		{`"a":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["x","y"]},"default":["y"],"uniqueItems":true}`,
			[]Field{{Name: "a", Type: "array", MinItems: 1, MaxItems: 2, Options: []Option{{"x", ""}, {"y", ""}}, Default: json.RawMessage(`["y"]`)}},
			`"a":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["x","y"]},"default":["y"]}`},
		{`"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}`,
			[]Field{{Name: "a", Type: "array", Options: []Option{{"x", "X"}}}}, ""},
		// Defaults that the field does not take.
		{`"a":{"type":"integer","default":"3"}`, []Field{{Name: "a", Type: "integer"}}, `"a":{"type":"integer"}`},
		{`"a":{"type":"integer","default":3.5}`, []Field{{Name: "a", Type: "integer"}}, `"a":{"type":"integer"}`},
		{`"a":{"enum":["x"],"default":"y"}`, []Field{{Name: "a", Type: "string", Options: []Option{{Value: "x"}}}}, `"a":{"type":"string","enum":["x"]}`},
		{`"a":{"type":"string","format":"email","default":""}`, []Field{{Name: "a", Type: "string", Format: "email"}}, `"a":{"type":"string","format":"email"}`},
		{`"a":{"type":"boolean","default":null}`, []Field{{Name: "a", Type: "boolean"}}, `"a":{"type":"boolean"}`},
	} {
		r := parsed(t, Elicitation, form(test.properties))
		if !reflect.DeepEqual(r.Fields, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.properties, r.Fields, test.want)
		}
		if test.again == "" {
			test.again = test.properties
		}
		want := `{"message":"Hi","requestedSchema":{"type":"object","properties":{` + test.again + `}}}`
		if string(r.Params) != want {
			t.Errorf("%s:\n got %s\nwant %s", test.properties, r.Params, want)
		}
	}
}

func TestParseOtherForms(t *testing.T) {
	r := parsed(t, Elicitation, everythingForm)
	var names []string
	for _, f := range r.Fields {
		names = append(names, f.Name)
		if f.Required != (f.Name == "name") {
			t.Errorf("field %s: required is %v", f.Name, f.Required)
		}
	}
	if got, want := strings.Join(names, " "), "name check firstLine email homepage birthdate integer number untitledSingleSelectEnum untitledMultipleSelectEnum titledSingleSelectEnum titledMultipleSelectEnum legacyTitledEnum"; got != want {
		t.Errorf("fields %s, want %s", got, want)
	}
	var given, kept any
	if json.Unmarshal([]byte(everythingForm), &given) != nil || json.Unmarshal(r.Params, &kept) != nil || !reflect.DeepEqual(given, kept) {
		t.Errorf("the form became %s", r.Params)
	}

	// This one has the task of trigger-elicitation-request-async: a client that has
	// no tasks ignores it.
	r = parsed(t, Elicitation, `{"task":{"ttl":600000},"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"agreeToTerms":{"type":"boolean"}},"required":[]},"_meta":{"a":1}}`)
	if got, want := string(r.Params), `{"message":"m","requestedSchema":{"type":"object","properties":{"agreeToTerms":{"type":"boolean"}}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	r = parsed(t, Elicitation, nullableForm)
	if got, want := r.Fields, []Field{{Name: "age", Title: "Age", Type: "integer", Minimum: "0"}, {Name: "city", Type: "string"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, params := range []string{`{"message":"Sure?"}`, `{"message":"Sure?","mode":null,"requestedSchema":null,"url":null}`, `{"message":"Sure?","requestedSchema":{"type":"object"}}`} {
		if r := parsed(t, Elicitation, params); len(r.Fields) != 0 || r.Message != "Sure?" {
			t.Errorf("%s: %+v", params, r)
		}
	}
}

// TestGeneratedForms: what Pydantic and zod write for common types is a form.
func TestGeneratedForms(t *testing.T) {
	const params = `{"message":"m","requestedSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"properties":{` +
		`"age":{"exclusiveMinimum":0,"type":"integer","title":"Age"},"mail":{"type":"string","format":"email","pattern":"^.+@.+$"},` +
		`"step":{"type":"number","multipleOf":0.5},"kind":{"const":"bug","type":"string"},"text":{"type":"string","default":"a\u001b[31m"}}}}`
	want := []Field{
		{Name: "age", Title: "Age", Type: "integer"}, {Name: "mail", Type: "string", Format: "email"},
		{Name: "step", Type: "number"}, {Name: "kind", Type: "string", Options: []Option{{Value: "bug"}}},
		{Name: "text", Type: "string"}, // no one could see its default
	}
	if got := parsed(t, Elicitation, params).Fields; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestLegacyForms: older clients know titles of values as enumNames alone.
func TestLegacyForms(t *testing.T) {
	r := parsed(t, Elicitation, `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","oneOf":[{"const":"x","title":"X"}]}}}}`)
	for _, test := range []struct {
		legacy bool
		want   string
	}{{true, `"enum":["x"],"enumNames":["X"]`}, {false, `"oneOf":[{"const":"x","title":"X"}]`}} {
		if got := string(r.For("s", test.legacy)); !strings.Contains(got, test.want) {
			t.Errorf("legacy %t: got %s, want in it %s", test.legacy, got, test.want)
		}
	}
}

func TestParseRefusesForms(t *testing.T) {
	many := func(n int, each string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, each, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for _, test := range []struct {
		params string
		words  []string
	}{
		{``, []string{"JSON"}},
		{`[]`, []string{"JSON object"}},
		{`{"message":"a","message":"b"}`, []string{"message", "twice"}},
		{"{\"message\":\"\xff\"}", []string{"UTF-8"}},
		{`{"message":"` + strings.Repeat("a", 8<<10+1) + `"}`, []string{"message", "8192"}},
		{`{"message":"a","_meta":"` + strings.Repeat("a", 64<<10) + `"}`, []string{"64 KiB"}},
		{form(many(16, `"f%d":{"type":"string","description":"`+strings.Repeat("\u2028", 680)+`"},`)), []string{"64 KiB"}}, // grows
		{`{}`, []string{"message"}},
		{`{"message":" \n\u200b"}`, []string{"message"}},
		{`{"message":1}`, []string{"message", "string"}},
		{`{"message":"a","mode":"x"}`, []string{"mode"}},
		{`{"message":"a","url":"https://example.com"}`, []string{"url"}},
		{`{"message":"a","requestedSchema":[]}`, []string{"requestedSchema"}},
		{`{"message":"a","requestedSchema":{"properties":{}}}`, []string{"type"}},
		{`{"message":"a","requestedSchema":{"type":"object","properties":[]}}`, []string{"properties"}},
		{`{"message":"a","requestedSchema":{"type":"object","allOf":[]}}`, []string{"allOf"}},
		{form(`"a":{"type":"string"}`, "b"), []string{`"b"`, "required"}},
		{form(`"a":{"type":"string"},"\u0061":{"type":"string"}`), []string{`"a"`, "twice"}},
		{form(many(65, `"f%d":{"type":"string"},`)), []string{"64 fields"}},
		{form(`"":{"type":"string"}`), []string{"name"}},
		{form(`"` + strings.Repeat("n", 129) + `":{"type":"string"}`), []string{"name", "128"}},
		{form(`"a\n":{"type":"string"}`), []string{`"a"`, "hidden"}},
		{form(`"a\u200b":{"type":"string"}`), []string{`u{200b}`, "hidden"}},
		{form(`"a":true`), []string{`"a"`}},
		{form(`"a":{}`), []string{`"a"`, "type"}},
		{form(`"a":{"type":"object","properties":{}}`), []string{`"a"`, "type"}},
		{form(`"a":{"type":"string","properties":{"b":{}}}`), []string{`"a"`, "properties"}},
		{form(`"a":{"$ref":"#/$defs/A"}`), []string{`"a"`}},
		{form(`"a":{"type":"string","$ref":"#/$defs/A"}`), []string{`"a"`, "$ref"}},
		{form(`"a":{"type":"number","enum":[1,2]}`), []string{`"a"`, "enum"}},
		{form(`"a":{"type":["string","integer"]}`), []string{`"a"`, "type"}},
		{form(`"a":{"anyOf":[{"type":"string"},{"type":"integer"}]}`), []string{`"a"`}},
		{form(`"a":{"anyOf":[{"type":"string","anyOf":[]},{"type":"null"}]}`), []string{`"a"`, "anyOf"}},
		{form(`"a":{"type":"string","title":"` + strings.Repeat("t", 2<<10+1) + `"}`), []string{`"a"`, "title"}},
		{form(`"a":{"type":"string","minLength":-1}`), []string{`"a"`, "minLength"}},
		{form(`"a":{"type":"string","minLength":1.5}`), []string{`"a"`, "minLength"}},
		{form(`"a":{"type":"string","minLength":3,"maxLength":2}`), []string{`"a"`, "minLength"}},
		{form(`"a":{"type":"number","minimum":"1"}`), []string{`"a"`, "minimum"}},
		{form(`"a":{"type":"number","minimum":1e999}`), []string{`"a"`, "minimum"}},
		{form(`"a":{"type":"number","minimum":3,"maximum":2}`), []string{`"a"`, "minimum"}},
		{form(`"a":{"enum":[]}`), []string{`"a"`, "choose"}},
		{form(`"a":{"enum":["x",1]}`), []string{`"a"`, "enum", "strings"}},
		{form(`"a":{"enum":["x","x"]}`), []string{`"a"`, "twice"}},
		{form(`"a":{"enum":["x\u202e"]}`), []string{`"a"`, "hidden"}},
		{form(`"a":{"enum":["x"],"enumNames":["X","Y"]}`), []string{`"a"`, "length"}},
		{form(`"a":{"enum":["keep","drop"],"enumNames":["drop","keep"]}`), []string{`"a"`, "title"}},
		{form(`"a":{"enum":["x"],"oneOf":[{"const":"x"}]}`), []string{`"a"`, "two lists"}},
		{form(`"a":{"oneOf":[{"title":"x"}]}`), []string{`"a"`, "const"}},
		{form(`"a":{"enum":[` + many(501, `"%d",`) + `]}`), []string{`"a"`, "500"}},
		{form(`"a":{"enum":["` + strings.Repeat("x", 1<<10+1) + `"]}`), []string{`"a"`, "1024"}},
		{form(`"a":{"type":"array"}`), []string{`"a"`, "items"}},
		{form(`"a":{"type":"array","items":{"type":"string"}}`), []string{`"a"`, "items", "choose"}},
		{form(`"a":{"type":"array","items":{"type":"integer","enum":["1"]}}`), []string{`"a"`, "items", "type"}},
		{form(`"a":{"type":"array","minItems":2,"items":{"enum":["1"]}}`), []string{`"a"`, "minItems"}},
		{form(`"a":{"type":"array","minItems":2,"maxItems":1,"items":{"enum":["1","2"]}}`), []string{`"a"`, "minItems"}},
	} {
		_, err := Parse(Elicitation, json.RawMessage(test.params))
		wantError(t, test.params, err, test.words...)
	}
}

func TestParseURL(t *testing.T) {
	everything := parsed(t, Elicitation, `{"mode":"url","url":"https://modelcontextprotocol.io","message":"Open this link to satisfy the prerequisite, then retry the request.","elicitationId":"0b7d0d8e-8f0a-4b7e-9d6e-0c8f5a7c2b11"}`)
	if everything.URL != "https://modelcontextprotocol.io" || everything.ElicitationID == "" {
		t.Errorf("got %+v", everything)
	}
	ask := func(url string) (*Request, error) {
		raw, _ := json.Marshal(map[string]string{"mode": "url", "message": "Go", "url": url})
		return Parse(Elicitation, raw)
	}
	for _, url := range []string{
		"https://example.com", "HTTPS://Example.com:8443/a/b?c=d&e#f", "https://xn--bcher-kva.example/ü", "https://10.0.0.1/",
		"https://[2001:db8::1]/", "http://localhost:1234/", "http://127.9.8.7/", "http://[::1]:80/",
	} {
		r, err := ask(url)
		if err != nil || r.URL != url {
			t.Errorf("%s: got %+v, %v", url, r, err)
		}
	}
	for _, url := range []string{
		"", "example.com", "/a", "//example.com/a", "https:example.com", "https://", "https://:443/", "http://example.com/", "http://localhost.example.com/",
		"http://127.1/", "http://2130706433/", "http://[::1%25lo]/", "ftp://example.com/", "javascript:alert(1)", "file:///etc/passwd", "https://user@example.com/",
		"https://user:pass@example.com/", "https://example.com\\@evil.example/", "https://example.com/a\\b", "https://bücher.example/",
		"https://b%C3%BCcher.example/", "https://ex%61mple.com/", "https://example.com/\u202ea", "https://example.com/a b", " https://example.com/",
		"https://example.com/\n", "https://exa<mple.com/", "https://example.com/" + strings.Repeat("a", 2<<10),
	} {
		_, err := ask(url)
		wantError(t, url, err, "url")
	}
	for _, params := range []string{
		`{"mode":"url","message":"Go"}`,
		`{"mode":"url","message":"Go","url":1}`,
		`{"mode":"url","message":"Go","url":"https://a.example","requestedSchema":{"type":"object","properties":{}}}`,
		`{"mode":"url","message":"Go","url":"https://a.example","elicitationId":"` + strings.Repeat("a", 257) + `"}`,
		`{"mode":"url","message":"Go","url":"https://a.example","elicitationId":"a\nb"}`,
	} {
		_, err := Parse(Elicitation, json.RawMessage(params))
		wantError(t, params, err)
	}
}

// TestSDKTakesForms asks a client of the Go SDK, which is strict, with our forms.
func TestSDKTakesForms(t *testing.T) {
	asked := make(chan *mcp.ElicitParams, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "client"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked <- r.Params
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}},
	})
	ours, theirs := mcp.NewInMemoryTransports()
	server, err := mcp.NewServer(&mcp.Implementation{Name: "server"}, nil).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	session, err := client.Connect(t.Context(), theirs, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, s := range requestSeeds {
		if s.method != Elicitation {
			continue
		}
		r := parsed(t, s.method, s.params)
		var params mcp.ElicitParams
		if err := json.Unmarshal(r.For("github", false), &params); err != nil {
			t.Fatalf("%s: %v", r.For("github", false), err)
		}
		result, err := server.Elicit(t.Context(), &params)
		if err != nil {
			t.Errorf("%s: %v", r.For("github", false), err)
			continue
		}
		if got := <-asked; result.Action != "decline" || !strings.HasPrefix(got.Message, `MCP server "github" asks:`) || got.URL != r.URL {
			t.Errorf("%s: the client got %+v", r.Params, got)
		}
	}
}

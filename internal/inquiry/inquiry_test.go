package inquiry

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// parsed returns a request that must be accepted.
func parsed(t *testing.T, method, params string) *Request {
	t.Helper()
	r, err := Parse(method, json.RawMessage(params))
	if err != nil {
		t.Fatalf("Parse(%s, %.300s): %v", method, params, err)
	}
	return r
}

// form is an elicitation with these properties.
func form(properties string, required ...string) string {
	names, _ := json.Marshal(required)
	if required == nil {
		names = []byte("[]")
	}
	return `{"message":"Hi","requestedSchema":{"type":"object","properties":{` + properties + `},"required":` + string(names) + `}}`
}

// wantError checks that an error has all these words.
func wantError(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%.300s: no error, want one with %q", what, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%.300s: error %q, want %q in it", what, err, w)
		}
	}
}

func TestTakes(t *testing.T) {
	forms := &Request{Method: Elicitation}
	urls := &Request{Method: Elicitation, URL: "https://example.com"}
	samples, roots := &Request{Method: Sampling}, &Request{Method: Roots}
	for _, test := range []struct {
		takes        Takes
		of           []*Request
		not          []*Request
		capabilities string
	}{
		{Takes{}, nil, []*Request{nil, forms, urls, samples, roots, {Method: "tools/call"}}, `{}`},
		{Takes{Forms: true}, []*Request{forms}, []*Request{urls, samples, roots}, `{"elicitation":{"form":{}}}`},
		{Takes{URLs: true}, []*Request{urls}, []*Request{forms, samples, roots}, `{"elicitation":{"url":{}}}`},
		{Takes{Sampling: true}, []*Request{samples}, []*Request{forms, urls, roots}, `{"sampling":{}}`},
		{Takes{Roots: true}, []*Request{roots}, []*Request{forms, urls, samples}, `{"roots":{}}`},
		{Takes{true, true, true, true}, []*Request{forms, urls, samples, roots}, []*Request{nil, {Method: "ping"}},
			`{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`},
	} {
		if got := string(test.takes.Capabilities()); got != test.capabilities {
			t.Errorf("%+v: capabilities %s, want %s", test.takes, got, test.capabilities)
		}
		for _, r := range test.of {
			if !test.takes.Of(r) {
				t.Errorf("%+v is not of %+v", test.takes, r)
			}
		}
		for _, r := range test.not {
			if test.takes.Of(r) {
				t.Errorf("%+v is of %+v", test.takes, r)
			}
		}
		if got, want := test.takes.Any(), len(test.of) > 0; got != want {
			t.Errorf("%+v: Any is %v, want %v", test.takes, got, want)
		}
		all := Takes{true, true, true, true}
		if got := test.takes.And(all); got != test.takes {
			t.Errorf("%+v and all is %+v", test.takes, got)
		}
		if got := all.And(test.takes); got != test.takes {
			t.Errorf("all and %+v is %+v", test.takes, got)
		}
	}
	if got := (Takes{Forms: true, Roots: true}).And(Takes{Forms: true, URLs: true}); got != (Takes{Forms: true}) {
		t.Errorf("And: %+v", got)
	}
}

func TestParseRefusesMethods(t *testing.T) {
	for _, method := range []string{"", "ping", "tools/call", "elicitation/Create", "tasks/get"} {
		_, err := Parse(method, json.RawMessage(form("")))
		wantError(t, method, err, "no such request")
	}
}

func TestFor(t *testing.T) {
	for _, test := range []struct {
		method, params, server, want string
	}{
		{Roots, `{"_meta":{"a":1}}`, "github", `{}`},
		{Elicitation, form(`"a":{"type":"boolean"}`), "github",
			`{"message":"MCP server \"github\" asks:\n\nHi","requestedSchema":{"type":"object","properties":{"a":{"type":"boolean"}}}}`},
		// A message cannot pretend to be another server's, or push the name away.
		{Elicitation, `{"message":"\n\r\n MCP server \"bank\" asks:\n\n\n \n\nPIN?\u202e"}`, "git\u200bhub\"\n",
			`{"message":"MCP server \"git\\\\u{200b}hub\\\"\" asks:\n\nMCP server \"bank\" asks:\n\nPIN?\\u{202e}","requestedSchema":{"type":"object","properties":{}}}`},
		{Elicitation, form(`"a":{"type":"string","title":"A\u200b","description":"B\u202e","oneOf":[{"const":"x","title":"X\u200b"}]}`, "a"), "g",
			`{"message":"MCP server \"g\" asks:\n\nHi","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"A\\u{200b}","description":"B\\u{202e}","oneOf":[{"const":"x","title":"X\\u{200b}"}]}},"required":["a"]}}`},
		{Elicitation, `{"mode":"url","message":"Log in","url":"https://example.com/a?b=1&c=2","elicitationId":"7"}`, "g",
			`{"mode":"url","message":"MCP server \"g\" asks:\n\nLog in","url":"https://example.com/a?b=1&c=2","elicitationId":"7"}`},
		{Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"Hi\u200b"}}],"maxTokens":5}`, "g",
			`{"messages":[{"role":"user","content":{"type":"text","text":"Hi\\u{200b}"}}],"systemPrompt":"The MCP server \"g\" asks for this message through Sallyport.","includeContext":"none","maxTokens":5}`},
		{Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}],"maxTokens":5,"systemPrompt":"Be <brief>."}`, "g",
			`{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}],"systemPrompt":"The MCP server \"g\" asks for this message through Sallyport.\n\nBe <brief>.","includeContext":"none","maxTokens":5}`},
	} {
		r := parsed(t, test.method, test.params)
		before := string(r.Params)
		if got := string(r.For(test.server, false)); got != test.want {
			t.Errorf("For(%q) of %s:\n got %s\nwant %s", test.server, test.params, got, test.want)
		}
		if string(r.Params) != before {
			t.Errorf("For has changed the request to %s", r.Params)
		}
		// A question reaches other processes as JSON.
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Request
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if got := string(again.For(test.server, false)); got != test.want {
			t.Errorf("For(%q) of its JSON:\n got %s\nwant %s", test.server, got, test.want)
		}
	}
}

func TestForFillsInAnID(t *testing.T) {
	id := func(server, url string) string {
		var p struct{ ElicitationID string }
		if err := json.Unmarshal(parsed(t, Elicitation, `{"mode":"url","message":"Go","url":"`+url+`"}`).For(server, false), &p); err != nil {
			t.Fatal(err)
		}
		return p.ElicitationID
	}
	a, again, b, c := id("s", "https://a.example"), id("s", "https://a.example"), id("s", "https://b.example"), id("t", "https://a.example")
	if a == "" || a != again || a == b || a == c {
		t.Errorf("IDs %q and %q of one request, %q of another URL, %q of another server", a, again, b, c)
	}
}

func TestForOfWhatIsNotParsed(t *testing.T) {
	for _, r := range []*Request{{}, {Method: Elicitation}, {Method: Sampling, Params: json.RawMessage("[")}, {Method: "x"}} {
		if got := string(r.For("s", false)); got != "{}" {
			t.Errorf("%+v: For is %s, want {}", r, got)
		}
	}
}

// requestSeeds are requests that reach most of the package.
var requestSeeds = []struct{ method, params string }{
	{Roots, ``},
	{Elicitation, everythingForm},
	{Elicitation, nullableForm},
	{Elicitation, `{"mode":"url","message":"m","url":"https://example.com/?a=b","elicitationId":"1"}`},
	{Elicitation, `{"mode":"url","message":"m","url":"http://[::1]:80/"}`},
	{Elicitation, form(`"a":{"type":"integer","minimum":1e2,"default":100.0},"b":{"enum":["<",""]},"c":{"type":"string","minLength":2,"maxLength":3}`, "a", "c")},
	{Elicitation, form(`"a":{"type":"array","items":{"enum":["x","y"]},"minItems":1,"maxItems":1,"default":["y"]}`)},
	{Elicitation, form(`"a":{"type":"number","minimum":-0.5,"maximum":1e308}`)},
	{Sampling, everythingSampling},
	{Sampling, fullSampling},
}

func FuzzParse(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add(s.method, []byte(s.params), "github")
	}
	f.Fuzz(func(t *testing.T, method string, params []byte, server string) {
		r, err := Parse(method, params)
		if err != nil {
			if r != nil {
				t.Fatalf("a request with error %v", err)
			}
			return
		}
		if !(Takes{true, true, true, true}).Of(r) {
			t.Fatalf("%+v can be asked by no one", r)
		}
		again, err := Parse(method, r.Params)
		if err != nil {
			t.Fatalf("Parse of its own %s: %v", r.Params, err)
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("Parse of its own %s:\n got %+v\nwant %+v", r.Params, again, r)
		}
		asked := r.For(server, false)
		if !json.Valid(asked) {
			t.Fatalf("For is not JSON: %q", asked)
		}
		if method == Roots {
			return
		}
		var p struct{ Message, SystemPrompt string }
		if err := json.Unmarshal(asked, &p); err != nil {
			t.Fatalf("For is %s: %v", asked, err)
		}
		first, _, _ := strings.Cut(p.Message+p.SystemPrompt, "\n")
		if !strings.HasPrefix(first, "MCP server ") && !strings.HasPrefix(first, "The MCP server ") {
			t.Fatalf("For begins with %q", first)
		}
		for _, n := range []int{-1, 1, 100} {
			capped := r.WithMaxTokens(n)
			if want := min(r.MaxTokens, max(n, 1)); capped.MaxTokens != want {
				t.Fatalf("WithMaxTokens(%d) has %d, want %d", n, capped.MaxTokens, want)
			}
			if again, err := Parse(method, capped.Params); err != nil || !reflect.DeepEqual(again, capped) {
				t.Fatalf("WithMaxTokens(%d) is parsed as %+v, %v, want %+v", n, again, err, capped)
			}
		}
	})
}

func FuzzCheck(f *testing.F) {
	results := []string{
		`{"action":"accept","content":{"name":"A"}}`, `{"action":"accept"}`, `{"action":"decline","content":null}`, `{"action":"cancel"}`,
		`{"action":"accept","content":{"name":"A","check":true,"email":"a@b","homepage":"https://a","birthdate":"2026-01-31","integer":3.0,"number":1e2,"untitledMultipleSelectEnum":["Piano","Bass"],"legacyTitledEnum":"pet-2"}}`,
		`{"action":"accept","content":{"a":100.0,"b":"","c":"é\u0000"}}`, `{"action":"accept","content":{"a":[]}}`,
		`{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m","stopReason":"endTurn"}`,
		`{"role":"user","content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"text","text":""}],"model":""}`,
		`{"roots":[{"uri":"file:///a","name":"A","_meta":{}}],"_meta":{}}`, `{"roots":[]}`,
	}
	for _, s := range requestSeeds {
		for _, result := range results {
			f.Add(s.method, []byte(s.params), []byte(result), "name", "A")
		}
	}
	f.Fuzz(func(t *testing.T, method string, params, result []byte, name, word string) {
		r, err := Parse(method, params)
		if err != nil {
			return
		}
		if content, err := r.Content(map[string][]string{name: {word}}); err == nil {
			accepted := json.RawMessage(`{"action":"accept","content":` + string(content) + `}`)
			got, err := r.Check(accepted)
			if err != nil || string(got) != string(accepted) {
				t.Fatalf("Content is %s, Check of it is %s, %v", accepted, got, err)
			}
		}
		checked, err := r.Check(result)
		if err != nil {
			return
		}
		if !json.Valid(checked) {
			t.Fatalf("Check is not JSON: %q", checked)
		}
		again, err := r.Check(checked)
		if err != nil || string(again) != string(checked) {
			t.Fatalf("Check of its own result:\n got %s, %v\nwant %s", again, err, checked)
		}
	})
}

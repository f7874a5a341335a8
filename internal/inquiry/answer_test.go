package inquiry

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckForm(t *testing.T) {
	all := form(`"s":{"type":"string","minLength":2,"maxLength":3},"n":{"type":"number","minimum":0,"maximum":1.5},"i":{"type":"integer","minimum":-1},`+
		`"b":{"type":"boolean","default":false},"o":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}]},`+
		`"m":{"type":"array","minItems":1,"maxItems":2,"items":{"enum":["p","q","r"]},"default":["p"]},`+
		`"email":{"type":"string","format":"email"},"uri":{"type":"string","format":"uri"},"date":{"type":"string","format":"date"},"time":{"type":"string","format":"date-time"}`, "s")
	for _, test := range []struct {
		content string
		want    string // the content; empty: an error
		words   []string
	}{
		{`{"s":"ab"}`, `{"s":"ab","b":false,"m":["p"]}`, nil},
		{`{"m":["r","q"],"b":true,"s":"\u00e9<\n","i":null}`, `{"s":"é<\n","b":true,"m":["r","q"]}`, nil},
		{`{"s":"ab","i":3.0,"n":1.50}`, `{"s":"ab","n":1.50,"i":3,"b":false,"m":["p"]}`, nil},
		{`{"s":"ab","i":9007199254740993,"n":0}`, `{"s":"ab","n":0,"i":9007199254740993,"b":false,"m":["p"]}`, nil},
		{`{"s":"ab","o":"y","email":"a@b","uri":"mailto:a@b","date":"2024-02-29","time":"2026-01-31t12:00:00.5+01:00"}`,
			`{"s":"ab","b":false,"o":"y","m":["p"],"email":"a@b","uri":"mailto:a@b","date":"2024-02-29","time":"2026-01-31t12:00:00.5+01:00"}`, nil},
		{`{}`, ``, []string{`"s"`, "missing", "2 to 3 characters"}},
		{`null`, ``, []string{`"s"`, "missing"}},
		{`[]`, ``, []string{"content"}},
		{`{"s":null}`, ``, []string{`"s"`, "missing"}},
		{`{"s":"ab","zz":1}`, ``, []string{`"zz"`}},
		{`{"s":"ab","s":"cd"}`, ``, []string{`"s"`, "twice"}},
		{`{"s":1}`, ``, []string{`"s"`, "string"}},
		{`{"s":"a"}`, ``, []string{`"s"`, "2 to 3"}},
		{`{"s":"abcd"}`, ``, []string{`"s"`, "2 to 3"}},
		{`{"s":"ab","n":"1"}`, ``, []string{`"n"`, "a number from 0 to 1.5"}},
		{`{"s":"ab","n":1.6}`, ``, []string{`"n"`}},
		{`{"s":"ab","n":-0.1}`, ``, []string{`"n"`}},
		{`{"s":"ab","n":1e400}`, ``, []string{`"n"`}},
		{`{"s":"ab","i":1.5}`, ``, []string{`"i"`, "a whole number of at least -1"}},
		{`{"s":"ab","i":-2}`, ``, []string{`"i"`}},
		{`{"s":"ab","b":"true"}`, ``, []string{`"b"`, "true or false"}},
		{`{"s":"ab","o":"X"}`, ``, []string{`"o"`, `one of "x", "y"`}},
		{`{"s":"ab","m":[]}`, ``, []string{`"m"`, `1 to 2 different values of "p", "q", "r"`}},
		{`{"s":"ab","m":["p","q","r"]}`, ``, []string{`"m"`}},
		{`{"s":"ab","m":["p","p"]}`, ``, []string{`"m"`}},
		{`{"s":"ab","m":["z"]}`, ``, []string{`"m"`}},
		{`{"s":"ab","m":"p"}`, ``, []string{`"m"`}},
		{`{"s":"ab","m":[1]}`, ``, []string{`"m"`}},
		{`{"s":"ab","email":"ab"}`, ``, []string{`"email"`, "email address"}},
		{`{"s":"ab","email":"a b@c"}`, ``, []string{`"email"`}},
		{`{"s":"ab","uri":"example"}`, ``, []string{`"uri"`, "URI"}},
		{`{"s":"ab","date":"2026-02-30"}`, ``, []string{`"date"`, "2026-01-31"}},
		{`{"s":"ab","time":"2026-01-31 12:00"}`, ``, []string{`"time"`, "2026-01-31T12:00:00Z"}},
	} {
		r := parsed(t, Elicitation, all)
		got, err := r.Check(json.RawMessage(`{"content":` + test.content + `,"action":"accept","_meta":{}}`))
		if test.want == "" {
			wantError(t, test.content, err, test.words...)
			continue
		}
		if want := `{"action":"accept","content":` + test.want + `}`; err != nil || string(got) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", test.content, got, err, want)
		}
	}
}

// TestErrorsHideAnswers: what a person answers is for the server alone.
func TestErrorsHideAnswers(t *testing.T) {
	r := parsed(t, Elicitation, form(`"pin":{"type":"string","maxLength":3},"n":{"type":"integer"},"o":{"enum":["a"]},"m":{"type":"array","items":{"enum":["a"]}},"u":{"type":"string","format":"uri"}`))
	for _, name := range []string{"pin", "n", "o", "m", "u"} {
		for _, value := range []string{`"%hunter2"`, `["%hunter2"]`, `{"%hunter2":1}`} {
			_, err := r.Check(json.RawMessage(`{"action":"accept","content":{"` + name + `":` + value + `}}`))
			wantError(t, name+value, err, name)
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error %q has the answer", err)
			}
		}
		_, err := r.Content(map[string][]string{name: {"%hunter2"}})
		wantError(t, name, err, name)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error %q has the answer", err)
		}
	}
}

func TestCheckActions(t *testing.T) {
	empty, page := form(""), `{"mode":"url","message":"Go","url":"https://a.example"}`
	for _, test := range []struct{ params, result, want string }{
		{empty, `{"action":"accept"}`, `{"action":"accept","content":{}}`},
		{empty, `{"action":"decline","content":{"a":1}}`, string(Declined)},
		{empty, ` {"action":"cancel","content":null} `, string(Cancelled)},
		{page, `{"action":"accept","content":{"a":1}}`, `{"action":"accept"}`},
		{page, `{"action":"decline"}`, string(Declined)},
		{empty, `{"action":"Accept"}`, ``},
		{empty, `{"action":true}`, ``},
		{empty, `{}`, ``},
		{empty, `[]`, ``},
		{empty, ``, ``},
		{empty, `{"action":"accept"} x`, ``},
		{empty, "{\"action\":\"decline\",\"a\":\"\xff\"}", ``},
		{empty, `{"action":"decline","_meta":"` + strings.Repeat("a", 4<<20) + `"}`, ``},
	} {
		got, err := parsed(t, Elicitation, test.params).Check(json.RawMessage(test.result))
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%.100s: got %s, %v, want %s", test.result, got, err, test.want)
		}
	}
	if _, err := (&Request{Method: "x"}).Check(json.RawMessage("{}")); err == nil {
		t.Error("a result of no request is accepted")
	}
}

func TestContent(t *testing.T) {
	properties := form(`"s":{"type":"string"},"n":{"type":"number","maximum":2},"i":{"type":"integer"},"b":{"type":"boolean"},`+
		`"o":{"type":"string","oneOf":[{"const":"p-1","title":"Cat"},{"const":"p-2","title":"Dog"},{"const":"cat","title":"Old"},{"const":"q","title":"Same"},{"const":"r","title":"same"}]},`+
		`"m":{"type":"array","items":{"anyOf":[{"const":"f-1","title":"Tuna"},{"const":"f-2","title":"Salmon"}]}},"d":{"type":"integer","default":4}`, "s")
	type words = map[string][]string
	for _, test := range []struct {
		words words
		want  string // empty: an error
		says  []string
	}{
		{words{"s": {""}}, `{"s":"","d":4}`, nil},
		{words{"s": {"1"}, "n": {" 1.5 "}, "i": {"3.0"}, "b": {"YES"}, "d": {"-5"}}, `{"s":"1","n":1.5,"i":3,"b":true,"d":-5}`, nil},
		{words{"s": {"x"}, "b": {"no"}, "n": {}, "m": {}}, `{"s":"x","b":false,"d":4}`, nil},
		{words{"s": {"x"}, "o": {"p-1"}, "m": {"Salmon", "f-1"}}, `{"s":"x","o":"p-1","m":["f-2","f-1"],"d":4}`, nil},
		{words{"s": {"x"}, "o": {"Cat"}}, `{"s":"x","o":"p-1","d":4}`, nil},
		{words{"s": {"x"}, "o": {"cat"}}, `{"s":"x","o":"cat","d":4}`, nil},
		{words{"s": {"x"}, "o": {"dOG"}, "m": {""}}, `{"s":"x","o":"p-2","m":[],"d":4}`, nil},
		{words{"s": {"x"}, "o": {"same"}}, `{"s":"x","o":"r","d":4}`, nil},
		{words{"s": {"x"}, "o": {"SAME"}}, ``, []string{`"o"`, "one of"}},
		{words{"s": {"x"}, "o": {"CAT"}}, ``, []string{`"o"`, "one of"}},
		{words{}, ``, []string{`"s"`, "missing"}},
		{words{"s": {}}, ``, []string{`"s"`, "missing"}},
		{words{"s": {"a", "b"}}, ``, []string{`"s"`, "a string"}},
		{words{"s": {"a"}, "zz": {"b"}}, ``, []string{`"zz"`}},
		{words{"s": {"a"}, "zz": nil}, ``, []string{`"zz"`}},
		{words{"s": {"a"}, "n": {"3"}}, ``, []string{`"n"`, "at most 2"}},
		{words{"s": {"a"}, "n": {"1,5"}}, ``, []string{`"n"`}},
		{words{"s": {"a"}, "n": {"\"1\""}}, ``, []string{`"n"`}},
		{words{"s": {"a"}, "n": {"null"}}, ``, []string{`"n"`}},
		{words{"s": {"a"}, "i": {""}}, ``, []string{`"i"`, "a whole number"}},
		{words{"s": {"a"}, "i": {"1.5"}}, ``, []string{`"i"`}},
		{words{"s": {"a"}, "b": {"maybe"}}, ``, []string{`"b"`, "true or false"}},
		{words{"s": {"a"}, "m": {"Tuna", "f-1"}}, ``, []string{`"m"`, "different"}},
		{words{"s": {"a"}, "m": {"Cod"}}, ``, []string{`"m"`, `"f-1", "f-2"`}},
	} {
		r := parsed(t, Elicitation, properties)
		got, err := r.Content(test.words)
		if test.want == "" {
			wantError(t, string(got), err, test.says...)
		} else if err != nil || string(got) != test.want {
			t.Errorf("%v:\n got %s, %v\nwant %s", test.words, got, err, test.want)
		}
	}
	for _, r := range []*Request{{Method: Roots}, {Method: Sampling}, {Method: Elicitation, URL: "https://a.example"}} {
		_, err := r.Content(nil)
		wantError(t, r.Method, err, "not a form")
	}
}

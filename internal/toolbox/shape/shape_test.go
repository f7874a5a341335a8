package shape

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// text returns a result of one text.
func text(s string) string {
	encoded, _ := json.Marshal(s) // a string
	return `{"content":[{"type":"text","text":` + string(encoded) + `}]}`
}

func TestOf(t *testing.T) {
	object := func(members string) string {
		return `{"type":["object"],"properties":{` + members + `}`
	}
	const str, whole = `{"type":["string"]}`, `{"type":["integer"]}`
	for _, tt := range []struct{ name, result, want string }{
		{"text", text("hello"), str},
		{"text like a number", text("12"), str},
		{"empty text", text(""), str},
		{"JSON", text(` {"a": 1, "b": [1.5, null], "c": true} `), object(`"a":`+whole+`,"b":{"type":["array"],"items":{"type":["null","number"]}},"c":{"type":["boolean"]}`) + `,"required":["a","b","c"]}`},
		{"no JSON", text("{a}"), str},
		{"optional keys", text(`[{"a":1,"b":"x"},{"a":2}]`), `{"type":["array"],"items":` + object(`"a":`+whole+`,"b":`+str) + `,"required":["a"]}}`},
		{"an empty list", text(`[]`), `{"type":["array"]}`},
		{"an empty object", text(`{}`), `{"type":["object"]}`},
		{"a result", `{"content":[],"structuredContent":{"result":[1]}}`, `{"type":["array"],"items":` + whole + `}`},
		{"a string that is the content", `{"content":[{"type":"text","text":"x"}],"structuredContent":{"path":"x"}}`, str},
		{"a string that is not", `{"content":[{"type":"text","text":"y"}],"structuredContent":{"path":"x"}}`, object(`"path":`+str) + `,"required":["path"]}`},
		{"a picture", `{"content":[{"type":"image","data":"aGk="}]}`, `{"type":["array"],"items":` + object(`"data":`+str+`,"type":`+str) + `,"required":["data","type"]}}`},
		{"two texts", `{"content":[{"type":"text","text":"[1,"},{"type":"text","text":"2]"}]}`, `{"type":["array"],"items":` + whole + `}`},
		{"ids as keys", text(`{"1001":{"n":1},"1002":{"n":2}}`), `{"type":["object"],"additionalProperties":` + object(`"n":`+whole) + `,"required":["n"]}}`},
		{"names as keys of records", text(`{"ada":{"n":1},"bob":{"n":2},"cleo":{"n":1},"dan":{"n":1}}`), `{"type":["object"],"additionalProperties":` + object(`"n":`+whole) + `,"required":["n"]}}`},
		{"an odd key among fields", text(`{"@type":"x","a":1,"b":1,"c":1}`), object(`"a":`+whole+`,"b":`+whole+`,"c":`+whole) + `,"required":["a","b","c"],"additionalProperties":` + str + `}`},
		{"a text without a list", `{"content":"{\"a\":[]}"}`, object(`"a":{"type":["array"]}`) + `,"required":["a"]}`},
		{"a block without a list", `{"content":{"text":"{\"a\":[]}"}}`, object(`"a":{"type":["array"]}`) + `,"required":["a"]}`},
		{"a text in the list", `{"content":["{\"a\":",{"type":"text","text":"[]}"}]}`, object(`"a":{"type":["array"]}`) + `,"required":["a"]}`},
		{"an error in quotes", `{"isError":"true","content":"[]"}`, "null"},
		{"no error", `{"isError":null,"content":"[]"}`, `{"type":["array"]}`},
		{"an error", `{"isError":true,"content":[{"type":"text","text":"no"}]}`, "null"},
		{"no object", `[1]`, "null"},
		{"no content", `{}`, "null"},
		{"a large one", text(strings.Repeat("x", MaxResult)), "null"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(Of(json.RawMessage(tt.result)))
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestLearn(t *testing.T) {
	for _, tt := range []struct {
		name string
		seen []string
		want string
	}{
		{"a key that is not always there", []string{`{"a":1,"b":2}`, `{"a":1}`}, `{"type":["object"],"properties":{"a":{"type":["integer"]},"b":{"type":["integer"]}},"required":["a"]}`},
		{"text or an object", []string{`{"a":1}`, `none`}, `{"type":["object","string"],"properties":{"a":{"type":["integer"]}},"required":["a"]}`},
		{"a list that was empty", []string{`[]`, `[1]`}, `{"type":["array"],"items":{"type":["integer"]}}`},
		{"keys that change", []string{`{"a":1,"b":1,"c":1,"d":1,"e":1}`, `{"f":1,"g":1,"h":1,"i":1}`}, `{"type":["object"],"additionalProperties":{"type":["integer"]}}`},
		{"a map and fields", []string{`{"1001":1}`, `{"a":1}`}, `{"type":["object"],"additionalProperties":{"type":["integer"]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var known *Shape
			for _, s := range tt.seen {
				known = Learn(known, Of(json.RawMessage(text(s))))
			}
			if got := string(known.Schema()); got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
			if again := Learn(known, Of(json.RawMessage(text(tt.seen[0])))); again != known {
				t.Errorf("a result that was seen changed it: %s", again.Schema())
			}
			if known.Sound() == nil {
				t.Error("it is not sound")
			}
		})
	}
}

func TestIsField(t *testing.T) {
	for key, want := range map[string]bool{
		"id": true, "created_at": true, "htmlUrl": true, "content-type": true, "_links": true, "sha256": true, "base64Encoded": true,
		"author_association": true, "allowRebaseMergeByDefault": true,
		"": false, "1001": false, "-x": false, "a b": false, "a.b": false, "größe": false, "a\n": false, "a\u200b": false, "{x}": false, "'x'": false,
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a": false, "AKIAIOSFODNN7EXAMPLEKEY": false, "deadbeefdeadbeefdeadbeef": false,
		"c0ffee12": false, "aBcDeFgHiJkLmN": false, "9f86d081884c7d659a2feaa0c55ad015": false, strings.Repeat("a_", 30): false,
	} {
		if got := IsField(key); got != want {
			t.Errorf("%q: got %v, want %v", key, got, want)
		}
	}
}

// TestNoValues: nothing of a value gets into a shape, whatever a server sends.
func TestNoValues(t *testing.T) {
	const secret = "hunter2hunter2"
	var many, wide strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, `"%s%d":"%s",`, secret, i, secret)
		fmt.Fprintf(&wide, `"k%c%c":{"a":{"b":{"c":{"d":{"e":{"f":{"g":"%s"}}}}}}},`, 'a'+i%26, 'a'+i/26, secret)
	}
	for _, value := range []string{
		`{` + many.String() + `"` + secret + `12345":1}`,
		`{` + wide.String() + `"x":1}`,
		`["` + secret + `",{"a":"` + secret + `"}]`,
		strings.Repeat(`[`, 400) + strings.Repeat(`]`, 400),
		`{"` + secret + `\u0000\u202e":1}`,
	} {
		for _, result := range []string{text(value), `{"structuredContent":` + value + `}`} {
			s := Of(json.RawMessage(result))
			if s == nil && len(result) <= MaxResult {
				t.Fatalf("nothing was learned of %.80s", result)
			}
			if s == nil {
				continue
			}
			got := string(s.Schema())
			if strings.Contains(got, secret) || len(got) > maxBytes || s.Sound() == nil {
				t.Errorf("%.80s: %d bytes, %.500s", result, len(got), got)
			}
		}
	}
}

func FuzzShape(f *testing.F) {
	f.Add([]byte(text(`[{"a":1},{"b":{"1001":null}}]`)), []byte(text(`{"x":[]}`)))
	f.Add([]byte(`{"structuredContent":{"result":{"a":[1.5]}}}`), []byte(`{"content":[{"type":"image"}]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !json.Valid(a) || !json.Valid(b) {
			return // a result was validated
		}
		s := Learn(Of(a), Of(b))
		if s != nil && (s.Sound() == nil || len(s.Schema()) > maxBytes) {
			t.Errorf("%s and %s: %s", a, b, s.Schema())
		}
		if s != nil && Learn(s, Of(b)) != s {
			t.Errorf("%s and %s: learning again changes %s", a, b, s.Schema())
		}
	})
}

func BenchmarkOf(b *testing.B) {
	var issue strings.Builder
	for i := range 20 {
		fmt.Fprintf(&issue, `{"id":%d,"title":"A title","user":{"login":"x","id":1},"labels":["a","b"],"body":%q},`, i, strings.Repeat("words ", 20))
	}
	result := json.RawMessage(text("[" + strings.TrimSuffix(issue.String(), ",") + "]"))
	b.SetBytes(int64(len(result)))
	for b.Loop() {
		Of(result)
	}
}

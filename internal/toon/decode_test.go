package toon

import (
	"errors"
	"strings"
	"testing"
)

// TestUnmarshalErrors checks the line that an error names.
func TestUnmarshalErrors(t *testing.T) {
	for _, test := range []struct {
		document string
		line     int
		message  string
	}{
		{"a: 1\nb", 2, "no colon"},
		{"# a comment\n\na: \"x", 3, "no closing quote"},
		{"a: 1\na: 2", 2, "duplicate key"},
		{"a: 1\r\n b: 2", 2, "no multiple of 2"},
		{"a: 1\n\tb: 2", 2, "tab"},
		{"a:\n    b: 1", 2, "more than one level"},
		{"a: 1\n  b: 2", 2, "indented more"},
		{"  a: 1", 1, "first line"},
		{"x: 1\ny[2]: a,b,c", 2, "declares 2, but there are 3"},
		{"x: 1\ny[3]:\n  - a\n  - b\nz: 1", 2, "declares 3, but there are 2"},
		{"y[1]:\n  - a\n  - b", 3, "line 1 declares 1"},
		{"y[1]{a}:\n  1\n  2", 3, "line 1 declares 1"},
		{"y[1:]{a}:\n  k: 1\n  l: 2", 3, "line 1 declares 1"},
		{"y[2]{a,b}:\n  1,2\n  3", 3, "1 cells, its header 2"},
		{"y[2]{a,b}:\n  1,2\n  c: 3", 3, "field stands where a row"},
		{"y[3]{a,b}:\n  1,2\n  c: 3,4\n  5,6", 3, "field stands where a row"},
		{"y[1:]{a}:\n  k", 2, "no colon"},
		{"y[1:]{a}:\n  k:", 2, "0 cells"},
		{"y[2]:\n  - a\n\n  - b", 3, "blank line"},
		{"y[1]:\n  - z[2]:\n\n      - a\n      - b", 3, "blank line"},
		{"y[1]:\n  - a\n    b", 3, "as the lines before"},
		{"y[1]:\n  a", 2, "list item must be"},
		{"y[1]:\n  -a", 2, "list item must be"},
		{"y[1]:\n  - [1]{a}:\n      1", 2, "without a key"},
		{"y: 1\n[1]: 2", 2, "without a key"},
		{"y[1: 2", 1, "not closed"},
		{"y[1]{a:", 1, "delimiter must be"},
		{"y[1]{a\n  1", 1, "no colon"},
		{"y[1]{\"a\\q\"}:\n  1", 1, "not an escape"},
		{"y[1:]{\"a", 1, "no closing quote"},
		{"y[1:]{a", 1, "brace is not closed"},
		{"\"\\q\"[1]: 1", 1, "not an escape"},
		{"\"y: 1\nz: 2", 1, "no colon"},
		{"y[1]{:", 1, "no name"},
		{"y[1]{a {b}}:\n  1", 1, "space before"},
		{"y[1]{a{b}c}:\n  1", 1, "delimiter must be"},
		{"y[1]{a,}:\n  1", 1, "no name"},
		{"y[1|]{a,b}:\n  1", 1, "delimiter must be"},
		{"y[1]{a,b{c,c}}:\n  1,2,3", 1, `duplicate field "c"`},
		{"y[1]{a{b,b},a}:\n  1,2,3", 1, "duplicate field"},
		{"y[1]x: 2", 1, "colon must be"},
		{"y[1] : 2", 1, "colon must be"},
		{"y[2:]: 2", 1, "no fields"},
		{"y[1]{a}: 2", 1, "behind the colon"},
		{"y[18446744073709551616]: 2", 1, "declares"},
		{"\"y\"x: 1", 1, "behind a closing quote"},
		{"y: \"a\" b", 1, "behind a closing quote"},
		{`"\q": 1`, 1, "not an escape"},
		{`y: "\u00g0"`, 1, "hexadecimal"},
		{`y: "\udc00"`, 1, "surrogate"},
		{`y: "\ud83d\ude80"`, 1, "surrogate"},
		{"[1]: 2\n\n[1]: 3", 3, "behind the end"},
		{"[]\n[]", 2, "behind the end"},
		{"a: 1\nb: \xff\xfe", 2, "UTF-8"},
		{"a: \xed\xa0\x80", 1, "UTF-8"}, // a surrogate
		{"# \xc3", 1, "UTF-8"},
	} {
		got, err := unmarshal([]byte(test.document), Options{}, strictly)
		var e *lineError
		if !errors.As(err, &e) {
			t.Errorf("unmarshal(%q) = %s, %v", test.document, got, err)
			continue
		}
		if e.line != test.line || !strings.Contains(e.Error(), test.message) {
			t.Errorf("unmarshal(%q): %v, want line %d and %q", test.document, e, test.line, test.message)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a\\b\"\n\r\t`: "a\\b\"\n\r\t",
		`\u0000\u007f`: "\x00\x7f",
		`\uFFFF\ue000`: "\uffff\ue000",
		`\`:            "",
		`a\`:           "",
		`\b`:           "",
		`\/`:           "",
		`\u`:           "",
		`\u12`:         "",
		`\u 123`:       "",
		`\U0041`:       "",
		`\uD800`:       "",
		`\udfff`:       "",
	} {
		got, err := unescape(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("unescape(%s) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestUnmarshalAccepts(t *testing.T) {
	for _, test := range []struct{ document, want string }{
		{"\ufeffa: 1", `{"a":1}`},
		{"a: \ufeff", `{"a":"` + "\ufeff" + `"}`},
		{"a: x\r\ny", ""}, // an error: y has no colon
		{"a: x\ry", `{"a":"x\ry"}`},
		{"a: x\r\r\nb: 1", `{"a":"x\r","b":1}`},
		{"a:b[2]: x", `{"a":"b[2]: x"}`},
		{"a: \u00a0\nb: x\t", `{"a":"` + "\u00a0" + `","b":"x\t"}`},
		{`"a\":b": 1`, `{"a\":b":1}`},
		{`[2]: "a\",b",c`, `["a\",b","c"]`},
		{`[1]{"a\"}",b}:` + "\n  1,2", `[{"a\"}":1,"b":2}]`},
		{"[2]{a,b}:\n  1,x: 2\n  \"y:z\",3", `[{"a":1,"b":"x: 2"},{"a":"y:z","b":3}]`},
		{": 1", `{"":1}`},
		{"a : 1", `{"a":1}`},
		{`"a" : 1`, `{"a":1}`},
		{"a:1", `{"a":1}`},
		{"- a", `"- a"`},
		{"- a: 1", `{"- a":1}`},
		{"foo [2]: bar", `{"foo [2]":"bar"}`}, // §5.2
		{"foo-bar[2]: 1,2", `{"foo-bar":[1,2]}`},
		{"[x] y", `"[x] y"`},
		{"a[1]{b}", `"a[1]{b}"`}, // no colon: a scalar (§5)
		{"a: [x", `{"a":"[x"}`},
		{"a: []x", `{"a":"[]x"}`},
		{"a[0]{b}:", `{"a":[]}`},
		{"[0:]{b}:", `{}`},
		{"a[2]: ,", `{"a":["",""]}`},
		{"a[3]: 1,,", `{"a":[1,"",""]}`},
		{"a[1]: \" \"", `{"a":[" "]}`},
		{"[2|]{ a | b{ c } }:\n  1 | 2\n  3|4", `[{"a":1,"b":{"c":2}},{"a":3,"b":{"c":4}}]`},
		{"[1]{foo-bar}:\n  1", `[{"foo-bar":1}]`},
		{"[1]{\"\"}:\n  1", `[{"":1}]`},
		{"[2\t]: a \t b", `["a","b"]`},
		{"[1]:\n  -   x  ", `["x"]`},
		{"[2]:\n  - \n  -", `[{},{}]`},
		{"[1]:\n  - a:\n      b: 1\n    c: 2", `[{"a":{"b":1},"c":2}]`},
		{"[1]:\n  - a[1]:\n      - b\n    c: 2", `[{"a":["b"],"c":2}]`},
		{"[1]:\n  - [1]:\n    - [1]:\n      - a: 1\n        b: 2", `[[[{"a":1,"b":2}]]]`},
		{"a: x\"y,z", `{"a":"x\"y,z"}`},
		{"[1]: x\",\"y", `["x\",\"y"]`},
		{"a: \"\\u0041\\u00e9\\\\\"", `{"a":"Aé\\"}`},
		{"a: \"\x01\"", `{"a":"\u0001"}`},
		{"a: True", `{"a":"True"}`},
		{"__proto__: 1\ntoString: 2", `{"__proto__":1,"toString":2}`},
		{" \n# c\n  # c\n\n", `{}`},
	} {
		got, err := unmarshal([]byte(test.document), Options{}, strictly)
		if (err != nil) != (test.want == "") || string(got) != test.want {
			t.Errorf("unmarshal(%q) = %s, %v, want %s", test.document, got, err, test.want)
		}
	}
}

func TestUnmarshalLenient(t *testing.T) {
	for _, test := range []struct{ document, want string }{
		{"a[5]: 1,2", `{"a":[1,2]}`},
		{"a[0]:\n  - 1\n\n  - 2", `{"a":[1,2]}`},
		{"a[9]{b}:\n  1", `{"a":[{"b":1}]}`},
		{"a[9:]{b}:\n  k: 1\n  k: 2", `{"a":{"k":{"b":2}}}`},
		{"a:\n      b: 1\n      c: 2", `{"a":{"b":1,"c":2}}`},
		{"a: 1\nb: 2\na: 3", `{"a":3,"b":2}`},
		{"[1]{a,b{c,c},a}:\n  1,2,3,4", `[{"a":4,"b":{"c":3}}]`},
		{"a: 1\n[1]: 2", `{"a":1,"[1]":2}`},
		{"a[1]{b}: 2", `{"a[1]{b}":2}`},
		{"a[1:]: 2", `{"a[1":"]: 2"}`},
		{"[1]:\n  - [1]{a}: 2", `[{"[1]{a}":2}]`},
		// What would be lost in silence stays an error.
		{"a: 1\n  b: 2", ""},
		{"a:\n      b: 1\n    c: 2", ""},
		{"[1]: 1\n[1]: 2", ""},
		{"a[1]{b,c}:\n  1", ""},
		{"a:\n\tb: 1", ""},
		{"a: \xff", ""},
		{"a: \"x", ""},
		{"a:\n  b", ""},
		{"t[1]{a,b}:\n  1,2\n  x: 3,4", ""},
	} {
		got, err := unmarshal([]byte(test.document), Options{}, leniently)
		if (err != nil) != (test.want == "") || string(got) != test.want {
			t.Errorf("unmarshal(%q) = %s, %v, want %s", test.document, got, err, test.want)
		}
	}
}

func TestUnmarshalKeepsNoReference(t *testing.T) {
	data := []byte("a: bcd")
	got, err := unmarshal(data, Options{}, strictly)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, "xxxxxx")
	if string(got) != `{"a":"bcd"}` {
		t.Errorf("the result changed to %s", got)
	}
}

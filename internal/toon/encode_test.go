package toon

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestMarshalNumbers(t *testing.T) {
	for in, want := range map[string]string{
		// Integers keep every digit.
		"9007199254740993":                "9007199254740993",
		"-18446744073709551617":           "-18446744073709551617",
		"123456789012345678901234567890":  "123456789012345678901234567890",
		"0.10000000000000000000000000001": "0.10000000000000000000000000001",
		// The ends of §2's range.
		"999999999999999999999":   "999999999999999999999",
		"1000000000000000000000":  "1e+21",
		"-1000000000000000000000": "-1e+21",
		"123e19":                  "1.23e+21",
		"0.000001":                "0.000001",
		"0.0000012":               "0.0000012",
		"9.99e-7":                 "9.99e-7",
		"0.0000001":               "1e-7",
		// One form for each value.
		"-0": "0", "-0.000": "0", "0e999999999999": "0",
		"1.0": "1", "1.500": "1.5", "150e-2": "1.5", "0.0015E3": "1.5",
		"1E6": "1000000", "1000000e-6": "1", "12e-1": "1.2", "-5E-1": "-0.5",
		// What a float64 cannot hold.
		"1e400": "1e+400", "1.5e-400": "1.5e-400", "1e1000000": "1e+1000000",
		"10e-1000001": "1e-1000000",
	} {
		got, err := Marshal(json.RawMessage(in), Options{})
		if err != nil || string(got) != want {
			t.Errorf("Marshal(%s) = %q, %v, want %q", in, got, err, want)
			continue
		}
		back, err := unmarshal(got, Options{}, strictly)
		if err != nil || string(back) != want {
			t.Errorf("unmarshal(%q) = %q, %v", got, back, err)
		}
		// The decoder accepts the other forms alike.
		if back, err = unmarshal([]byte(in), Options{}, strictly); err != nil || string(back) != want {
			t.Errorf("unmarshal(%q) = %q, %v, want %q", in, back, err, want)
		}
	}
	for _, in := range []string{"10e1000000", "1e-1000001", "1e99999999999999999999", "0." + strings.Repeat("0", 1000000) + "1"} {
		if got, err := Marshal(json.RawMessage(in), Options{}); !errors.Is(err, errExponent) {
			t.Errorf("Marshal(%.30s) = %q, %v", in, got, err)
		}
		if got, err := unmarshal([]byte(in), Options{}, strictly); !errors.Is(err, errExponent) {
			t.Errorf("unmarshal(%.30s) = %q, %v", in, got, err)
		}
	}
}

func TestMarshalGoValues(t *testing.T) {
	type point struct {
		Y int     `json:"y"`
		X float64 `json:"x,omitempty"`
	}
	huge, _ := new(big.Int).SetString("123456789012345678901234", 10)
	for _, test := range []struct {
		in   any
		want string
	}{
		{nil, "null"},
		{"x", "x"},
		{"", `""`},
		{true, "true"},
		{int64(math.MinInt64), "-9223372036854775808"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{float32(0.1), "0.1"},
		{math.Copysign(0, -1), "0"},
		{math.MaxFloat64, "1.7976931348623157e+308"},
		{math.NaN(), "null"},
		{[]any{math.Inf(1), math.Inf(-1), float32(math.Inf(1))}, "[3]: null,null,null"},
		{map[string]any{"b": 1, "a": math.NaN(), "c": nil}, "a: null\nb: 1\nc: null"},
		{map[string]any{}, ""},
		{[]any(nil), "[]"},
		{map[string]any{"raw": json.RawMessage(`{"z":1,"a":2}`)}, "raw:\n  z: 1\n  a: 2"},
		{point{Y: 2, X: 1}, "y: 2\nx: 1"},
		{[]point{{1, 2}, {3, 4}}, "[2]{y,x}:\n  1,2\n  3,4"},
		{huge, "123456789012345678901234"},
		{json.Number("1.50"), "1.5"},
		{time.Unix(0, 0).UTC(), `"1970-01-01T00:00:00Z"`},
		{"<&>", "<&>"},
		{[]string{"<", "\u2028"}, "[2]: <,\u2028"},
		{[]byte{1}, "AQ=="},
	} {
		got, err := Marshal(test.in, Options{})
		if err != nil || string(got) != test.want {
			t.Errorf("Marshal(%#v) = %q, %v, want %q", test.in, got, err, test.want)
		}
	}
}

func TestMarshalRejects(t *testing.T) {
	for name, in := range map[string]any{
		"lone surrogate":               json.RawMessage(`"a\ud800"`),
		"lone low surrogate":           json.RawMessage(`{"\udc00":1}`),
		"high surrogate before text":   json.RawMessage(`"\ud800abcdef"`),
		"two high surrogates":          json.RawMessage(`"\ud800\ud800"`),
		"high surrogate, short escape": json.RawMessage(`"\ud800\u12"`),
		"ill-formed JSON text":         json.RawMessage("\"\xff\""),
		"ill-formed string":            "\xff",
		"ill-formed key":               map[string]any{"\xff": 1},
		"ill-formed element":           []any{"\xff"},
		"no JSON":                      json.RawMessage(``),
		"content behind the value":     json.RawMessage(`1 2`),
		"a channel":                    make(chan int),
		"a channel inside":             []any{make(chan int)},
	} {
		if got, err := Marshal(in, Options{}); err == nil {
			t.Errorf("%s: Marshal = %q", name, got)
		}
	}
}

// TestMarshalJSONSyntax holds our JSON parser against encoding/json's.
func TestMarshalJSONSyntax(t *testing.T) {
	for _, in := range []string{
		``, ` `, `nul`, `nulll`, `tru`, `falsy`, `True`, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `]`,
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{1:2}`,
		`"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u123`, "\"\n\"", "\"\\n\n\"", "\"\x00\"", `'a'`,
		`-`, `+1`, `01`, `-01`, `1.`, `.1`, `1e`, `1e+`, `1.e1`, `0x1`, `1_0`, `NaN`, `--1`, `1-1`,
		` [ 1 , { "a" : [ ] } , { } ] `, "\t\r\n1\n", "\v1", "\u00a01", `{"a":{"b":[[]]}}`,
		`"\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude80"`, `"é\u00Ab"`, "\ufeff1",
	} {
		_, err := Marshal(json.RawMessage(in), Options{})
		if valid := json.Valid([]byte(in)); valid != (err == nil) {
			t.Errorf("Marshal(%q): %v, json.Valid is %v", in, err, valid)
		}
	}
}

func TestMarshalDuplicateKeys(t *testing.T) {
	// The last one counts, in the place of the first, for few keys and for many.
	got, err := Marshal(json.RawMessage(`{"a":1,"b":2,"a":3}`), Options{})
	if want := "a: 3\nb: 2"; err != nil || string(got) != want {
		t.Errorf("Marshal = %q, %v, want %q", got, err, want)
	}
	many := `{`
	for range 3 {
		for c := 'a'; c <= 'z'; c++ {
			many += `"` + string(c) + `":"` + string(c) + `",`
		}
	}
	got, err = Marshal(json.RawMessage(many+`"a":"last"}`), Options{})
	if err != nil || strings.Count(string(got), "\n") != 25 || !strings.HasPrefix(string(got), "a: last\nb: b\n") {
		t.Errorf("Marshal = %q, %v", got, err)
	}
}

// TestMarshalShapes covers where the forms of arrays and objects meet, which the
// fixtures do singly.
func TestMarshalShapes(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"a byte order mark would be dropped", `"\ufeffa"`, "\"\ufeffa\""},
		{"but not inside the document", `["\ufeffa"]`, "[1]: \ufeffa"},
		{"spaces and tabs at the ends", `["a ","a\t"," a","a b","\u00a0a"]`, "[5]: \"a \",\"a\\t\",\" a\",a b,\u00a0a"},
		{"JSON's escapes", `["\"\\\/\b\f\n\r\t","\u0041\u00e9\ud83d\ude80x"]`, `[2]: "\"\\/\u0008\u000c\n\r\t",Aé🚀x`},
		{"rows in another order, grouped", `[{"a":1,"b":{"c":2,"d":3}},{"b":{"d":4,"c":5},"a":6}]`,
			"[2]{a,b{c,d}}:\n  1,2,3\n  6,5,4"},
		{"same number of keys, other keys", `[{"a":1,"b":2},{"a":1,"c":2}]`,
			"[2]:\n  - a: 1\n    b: 2\n  - a: 1\n    c: 2"},
		{"a list item's table, then a nested object", `[{"t":[{"x":1}],"o":{"p":{"q":2}}},3]`,
			"[2]:\n  - t[1]{x}:\n      1\n    o:\n      p:\n        q: 2\n  - 3"},
		{"a list item that begins with an object", `[{"o":{"p":1,"l":[[1],{}]},"z":2},3]`,
			"[2]:\n  - o:\n      p: 1\n      l[2]:\n        - [1]: 1\n        -\n    z: 2\n  - 3"},
		{"a list item that begins with a list", `[{"l":[[],{"a":1}]},{}]`,
			"[2]:\n  - l[2]:\n      - [0]:\n      - a: 1\n  -"},
		{"an array of objects inside an array is no table", `[[{"a":1},{"a":2}]]`,
			"[1]:\n  - [2]:\n    - a: 1\n    - a: 2"},
		{"nor is an object of objects", `[{"a":{"x":1},"b":{"x":2}},1]`,
			"[2]:\n  - a:\n      x: 1\n    b:\n      x: 2\n  - 1"},
		{"lists of lists", `[[[1,2],[]],[[]]]`,
			"[2]:\n  - [2]:\n    - [2]: 1,2\n    - [0]:\n  - [1]:\n    - [0]:"},
		{"empty things as values", `{"a":{},"b":[],"c":[{}],"d":[[]]}`,
			"a:\nb: []\nc[1]:\n  -\nd[1]:\n  - [0]:"},
		{"keyed with a group and odd keys", `{"k":{"":{"a-b":{"c":""}},"x:y":{"a-b":{"c":"-"}}}}`,
			"k[2:]{\"a-b\"{c}}:\n  \"\": \"\"\n  \"x:y\": \"-\""},
		{"keyed once an inner object is", `{"a":{"x":{"p":1},"y":{"p":2}},"b":{"x":{"p":3},"y":{"p":4}}}`,
			"[2:]{x{p},y{p}}:\n  a: 1,2\n  b: 3,4"},
		{"keys of all kinds", `{"a.b":1,"_":2,"a-b":3,"1":4,"é":5,".a":6}`,
			"a.b: 1\n_: 2\n\"a-b\": 3\n\"1\": 4\n\"é\": 5\n\".a\": 6"},
	} {
		got, err := Marshal(json.RawMessage(test.in), Options{})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: Marshal(%s)\n got %q, %v\nwant %q", test.name, test.in, got, err, test.want)
			continue
		}
		checkRoundTrip(t, json.RawMessage(test.in), Options{})
	}
}

func TestMarshalIsDeterministic(t *testing.T) {
	in := map[string]any{}
	for _, key := range strings.Split("the quick brown fox jumps over a lazy dog", " ") {
		in[key] = map[string]any{"length": len(key), "key": key}
	}
	first, err := Marshal(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if again, err := Marshal(in, Options{}); err != nil || string(again) != string(first) {
			t.Fatalf("Marshal = %q, then %q, %v", first, again, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opt := range []Options{
		{Delimiter: ';'}, {Delimiter: '\n'}, {IndentSize: -1}, {IndentSize: maxIndentSize + 1}, {MaxDepth: -1}, {MaxBytes: -1},
	} {
		if got, err := Marshal(nil, opt); err == nil {
			t.Errorf("Marshal with %+v = %q", opt, got)
		}
		if got, err := unmarshal(nil, opt, strictly); err == nil {
			t.Errorf("unmarshal with %+v = %q", opt, got)
		}
	}
}

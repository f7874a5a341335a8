package toon

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkRoundTrip encodes input and decodes the result, which must be input again,
// except that rows may have reordered keys (§2). Encoding what was decoded must
// give the same document, so nothing else is reordered.
func checkRoundTrip(t *testing.T, input json.RawMessage, opt Options) {
	t.Helper()
	document, err := Marshal(input, opt)
	if err != nil {
		t.Fatalf("Marshal(%s): %v", input, err)
	}
	back, err := unmarshal(document, opt, strictly)
	if err != nil {
		t.Fatalf("unmarshal of Marshal(%s) = %q: %v", input, document, err)
	}
	if got, want := sortedJSON(t, back), sortedJSON(t, input); got != want {
		t.Fatalf("Marshal(%s) = %q, which decodes to %s", input, document, back)
	}
	again, err := Marshal(back, opt)
	if err != nil || string(again) != string(document) {
		t.Fatalf("Marshal(%s) = %q, but after a round trip %q, %v", input, document, again, err)
	}
	if strings.HasSuffix(string(document), "\n") {
		t.Fatalf("Marshal(%s) ends in a newline", input)
	}
	for l := range strings.SplitSeq(string(document), "\n") {
		if strings.HasSuffix(l, " ") || strings.HasPrefix(strings.TrimLeft(l, " "), "#") {
			t.Fatalf("Marshal(%s): line %q", input, l)
		}
	}
}

// sortedJSON makes JSON texts of equal value equal, whatever their order.
func sortedJSON(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	opt, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxBytes *= 8
	v, err := parseJSON(raw, 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	out, err := appendJSON(nil, sortKeys(v), opt.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func sortKeys(v value) value {
	items := slices.Clone(v.items())
	for i, item := range items {
		items[i] = sortKeys(item)
	}
	switch v.kind {
	case arrayKind:
		return newArray(items)
	case objectKind:
		order := slices.Sorted(slices.Values(v.keys()))
		sorted := make([]value, len(order))
		for i, key := range order {
			sorted[i] = items[slices.Index(v.keys(), key)]
		}
		return newObject(order, sorted)
	}
	return v
}

var fuzzDelimiters = []Delimiter{Comma, Tab, Pipe}

// fixtureInputs calls add with the inputs of all fixtures of a category.
func fixtureInputs(f *testing.F, category string, add func(json.RawMessage)) {
	f.Helper()
	for name := range fixtureCounts {
		if !strings.HasPrefix(name, category+"/") {
			continue
		}
		for _, fixture := range readFixtures(f, name) {
			add(fixture.Input)
		}
	}
}

// FuzzMarshal encodes arbitrary JSON and decodes it again.
func FuzzMarshal(f *testing.F) {
	fixtureInputs(f, "encode", func(input json.RawMessage) { f.Add([]byte(input), uint8(0), uint8(1)) })
	for i, s := range []string{
		`[{"a":1,"b":{"c":2}},{"b":{"c":3},"a":4}]`,
		`{"a":{"x":1},"b":{"x":2}}`,
		`[[[]],[{}],[[{"k":[]}]]]`,
		`[9007199254740993,1e21,-0.0,123456789012345678901234567890,1e-7,1E400]`,
		`"\ufeff#"`, `{"a|b":"c\td","\u0000":"\ud83d\ude80"}`,
	} {
		f.Add([]byte(s), uint8(i), uint8(i+1))
	}
	f.Fuzz(func(t *testing.T, input []byte, delimiter, indent uint8) {
		opt := Options{
			Delimiter:  fuzzDelimiters[int(delimiter)%len(fuzzDelimiters)],
			IndentSize: 1 + int(indent)%maxIndentSize,
		}
		document, err := Marshal(json.RawMessage(input), opt)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("the error %v is no *Error", err)
			}
			documented := errors.Is(err, ErrTooDeep) || errors.Is(err, errSurrogate) || errors.Is(err, errExponent)
			if json.Valid(input) && utf8.Valid(input) && !documented {
				t.Fatalf("Marshal(%q): %v", input, err)
			}
			return
		}
		if !json.Valid(input) {
			t.Fatalf("Marshal accepted %q, which is no JSON: %q", input, document)
		}
		checkRoundTrip(t, input, opt)
	})
}

// FuzzUnmarshal decodes arbitrary text. What decodes must encode and decode to
// itself, and what is right when strict is read alike when lenient.
func FuzzUnmarshal(f *testing.F) {
	fixtureInputs(f, "decode", func(input json.RawMessage) { f.Add([]byte(decodeString(f, input)), uint8(1)) })
	f.Fuzz(func(t *testing.T, input []byte, indent uint8) {
		opt := Options{IndentSize: 1 + int(indent)%maxIndentSize, MaxBytes: 1 << 20}
		fromStrict, errStrict := unmarshal(input, opt, strictly)
		fromLenient, errLenient := unmarshal(input, opt, leniently)
		if errStrict == nil && (errLenient != nil || string(fromStrict) != string(fromLenient)) {
			t.Fatalf("unmarshal(%q): strict %s, lenient %s, %v", input, fromStrict, fromLenient, errLenient)
		}
		if errLenient != nil {
			var e *lineError
			if !errors.As(errLenient, &e) || e.line < 0 || e.line > 1+strings.Count(string(input), "\n") {
				t.Fatalf("unmarshal(%q): error %#v", input, errLenient)
			}
			return
		}
		if !json.Valid(fromLenient) {
			t.Fatalf("unmarshal(%q) = %s, which is no JSON", input, fromLenient)
		}
		checkRoundTrip(t, fromLenient, Options{})
	})
}

package toon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func nest(n int, opening, inner, closing string) string {
	return strings.Repeat(opening, n) + inner + strings.Repeat(closing, n)
}

// indented writes n lines of text, each one level deeper.
func indented(n int, text string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%*s%s\n", 2*i, "", text)
	}
	return b.String()
}

func TestMaxDepth(t *testing.T) {
	opt := Options{MaxDepth: 20}
	host := func(n int) any {
		var v any = 1
		for i := range n {
			if i%2 == 0 {
				v = map[string]any{"a": v}
			} else {
				v = []any{v}
			}
		}
		return v
	}
	encode := map[string]func(n int) any{
		"arrays":  func(n int) any { return json.RawMessage(nest(n, "[", "1", "]")) },
		"objects": func(n int) any { return json.RawMessage(nest(n, `{"a":`, "1", "}")) },
		"a table": func(n int) any { return json.RawMessage("[" + nest(n-1, `{"a":`, "1", "}") + "]") },
		"Go":      host,
		"Go lists": func(n int) any {
			var v any = 1
			for range n {
				v = []any{v}
			}
			return v
		},
		"JSON inside Go": func(n int) any {
			return []any{map[string]any{"a": json.RawMessage(nest(n-2, "[", "", "]"))}}
		},
	}
	for name, make := range encode {
		if _, err := Marshal(make(20), opt); err != nil {
			t.Errorf("%s nested 20 times: %v", name, err)
		}
		if _, err := Marshal(make(21), opt); !errors.Is(err, ErrTooDeep) {
			t.Errorf("%s nested 21 times: %v", name, err)
		}
	}
	decode := map[string]func(n int) string{
		"objects":       func(n int) string { return indented(n-1, "a:") },
		"lists":         func(n int) string { return "[1]:\n" + indented(n-1, "  - [1]:") },
		"field groups":  func(n int) string { return "[1]{" + nest(n-2, "a{", "b", "}") + "}:\n  1" },
		"keyed groups":  func(n int) string { return "[1:]{" + nest(n-2, "a{", "b", "}") + "}:\n  k: 1" },
		"inline arrays": func(n int) string { return indented(n-2, "a:") + strings.Repeat("  ", n-2) + "b[1]: x" },
	}
	for name, make := range decode {
		for _, strict := range []bool{strictly, leniently} {
			_, err := unmarshal([]byte(make(20)), opt, strict)
			if errors.Is(err, ErrTooDeep) {
				t.Errorf("%s nested 20 times: %v", name, err)
			}
			if _, err := unmarshal([]byte(make(21)), opt, strict); !errors.Is(err, ErrTooDeep) {
				t.Errorf("%s nested 21 times, strict %v: %v", name, strict, err)
			}
		}
	}
	if _, err := unmarshal([]byte("a[1]{"+strings.Repeat("a{", 1<<20)+":"), Options{}, leniently); !errors.Is(err, ErrTooDeep) {
		t.Errorf("a million braces: %v", err)
	}
}

func TestMaxBytes(t *testing.T) {
	big := `"` + strings.Repeat("x", 100) + `"`
	if _, err := Marshal(json.RawMessage(big), Options{MaxBytes: len(big)}); err != nil {
		t.Error(err)
	}
	if _, err := Marshal(json.RawMessage(big), Options{MaxBytes: len(big) - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large JSON: %v", err)
	}
	if _, err := Marshal(map[string]any{"a": strings.Repeat("x", 100)}, Options{MaxBytes: 100}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large Go value: %v", err)
	}
	if _, err := unmarshal([]byte(big), Options{MaxBytes: len(big) - 1}, strictly); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large document: %v", err)
	}

	// A short row must not stand for much JSON.
	for name, document := range map[string]string{
		"long keys":      "[9]{" + strings.Repeat("k", 1000) + "}:\n" + strings.Repeat("  1\n", 10_000),
		"groups":         "[9]{" + nest(400, "a{", "b", "}") + "}:\n" + strings.Repeat("  1\n", 10_000),
		"escapes":        "a: \"" + strings.Repeat("\x01", 400_000) + "\"",
		"quoted empties": "[9]: " + strings.Repeat(",", 500_000),
	} {
		opt := Options{MaxBytes: 1 << 20}
		if len(document) > opt.MaxBytes {
			t.Fatalf("%s: the document itself is too large", name)
		}
		_, err := unmarshal([]byte(document), opt, leniently)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		// Only escapes may wait for the JSON to be written: the rest would fill
		// the memory before.
		var e *lineError
		if errors.As(err, &e) && e.line == 0 && name != "escapes" {
			t.Errorf("%s: the limit was noticed too late", name)
		}
	}
	// A declared length costs nothing.
	if got, err := unmarshal([]byte("[999999999999]:"), Options{}, leniently); err != nil || string(got) != "[]" {
		t.Errorf("a declared length: %s, %v", got, err)
	}
}

// TestIndentationIsBounded encodes what grows by its indentation. The encoder must
// stop at the limit, not only report it.
func TestIndentationIsBounded(t *testing.T) {
	members := func(n int, inner string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%s,`, i, inner)
		}
		return "{" + b.String() + `"z":` + inner + "}"
	}
	for name, inner := range map[string]string{
		"list":        "[" + strings.Repeat("{},", 20_000) + "1]",
		"table":       "[" + strings.Repeat(`{"a":1},`, 20_000) + `{"a":1}]`,
		"keyed table": members(20_000, `{"a":1}`),
		"fields":      members(20_000, "1"),
		"item fields": "[" + members(20_000, "1") + ",1]",
	} {
		document := nest(400, `{"a":`, inner, "}")
		opt, err := Options{MaxBytes: 1 << 20}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		v, err := parseJSON([]byte(document), 0, opt)
		if err != nil {
			t.Fatal(err)
		}
		e := encoder{indent: opt.IndentSize, delimiter: opt.Delimiter, limit: opt.MaxBytes}
		e.root(v)
		if n := len(e.out); n <= opt.MaxBytes || n > opt.MaxBytes+10_000 {
			t.Errorf("%s: the encoder stopped at %d bytes", name, n)
		}
		_, err = Marshal(json.RawMessage(document), opt)
		if !errors.Is(err, ErrTooLarge) || err.Error() != "toon: too large: the document exceeds 1048576 bytes" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package toon

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fixtureCounts is what testdata must hold, so that no fixture is lost unnoticed.
var fixtureCounts = map[string]int{
	"decode/arrays-nested.json":      23,
	"decode/arrays-primitive.json":   19,
	"decode/arrays-tabular.json":     16,
	"decode/blank-lines.json":        21,
	"decode/comments.json":           18,
	"decode/delimiters.json":         28,
	"decode/indentation-errors.json": 19,
	"decode/numbers.json":            28,
	"decode/objects-keyed.json":      17,
	"decode/objects.json":            53,
	"decode/primitives.json":         28,
	"decode/root-form.json":          8,
	"decode/validation-errors.json":  52,
	"decode/whitespace.json":         13,
	"encode/arrays-nested.json":      14,
	"encode/arrays-objects.json":     17,
	"encode/arrays-primitive.json":   13,
	"encode/arrays-tabular.json":     16,
	"encode/delimiters.json":         22,
	"encode/objects-keyed.json":      13,
	"encode/objects.json":            32,
	"encode/primitives.json":         43,
	"encode/whitespace.json":         3,
}

const fixtureTotal = 516

type fixture struct {
	Name           string          `json:"name"`
	Input          json.RawMessage `json:"input"`
	Expected       json.RawMessage `json:"expected"`
	ShouldError    bool            `json:"shouldError"`
	Options        fixtureOptions  `json:"options"`
	SpecSection    string          `json:"specSection"`
	Note           string          `json:"note"`
	MinSpecVersion string          `json:"minSpecVersion"`
}

type fixtureOptions struct {
	Delimiter  string `json:"delimiter"`
	IndentSize int    `json:"indentSize"`
	Strict     *bool  `json:"strict"`
}

func (o fixtureOptions) options(t *testing.T) Options {
	opt := Options{IndentSize: o.IndentSize}
	switch len(o.Delimiter) {
	case 0:
	case 1:
		opt.Delimiter = Delimiter(o.Delimiter[0])
	default:
		t.Fatalf("delimiter %q", o.Delimiter)
	}
	return opt
}

func readFixtures(t testing.TB, name string) []fixture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "fixtures", name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version     string    `json:"version"`
		Category    string    `json:"category"`
		Description string    `json:"description"`
		Tests       []fixture `json:"tests"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // an option that we do not know of would not be exercised
	if err := dec.Decode(&file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if file.Version != "4.0" || file.Category != filepath.Dir(name) {
		t.Fatalf("%s: version %s, category %s", name, file.Version, file.Category)
	}
	return file.Tests
}

// TestFixtures runs the specification's conformance suite.
func TestFixtures(t *testing.T) {
	root := filepath.Join("testdata", "fixtures")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if _, known := fixtureCounts[filepath.ToSlash(name)]; !known {
			t.Errorf("%s is not listed", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	passed := 0
	for _, name := range slices.Sorted(maps.Keys(fixtureCounts)) {
		want := fixtureCounts[name]
		tests := readFixtures(t, name)
		if len(tests) != want {
			t.Errorf("%s holds %d fixtures, want %d", name, len(tests), want)
		}
		check := checkDecode
		if filepath.Dir(name) == "encode" {
			check = checkEncode
		}
		for _, f := range tests {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				check(t, f)
				passed++
			})
		}
	}
	selected := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if passed != fixtureTotal && !selected {
		t.Errorf("%d fixtures passed, want %d", passed, fixtureTotal)
	}
}

func checkEncode(t *testing.T, f fixture) {
	opt := f.Options.options(t)
	got, err := Marshal(f.Input, opt)
	if f.ShouldError {
		if err == nil {
			t.Fatalf("Marshal(%s) = %q, want an error", f.Input, got)
		}
		return
	}
	if err != nil {
		t.Fatalf("Marshal(%s): %v", f.Input, err)
	}
	if want := decodeString(t, f.Expected); string(got) != want {
		t.Fatalf("Marshal(%s)\n got %q\nwant %q", f.Input, got, want)
	}
	checkRoundTrip(t, f.Input, opt)
}

func checkDecode(t *testing.T, f fixture) {
	opt, input := f.Options.options(t), decodeString(t, f.Input)
	got, err := unmarshal([]byte(input), opt, f.Options.Strict == nil || *f.Options.Strict)
	if f.ShouldError {
		if err == nil {
			t.Fatalf("unmarshal(%q) = %s, want an error", input, got)
		}
		return
	}
	if err != nil {
		t.Fatalf("unmarshal(%q): %v", input, err)
	}
	if want := canonicalJSON(t, f.Expected); string(got) != want {
		t.Fatalf("unmarshal(%q)\n got %s\nwant %s", input, got, want)
	}
	checkRoundTrip(t, got, opt)
}

func decodeString(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// canonicalJSON makes JSON texts of equal value, with equal order, equal.
func canonicalJSON(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	opt, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	v, err := parseJSON(raw, 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	out, err := appendJSON(nil, v, opt.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

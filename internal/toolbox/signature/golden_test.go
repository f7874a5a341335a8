package signature

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file")

const goldenFile = "testdata/signatures.json"

// goldenCase is one schema with what a sandbox receives of it. The tests of the
// sandbox's Python read the file, too: what they bind must be what stands there.
type goldenCase struct {
	// Tool is "server/tool" of a real tool, whose schema is in
	// test/proxies/testdata/tools, or names one of the schemas in odd.json.
	Tool         string            `json:"tool"`
	InputSchema  json.RawMessage   `json:"-"`
	OutputSchema json.RawMessage   `json:"-"`
	Signature    string            `json:"signature"`
	Arguments    []string          `json:"arguments"` // in their order
	Required     int               `json:"required"`  // so many of them
	Renamed      map[string]string `json:"renamed,omitempty"`
	Unwrap       string            `json:"unwrap,omitempty"`
}

// goldenCases are the schemas of the real tools and odd ones.
func goldenCases(t *testing.T) []goldenCase {
	t.Helper()
	files, err := filepath.Glob("../../../test/proxies/testdata/tools/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	for _, file := range append(files, "testdata/odd.json") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Server string
			Tools  []struct {
				Name                      string
				InputSchema, OutputSchema json.RawMessage
			}
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, tool := range list.Tools {
			cases = append(cases, goldenCase{Tool: list.Server + "/" + tool.Name, InputSchema: tool.InputSchema, OutputSchema: tool.OutputSchema})
		}
	}
	return cases
}

// TestGolden compares what sandboxes receive with the golden file. After a change
// that is meant, run it with -update and then the tests of the sandbox's Python.
func TestGolden(t *testing.T) {
	cases := goldenCases(t)
	if len(cases) < 468 {
		t.Errorf("got %d schemas, want at least the 468 of real tools", len(cases))
	}
	lines := []string{}
	for _, c := range cases {
		c.Signature, c.Renamed = Sandbox(c.InputSchema, c.OutputSchema)
		c.Unwrap = Unwrapped(c.OutputSchema)
		c.Arguments = []string{}
		for _, a := range Arguments(c.InputSchema) {
			c.Arguments = append(c.Arguments, a.Name)
			if a.Required {
				c.Required++
			}
		}
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(c); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(line.String()))
	}
	got := "[\n" + strings.Join(lines, ",\n") + "\n]\n"
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			t.Fatalf("line %d:\n got %s\nwant %s", i+1, line, wanted[min(i, len(wanted)-1)])
		}
	}
	if got != string(want) {
		t.Errorf("%s has %d lines, want %d", goldenFile, len(wanted), len(lines)+3)
	}
}

//go:build unix

package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// A snippet is a piece of code as agents write it, with what it prints. Its file ends
// with comments: "# Only: wasm" if it is about an interpreter without an operating
// system, "# Error: TEXT" if it fails with that text, "# Says: TEXT" if that interpreter says
// it on standard error, and its output below "# Output:".
type snippet struct {
	name, code, output, failure string
	alone                       bool
}

func snippets(t *testing.T) []snippet {
	files, err := filepath.Glob("testdata/snippets/*.py")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d snippets, %v; want 40 at least", len(files), err)
	}
	var found []snippet
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code, output, ok := strings.Cut(string(text), "# Output:\n")
		if !ok {
			t.Fatalf("%s has no output", file)
		}
		s := snippet{name: strings.TrimSuffix(filepath.Base(file), ".py"), code: code, alone: strings.Contains(code, "\n# Only: wasm\n")}
		if _, rest, ok := strings.Cut(code, "\n# Error: "); ok {
			s.failure, _, _ = strings.Cut(rest, "\n")
		}
		for line := range strings.Lines(output) {
			s.output += strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		}
		found = append(found, s)
	}
	return found
}

// TestSnippets: they print the same here as in an interpreter without an operating
// system, with whose engine test/clients/test_programs.py runs them, too.
func TestSnippets(t *testing.T) {
	if r := launch(t).exec(t, "import sys\nsys.version_info >= (3, 11)"); r.stdout != "True\n" {
		t.Skip("they use what Python 3.11 has")
	}
	for _, s := range snippets(t) {
		if s.alone {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := launch(t).exec(t, s.code)
			if r.err != nil || r.Status != wire.StatusOK || r.stdout != s.output || r.stderr != "" {
				t.Errorf("%v, status %s: got %q, %q; want %q", r.err, r.Status, r.stdout, r.stderr, s.output)
			}
		})
	}
}

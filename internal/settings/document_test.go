package settings_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

var update = flag.Bool("update", false, "write docs/CONFIGURATION.md")

func TestDocumentIsFresh(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "CONFIGURATION.md")
	if *update {
		if err := os.WriteFile(path, []byte(settings.Document()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != settings.Document() {
		t.Error("docs/CONFIGURATION.md is stale: run `go run ./scripts/configuration`")
	}
}

func TestEverySettingIsDocumentedOnce(t *testing.T) {
	s, err := settings.Load(settings.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	doc := settings.Document()
	for _, e := range s.Entries() {
		if n := strings.Count(doc, "| `"+e.Key+"` | "); n != 1 {
			t.Errorf("%s has %d rows", e.Key, n)
		}
		for _, v := range e.Variables {
			if !strings.Contains(doc, "`"+v+"`") {
				t.Errorf("%s is missing", v)
			}
		}
	}
	for _, line := range strings.Split(doc, "\n") {
		if strings.HasPrefix(line, "| `") && strings.Count(line, "|") != 6 && strings.Count(line, "|") != 3 {
			t.Errorf("a broken row: %s", line)
		}
	}
}

// TestTheExampleOfTheDocumentWorks reads the YAML block in it.
func TestTheExampleOfTheDocumentWorks(t *testing.T) {
	_, rest, ok := strings.Cut(settings.Document(), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no example")
	}
	s := mustLoad(t, settings.Sources{Home: write(t, example)})
	if s.Limits.Memory != 1<<30 || s.Policy.Require.Memory != "hard" {
		t.Errorf("%+v", s)
	}
}

// TestNamesInTheTreeAreKnown: a variable that the program, its tests or its
// scripts use must not make the program refuse to start.
func TestNamesInTheTreeAreKnown(t *testing.T) {
	name := regexp.MustCompile(`\b(SALLYPORT|MCP_BRIDGE)_[A-Z][A-Z0-9_]*\b`)
	root := filepath.Join("..", "..")
	wrong := filepath.Join("internal", "settings") // this package's tests write wrong names on purpose
	seen := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && rel != ".ci" && (strings.HasPrefix(d.Name(), ".") || rel == wrong || slices.Contains([]string{"bin", "node_modules", "shared", "testdata", "docs"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.Contains([]string{".go", ".py", ".sh", ".mjs", ".md", ""}, filepath.Ext(path)) {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > 1<<20 {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range name.FindAllString(string(b), -1) {
			seen[n] = rel
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen["SALLYPORT_BIN"] == "" || seen["SALLYPORT_DEPTH"] == "" {
		t.Fatalf("the walk saw only %d names", len(seen))
	}
	for n, path := range seen {
		_, err := settings.Load(settings.Sources{Environ: map[string]string{n: "x"}})
		if err != nil && strings.Contains(err.Error(), "there is no such variable") {
			t.Errorf("%s uses %s, which would be refused: declare it, list it as internal, or call it SALLYPORT_TEST_…", path, n)
		}
	}
}

package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// rightAsTheyStand are the matches in each folder that need no change: the user
// nobody and a corpus of texts. The numbers must not grow.
var rightAsTheyStand = map[string]int{
	"bench":                              9,
	"bench/servers":                      2,
	"docs":                               1,
	"docs/engines":                       1,
	"examples":                           1,
	"internal/sandbox/gvisor/supervisor": 1,
	"internal/sandbox/sandboxtest":       2,
	"internal/upstream/remote":           1,
	"tools/searchmodel":                  15,
}

// A slip is wording that makes a native reader stop, and what to write instead.
type slip struct {
	pattern *regexp.Regexp
	instead string
}

var slips = sync.OnceValue(func() []slip {
	var list []slip
	for _, s := range [][2]string{
		{`\b(is|are|was|were|be|been) told\b|\btold (of|that|what|once|when|how)\b`, `"gets", "receives", "reports"`},
		{`\b[Nn]obody\b`, `"nothing", "no caller", "no one"`},
		{`\b[Ss]omebody\b`, `"something", "a caller", "someone"`},
		{`\bto be had\b|\bcan(not)? be had\b`, `"available"`},
		{`\bmend(s|ed|ing)?\b`, `"fix", "repair"`},
		{`\b[Bb]eside\b`, `"next to", "while", "with", "besides"`},
		{`\b(a|one) text\b|\btexts\b`, `"string", "content", the name of what it is`},
		{`\bof the (user|host|guest|server|engine|program|caller|service)'s($|[.,;:)]| (that|which|or|and|in|with|as|is|are)\b)`, `"the user's …"`},
		{`\bwhat there (is|are)\b|\b(those|every \w+|all|way|address|accelerators) that there (is|are)\b`, `"the existing …", "all …"`},
		{`\botherwise than\b`, `"unlike", "differently from"`},
		{`\b(lay|lays|laid|laying) (it |them |one |sessions? )?(to sleep|down)\b`, `"suspend"`},
		{`(^|[^eE] |[^r]e |[^e]re )\b(is|are) no (of|place|name|file|list|object|number|directory|folder|address|frame|string|tool|server|value|key|path|call|part|matter|sandbox|image|word|line)\b`, `"is not a …"`},
		{`\b(is|are) none of\b`, `"is not a …"`},
		{`\ball the same\b`, `"anyway", "still"`},
		{`\bfor ever\b`, `"forever"`},
		{`\bhas the \w+ (go|come|run|end|start|say|tell)\b|\b[Hh]as (it|them) \w+ed\b`, `an active verb`},
	} {
		list = append(list, slip{regexp.MustCompile(s[0]), s[1]})
	}
	return list
})

// TestPlainEnglish counts slips in the comments and strings of the product and
// in the documents. A folder may have only the matches in rightAsTheyStand.
func TestPlainEnglish(t *testing.T) {
	found := map[string][]string{} // by folder
	var all []string
	for _, s := range slips() {
		all = append(all, s.pattern.String())
	}
	any := regexp.MustCompile(strings.Join(all, "|")) // most lines have no slip
	note := func(path string, line int, text string) {
		if !any.MatchString(text) {
			return
		}
		for _, s := range slips() {
			if m := s.pattern.FindString(text); m != "" {
				folder := filepath.ToSlash(filepath.Dir(path))
				found[folder] = append(found[folder], fmt.Sprintf("%s:%d: %q: rather %s", path, line, strings.TrimSpace(m), s.instead))
			}
		}
	}
	for _, f := range sources(t) {
		if f.test || f.pkg == "internal/arch" {
			continue
		}
		at := func(p token.Pos) int { return f.fset.Position(p).Line }
		for _, group := range f.file.Comments {
			for _, c := range group.List {
				for i, line := range strings.Split(c.Text, "\n") {
					note(f.path, at(c.Pos())+i, line)
				}
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					note(f.path, at(lit.Pos()), text)
				}
			}
			return true
		})
	}
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	for path := range documents(t, top) {
		raw, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			note(path, i+1, line)
		}
	}

	for _, folder := range slices.Sorted(maps.Keys(found)) {
		if got, want := len(found[folder]), rightAsTheyStand[folder]; got > want {
			t.Errorf("%s has %d slips, want at most %d:\n\t%s", folder, got, want, strings.Join(found[folder], "\n\t"))
		}
	}
}

// documents are the paths of what people and models read besides Go: Markdown and
// the guest's Python.
func documents(t *testing.T, top string) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			name := d.Name()
			if rel != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "bin", "test", "tests", "data"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(rel); ext == ".md" || ext == ".py" && strings.HasPrefix(rel, "internal/") {
			paths[rel] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 30 {
		t.Fatalf("found only %d documents: is this test looking in the right place?", len(paths))
	}
	return paths
}

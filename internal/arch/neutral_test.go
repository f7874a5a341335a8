package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnginesKnowNoLanguage checks that no package below session knows the
// program that runs in a sandbox: it arrives as a sandbox.Program.
func TestEnginesKnowNoLanguage(t *testing.T) {
	rows := table()
	top := rows["internal/session"].row
	if top == 0 {
		t.Fatal("internal/session is not in the table")
	}
	checked := 0
	for _, f := range sources(t) {
		l, known := rows[f.pkg]
		if f.test || !known || l.row >= top || language(f.pkg) {
			continue
		}
		checked++
		for _, imp := range f.imports {
			if language(strings.TrimPrefix(imp, module+"/")) {
				t.Errorf("%s imports %s, which only packages from internal/session up may do", f.path, imp)
			}
		}
	}
	if checked < 100 {
		t.Errorf("got %d files below internal/session, want at least 100", checked)
	}
}

// language reports whether a package is the host's side of a guest, or a
// language.
func language(pkg string) bool {
	return pkg == "internal/guest" || pkg == "internal/language" || strings.HasPrefix(pkg, "internal/language/")
}

// neutral are the packages whose names and members of JSON are part of what every
// engine and every language agree on, and of them the names that are about
// Python anyway.
var neutral = map[string][]string{
	"internal/sandbox": nil,
	"internal/batch":   nil,
	"internal/guest":   nil,
	// The version of Python that a saved tool was written with.
	"internal/wire": {"SavedTool.Python"},
}

// TestContractNamesNoLanguage checks the names that these packages declare.
func TestContractNamesNoLanguage(t *testing.T) {
	seen := map[string]int{}
	excused := map[string]bool{}
	for _, f := range sources(t) {
		allowed, ok := neutral[f.pkg]
		if !ok || f.test {
			continue
		}
		names := declaredNames(t, f.path)
		seen[f.pkg] += len(names)
		for _, name := range names {
			if !strings.Contains(strings.ToLower(name), "python") {
				continue
			}
			found := false
			for _, a := range allowed {
				if strings.HasPrefix(name, a) {
					excused[a], found = true, true
				}
			}
			if !found {
				t.Errorf("%s declares %s: a name for every language is needed", f.path, name)
			}
		}
	}
	for pkg, allowed := range neutral {
		if seen[pkg] == 0 {
			t.Errorf("%s: got no declared names", pkg)
		}
		for _, a := range allowed {
			if !excused[a] {
				t.Errorf("%s is excused and not declared in %s", a, pkg)
			}
		}
	}
}

// declaredNames returns the names that a file declares outside functions. A
// field's is TYPE.FIELD with its tag.
func declaredNames(t *testing.T, path string) []string {
	t.Helper()
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			names = append(names, d.Name.Name)
			continue
		}
		for _, spec := range decl.(*ast.GenDecl).Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				ast.Inspect(s.Type, func(n ast.Node) bool {
					field, ok := n.(*ast.Field)
					if !ok {
						return true
					}
					tag := ""
					if field.Tag != nil {
						tag = " " + field.Tag.Value
					}
					for _, n := range field.Names {
						names = append(names, s.Name.Name+"."+n.Name+tag)
					}
					return true
				})
			}
		}
	}
	return names
}

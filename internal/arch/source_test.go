package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/sallyport/sallyport"

// A source is one parsed Go file of the repository.
type source struct {
	path    string // relative to the root, with slashes
	pkg     string // its folder
	test    bool
	lines   int
	imports []string
	file    *ast.File
	fset    *token.FileSet
}

var root = sync.OnceValues(func() (string, error) { return filepath.Abs("../..") })

var parsed = sync.OnceValues(parseAll)

func sources(t *testing.T) []source {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: is this test looking in the right place?", len(files))
	}
	return files
}

func parseAll() ([]source, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	var files []source
	fset := token.NewFileSet()
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
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
			if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
				return filepath.SkipDir
			}
			if rel != "." && exists(filepath.Join(path, "go.mod")) {
				return filepath.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, raw, parser.ParseComments)
		if err != nil {
			return err
		}
		s := source{
			path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), file: file, fset: fset,
			test:  strings.HasSuffix(rel, "_test.go"),
			lines: strings.Count(string(raw), "\n"),
		}
		for _, imp := range file.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		files = append(files, s)
		return nil
	})
	return files, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// importName is the name by which the file refers to an imported package, or
// "" where it does not import it.
func (s source) importName(path string) string {
	for _, imp := range s.file.Imports {
		if p, err := strconv.Unquote(imp.Path.Value); err != nil || p != path {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

// selectors calls visit for each use of a name of the package imported as
// path.
func (s source) selectors(path string, visit func(name string, line int)) {
	pkg := s.importName(path)
	if pkg == "" {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg && id.Obj == nil {
			visit(sel.Sel.Name, s.fset.Position(sel.Pos()).Line)
		}
		return true
	})
}

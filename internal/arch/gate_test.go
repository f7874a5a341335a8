package arch

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serverMethods are the methods of a running server that send it something, and
// the files that may use each, with the reason. Names like these mean a server
// wherever they stand: who adds another method of the kind adds it here.
var serverMethods = map[string][]string{
	"CallTool":          {gateFile},
	"ReadResource":      {gateFile},
	"GetPrompt":         {gateFile},
	"Tools":             {gateFile, serverFile},
	"Resources":         {gateFile},
	"ResourceTemplates": {gateFile},
	"Prompts":           {gateFile},
}

const (
	gateFile   = "internal/bridge/gate.go"   // needs a permit for each
	serverFile = "internal/upstream/call.go" // the server itself
)

// TestOnePathToAServer: the product calls the methods of a server in the bridge's
// gate alone, where each call needs a permit.
func TestOnePathToAServer(t *testing.T) {
	found := map[string]bool{}
	for _, f := range sources(t) {
		if f.test || f.pkg == "test/conformance/client" || f.pkg == "bench" || f.pkg == "bench/agent" {
			continue
		}
		called := map[ast.Expr]bool{}
		imported := map[string]bool{}
		for _, path := range f.imports {
			imported[f.importName(path)] = true
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				called[call.Fun] = true
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := sel.Sel.Name
			allowed, send := serverMethods[name]
			if id, ok := sel.X.(*ast.Ident); ok && imported[id.Name] && id.Obj == nil {
				return true // a function or a type of a package
			}
			// Fields have the names of lists, too; a call's name is a call's.
			if list := !slices.Contains([]string{"CallTool", "ReadResource", "GetPrompt"}, name); !send || list && !called[sel] {
				return true
			}
			if !slices.Contains(allowed, f.path) {
				t.Errorf("%s:%d: %s reaches a server past the gate: only %q may", f.path, f.fset.Position(sel.Pos()).Line, name, allowed)
			}
			found[name+" "+f.path] = true
			return true
		})
	}
	for name, files := range serverMethods {
		for _, file := range files {
			if !found[name+" "+file] {
				t.Errorf("%s may use %s and does not: take it off the list", file, name)
			}
		}
	}
}

// runners are the files that have a session run code. Each admits that at the
// gate first.
var runners = []string{"internal/broker/execution.go", "internal/worker/executor.go"}

// TestCodeRunsWithAPermit: a session runs a request in the files of runners
// alone, and their packages ask the gate whether code may run.
func TestCodeRunsWithAPermit(t *testing.T) {
	runs, asks := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		if f.test || f.pkg == "internal/session" || strings.HasPrefix(f.pkg, "internal/sandbox/sandboxtest") {
			continue
		}
		admits := false
		ast.Inspect(f.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Admit" {
					admits = true
				}
			case *ast.CompositeLit:
				sel, ok := n.Type.(*ast.SelectorExpr)
				if !ok {
					break
				}
				switch from, _ := sel.X.(*ast.Ident); {
				case from == nil:
				case from.Name == "session" && sel.Sel.Name == "Request":
					runs[f.path] = true
				case from.Name == "authz" && sel.Sel.Name == "RunCode" && admits:
					asks[f.pkg] = true
				}
			}
			return true
		})
	}
	for path := range runs {
		if !slices.Contains(runners, path) {
			t.Errorf("%s has a session run code: only %q may, with a permit", path, runners)
		}
	}
	for _, path := range runners {
		if !runs[path] {
			t.Errorf("%s may have a session run code and does not: take it off the list", path)
		}
		if pkg := filepath.ToSlash(filepath.Dir(path)); !asks[pkg] {
			t.Errorf("%s has a session run code and admits no authz.RunCode", pkg)
		}
	}
}

// TestOnlyTheGateMakesPermits: a permit with something in it is made in one
// place.
func TestOnlyTheGateMakesPermits(t *testing.T) {
	made := 0
	for _, f := range sources(t) {
		ast.Inspect(f.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || len(lit.Elts) == 0 {
				return true
			}
			typ, ok := lit.Type.(*ast.Ident)
			if !ok || typ.Name != "Permit" {
				return true
			}
			if f.path == "internal/authz/gate.go" {
				made++
			} else if f.pkg == "internal/authz" {
				t.Errorf("%s:%d: a Permit is made outside of Admit", f.path, f.fset.Position(lit.Pos()).Line)
			}
			return true
		})
	}
	if made != 1 {
		t.Errorf("got %d places that make a Permit, want 1", made)
	}
}

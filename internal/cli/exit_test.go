package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExitsAreInTheTable: every constant is in the table once, and the code uses
// the constants.
func TestExitsAreInTheTable(t *testing.T) {
	names := map[int]string{
		exitOK: "OK", exitFailed: "Failed", exitUsage: "Usage", exitTimeout: "Timeout", exitOurs: "Ours",
		exitInterrupted: "Interrupted", exitKilled: "Killed", exitClosed: "Closed", exitSignal: "Signal",
	}
	for _, e := range exits {
		if names[e.status] == "" || e.meaning == "" {
			t.Errorf("the table has %d (%q), want each constant once, with its meaning", e.status, e.meaning)
		}
		delete(names, e.status)
	}
	if len(names) > 0 {
		t.Errorf("the table lacks %v", names)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants, called := 0, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for _, id := range n.Names {
					if strings.HasPrefix(id.Name, "exit") && id.Obj != nil && id.Obj.Kind == ast.Con && id.Name != "exitTopic" {
						constants++
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "exitError" {
					called++
					if _, literal := n.Args[0].(*ast.BasicLit); literal {
						t.Errorf("%s: exitError has a number: use a constant of exit.go", name)
					}
				}
			case *ast.FuncDecl:
				if slices.Contains([]string{"Main", "run", "status", "runStatus"}, n.Name.Name) {
					ast.Inspect(n.Body, func(n ast.Node) bool {
						if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
							if l, literal := r.Results[0].(*ast.BasicLit); literal && l.Kind == token.INT {
								t.Errorf("%s returns %s: use a constant of exit.go", name, l.Value)
							}
						}
						return true
					})
				}
			}
			return true
		})
	}
	if constants != len(exits) || called < 5 {
		t.Errorf("found %d constants and %d uses, want %d constants and some uses", constants, called, len(exits))
	}
}

// TestGuideHasTheExits: the guide's table is the code's.
func TestGuideHasTheExits(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "GUIDE.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := "| exit status | meaning |\n|---|---|\n"
	for _, e := range exits {
		want += fmt.Sprintf("| %s | %s |\n", exitName(e.status), e.meaning)
	}
	if !strings.Contains(string(guide), want+"\n") {
		t.Errorf("docs/GUIDE.md has no such table:\n%s", want)
	}
}

package arch

import (
	"bufio"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		if _, ok := documented[f.pkg]; !ok && !f.test {
			documented[f.pkg] = false
		}
		if f.test || f.file.Doc == nil {
			continue
		}
		text := f.file.Doc.Text()
		want := "Package " + f.file.Name.Name + " "
		if f.file.Name.Name == "main" {
			want = "Command "
		}
		if strings.HasPrefix(text, want) {
			documented[f.pkg] = true
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no comment that begins as godoc asks (Package %s …, Command …)", pkg, path.Base(pkg))
		}
	}
}

// TestNoInit: nothing registers itself; construction is in internal/cli.
func TestNoInit(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s:%d: an init function", f.path, f.fset.Position(fn.Pos()).Line)
			}
		}
	}
}

// TestLoggersAreInjected: the process's default logger is used by nobody.
func TestLoggersAreInjected(t *testing.T) {
	global := []string{
		"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext",
		"Log", "LogAttrs", "Default", "SetDefault", "With",
	}
	for _, f := range sources(t) {
		if f.test || !strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		f.selectors("log/slog", func(name string, line int) {
			if slices.Contains(global, name) {
				t.Errorf("%s:%d: slog.%s uses the global logger: inject a *slog.Logger", f.path, line, name)
			}
		})
		if slices.Contains(f.imports, "log") && !slices.Contains(logExceptions, f.pkg) {
			t.Errorf("%s imports log: inject a *slog.Logger", f.path)
		}
	}
}

// logExceptions are packages that must hand a standard logger to code that is
// not ours.
var logExceptions = []string{}

// environmentReaders are the packages outside the composition root that may
// read the process's environment, each with its reason.
var environmentReaders = map[string]string{
	"cmd/sallyport":                "hands it to the composition root",
	"internal/cli":                 "the composition root",
	"internal/upstream/remote":     "compares what crypto/x509 has read with what a client has",
	"internal/sandbox/sandboxtest": "a suite that only tests link: it asks what must run, and probes the host",
}

func TestOnlyTheRootReadsTheEnvironment(t *testing.T) {
	readers := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "UserHomeDir", "UserCacheDir", "UserConfigDir"}
	for _, f := range sources(t) {
		if f.test || !(strings.HasPrefix(f.pkg, "internal/") || strings.HasPrefix(f.pkg, "cmd/")) {
			continue
		}
		if _, ok := environmentReaders[f.pkg]; ok {
			continue
		}
		f.selectors("os", func(name string, line int) {
			if slices.Contains(readers, name) {
				t.Errorf("%s:%d: os.%s: only internal/cli reads the environment", f.path, line, name)
			}
		})
		f.selectors("syscall", func(name string, line int) {
			if name == "Getenv" || name == "Environ" {
				t.Errorf("%s:%d: syscall.%s: only internal/cli reads the environment", f.path, line, name)
			}
		})
	}
}

func TestMainIsSmall(t *testing.T) {
	total := 0
	for _, f := range sources(t) {
		if f.pkg == "cmd/sallyport" && !f.test {
			total += f.lines
		}
	}
	if total == 0 || total >= 40 {
		t.Errorf("cmd/sallyport has %d lines; it wires a main and must stay under 40", total)
	}
}

// A file of the product has at most mostLines lines, one of its tests mostTestLines.
const mostLines, mostTestLines = 500, 600

// longFiles are files with more lines, each with the reason why it is still one
// concept.
var longFiles = map[string]string{}

func TestFilesStayOneConcept(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	lengths, most := map[string]int{}, map[string]int{}
	for _, f := range sources(t) {
		if ast.IsGenerated(f.file) {
			continue
		}
		lengths[f.path], most[f.path] = f.lines, mostLines
		if f.test {
			most[f.path] = mostTestLines
		}
	}
	for p := range documents(t, top) {
		if path.Ext(p) != ".py" {
			continue
		}
		lengths[p], most[p] = countLines(t, filepath.Join(top, p)), mostLines
	}
	for name, n := range lengths {
		if _, ok := longFiles[name]; !ok && n > most[name] {
			t.Errorf("%s has %d lines, want at most %d: split it, or give a reason in longFiles", name, n, most[name])
		}
	}
	for name := range longFiles {
		if lengths[name] <= most[name] {
			t.Errorf("%s is listed in longFiles and has %d lines: take it off", name, lengths[name])
		}
	}
}

func countLines(t *testing.T, name string) int {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		n++
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNoGrabBags: a package is one concept and is named after it.
func TestNoGrabBags(t *testing.T) {
	bad := []string{"util", "utils", "common", "helpers", "helper", "misc", "types", "shared"}
	for _, f := range sources(t) {
		for _, part := range strings.Split(f.pkg, "/") {
			if slices.Contains(bad, part) {
				t.Errorf("%s: a package named %q says nothing about what it is", f.path, part)
			}
		}
	}
}

// TestChangelogEntries holds the files of changelog/unreleased to its template.
func TestChangelogEntries(t *testing.T) {
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(top, "changelog/unreleased/*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("changelog/unreleased is empty: is this test looking in the right place?")
	}
	first := regexp.MustCompile(`^(Security|Change|Fix|Feature): [A-Z][^\n]{9,79}[^.\n]\n\n\S`)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) != ".md" || !first.Match(raw) {
			t.Errorf("%s begins with %.80q, want what changelog/TEMPLATE.md shows", name, raw)
		}
	}
}

// TestExpressionsAreLazy: no program compiles a regular expression before it needs
// it, and each that it may need is valid.
func TestExpressionsAreLazy(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || !(strings.HasPrefix(f.pkg, "internal/") || strings.HasPrefix(f.pkg, "cmd/")) {
			continue
		}
		for _, d := range f.file.Decls {
			if declared, ok := d.(*ast.GenDecl); !ok || declared.Tok != token.VAR {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if _, ok := n.(*ast.FuncLit); ok {
					return false
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				to, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				in, _ := to.X.(*ast.Ident)
				switch {
				case in == nil || len(call.Args) != 1:
				case in.Name == "regexp" && to.Sel.Name == "MustCompile":
					t.Errorf("%s: use lazyregexp.New", f.fset.Position(call.Pos()))
				case in.Name == "lazyregexp":
					text, ok := call.Args[0].(*ast.BasicLit)
					if !ok {
						return true // put together: a test of its package uses it
					}
					expr, err := strconv.Unquote(text.Value)
					if err == nil {
						_, err = regexp.Compile(expr)
					}
					if err != nil {
						t.Errorf("%s: %v", f.fset.Position(call.Pos()), err)
					}
				}
				return true
			})
		}
	}
}

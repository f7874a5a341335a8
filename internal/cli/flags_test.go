package cli

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/completion"
)

// source is what the functions of this package mention, by their names. Methods
// are there with their type, too: "serveCmd.Run".
type source struct {
	mentions map[string]map[string]bool // names of functions and fields, by function
	calls    map[string][]string        // "function", "type.method" or, of any type, "*.method"
	methods  map[string][]string        // with their types, by the name alone
}

func readSource(t *testing.T) source {
	t.Helper()
	s := source{map[string]map[string]bool{}, map[string][]string{}, map[string][]string{}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		imported := map[string]bool{}
		for _, i := range file.Imports {
			imported[path.Base(strings.Trim(i.Path.Value, `"`))] = true
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				of := f.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				name = of.(*ast.Ident).Name + "." + name
			}
			s.methods[f.Name.Name] = append(s.methods[f.Name.Name], name)
			if s.mentions[name] == nil {
				s.mentions[name] = map[string]bool{}
			}
			self, method := "", ""
			if f.Recv != nil {
				method, _, _ = strings.Cut(name, ".")
				if names := f.Recv.List[0].Names; len(names) > 0 {
					self = names[0].Name
				}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					of := "*"
					x, ok := n.X.(*ast.Ident)
					if ok && imported[x.Name] {
						return false
					}
					if ok && x.Name == self {
						of = method
					} else if ok && x.Name == "u" {
						of = "ui"
					}
					s.calls[name] = append(s.calls[name], of+"."+n.Sel.Name)
				case *ast.Ident:
					s.mentions[name][n.Name] = true
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok {
						s.calls[name] = append(s.calls[name], f.Name)
					}
				}
				return true
			})
		}
	}
	return s
}

// reach returns what a function, and all that it may call, mention.
func (s source) reach(from ...string) map[string]bool {
	out, seen := map[string]bool{}, map[string]bool{}
	for len(from) > 0 {
		name := from[0]
		if from = from[1:]; seen[name] {
			continue
		}
		seen[name] = true
		_, method, isMethod := strings.Cut(name, ".")
		if isMethod && s.mentions[name] == nil && method != "Run" { // of another type, or an embedded one
			from = append(from, s.methods[method]...)
		}
		for word := range s.mentions[name] {
			out[word] = true
		}
		from = append(from, s.calls[name]...)
	}
	return out
}

// TestFlagsDoSomething: what a command's help shows, its code reads: each flag of its
// own, and the settings or the configuration file where it shows the flags of every
// command. A flag whose field other functions of its name read passes: this knows no
// types.
func TestFlagsDoSomething(t *testing.T) {
	src := readSource(t)
	parser, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, c := range n.Children {
			walk(c)
		}
		if n.Type != kong.CommandNode || len(n.Children) > 0 {
			return
		}
		seen++
		reads := src.reach(n.Target.Type().Name() + ".Run")
		for _, f := range n.Flags {
			if f.Hidden || f.Name == "help" {
				continue
			}
			if name := fieldOf(n.Target.Type(), f); !reads[name] {
				t.Errorf("%s shows --%s, whose field %s its code does not read", n.FullPath(), f.Name, name)
			}
		}
		for _, f := range parser.Model.Node.Flags {
			read := f.Name == "help" || reads["loadSettings"] || f.Name == "config" && reads["ConfigFile"]
			if !read && !completion.Unused(n, f.Name) {
				t.Errorf("%s shows --%s, and its code does not read the settings: see the tag unused", n.FullPath(), f.Name)
			}
		}
	}
	walk(parser.Model.Node)
	if seen < 50 {
		t.Errorf("walked %d commands, want all, which are more than 50", seen)
	}
}

// TestUnusedFlagsAreNotRead: with a setting that does not exist, what reads settings
// fails.
func TestUnusedFlagsAreNotRead(t *testing.T) {
	for line, unread := range map[string]bool{
		"version": true, "help": true, "completion bash": true, "skill": true, "skill show": true, "config path": true, "config unset engine": true,
		"config": false, "tools list": false, "policy": false,
	} {
		var out, log bytes.Buffer
		args := append(strings.Fields(line), "--set", "no.such=1")
		status := Main(context.Background(), args, []string{"HOME=" + t.TempDir()}, Stdio{In: strings.NewReader(""), Out: &out, Err: &log})
		if (status == exitOK) != unread {
			t.Errorf("%s: got status %d (%s), want success %v", line, status, &log, unread)
		}
		out.Reset()
		Main(context.Background(), append(strings.Fields(line), "--help"), nil, Stdio{In: strings.NewReader(""), Out: &out, Err: &log})
		if shown := strings.Contains(out.String(), "--set="); shown == unread {
			t.Errorf("%s --help: got --set shown %v, want %v", line, shown, !unread)
		}
	}
}

// fieldOf returns the name of the field that a flag sets.
func fieldOf(t reflect.Type, f *kong.Flag) string {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous {
			if name := fieldOf(field.Type, f); name != "" {
				return name
			}
			continue
		}
		name, ok := field.Tag.Lookup("name") // else kong makes it of the field's
		if !ok {
			var b strings.Builder
			for i, r := range field.Name {
				if i > 0 && r >= 'A' && r <= 'Z' && (field.Name[i-1] < 'A' || field.Name[i-1] > 'Z') {
					b.WriteByte('-')
				}
				b.WriteRune(r)
			}
			name = strings.ToLower(b.String())
		}
		if name == f.Name {
			return field.Name
		}
	}
	return ""
}

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// named matches a command line of this program in a message, up to what ends it.
var named = regexp.MustCompile("(^|.{1,2})\\bsallyport((?: +(?:--?)?[A-Za-z%<…\\[{][^\\s\"'`,;:()]*)+)")

// prose are words that follow the program's name where no command is meant.
var prose = map[string]bool{"on": true, "is": true, "itself": true, "has": true, "gives": true, "test": true, "state": true, "doc": true, "snapshot": true, "x": true}

// TestMessagesNameCommands: a command line that a message, a help text or the manual
// names exists, with its flags, and takes as many arguments.
func TestMessagesNameCommands(t *testing.T) {
	k, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	check := func(where, text string) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			// A path or a name of a file or package: "/sallyport", "mcp/sallyport".
			if strings.ContainsAny(m[1][max(0, len(m[1])-1):], "/.-@") {
				continue
			}
			words := strings.Fields(m[2])
			quoted := strings.HasSuffix(m[1], "'") || strings.HasSuffix(m[1], "`") || m[1] == ": "
			if words[0][0] == '%' || words[0] == "--version" || !quoted && prose[words[0]] {
				continue
			}
			found++
			if why := wrong(k.Model.Node, words, quoted); why != "" {
				t.Errorf("%s: %q: %s", where, "sallyport"+m[2], why)
			}
		}
	}
	root := filepath.Join("..", "..")
	for _, dir := range []string{"internal", "cmd", "skills"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" || d.IsDir() && strings.HasSuffix(d.Name(), "test") {
				if err == nil {
					err = filepath.SkipDir
				}
				return err
			}
			switch {
			case strings.HasSuffix(path, "_test.go"), strings.Contains(path, "/tests/"):
			case strings.HasSuffix(path, ".go"):
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						text, err := strconv.Unquote(lit.Value)
						if err != nil {
							t.Errorf("%s: %v", path, err)
						}
						check(path, text)
					}
					return true
				})
			case strings.HasSuffix(path, ".py"), strings.HasSuffix(path, ".md"):
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				check(path, string(data))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 200 {
		t.Errorf("found %d command lines, want all, which are more than 200", found)
	}
}

// wrong says why words are not a command line of the grammar.
func wrong(n *kong.Node, words []string, quoted bool) string {
	flags := map[string]*kong.Flag{}
	enter := func(n *kong.Node) {
		for _, f := range n.Flags {
			flags["--"+f.Name] = f
			if f.Short != 0 {
				flags["-"+string(f.Short)] = f
			}
			if f.Negated {
				flags["--no-"+f.Name] = f
			}
		}
	}
	enter(n)
	flags["--%s"] = n.Flags[0] // any
	enter(&kong.Node{Flags: []*kong.Flag{{Value: &kong.Value{Name: "help"}}}})
	arguments := 0
	for i := 0; i < len(words); i++ {
		word := strings.TrimRight(words[i], ".!?…")
		switch {
		case word == "" || strings.ContainsAny(word, "|>"):
			return ""
		case strings.HasPrefix(word, "-") && len(word) > 1:
			name, _, whole := strings.Cut(word, "=")
			f := flags[name]
			if f == nil {
				return "there is no flag " + name
			}
			if !whole && f.Value.Target.IsValid() && !f.IsBool() && !f.IsCounter() {
				i++
			}
			continue
		}
		var next *kong.Node
		for _, c := range n.Children {
			if c.Name == word || contains(c.Aliases, word) {
				next = c
			}
		}
		switch {
		case next != nil && arguments == 0:
			n = next
			enter(n)
			if n.DefaultCmd != nil {
				enter(n.DefaultCmd)
			}
		case n.Type == kong.ApplicationNode, len(n.Children) > 0 && n.DefaultCmd == nil && quoted:
			return "there is no command " + word
		case !quoted && word == strings.ToLower(word) && !strings.ContainsAny(word, "%<[{"):
			return "" // the sentence goes on
		default:
			arguments++
		}
	}
	target := n
	if len(n.Children) > 0 && n.DefaultCmd != nil && arguments > 0 {
		target = n.DefaultCmd
	}
	most := len(target.Positional)
	if most > 0 && target.Positional[most-1].IsCumulative() {
		return ""
	}
	if arguments > most && !target.Passthrough {
		return "it takes " + strconv.Itoa(most) + " arguments"
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestWrong: the check of messages finds what does not exist.
func TestWrong(t *testing.T) {
	k, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"servers test %s":             "",
		"servers tst %s":              "it takes 0 arguments",
		"servers test A B":            "it takes 1 arguments",
		"servers test NAME --json":    "",
		"servers test NAME --verbos":  "there is no flag --verbos",
		"severs":                      "there is no command severs",
		"approvals --watch":           "",
		"servers trust %s --forget=x": "",
	} {
		if got := wrong(k.Model.Node, strings.Fields(line), true); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

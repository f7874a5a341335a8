package completion_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/completion"
)

// grammar has one of each kind of command, flag and argument.
type grammar struct {
	Config string   `placeholder:"FILE" help:"The file."`
	Set    []string `complete:"pairs" placeholder:"KEY=VALUE"`
	Quiet  bool     `short:"q"`
	Hidden string   `hidden:""`

	Run struct {
		Server  []string `short:"s" complete:"servers"`
		Out     string   `placeholder:"DIR"`
		Keep    bool     `default:"true" negatable:""`
		Program []string `arg:"" optional:"" passthrough:"partial" complete:"files"`
	} `cmd:"" help:"Run a program. It ends."`
	Servers struct {
		List struct {
			JSON bool `name:"json"`
		} `cmd:"" default:"withargs"`
		Remove struct {
			Names []string `arg:"" complete:"servers"`
		} `cmd:"" aliases:"rm"`
	} `cmd:""`
	Shell struct {
		Name string `arg:"" enum:"bash,zsh"`
	} `cmd:""`
	Import struct {
		From string `arg:"" complete:"servers|files"`
	} `cmd:""`
	Help struct {
		Command []string `arg:"" optional:"" complete:"commands"`
	} `cmd:""`
	Secret struct{} `cmd:"" hidden:""`
}

func names(kind string, line *completion.Line) []completion.Candidate {
	var out []completion.Candidate
	words := map[string][]string{
		"servers": {"fs", "github", "a b", "$(x)", "x;y", "`x`", "-rf", "", "@x", "a\nb", "ümlaut"},
		"pairs":   {"engine=", "limits.memory="},
	}[kind]
	if kind == "pairs" && strings.HasPrefix(line.Word, "engine=") {
		words = []string{"engine=auto", "engine=gvisor"}
	}
	if files := line.Flags["config"]; len(files) > 0 {
		words = append(words, "of-"+files[0])
	}
	for _, w := range words {
		out = append(out, completion.Candidate{Value: w, Help: "Help\x1b[2J for " + w + ". More."})
	}
	return out
}

func complete(t testing.TB, words ...string) (values []string, rest string) {
	t.Helper()
	app, err := kong.New(&grammar{}, kong.Name("prog"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := completion.Complete(app.Model, words, names).Write(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, l := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(l, "\t")
		values = append(values, value)
	}
	rest, ok := strings.CutPrefix(lines[len(lines)-1], ":")
	if !ok {
		t.Fatalf("%q: the last line is %q, want one with a colon", words, lines[len(lines)-1])
	}
	return values, rest
}

func TestComplete(t *testing.T) {
	for _, tt := range []struct{ line, want, rest string }{
		{"", "run servers shell import help", ""},
		{"r", "run", ""},
		{"nothing ", "", ""},
		{"-", "--help --config --set --quiet", ""},
		{"run --", "--server --out --keep --no-keep --help --config --set --quiet", ""},
		{"run --out x --o", "", ""},
		{"run --server x --se", "--server --set", ""},
		{"run ", "", "files"},
		{"run --out ", "", "dirs"},
		{"run --out=", "", "dirs"},
		{"--config ", "", "files"},
		{"run --server ", "fs github ümlaut", ""},
		{"run --server=f", "--server=fs", ""},
		{"run -s g", "github", ""},
		{"run -qs g", "github", ""},
		{"run -sfs -", "--server --out --keep --no-keep --help --config --set --quiet", ""},
		{"run --keep fs", "", "files"},
		{"run x.py -", "", "files"},
		{"run x.py --server ", "", "files"},
		{"run -- --s", "", "files"},
		{"run --quiet=", "", ""},
		{"--set ", "engine= limits.memory=", "nospace"},
		{"--set engine=g", "engine=gvisor", ""},
		{"--set=engine=g", "--set=engine=gvisor", ""},
		{"servers ", "list remove", ""},
		{"servers --j", "--json", ""},
		{"servers rm ", "fs github ümlaut", ""},
		{"servers remove fs ", "github ümlaut", ""},
		{"--config c servers rm o", "of-c", ""},
		{"--config=d servers rm o", "of-d", ""},
		{"shell ", "bash zsh", ""},
		{"shell bash ", "", ""},
		{"import g", "github", "files"},
		{"help ", "run servers shell import help", ""},
		{"help servers ", "list remove", ""},
		{"help wrong ", "", ""},
		{"secret ", "", ""},
	} {
		values, rest := complete(t, strings.Split(tt.line, " ")...)
		if got := strings.Join(values, " "); got != tt.want || rest != tt.rest {
			t.Errorf("%q: got %q, %q; want %q, %q", tt.line, got, rest, tt.want, tt.rest)
		}
	}
}

// TestHelpIsPlain: help is one line that moves no cursor.
func TestHelpIsPlain(t *testing.T) {
	app, err := kong.New(&grammar{}, kong.Name("prog"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := completion.Complete(app.Model, []string{"run", "--server", "f"}, names).Write(&b); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "fs\tHelp [2J for fs\n:\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScripts(t *testing.T) {
	for _, shell := range completion.Shells() {
		script, ok := completion.Script(shell)
		if !ok || !strings.Contains(script, "sallyport __complete") && !strings.Contains(script, "Source __complete") {
			t.Errorf("%s: got %q (%v)", shell, script, ok)
		}
	}
	if _, ok := completion.Script("../completion"); ok {
		t.Error("there is a script for a shell that is a path")
	}
}

// FuzzComplete: whatever is typed, what is offered is safe to run and continues
// the last word.
func FuzzComplete(f *testing.F) {
	f.Add("run --server ")
	f.Add("--set=engine=")
	f.Add("-\x00 -- \xff")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		values, rest := complete(t, words...)
		if !slices.Contains([]string{"", "files", "dirs", "nospace"}, rest) {
			t.Errorf("%q: %q", line, rest)
		}
		for _, v := range values {
			if !strings.HasPrefix(v, words[len(words)-1]) || strings.ContainsAny(v, " $`;&|<>(){}[]*?!#~'\"\\\n\t") {
				t.Errorf("%q offers %q", line, v)
			}
		}
	})
}

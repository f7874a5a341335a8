package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestMistakenCommandLines(t *testing.T) {
	for _, c := range []struct{ line, want, see string }{
		{"server", "there is no command 'sallyport server'; did you mean 'sallyport servers' or 'sallyport serve'?", "sallyport"},
		{"sessions lst", "there is no command 'sallyport sessions lst'; did you mean 'sallyport sessions list'?", "sallyport sessions"},
		{"tools serach", "there is no command 'sallyport tools serach'; did you mean 'sallyport tools search'?", "sallyport tools"},
		{"servers ls", "there is no command 'sallyport servers ls'; did you mean 'sallyport servers list'?", "sallyport servers"},
		{"sessions list work", "unexpected argument work", "sallyport sessions list"},
		{"ls", "there is no command 'sallyport ls'; did you mean 'sallyport servers', 'sallyport sessions' or 'sallyport tools list'?", "sallyport"},
		{"start", "there is no command 'sallyport start'; did you mean 'sallyport serve' or 'sallyport hub'?", "sallyport"},
		{"exec x.py", "there is no command 'sallyport exec'; did you mean 'sallyport run'?", "sallyport"},
		{"pull python:3", "there is no command 'sallyport pull'; did you mean 'sallyport image pull'?", "sallyport"},
		{"zebra", "there is no command 'sallyport zebra'", "sallyport"},
		{"x\x1b[2J", `there is no command 'sallyport x\u{1b}[2J'`, "sallyport"},
		{"--sesion", "unknown flag --sesion; did you mean 'sallyport run --session', 'sallyport policy explain --session' or 'sallyport audit list --session'?", "sallyport"},
		{"--verison", "unknown flag --verison; did you mean '--version'?", "sallyport"},
		{"run --sesion work", "unknown flag --sesion; did you mean '--session'?", "sallyport run"},
		{"sessions --jsno", "unknown flag --jsno; did you mean '--json'?", "sallyport sessions"},
		{"saved-tools show", `expected "<name>"`, "sallyport saved-tools show"},
	} {
		var out, log bytes.Buffer
		status := Main(context.Background(), strings.Fields(c.line), nil, Stdio{In: strings.NewReader(""), Out: &out, Err: &log})
		wantStatus := exitUsage
		if strings.HasPrefix(c.line, "run ") {
			wantStatus = exitOurs
		}
		want := "sallyport: " + c.want + "\nTry '" + c.see + " --help'.\n"
		if status != wantStatus || out.Len() > 0 || log.String() != want {
			t.Errorf("%q: got status %d, output %q, errors\n%s\nwant status %d, no output, errors\n%s", c.line, status, &out, &log, wantStatus, want)
		}
	}
}

// TestOtherWords finds that each suggestion exists, and no word is a command.
func TestOtherWords(t *testing.T) {
	parser, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	top := parser.Model.Node
	nodes := append([]*kong.Node{top}, top.Children...)
	for word, phrases := range otherWords {
		if below(top, []string{word}) != nil {
			t.Errorf("%q: got a command of this program, want another word", word)
		}
		for _, phrase := range phrases {
			found := false
			for _, n := range nodes {
				found = found || below(n, strings.Fields(phrase)) != nil
			}
			if !found {
				t.Errorf("%q suggests %q: got no such command, want one", word, phrase)
			}
		}
	}
}

package manpage_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/manpage"
)

type addCmd struct {
	Name  string   `arg:"" help:"The name."`
	Words []string `arg:"" optional:"" help:"What follows."`
	Force bool     `short:"f" help:"Do it, and don't ask."`
	Keep  bool     `default:"true" negatable:"" help:"Keep it."`
	Dir   string   `placeholder:"DIR" help:"Where." group:"Places:"`
	Debug bool     `hidden:""`
}

func (addCmd) Help() string {
	return `It writes C:\x. ` + strings.Repeat("A long sentence goes on. ", 5) + `

'quoted' begins this one.

Examples:
  prog saved-things add --force x
  .hidden …`
}

type grammar struct {
	Saved struct {
		Add addCmd `cmd:"" help:"Add a thing."`
	} `cmd:"" name:"saved-things" group:"Things:" help:"Show and change things."`
	Secret struct{} `cmd:"" hidden:""`
}

func TestPages(t *testing.T) {
	app, err := kong.New(&grammar{}, kong.Name("prog"), kong.Description("One program: it does much."))
	if err != nil {
		t.Fatal(err)
	}
	m := manpage.Manual{Name: "Prog", Version: "1.2", Date: time.Unix(86400, 0), Exits: []manpage.Entry{{Term: "0", Meaning: "Success."}}}
	pages := m.Pages(app.Model)
	if got, want := slices.Sorted(maps.Keys(pages)), []string{"prog-saved-things-add.1", "prog-saved-things.1", "prog.1"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	add := pages["prog-saved-things-add.1"]
	for _, want := range []string{
		`.TH "PROG\-SAVED\-THINGS\-ADD" 1 1970-01-02 "Prog 1.2" "Prog Manual"` + "\n",
		"\nprog\\-saved\\-things\\-add \\- add a thing\n",
		"\n\\fBprog saved\\-things add\\fR [\\fIflags\\fR] \\fIname\\fR [\\fIwords\\fR ...]\n",
		"\nAdd a thing.\n.PP\nIt writes C:\\ex.\nA long sentence goes on.\n",
		"\n.PP\n\\(aqquoted\\(aq begins this one.\n",
		".SH \"EXAMPLES\"\n.nf\nprog saved\\-things add \\-\\-force x\n\\&.hidden \\[u2026]\n.fi\n",
		".TP\n\\fB\\-f\\fR, \\fB\\-\\-force\\fR\nDo it, and don\\(aqt ask.\n",
		"\\fB\\-\\-[no\\-]keep\\fR\n",
		".SS \"Places\"\n.TP\n\\fB\\-\\-dir\\fR=\\fIDIR\\fR\nWhere.\n",
	} {
		if !strings.Contains(add, want) {
			t.Errorf("the page has no %q; got\n%s", want, add)
		}
	}
	for _, hidden := range []string{"debug", "secret"} {
		if strings.Contains(add+pages["prog.1"], hidden) {
			t.Errorf("a page has %q, which is hidden", hidden)
		}
	}
	top := pages["prog.1"]
	for _, want := range []string{"\nprog \\- one program\n", ".SS \"Things\"\n.TP\n\\fBprog\\-saved\\-things\\fR(1)\n", ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nSuccess.\n"} {
		if !strings.Contains(top, want) {
			t.Errorf("the page has no %q; got\n%s", want, top)
		}
	}
}

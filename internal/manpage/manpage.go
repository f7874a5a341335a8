// Package manpage writes the manual pages of a kong grammar: one page for the
// program, and one for each command and subcommand.
package manpage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// An Entry is a term and what it means.
type Entry struct{ Term, Meaning string }

// A Manual is what pages contain besides the grammar.
type Manual struct {
	Name    string // as a title: "Sallyport"
	Version string // may be empty
	Date    time.Time
	Exits   []Entry // exit statuses
	Files   []Entry
	Environ []Entry
}

// Pages returns the pages by the names of their files, such as
// sallyport-run.1. Equal input gives equal pages.
func (m Manual) Pages(app *kong.Application) map[string]string {
	pages := map[string]string{}
	var add func(n *kong.Node)
	add = func(n *kong.Node) {
		pages[pageName(n)+".1"] = m.page(app, n)
		for _, c := range n.Children {
			if !c.Hidden {
				add(c)
			}
		}
	}
	add(app.Node)
	return pages
}

// pageName returns the name of a command's page: sallyport-servers-add.
func pageName(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return pageName(n.Parent) + "-" + n.Name
}

// commandName returns how the command is called: sallyport servers add.
func commandName(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return commandName(n.Parent) + " " + n.Name
}

func (m Manual) page(app *kong.Application, n *kong.Node) string {
	p := &page{}
	p.line(`.\" Written by scripts/man from the command line's own help.`)
	p.line(".TH %s 1 %s %s %s", quoted(strings.ToUpper(pageName(n))), m.Date.UTC().Format(time.DateOnly),
		quoted(strings.TrimSpace(m.Name+" "+m.Version)), quoted(m.Name+" Manual"))
	p.section("NAME")
	purpose, _, _ := strings.Cut(strings.TrimSuffix(n.Help, "."), ": ")
	p.line(`%s \- %s`, escape(pageName(n)), escape(lower(purpose)))
	p.section("SYNOPSIS")
	p.line("%s", synopsis(n))
	description, examples := split(n.Detail)
	p.section("DESCRIPTION")
	p.paragraphs(n.Help + "\n\n" + description)
	if len(n.Children) > 0 {
		p.commands(n)
	}
	if len(n.Positional) > 0 {
		p.section("ARGUMENTS")
		for _, a := range n.Positional {
			p.entry(`\fI`+escape(a.Name)+`\fR`, a.Help)
		}
	}
	p.flags(n.Flags)
	if examples != "" {
		p.section("EXAMPLES")
		p.code(examples)
	}
	if n.Parent == nil {
		p.entries("EXIT STATUS", m.Exits)
		p.entries("FILES", m.Files)
		p.entries("ENVIRONMENT", m.Environ)
	} else {
		p.section("EXIT STATUS")
		p.line("0 if the command succeeded. %s lists the others.", reference(app.Name))
	}
	p.section("SEE ALSO")
	see := []string{}
	if n.Parent != nil {
		see = append(see, pageName(n.Parent))
		if n.Parent.Parent != nil {
			see = append(see, app.Name)
		}
	}
	for _, c := range n.Children {
		if !c.Hidden {
			see = append(see, pageName(c))
		}
	}
	slices.Sort(see)
	for i, name := range see {
		see[i] = reference(name)
	}
	p.line("%s", strings.Join(see, ",\n"))
	return p.b.String()
}

// synopsis returns how a command is called, with its arguments.
func synopsis(n *kong.Node) string {
	words := []string{`\fB` + escape(commandName(n)) + `\fR`}
	if n.Parent == nil || len(n.Children) > 0 && n.DefaultCmd == nil {
		words = append(words, `\fIcommand\fR`)
	} else if len(n.Children) > 0 {
		words = append(words, `[\fIcommand\fR]`)
	}
	words = append(words, `[\fIflags\fR]`)
	for _, a := range n.Positional {
		word := `\fI` + escape(a.Name) + `\fR`
		if a.IsCumulative() {
			word += " ..."
		}
		if !a.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// split separates the examples from the rest of a command's help.
func split(detail string) (description, examples string) {
	for _, head := range []string{"Examples:\n", "Example:\n"} {
		if before, after, ok := strings.Cut(detail, head); ok {
			return before, after
		}
	}
	return detail, ""
}

type page struct{ b strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *page) section(title string) { p.line(".SH %s", quoted(title)) }

// text writes words. A sentence begins a line, as roff expects.
func (p *page) text(s string) {
	const width = 78
	line := ""
	for _, word := range strings.Fields(s) {
		word = escape(word)
		if line != "" && (strings.HasSuffix(line, ".") || len(line)+1+len(word) > width) {
			p.line("%s", line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.line("%s", line)
}

// paragraphs writes text of several paragraphs; indented lines are code.
func (p *page) paragraphs(s string) {
	first := true
	for block := range strings.SplitSeq(strings.Trim(s, "\n"), "\n\n") {
		switch {
		case strings.TrimSpace(block) == "":
			continue
		case strings.HasPrefix(block, "  "):
			p.code(block)
		default:
			if !first {
				p.line(".PP")
			}
			p.text(block)
		}
		first = false
	}
}

// code writes lines as they are.
func (p *page) code(s string) {
	p.line(".nf")
	for l := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		p.line("%s", escape(strings.TrimPrefix(l, "  ")))
	}
	p.line(".fi")
}

func (p *page) entry(term, meaning string) {
	p.line(".TP")
	p.line("%s", term)
	p.text(meaning)
}

func (p *page) entries(title string, list []Entry) {
	if len(list) == 0 {
		return
	}
	p.section(title)
	for _, e := range list {
		p.entry(`\fB`+escape(e.Term)+`\fR`, e.Meaning)
	}
}

// commands lists the subcommands, in their groups.
func (p *page) commands(n *kong.Node) {
	p.section("COMMANDS")
	group := ""
	for _, c := range n.Children {
		if c.Hidden {
			continue
		}
		if c.Group != nil && c.Group.Title != group {
			group = c.Group.Title
			p.line(".SS %s", quoted(strings.TrimSuffix(group, ":")))
		}
		p.entry(reference(pageName(c)), c.Help)
	}
}

// flags lists the flags, those of a group under its title.
func (p *page) flags(flags []*kong.Flag) {
	flags = slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
	if len(flags) == 0 {
		return
	}
	p.section("OPTIONS")
	title := func(f *kong.Flag) string {
		if f.Group == nil {
			return ""
		}
		return f.Group.Title
	}
	var titles []string
	for _, f := range flags {
		if t := title(f); !slices.Contains(titles, t) {
			titles = append(titles, t)
		}
	}
	for _, t := range titles {
		if t != "" && len(titles) > 1 {
			p.line(".SS %s", quoted(strings.TrimSuffix(t, ":")))
		}
		for _, f := range flags {
			if title(f) == t {
				p.entry(flagTerm(f), f.Help)
			}
		}
	}
}

func flagTerm(f *kong.Flag) string {
	var b strings.Builder
	if f.Short != 0 {
		b.WriteString(`\fB\-` + escape(string(f.Short)) + `\fR, `)
	}
	name := f.Name
	if f.Tag.Negatable != "" {
		name = "[no-]" + name
	}
	b.WriteString(`\fB\-\-` + escape(name) + `\fR`)
	if !f.IsBool() {
		b.WriteString(`=\fI` + escape(f.FormatPlaceHolder()) + `\fR`)
	}
	return b.String()
}

func reference(page string) string { return `\fB` + escape(page) + `\fR(1)` }

func quoted(s string) string { return `"` + strings.ReplaceAll(escape(s), `"`, `\(dq`) + `"` }

// lower begins with a small letter, unless the first word is a name.
func lower(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if word != strings.ToUpper(word[:min(1, len(word))])+strings.ToLower(word[min(1, len(word)):]) {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// escape escapes what roff would act on, and everything outside ASCII.
func escape(s string) string {
	var b strings.Builder
	if strings.HasPrefix(s, ".") {
		b.WriteString(`\&`)
	}
	for _, r := range s {
		switch r {
		case '\\':
			b.WriteString(`\e`)
		case '-':
			b.WriteString(`\-`)
		case '\'':
			b.WriteString(`\(aq`)
		case '`':
			b.WriteString(`\(ga`)
		case '^':
			b.WriteString(`\(ha`)
		case '~':
			b.WriteString(`\(ti`)
		default:
			if r > 0x7e {
				fmt.Fprintf(&b, `\[u%04X]`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

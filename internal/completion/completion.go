// Package completion completes the command line of a kong grammar. The script of
// each shell asks the program, which answers with one candidate a line.
package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/invisible"
)

// A Candidate is a word that may stand at the cursor.
type Candidate struct{ Value, Help string }

// What the shell does besides offering the candidates.
const (
	files   = "files"   // offer files
	dirs    = "dirs"    // offer directories
	noSpace = "nospace" // the word goes on
)

// An Answer is what may stand at the cursor.
type Answer struct {
	Candidates []Candidate
	rest       string
}

// A Line is a command line up to the cursor.
type Line struct {
	Flags map[string][]string // the values given, by the flag's name
	Args  []string            // the arguments that are not commands
	Word  string              // what is being completed, without the flag

	node    *kong.Node
	literal bool       // no flags follow
	waiting *kong.Flag // its value is being completed
}

// Names returns the names of a kind, which is what a field's tag complete says.
type Names func(kind string, line *Line) []Candidate

// Complete completes the last of the words after the program's name. Fields say
// what they take with the tag complete: files, dirs, none, commands or what names
// knows. Without it, an enum offers its values and a placeholder such as FILE or
// DIR says the rest.
func Complete(app *kong.Application, words []string, names Names) Answer {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	line := &Line{Flags: map[string][]string{}, Word: last, node: app.Node}
	line.read(words[:len(words)-1])
	var a Answer
	flag, value, assigned := strings.Cut(last, "=")
	switch {
	case line.waiting != nil:
		a = line.value(line.waiting.Value, names)
	case !line.literal && strings.HasPrefix(last, "--") && assigned:
		f := line.flag(strings.TrimPrefix(flag, "--"))
		if f == nil || f.IsBool() {
			return Answer{}
		}
		line.Word = value
		a = line.value(f.Value, names)
		for i := range a.Candidates {
			a.Candidates[i].Value = flag + "=" + a.Candidates[i].Value
		}
	case !line.literal && strings.HasPrefix(last, "-"):
		a.Candidates = line.flags()
	default:
		a = line.argument(app, names)
	}
	a.Candidates = slices.DeleteFunc(a.Candidates, func(c Candidate) bool {
		return !strings.HasPrefix(c.Value, last) || !Safe(c.Value)
	})
	if len(a.Candidates) > 0 && !slices.ContainsFunc(a.Candidates, func(c Candidate) bool { return !strings.HasSuffix(c.Value, "=") }) {
		a.rest = noSpace
	}
	return a
}

// read follows the words before the cursor.
func (l *Line) read(words []string) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		var f *kong.Flag
		value, given := "", false
		switch {
		case l.literal || !strings.HasPrefix(w, "-") || w == "-":
			l.word(w)
			continue
		case w == "--":
			l.literal = true
			continue
		case strings.HasPrefix(w, "--"):
			var name string
			name, value, given = strings.Cut(w[2:], "=")
			f = l.flag(name)
		default:
			f, value, given = l.short(w[1:])
		}
		switch {
		case f == nil || f.IsBool():
		case given:
			l.Flags[f.Name] = append(l.Flags[f.Name], value)
		case i+1 < len(words):
			i++
			l.Flags[f.Name] = append(l.Flags[f.Name], words[i])
		default:
			l.waiting = f
		}
	}
}

// word follows a word that is not a flag.
func (l *Line) word(w string) {
	if len(l.Args) == 0 && !l.literal {
		for _, c := range l.node.Children {
			if c.Name == w || slices.Contains(c.Aliases, w) {
				l.node = c
				return
			}
		}
	}
	if l.node.DefaultCmd != nil {
		l.node = l.node.DefaultCmd
	}
	l.Args = append(l.Args, w)
	if p := l.positional(len(l.Args) - 1); l.node.Passthrough || p != nil && p.PassthroughMode != kong.PassThroughModeNone {
		l.literal = true
	}
}

// positional returns the argument at a place. The last one may be a list.
func (l *Line) positional(i int) *kong.Positional {
	node := l.node
	if len(node.Positional) == 0 && node.DefaultCmd != nil {
		node = node.DefaultCmd
	}
	last := len(node.Positional) - 1
	switch {
	case i <= last:
		return node.Positional[i]
	case last >= 0 && node.Positional[last].IsCumulative():
		return node.Positional[last]
	}
	return nil
}

// every calls f with the flags that may stand here: those of the command, and of
// those above it.
func (l *Line) every(f func(*kong.Flag) (found bool)) *kong.Flag {
	nodes := []*kong.Node{l.node}
	if l.node.DefaultCmd != nil {
		nodes = append(nodes, l.node.DefaultCmd)
	}
	for up := l.node.Parent; up != nil; up = up.Parent {
		nodes = append(nodes, up)
	}
	for _, n := range nodes {
		for _, flag := range n.Flags {
			if f(flag) {
				return flag
			}
		}
	}
	return nil
}

func (l *Line) flag(name string) *kong.Flag {
	return l.every(func(f *kong.Flag) bool { return f.Name == name })
}

// short returns the flag at the end of a word of short ones that takes a value,
// and the value if it is in the word.
func (l *Line) short(word string) (*kong.Flag, string, bool) {
	for i, r := range word {
		f := l.every(func(f *kong.Flag) bool { return f.Short == r })
		if f != nil && !f.IsBool() {
			rest := word[i+utf8.RuneLen(r):]
			return f, strings.TrimPrefix(rest, "="), rest != ""
		}
	}
	return nil, "", false
}

// Unused reports whether a command does not read a flag that it has from others: the
// tag unused of the command, or of one above it, names it.
func Unused(n *kong.Node, flag string) bool {
	for ; n != nil; n = n.Parent {
		if n.Tag != nil && slices.Contains(strings.Split(n.Tag.Get("unused"), ","), flag) {
			return true
		}
	}
	return false
}

// flags returns the flags that may stand here.
func (l *Line) flags() []Candidate {
	var out []Candidate
	l.every(func(f *kong.Flag) bool {
		if _, given := l.Flags[f.Name]; f.Hidden || given && !f.IsCumulative() || Unused(l.node, f.Name) {
			return false
		}
		out = append(out, Candidate{"--" + f.Name, f.Help})
		if f.Tag.Negatable != "" {
			out = append(out, Candidate{"--no-" + f.Name, f.Help})
		}
		return false
	})
	return out
}

// argument returns what may stand where a command or an argument is expected.
func (l *Line) argument(app *kong.Application, names Names) Answer {
	var a Answer
	if p := l.positional(len(l.Args)); p != nil {
		if p.Tag.Get("complete") == "commands" {
			node := app.Node
			for _, w := range l.Args {
				i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == w })
				if i < 0 {
					return Answer{}
				}
				node = node.Children[i]
			}
			return Answer{Candidates: commands(node)}
		}
		a = l.value(p, names)
	}
	if len(l.Args) == 0 && !l.literal {
		a.Candidates = append(commands(l.node), a.Candidates...)
	}
	return a
}

func commands(n *kong.Node) []Candidate {
	var out []Candidate
	for _, c := range n.Children {
		if !c.Hidden {
			out = append(out, Candidate{c.Name, c.Help})
		}
	}
	return out
}

// value returns the values that a flag or an argument may have.
func (l *Line) value(v *kong.Value, names Names) Answer {
	var a Answer
	placeholder := v.Tag.PlaceHolder
	kind := v.Tag.Get("complete")
	if kind == "" {
		switch {
		case v.Enum != "":
			for _, e := range v.EnumSlice() {
				a.Candidates = append(a.Candidates, Candidate{Value: e})
			}
			return a
		case strings.Contains(placeholder, "FILE"), placeholder == "PATH", v.Flag == nil && v.Name == "file":
			kind = files
		case placeholder == "DIR", placeholder == "FOLDER":
			kind = dirs
		}
	}
	switch kind {
	case "", "none":
	case files, dirs:
		a.rest = kind
	default:
		if name, rest, or := strings.Cut(kind, "|"); or {
			kind, a.rest = name, rest
		}
		a.Candidates = slices.DeleteFunc(names(kind, l), func(c Candidate) bool {
			given := v.Flag == nil && slices.Contains(l.Args, c.Value)
			return given || strings.HasPrefix(c.Value, "-")
		})
	}
	return a
}

// Safe reports whether a word means itself in every shell. Names come from
// files that others write, and a shell runs what is inserted.
func Safe(s string) bool {
	return s != "" && len(s) <= 200 && !strings.HasPrefix(s, "@") && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.Nd) && !strings.ContainsRune("-_./@:+=", r)
	})
}

// Write writes the answer for a shell's script: a candidate a line, with its
// help after a tab, and after them a line with a colon and what else to offer.
func (a Answer) Write(w io.Writer) error {
	var b strings.Builder
	for _, c := range a.Candidates {
		b.WriteString(c.Value)
		if help := brief(c.Help); help != "" {
			b.WriteString("\t" + help)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, ":%s\n", a.rest)
	_, err := io.WriteString(w, b.String())
	return err
}

// brief returns the first sentence, on a line and without what acts on a
// terminal.
func brief(help string) string {
	const most = 70
	help, _, _ = strings.Cut(invisible.Line(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, help)), ". ")
	help = strings.TrimSuffix(strings.TrimSpace(help), ".")
	if r := []rune(help); len(r) > most {
		help = string(r[:most])
		help = help[:max(strings.LastIndex(help, " "), 0)] + "…"
	}
	return help
}

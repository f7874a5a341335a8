package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
)

// otherWords are commands of other programs, with what they are called here.
// Those that a command has no such subcommand for are left out.
var otherWords = map[string][]string{
	"list":     {"list", "servers", "sessions", "tools list"},
	"ls":       {"list", "servers", "sessions", "tools list"},
	"ps":       {"list", "sessions", "hub"},
	"add":      {"servers add", "install"},
	"new":      {"add", "servers add"},
	"create":   {"add", "servers add"},
	"remove":   {"remove", "unset", "servers remove", "uninstall"},
	"rm":       {"remove", "unset", "servers remove", "uninstall"},
	"delete":   {"remove", "unset", "servers remove", "uninstall"},
	"del":      {"remove", "unset", "servers remove", "uninstall"},
	"start":    {"serve", "hub"},
	"stop":     {"stop", "hub stop"},
	"restart":  {"hub restart"},
	"status":   {"status", "list", "doctor", "hub", "sessions"},
	"info":     {"show", "status", "doctor", "version"},
	"check":    {"check", "doctor"},
	"exec":     {"run"},
	"python":   {"run"},
	"eval":     {"run"},
	"shell":    {"run"},
	"mcp":      {"serve", "servers", "install"},
	"client":   {"install", "uninstall"},
	"clients":  {"install", "uninstall"},
	"setup":    {"init", "install"},
	"connect":  {"install", "init"},
	"update":   {"upgrade"},
	"manual":   {"help"},
	"man":      {"help"},
	"settings": {"config"},
	"set":      {"config set"},
	"get":      {"show", "config get"},
	"inspect":  {"show", "tools show"},
	"describe": {"show", "tools show"},
	"cat":      {"show"},
	"view":     {"show"},
	"logs":     {"logs", "sessions logs", "hub logs", "audit"},
	"log":      {"logs", "sessions logs", "hub logs", "audit"},
	"rules":    {"policy"},
}

// mistaken describes an invalid command line: what is wrong with it, and the
// command whose help says more.
func mistaken(err error) (text, command string) {
	text, command = err.Error(), "sallyport"
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil {
		return text, command
	}
	// A default command that was not typed is not the one that was meant.
	node, rest := wrong.Context.Model.Node, wrong.Context.Args
	for _, step := range wrong.Context.Path {
		if step.Command == nil {
			continue
		}
		at := slices.IndexFunc(rest, func(arg string) bool { return hasName(step.Command, arg) })
		if at < 0 {
			break
		}
		node, rest = step.Command, rest[at+1:]
	}
	command = strings.Join(append([]string{"sallyport"}, pathOf(node)...), " ")
	if word, ok := wordIn(text, "unexpected argument "); ok && len(node.Children) > 0 {
		return noCommand(node, word), command
	}
	if word, ok := wordIn(text, "unknown flag "); ok {
		return noFlag(wrong.Context, node, word), command
	}
	return text, command
}

// wordIn returns the word that an error of the parser names. The parser adds
// guesses of its own.
func wordIn(text, prefix string) (string, bool) {
	word, ok := strings.CutPrefix(text, prefix)
	word, _, _ = strings.Cut(word, ", did you mean ")
	return word, ok
}

func hasName(node *kong.Node, word string) bool {
	return node.Name == word || slices.Contains(node.Aliases, word)
}

// pathOf returns the words of a command after the program's name.
func pathOf(node *kong.Node) []string {
	var out []string
	for ; node.Parent != nil; node = node.Parent {
		out = append([]string{node.Name}, out...)
	}
	return out
}

// noCommand says that a command has no such subcommand, and which may be meant.
func noCommand(node *kong.Node, word string) string {
	before := strings.Join(append([]string{"sallyport"}, pathOf(node)...), " ")
	return fmt.Sprintf("there is no command '%s %s'%s", before, invisible.Line(word), meant(likely(node, word), "sallyport "))
}

// mostMeant is how many commands a message suggests.
const mostMeant = 3

// likely returns the commands that may be meant by a word after a command, as
// their paths.
func likely(node *kong.Node, word string) []string {
	top := node
	for top.Parent != nil {
		top = top.Parent
	}
	var out []string
	add := func(found *kong.Node) {
		if path := strings.Join(pathOf(found), " "); found != node && !found.Hidden && !slices.Contains(out, path) && len(out) < mostMeant {
			out = append(out, path)
		}
	}
	for _, phrase := range otherWords[strings.ToLower(word)] {
		if found := below(node, strings.Fields(phrase)); found != nil {
			add(found)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, name := range near(word, subcommands(node)) {
		add(below(node, []string{name}))
	}
	for _, group := range top.Children { // of another command
		if found := below(group, []string{word}); found != nil {
			add(found)
		}
	}
	return out
}

// below returns the command at a path, or nil.
func below(node *kong.Node, path []string) *kong.Node {
	for _, word := range path {
		at := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return hasName(c, word) })
		if at < 0 {
			return nil
		}
		node = node.Children[at]
	}
	return node
}

func subcommands(node *kong.Node) []string {
	var names []string
	for _, c := range node.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// near returns the names that begin with a word, and then those that are near to
// it, the nearest first.
func near(word string, names []string) []string {
	var out []string
	take := func(name string) {
		out = append(out, name)
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	}
	for _, name := range names {
		if len(word) > 1 && strings.HasPrefix(name, word) {
			take(name)
		}
	}
	for {
		name, ok := settings.Nearest(word, names, "\x00")
		if !ok {
			return out
		}
		take(name)
	}
}

// noFlag says that a command has no such flag, and which may be meant: one of
// this command, or else of one below it.
func noFlag(ctx *kong.Context, node *kong.Node, word string) string {
	text := "unknown flag " + invisible.Line(word)
	name := strings.TrimLeft(word, "-")
	if !strings.HasPrefix(word, "--") || name == "" {
		return text
	}
	from := node
	if node.DefaultCmd != nil && node.DefaultCmd.Tag.Default == "withargs" {
		from = node.DefaultCmd
	}
	var flags []string
	for _, group := range from.AllFlags(true) {
		for _, f := range group {
			flags = append(flags, f.Name)
		}
	}
	if found := near(name, flags); len(found) > 0 {
		return text + meant(found[:1], "--")
	}
	below, names := map[string][]string{}, []string(nil) // the commands that have a flag
	var collect func(n *kong.Node)
	collect = func(n *kong.Node) {
		for _, c := range n.Children {
			if c.Hidden {
				continue
			}
			for _, f := range c.Flags {
				if !f.Hidden {
					below[f.Name] = append(below[f.Name], strings.Join(append(pathOf(c), "--"+f.Name), " "))
					names = append(names, f.Name)
				}
			}
			collect(c)
		}
	}
	collect(node)
	if found := near(name, names); len(found) > 0 {
		if node.Parent == nil && found[0] == "version" { // which Main reads before the grammar
			return text + meant(found[:1], "--")
		}
		return text + meant(below[found[0]][:min(len(below[found[0]]), mostMeant)], "sallyport ")
	}
	return text
}

// meant ends a message about an unknown word.
func meant(found []string, prefix string) string {
	if len(found) == 0 {
		return ""
	}
	for i, f := range found {
		found[i] = "'" + prefix + f + "'"
	}
	text := found[len(found)-1]
	if rest := found[:len(found)-1]; len(rest) > 0 {
		text = strings.Join(rest, ", ") + " or " + text
	}
	return "; did you mean " + text + "?"
}

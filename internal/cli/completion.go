package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/completion"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/skill"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// completeCommand is what the shells' scripts call: the place of the word at the
// cursor, counted from the program's name, and the words.
const completeCommand = "__complete"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Help implements kong's HelpProvider.
func (*completionCmd) Help() string {
	return `Prints a script that makes the shell complete commands, flags, settings, and the names of servers, tools and their arguments, sessions, questions, images, artifacts, runs, saved tools and kept values. Completion reads only local files and asks your running Sallyports for their sessions and questions; it starts nothing.

Put the line into the shell's startup file:

Examples:
  source <(sallyport completion bash)                                  # ~/.bashrc
  source <(sallyport completion zsh)                                   # ~/.zshrc, after compinit
  sallyport completion fish | source                                   # ~/.config/fish/config.fish
  sallyport completion powershell | Out-String | Invoke-Expression     # $PROFILE`
}

// Run implements the command.
func (c *completionCmd) Run(u *ui) error {
	script, ok := completion.Script(c.Shell)
	if !ok {
		return fmt.Errorf("there is no script for %s", c.Shell)
	}
	_, err := io.WriteString(u.stdio.Out, script)
	return err
}

// complete answers a shell's script. Nothing that goes wrong is reported: it would
// appear in the middle of what the user types.
func (u *ui) complete(args []string) error {
	if len(args) == 0 {
		return nil
	}
	place, err := strconv.Atoi(args[0])
	words := args[1:]
	if err != nil || place < 1 || place > len(words)+1 {
		return nil
	}
	if place > len(words) {
		words = append(words, "")
	}
	parser, err := newParser(&grammar{}, Stdio{Out: io.Discard, Err: io.Discard}, func(int) {})
	if err != nil {
		return nil
	}
	return completion.Complete(parser.Model, words[:place], u.names).Write(u.stdio.Out)
}

// sessionsTime bounds how long running Sallyports may take to list their sessions
// while the user waits for a word.
const sessionsTime = time.Second

// names returns the names of a kind that exist here. It implements
// completion.Names.
func (u *ui) names(kind string, line *completion.Line) []completion.Candidate {
	var out []completion.Candidate
	add := func(name, help string) { out = append(out, completion.Candidate{Value: name, Help: help}) }
	kind, key, _ := strings.Cut(kind, ":")
	switch kind {
	case "assignment", "keys", "values", "setting":
		return settingWords(kind, key, line)
	case "clients":
		for _, c := range definitions.Clients() {
			add(c.Name, c.Title)
		}
		return out
	case "skill-clients":
		for _, name := range skill.Clients() {
			add(name, "")
		}
		return out
	case "services":
		for _, name := range settings.BatchServices() {
			add(name, "")
		}
		return out
	}

	// The command line may name other files and another state directory.
	*u.grammar = globals{Set: line.Flags["set"]}
	if files := line.Flags["config"]; len(files) > 0 {
		u.grammar.ConfigFile = files[len(files)-1]
	}
	switch kind {
	case "servers", "all-servers", "own-servers", "url-servers", "offered", "requested":
		return u.serverNames(kind, line)
	case "tools", "tools-of", "call":
		return u.toolNames(kind, line)
	}
	if u.configure() != nil {
		return nil
	}
	switch kind {
	case "sessions":
		ctx, cancel := context.WithTimeout(u.ctx, sessionsTime)
		defer cancel()
		for _, k := range u.FindSessions(ctx).All {
			add(k.Address, string(k.Status)+", used "+ago(k.Used))
		}
	case "questions":
		return u.questionNames()
	case "images":
		records, _ := u.ImageStore().Records() // those that can be read
		for _, r := range records {
			add(r.Name, string(r.Source))
		}
	case "environments":
		for _, e := range u.Settings.Environments {
			add(e.Name, count(len(e.Packages), "package"))
		}
	case "runs":
		list, _ := u.RecordedRuns().List()
		for _, r := range list {
			add(r.ID, r.Service+", "+stateOf(r)+", "+r.Program)
		}
	case "artifacts":
		list, _ := u.Artifacts().List()
		for _, r := range list {
			add(r.ID, plural(len(r.Files), "file", "files")+", "+ago(r.Created))
			for _, f := range r.Files {
				add(kept{f, r}.address(), f.Type+", "+readable(f.Size))
			}
		}
	case "saved-tools":
		tools, _, _ := u.SavedTools().List()
		for i := range tools {
			add(tools[i].Name, tools[i].Current().Doc)
		}
	case "memories":
		items, _ := u.Memory().List()
		for _, i := range items {
			add(i.Key, "")
		}
	}
	return out
}

// serverNames returns the names of servers. Those that a project's files offer
// are named only where the user reviews them.
func (u *ui) serverNames(kind string, line *completion.Line) []completion.Candidate {
	lib, _, err := u.openLibrary(&serversFlags{ServersConfig: line.Flags["servers-config"]})
	if err != nil {
		return nil
	}
	defer lib.Close()
	var out []completion.Candidate
	add := func(d upstream.Definition) {
		help := d.Description
		if help == "" {
			help = d.State()
		}
		out = append(out, completion.Candidate{Value: d.Name, Help: help})
	}
	for _, d := range lib.Snapshot().Definitions {
		switch {
		case (kind == "offered") != (d.Offer != ""):
		case kind == "servers" && d.Disabled:
		case kind == "url-servers" && d.URL == "":
		case kind == "own-servers" && d.Source != definitions.NameMCPs:
		default:
			add(d)
		}
	}
	if kind == "requested" {
		for _, r := range lib.Requests() {
			add(r.Parsed)
		}
	}
	return out
}

// settingWords returns settings and their values: for KEY=VALUE, for a key, for
// the value of the key on the line, and for the value of a named key.
func settingWords(kind, key string, line *completion.Line) []completion.Candidate {
	all := settings.Describe()
	if kind == "assignment" {
		all = slices.DeleteFunc(all, func(d settings.Description) bool { return d.FileOnly })
	}
	values := func(key, before string) []completion.Candidate {
		var out []completion.Candidate
		for _, d := range all {
			if d.Key == key {
				for _, word := range d.Choices {
					out = append(out, completion.Candidate{Value: before + word})
				}
			}
		}
		return out
	}
	switch kind {
	case "setting":
		return values(key, "")
	case "values":
		if len(line.Args) == 0 {
			return nil
		}
		return values(line.Args[0], "")
	}
	if key, _, ok := strings.Cut(line.Word, "="); ok {
		return values(key, key+"=")
	}
	out := make([]completion.Candidate, 0, len(all))
	for _, d := range all {
		if kind == "assignment" {
			d.Key += "="
		}
		out = append(out, completion.Candidate{Value: d.Key, Help: strings.ReplaceAll(d.Help, "`", "")})
	}
	return out
}

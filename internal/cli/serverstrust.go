package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"sallyport/internal/hidden"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/library"
)

type serversTrustCmd struct {
	serversFlags
	Names  []string `arg:"" optional:"" help:"The servers to trust; all that are offered, where none is named."`
	Yes    bool     `help:"Trust them without a question." short:"y"`
	Forget bool     `help:"Trust them no more."`
	JSON   bool     `help:"Print what is offered as JSON, and trust nothing." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversTrustCmd) Help() string {
	return `A folder that you cloned can bring definitions of servers along (.mcp.json, .vscode/mcp.json and others). They are programs that would run as you, outside of every sandbox, and so they are only offered. This shows them as they stand in the files, and asks. What you trust is that definition, in that file and folder, in those words: when a word changes, it waits again. A program that it names by a path in the folder can change without that.

Examples:
  sallyport servers trust
  sallyport servers trust --yes github
  sallyport servers trust --forget`
}

// offeredLine is a definition as the user is to see it.
type offeredLine struct {
	Name  string          `json:"name"`
	State string          `json:"state"`
	File  string          `json:"file"`
	Line  int             `json:"line"`
	Entry json.RawMessage `json:"entry"`
	// Beside is what other parts of the project's files put into it.
	Beside []string `json:"beside,omitempty"`
	Uses   []string `json:"uses,omitempty"`
}

// Run implements the command.
func (c *serversTrustCmd) Run(a *app) error {
	lib, _, err := a.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	if c.Forget {
		n, err := lib.Distrust(c.Names...)
		if err == nil {
			fmt.Fprintf(a.stdio.Out, "%d of the servers of %s are trusted no more.\n", n, printable(lib.Folder()))
		}
		return err
	}
	offered, err := c.choose(lib)
	if err != nil {
		return err
	}
	if c.JSON {
		lines := []offeredLine{}
		for _, d := range offered {
			lines = append(lines, offeredLine{d.Name, d.State(), d.File, d.Line, json.RawMessage(d.Written()), d.Beside(), d.Uses})
		}
		return a.printJSON(struct {
			Folder  string        `json:"folder"`
			Offered []offeredLine `json:"offered"`
		}{lib.Folder(), lines})
	}
	if len(offered) == 0 {
		fmt.Fprintf(a.stdio.Out, "The files in %s offer no servers that you have not trusted.\n", printable(lib.Folder()))
		return nil
	}
	for _, d := range offered {
		why := ""
		if d.Offer == "changed" {
			why = ", changed since you trusted it"
		}
		fmt.Fprintf(a.stdio.Out, "%s (%s, line %d%s)\n", printable(d.Name), printable(d.File), d.Line, why)
		a.describe(d, d.Written())
	}
	question := fmt.Sprintf("Trust %d in %s?", len(offered), printable(lib.Folder()))
	if !c.Yes && !a.agreed(question) {
		return errors.New("nothing was trusted; --yes trusts without a question")
	}
	if err := lib.Trust(offered); err != nil {
		return err
	}
	fmt.Fprintf(a.stdio.Out, "%d trusted.\n", len(offered))
	return nil
}

// choose are the offered servers that were named.
func (c *serversTrustCmd) choose(lib *library.Library) ([]upstream.Definition, error) {
	offered := lib.Snapshot().Offered()
	if len(c.Names) == 0 {
		return offered, nil
	}
	var out []upstream.Definition
	for _, name := range c.Names {
		i := slices.IndexFunc(offered, func(d upstream.Definition) bool { return d.Name == name })
		if i < 0 {
			d, err := find(lib, name)
			if err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("server %q is not offered but %s (%s, line %d)", name, d.State(), printable(d.File), d.Line)
		}
		out = append(out, offered[i])
	}
	return out, nil
}

// describe shows what somebody else wrote, so that nothing of it can pass for
// ours: indented, one member on a line, with everything escaped that does more
// to a terminal than letters do.
func (a *app) describe(d upstream.Definition, entry string) {
	var b bytes.Buffer
	if json.Indent(&b, []byte(entry), "    ", "  ") != nil {
		b.Reset()
		b.WriteString(entry)
	}
	fmt.Fprintf(a.stdio.Out, "    %s\n", escaped(b.String()))
	for _, line := range d.Beside() {
		fmt.Fprintf(a.stdio.Out, "    %s\n", strings.ReplaceAll(escaped(line), "\n", "\n      "))
	}
	if len(d.Uses) > 0 {
		fmt.Fprintf(a.stdio.Out, "  It gets values of yours: %s\n", escaped(strings.Join(d.Uses, ", ")))
	}
	if d.Dir != "" {
		fmt.Fprintf(a.stdio.Out, "  It runs in %s\n", printable(d.Dir))
	}
}

// escaped is a text of several lines in which only letters and line breaks are
// what they are.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == ' ' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return hidden.Escape(b.String()) // some that print show nothing
}

// agreed asks a question of whoever sits there. Silence is a no.
func (a *app) agreed(question string) bool {
	fmt.Fprintf(a.stdio.Out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.stdio.In).ReadString('\n') // what came before the end counts
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	fmt.Fprintln(a.stdio.Out)
	return false
}

type serversApproveCmd struct {
	serversFlags
	Name   string `arg:"" optional:"" help:"The server to grant, or whose changed tools to accept; where none is named, all that were asked for are shown."`
	Yes    bool   `help:"Grant it without a question." short:"y"`
	Refuse bool   `help:"Forget the request instead."`
	JSON   bool   `help:"Print the requests as JSON, and grant nothing." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversApproveCmd) Help() string {
	return `Code in a sandbox can ask for a server that is not configured (runtime.request_server). It would run as you, outside of the sandbox; so the wish is only written down, unless the setting policy.requests allows it. Granting one writes it into ~/MCPs/NAME.json.

For a server that is configured, it accepts what the server says of its tools now, where that changed since they were first seen.

Examples:
  sallyport servers approve
  sallyport servers approve weather
  sallyport servers approve --refuse weather`
}

// Run implements the command.
func (c *serversApproveCmd) Run(a *app) error {
	lib, _, err := a.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	requests := lib.Requests()
	if c.JSON {
		if requests == nil {
			requests = []library.Request{}
		}
		return a.printJSON(struct {
			Requests []library.Request `json:"requests"`
		}{requests})
	}
	if c.Name == "" {
		if len(requests) == 0 {
			fmt.Fprintln(a.stdio.Out, "Code has asked for no servers.")
			return nil
		}
		for _, r := range requests {
			a.showRequest(r)
		}
		fmt.Fprintln(a.stdio.Out, "Grant one with: sallyport servers approve NAME")
		return nil
	}
	i := slices.IndexFunc(requests, func(r library.Request) bool { return r.Name == c.Name })
	if i < 0 {
		if done, err := a.approveChanges(lib.Current(true), c.Name, c.Yes); done || err != nil {
			return err
		}
		var names []string
		for _, r := range requests {
			names = append(names, printable(r.Name))
		}
		if len(names) == 0 {
			return fmt.Errorf("nobody asked for %q; code has asked for no servers", c.Name)
		}
		return fmt.Errorf("nobody asked for %q; what was asked for: %s", c.Name, strings.Join(names, ", "))
	}
	r := requests[i]
	if c.Refuse {
		if err := lib.Refuse(r.Name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdio.Out, "The request for %s is forgotten.\n", printable(r.Name))
		return nil
	}
	a.showRequest(r)
	if !c.Yes && !a.agreed("Grant it?") {
		return errors.New("nothing was granted; --yes grants without a question")
	}
	path, err := lib.Approve(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdio.Out, "%s is defined in %s.\n", printable(r.Name), path)
	return nil
}

// plainly is a JSON text whose letters are written as letters, so that nobody
// hides a command in escapes. Members come by their names.
func plainly(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if d.Decode(&v) != nil || enc.Encode(v) != nil {
		return string(raw)
	}
	return strings.TrimSpace(b.String())
}

func (a *app) showRequest(r library.Request) {
	fmt.Fprintf(a.stdio.Out, "%s (asked for on %s, in %s)\n", printable(r.Name), r.Time.Local().Format("2006-01-02 15:04"), printable(r.Folder))
	a.describe(r.Parsed, plainly(r.Definition))
}

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

type serversTrustCmd struct {
	serversFlags
	Names  []string `arg:"" optional:"" help:"The servers to trust (default: all that are offered)." complete:"offered"`
	Yes    bool     `help:"Trust them without asking." short:"y"`
	Forget bool     `help:"Stop trusting them."`
	JSON   bool     `help:"Print the offered servers as JSON, and trust none." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversTrustCmd) Help() string {
	return `A folder that you cloned can contain server definitions (.mcp.json, .vscode/mcp.json and others). Their programs would run as you, outside any sandbox, so Sallyport does not start them. This command shows the definitions as they are in the files, and asks. You trust one definition in one file and folder: if it changes, you are asked again. That does not cover the program itself: a program in the folder can change without being noticed.

Examples:
  sallyport servers trust
  sallyport servers trust --yes github
  sallyport servers trust --forget`
}

// offeredLine is a definition as shown to the user.
type offeredLine struct {
	Name  string          `json:"name"`
	State string          `json:"state"`
	File  string          `json:"file"`
	Line  int             `json:"line"`
	Entry json.RawMessage `json:"entry"`
	// Also is what other parts of the project's files add to it.
	Also []string `json:"also,omitempty"`
	Uses []string `json:"uses,omitempty"`
}

// Run implements the command.
func (c *serversTrustCmd) Run(u *ui) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	if c.Forget {
		names, err := serversNamed(lib.Current(true), c.Names)
		if err != nil {
			return err
		}
		n, err := lib.Distrust(names...)
		if err == nil {
			fmt.Fprintf(u.stdio.Out, "%d servers of %s are no longer trusted.\n", n, printable(lib.Folder()))
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
			lines = append(lines, offeredLine{d.Name, d.State(), d.File, d.Line, json.RawMessage(d.Written()), d.Also(), d.Uses})
		}
		return u.printJSON(struct {
			Folder  string        `json:"folder"`
			Offered []offeredLine `json:"offered"`
		}{lib.Folder(), lines})
	}
	if len(offered) == 0 {
		fmt.Fprintf(u.stdio.Out, "The files in %s define no servers that you have not trusted.\n", printable(lib.Folder()))
		return nil
	}
	for _, d := range offered {
		why := ""
		if d.Offer == "changed" {
			why = ", changed since you trusted it"
		}
		fmt.Fprintf(u.stdio.Out, "%s (%s, line %d%s)\n", printable(d.Name), printable(d.File), d.Line, why)
		u.describe(d, d.Written())
	}
	question := fmt.Sprintf("Trust %d in %s?", len(offered), printable(lib.Folder()))
	if !c.Yes && !u.agreed(question) {
		return errors.New("nothing was trusted; --yes trusts without asking")
	}
	if err := lib.Trust(offered); err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Out, "%d trusted.\n", len(offered))
	return nil
}

// choose returns the offered servers that were named.
func (c *serversTrustCmd) choose(lib *library.Library) ([]upstream.Definition, error) {
	offered := lib.Snapshot().Offered()
	if len(c.Names) == 0 {
		return offered, nil
	}
	var out []upstream.Definition
	for _, text := range c.Names {
		d, err := find(lib, text)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(offered, func(o upstream.Definition) bool { return o.Name == d.Name })
		if i < 0 {
			return nil, fmt.Errorf("server %q is not offered but %s (%s, line %d)", d.Name, d.State(), printable(d.File), d.Line)
		}
		out = append(out, offered[i])
	}
	return out, nil
}

// describe shows what someone else wrote so that no part of it can pass for
// ours: indented, one member on a line, with everything escaped that affects a
// terminal.
func (u *ui) describe(d upstream.Definition, entry string) {
	var b bytes.Buffer
	if json.Indent(&b, []byte(entry), "    ", "  ") != nil {
		b.Reset()
		b.WriteString(entry)
	}
	fmt.Fprintf(u.stdio.Out, "    %s\n", escaped(b.String()))
	for _, line := range d.Also() {
		fmt.Fprintf(u.stdio.Out, "    %s\n", strings.ReplaceAll(escaped(line), "\n", "\n      "))
	}
	if len(d.Uses) > 0 {
		fmt.Fprintf(u.stdio.Out, "  It gets the values of: %s\n", escaped(strings.Join(d.Uses, ", ")))
	}
	if d.Dir != "" {
		fmt.Fprintf(u.stdio.Out, "  It runs in %s\n", printable(d.Dir))
	}
}

type serversApproveCmd struct {
	serversFlags
	Name   string `arg:"" optional:"" help:"The server to grant, or whose changed tools to accept (default: list all requests)." complete:"requested"`
	Yes    bool   `help:"Grant it without asking." short:"y"`
	Refuse bool   `help:"Delete the request instead."`
	JSON   bool   `help:"Print the requests as JSON, and grant none." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversApproveCmd) Help() string {
	return `Code in a sandbox can request a server that is not configured (runtime.request_server). The server would run as you, outside the sandbox, so the request is only recorded, unless the setting policy.requests allows it. Granting a request writes the server to ~/MCPs/NAME.json.

For a configured server, the command accepts the current descriptions of its tools if they have changed since they were first seen.

Examples:
  sallyport servers approve
  sallyport servers approve weather
  sallyport servers approve --refuse weather`
}

// Run implements the command.
func (c *serversApproveCmd) Run(u *ui) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	requests := lib.Requests()
	if c.JSON {
		if requests == nil {
			requests = []library.Request{}
		}
		return u.printJSON(struct {
			Requests []library.Request `json:"requests"`
		}{requests})
	}
	if c.Name == "" {
		if len(requests) == 0 {
			fmt.Fprintln(u.stdio.Out, "Code has not requested any servers.")
			return nil
		}
		for _, r := range requests {
			u.showRequest(r)
		}
		fmt.Fprintln(u.stdio.Out, "Grant one with: sallyport servers approve NAME")
		return nil
	}
	asked := make([]string, len(requests))
	for i, r := range requests {
		asked[i] = r.Name
	}
	name, err := tool.ReadServer(asked, c.Name)
	if err != nil {
		return err
	}
	i := slices.Index(asked, name)
	if i < 0 {
		if known, err := readServer(lib.Current(true), c.Name); err != nil {
			return err
		} else if known != "" {
			c.Name = known
		}
		if done, err := u.approveChanges(lib.Current(true), c.Name, c.Yes); done || err != nil {
			return err
		}
		if len(asked) == 0 {
			return fmt.Errorf("there is no request for %q; code has not requested any servers", c.Name)
		}
		return fmt.Errorf("there is no request for %q; there are requests for: %s", c.Name, printable(strings.Join(asked, ", ")))
	}
	r := requests[i]
	if c.Refuse {
		if err := lib.Refuse(r.Name); err != nil {
			return err
		}
		fmt.Fprintf(u.stdio.Out, "The request for %s is deleted.\n", printable(r.Name))
		return nil
	}
	u.showRequest(r)
	if !c.Yes && !u.agreed("Grant it?") {
		return errors.New("nothing was granted; --yes grants without asking")
	}
	path, err := lib.Approve(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Out, "%s is defined in %s.\n", printable(r.Name), path)
	return nil
}

// plainly returns JSON with its escaped letters decoded, so that escapes cannot
// hide a command. Members are sorted by name.
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

func (u *ui) showRequest(r library.Request) {
	fmt.Fprintf(u.stdio.Out, "%s (requested on %s, in %s)\n", printable(r.Name), r.Time.Local().Format("2006-01-02 15:04"), printable(r.Folder))
	u.describe(r.Parsed, plainly(r.Definition))
}

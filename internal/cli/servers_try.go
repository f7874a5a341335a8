package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

type serversTestCmd struct {
	composeFlags
	Name    string        `arg:"" help:"The server's name." complete:"servers"`
	Timeout time.Duration `help:"How long the server may take to start and to list its tools, instead of its startTimeout (${servers_startTimeout})." placeholder:"TIME" type:"seconds"`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversTestCmd) Help() string {
	return `If the server failed when code used it the last time, that is printed too, with what it wrote.

Example:
  sallyport servers test filesystem`
}

type serverTest struct {
	Name     string     `json:"name"`
	Protocol string     `json:"protocol,omitempty"`
	Server   string     `json:"server,omitempty"`
	StartMs  int64      `json:"startMs"`
	ListMs   int64      `json:"listMs"`
	Tools    []toolLine `json:"tools"`
	LeftOut  []string   `json:"leftOut,omitempty"`
	// Odd is how the server broke the protocol in messages that could be read.
	Odd []string `json:"odd,omitempty"`
	// LastFailure is that of the server when code used it.
	LastFailure *lastFailure `json:"lastFailure,omitempty"`
}

type lastFailure struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

type toolLine struct {
	Name        string `json:"name"`
	Function    string `json:"function"`
	Description string `json:"description,omitempty"`
}

// Run implements the command.
func (c *serversTestCmd) Run(u *ui) error {
	c.waits = true
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	d, err := find(sys.Library, c.Name)
	u.warnOf(sys, cmp.Or(d.Name, c.Name))
	if err != nil {
		return err
	}
	ctx, cancel := upstream.WithTimeout(u.ctx, cmp.Or(c.Timeout, d.StartTimeout, u.Settings.Servers.StartTimeout))
	defer cancel()
	found, err := sys.Bridge.Try(ctx, authz.Local("sallyport"), d.Name)
	if err != nil {
		return err
	}
	t := &serverTest{
		Name: d.Name, Protocol: found.Info.ProtocolVersion, Server: found.Info.Server.Name + " " + found.Info.Server.Version,
		StartMs: found.Started.Milliseconds(), ListMs: found.Listed.Milliseconds(), Tools: []toolLine{},
		LeftOut: found.LeftOut, Odd: found.Info.Odd,
	}
	if f := found.Trouble; f != nil {
		t.LastFailure = &lastFailure{f.At.UTC(), f.Reason}
	}
	calls := tool.Calls(found.Tools, d.DenyTools)
	for _, f := range found.Tools {
		t.Tools = append(t.Tools, toolLine{Name: f.Name, Function: strings.TrimPrefix(calls[f.Name], "."), Description: f.Description})
	}
	if c.JSON {
		return u.printJSON(t)
	}
	fmt.Fprintf(u.stdio.Out, "%s: %s, protocol %s; started in %d ms, listed %d tools in %d ms\n",
		printable(t.Name), invisible.Line(t.Server), invisible.Line(t.Protocol), t.StartMs, len(t.Tools), t.ListMs)
	for _, how := range t.Odd {
		fmt.Fprintf(u.stdio.Out, "  warning: it breaks the protocol, though it can be read: %s\n", how)
	}
	table := u.table()
	table.Indent = 2
	for _, tool := range t.Tools {
		table.Row(invisible.Line(tool.Function), invisible.Line(firstLine(tool.Description)))
	}
	if err := table.Write(u.stdio.Out); err != nil {
		return err
	}
	for _, note := range t.LeftOut {
		fmt.Fprintf(u.stdio.Out, "  note: %s\n", invisible.Line(note))
	}
	if t.LastFailure == nil {
		return nil
	}
	// Its words are the server's: they are indented, and on a terminal they are plain.
	_, err = fmt.Fprintf(u.stdio.Out, "\nIt works now. When code used it, %s, it failed:\n  %s\n",
		ago(t.LastFailure.At), strings.ReplaceAll(t.LastFailure.Reason, "\n", "\n  "))
	return err
}

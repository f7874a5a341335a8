package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

type serversCmd struct {
	List serversListCmd `cmd:"" default:"withargs" help:"List the configured servers."`
	Test serversTestCmd `cmd:"" help:"Start a server, list its tools, and say how long it took."`
}

type serversListCmd struct {
	composeFlags
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversListCmd) Help() string {
	return `Servers are defined in ~/MCPs/*.json, {"mcpServers": {"name": {"command": "…", "args": ["…"]}}}, and in the file that --servers-config names.

Example:
  sallyport servers
  sallyport servers test filesystem`
}

// serverLine is one server as list prints it. Values of environment variables
// are never shown.
type serverLine struct {
	Name        string   `json:"name"`
	Module      string   `json:"module"`
	Command     string   `json:"command"`
	Args        []string `json:"args,omitempty"`
	Env         []string `json:"env,omitempty"` // names
	Cwd         string   `json:"cwd,omitempty"`
	Description string   `json:"description,omitempty"`
	Source      string   `json:"source"`
	Disabled    bool     `json:"disabled,omitempty"`
}

// Run implements the command.
func (c *serversListCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	lines := sys.serverLines()
	if c.JSON {
		return a.printJSON(struct {
			Servers  []serverLine `json:"servers"`
			Problems []string     `json:"problems,omitempty"`
		}{lines, sys.problems})
	}
	if len(lines) == 0 {
		fmt.Fprintln(a.stdio.Out, "No MCP servers are defined. Put definitions into ~/MCPs/NAME.json, or name a file with --servers-config.")
	} else {
		w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tMODULE\tCOMMAND\tFROM")
		for _, l := range lines {
			command := strings.Join(append([]string{l.Command}, l.Args...), " ")
			if l.Disabled {
				command = "(disabled) " + command
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, l.Module, command, l.Source)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, p := range sys.problems {
		fmt.Fprintln(a.stdio.Err, "sallyport: warning:", p)
	}
	return nil
}

type serversTestCmd struct {
	composeFlags
	Name    string        `arg:"" help:"The server's name."`
	Timeout time.Duration `help:"How long it may take to start." default:"60s" type:"seconds"`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversTestCmd) Help() string {
	return `Example:
  sallyport servers test filesystem`
}

type serverTest struct {
	Name     string     `json:"name"`
	Protocol string     `json:"protocol,omitempty"`
	Server   string     `json:"server,omitempty"`
	StartMs  int64      `json:"startMs"`
	ListMs   int64      `json:"listMs"`
	Tools    []toolLine `json:"tools"`
}

type toolLine struct {
	Name        string `json:"name"`
	Function    string `json:"function"`
	Description string `json:"description,omitempty"`
}

// Run implements the command.
func (c *serversTestCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	t, err := sys.testServer(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(t)
	}
	fmt.Fprintf(a.stdio.Out, "%s: %s, protocol %s; started in %d ms, listed %d tools in %d ms\n",
		t.Name, t.Server, t.Protocol, t.StartMs, len(t.Tools), t.ListMs)
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	for _, tool := range t.Tools {
		fmt.Fprintf(w, "  %s\t%s\n", tool.Function, firstLine(tool.Description, 90))
	}
	return w.Flush()
}

// firstLine is the first line of s, cut to n characters.
func firstLine(s string, n int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/hidden"
	"sallyport/internal/upstream"
)

type serversTestCmd struct {
	composeFlags
	Name    string        `arg:"" help:"The server's name."`
	Timeout time.Duration `help:"How long it may take to start and to list its tools." default:"60s" type:"seconds"`
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
	a.warnOf(sys, c.Name)
	if _, err := find(sys.library, c.Name); err != nil {
		return err
	}
	ctx, cancel := upstream.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	t, err := sys.testServer(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(t)
	}
	fmt.Fprintf(a.stdio.Out, "%s: %s, protocol %s; started in %d ms, listed %d tools in %d ms\n",
		printable(t.Name), hidden.Line(t.Server), hidden.Line(t.Protocol), t.StartMs, len(t.Tools), t.ListMs)
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	for _, tool := range t.Tools {
		fmt.Fprintf(w, "  %s\t%s\n", tool.Function, hidden.Escape(firstLine(tool.Description, 90)))
	}
	return w.Flush()
}

// testServer starts a server and lists its tools.
func (s *system) testServer(ctx context.Context, name string) (*serverTest, error) {
	start := time.Now()
	server, err := s.servers.Server(ctx, name)
	if err != nil {
		return nil, err
	}
	t := &serverTest{Name: name, StartMs: time.Since(start).Milliseconds(), Tools: []toolLine{}}
	info := server.Info()
	t.Protocol = info.ProtocolVersion
	t.Server = fmt.Sprintf("%s %s", info.Server.Name, info.Server.Version)
	start = time.Now()
	tools, err := server.Tools(ctx)
	if err != nil {
		return nil, err
	}
	t.ListMs = time.Since(start).Milliseconds()
	listing := bridge.ListingOf(server, tools)
	if e, ok := s.known.catalog.Entry(name); ok {
		if _, err := s.known.pins.Check(pinsOf(e.Server), bridge.Said(server, tools)...); err != nil {
			return nil, err
		}
	}
	s.known.catalog.Learn(name, listing)
	for _, tool := range tools {
		t.Tools = append(t.Tools, toolLine{Name: tool.Name, Function: tool.Alias, Description: tool.Description})
	}
	return t, nil
}

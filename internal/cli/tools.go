package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sallyport/internal/catalog"
	"sallyport/internal/hidden"
	"sallyport/internal/signature"
)

type toolsCmd struct {
	Search  toolsSearchCmd  `cmd:"" help:"Find tools of all servers by what they do."`
	List    toolsListCmd    `cmd:"" help:"List the tools of all servers, or of one."`
	Show    toolsShowCmd    `cmd:"" help:"Show everything about a tool, and what changed in it."`
	Refresh toolsRefreshCmd `cmd:"" help:"Ask servers for their tools now."`
	Approve toolsApproveCmd `cmd:"" help:"Accept what a server says of its tools now."`
}

// toolsFlags are those of the commands that read what is known.
type toolsFlags struct {
	composeFlags
	Cached  bool          `help:"Start no server: only what is known already."`
	Timeout time.Duration `help:"How long servers whose tools are not known may take." default:"60s" type:"seconds"`
}

// askAtATime is how many servers a command asks at a time.
const askAtATime = 4

// learn asks the servers whose tools were never listed.
func (f *toolsFlags) learn(a *app, sys *system, only string) {
	if f.Cached || a.settings.Catalog.Refresh == string(catalog.Off) {
		return
	}
	var names []string
	for _, e := range sys.known.catalog.Entries() {
		if e.Listing == nil && (only == "" || only == e.Name) && (e.Failure == nil || only != "" || time.Now().After(e.Failure.Retry)) {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(a.stdio.Err, "sallyport: asking %s for the first time …\n", count(len(names), "server"))
	ctx, cancel := context.WithTimeout(a.ctx, f.Timeout)
	defer cancel()
	each(names, func(name string) {
		_, _ = sys.known.catalog.Want(ctx, name) // what is shown tells
	})
}

// each calls f with every name, a few at a time.
func each(names []string, f func(name string)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, askAtATime)
	for _, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(name)
		})
	}
	all.Wait()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// toolFound is one tool as search and list print it.
type toolFound struct {
	Server      string  `json:"server"`
	ServerAlias string  `json:"serverAlias"`
	Tool        string  `json:"tool"`
	ToolAlias   string  `json:"toolAlias"`
	Description string  `json:"description,omitempty"`
	Signature   string  `json:"signature,omitempty"`
	ReadOnly    bool    `json:"readOnly,omitempty"`
	State       string  `json:"state,omitempty"` // changed or new
	Hidden      bool    `json:"hidden,omitempty"`
	Score       float64 `json:"score,omitempty"`
}

// serverLeftOut is a server whose tools are not known.
type serverLeftOut struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
}

func (s *system) toolFound(e catalog.Server, t *catalog.Tool) toolFound {
	f := toolFound{
		Server: e.Name, ServerAlias: e.Alias, Tool: t.Name, ToolAlias: t.Alias,
		Description: t.Summary(), Signature: signature.Brief(t.InputSchema), ReadOnly: t.ReadOnly,
		Hidden: hides(t),
	}
	if e.Program == "" { // saved tools
		f.Description, f.Signature = hidden.Line(t.Description), ""
		return f
	}
	f.State = s.toolState(e, t.Name)
	return f
}

// hasTools says whether there is a server of this name, or saved tools that are
// called so. No name stands for all.
func (s *system) hasTools(a *app, server string) bool {
	_, ok := s.known.catalog.Entry(server)
	return ok || server == "" || slices.ContainsFunc(a.savedEntries(s), func(e catalog.Entry) bool { return e.Name == server })
}

// toolState is changed, new or nothing.
func (s *system) toolState(e catalog.Server, tool string) string {
	report, err := s.known.pins.Status(pinsOf(e))
	switch {
	case err != nil:
		return ""
	case slices.Contains(report.Changed, tool):
		return "changed"
	case slices.Contains(report.New, tool):
		return "new"
	}
	return ""
}

// hides says whether a tool's texts hold characters that a person does not see.
func hides(t *catalog.Tool) bool {
	if len(hidden.In(t.Name+t.Title)) > 0 || len(hidden.In(t.Description)) > 0 {
		return true
	}
	for _, a := range signature.Arguments(t.InputSchema) {
		if len(hidden.In(a.Name)) > 0 || len(hidden.In(a.Description)) > 0 {
			return true
		}
	}
	return false
}

func (f toolFound) mark() string {
	var marks []string
	if f.State != "" {
		marks = append(marks, f.State)
	}
	if f.Hidden {
		marks = append(marks, "hidden characters")
	}
	if len(marks) == 0 {
		return ""
	}
	return " [" + strings.Join(marks, ", ") + "]"
}

// call is how code calls the tool, for a terminal.
func (f toolFound) call() string {
	if f.Signature == "" { // a saved one, which says it itself
		return hidden.Line(f.Server + "." + f.Tool)
	}
	return hidden.Line("mcp_" + f.ServerAlias + "." + f.ToolAlias + f.Signature)
}

type toolsSearchCmd struct {
	toolsFlags
	Query    []string `arg:"" help:"What the tool should do, in plain words."`
	Limit    int      `help:"How many tools to show." default:"5"`
	Server   string   `help:"Only tools of this server." placeholder:"NAME"`
	ReadOnly bool     `help:"Only tools whose server says that they change nothing."`
	JSON     bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*toolsSearchCmd) Help() string {
	return `Code finds tools in the same way, with runtime.search_tool_docs("…").

Example:
  sallyport tools search "create an issue"
  sallyport tools search --server github --limit 10 pull request`
}

// Run implements the command.
func (c *toolsSearchCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	if !sys.hasTools(a, c.Server) {
		return unknownServer(c.Server, sys.library.Snapshot())
	}
	c.learn(a, sys, c.Server)
	hits, missing := sys.known.catalog.Search(catalog.Query{
		Text: strings.Join(c.Query, " "), Limit: max(1, c.Limit), Server: c.Server, ReadOnly: c.ReadOnly,
	}, a.savedEntries(sys)...)
	out := struct {
		Tools   []toolFound     `json:"tools"`
		LeftOut []serverLeftOut `json:"leftOut,omitempty"`
	}{Tools: []toolFound{}}
	for _, h := range hits {
		f := sys.toolFound(h.Server, h.Tool)
		f.Score = h.Score
		out.Tools = append(out.Tools, f)
	}
	for _, m := range missing {
		out.LeftOut = append(out.LeftOut, serverLeftOut{m.Server.Name, whyNot(m.Failure)})
	}
	if c.JSON {
		return a.printJSON(out)
	}
	for _, f := range out.Tools {
		fmt.Fprintf(a.stdio.Out, "%s%s\n    %s\n", f.call(), f.mark(), f.Description)
	}
	if len(out.Tools) == 0 {
		fmt.Fprintln(a.stdio.Err, "sallyport: nothing was found")
	}
	for _, l := range out.LeftOut {
		fmt.Fprintf(a.stdio.Err, "sallyport: %s was left out: %s\n", hidden.Line(l.Server), hidden.Line(l.Reason))
	}
	return nil
}

func whyNot(f *catalog.Failure) string {
	if f == nil {
		return "its tools are not known yet"
	}
	return f.Reason
}

type toolsListCmd struct {
	toolsFlags
	Server string `arg:"" optional:"" help:"Only this server, with its resources and prompts." placeholder:"NAME"`
	JSON   bool   `help:"Print JSON." name:"json"`
}

// toolsOfServer is a server as list prints it.
type toolsOfServer struct {
	Server      string         `json:"server"`
	Module      string         `json:"module"`
	Description string         `json:"description,omitempty"`
	Name        string         `json:"name,omitempty"` // the server's own
	Version     string         `json:"version,omitempty"`
	Listed      *time.Time     `json:"listed,omitempty"`
	Problem     string         `json:"problem,omitempty"`
	Retry       *time.Time     `json:"retry,omitempty"` // when it is asked again in the background
	Tools       []toolFound    `json:"tools"`
	Resources   []catalog.Item `json:"resources,omitempty"`
	Prompts     []catalog.Item `json:"prompts,omitempty"`
	LeftOut     int            `json:"leftOut,omitempty"`
}

// Help implements kong's HelpProvider.
func (*toolsListCmd) Help() string {
	return `Examples:
  sallyport tools list
  sallyport tools list github`
}

// Run implements the command.
func (c *toolsListCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	if c.Server == "" {
		a.warn(sys.problems)
	} else {
		a.warnOf(sys, c.Server)
	}
	if !sys.hasTools(a, c.Server) {
		return unknownServer(c.Server, sys.library.Snapshot())
	}
	c.learn(a, sys, c.Server)
	servers := []toolsOfServer{}
	for _, e := range append(sys.known.catalog.Entries(), a.savedEntries(sys)...) {
		if c.Server == "" || c.Server == e.Name {
			servers = append(servers, sys.toolsOf(&e))
		}
	}
	if c.JSON {
		return a.printJSON(struct {
			Servers []toolsOfServer `json:"servers"`
		}{servers})
	}
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	for _, s := range servers {
		head := hidden.Line(s.Server)
		if s.Version != "" {
			head += " (" + hidden.Line(s.Name+" "+s.Version) + ")"
		}
		if s.Listed != nil {
			head += ": " + count(len(s.Tools), "tool")
		}
		if s.LeftOut > 0 {
			head += fmt.Sprintf(" (%d left out)", s.LeftOut)
		}
		if s.Problem != "" {
			head += ": " + hidden.Line(s.Problem)
			if s.Retry != nil {
				head += " (asked again after " + s.Retry.Local().Format("2006-01-02 15:04") + ")"
			}
		}
		fmt.Fprintln(w, head)
		for _, t := range s.Tools {
			fmt.Fprintf(w, "  %s%s\t%s\n", hidden.Line(t.ToolAlias), t.mark(), t.Description)
		}
		if c.Server == "" {
			continue
		}
		for _, r := range s.Resources {
			fmt.Fprintf(w, "  resource %s\t%s\n", hidden.Line(r.URI), hidden.Line(r.Name))
		}
		for _, p := range s.Prompts {
			fmt.Fprintf(w, "  prompt %s\t%s\n", hidden.Line(p.Name), hidden.Line(p.Description))
		}
	}
	return w.Flush()
}

func (s *system) toolsOf(e *catalog.Entry) toolsOfServer {
	out := toolsOfServer{Server: e.Name, Module: "mcp_" + e.Alias, Description: e.About(), Tools: []toolFound{}}
	if e.Failure != nil || e.Listing == nil {
		out.Problem = whyNot(e.Failure)
	}
	if e.Failure != nil {
		out.Retry = &e.Failure.Retry
	}
	if e.Listing == nil {
		return out
	}
	if e.Program == "" {
		out.Module = e.Alias // saved tools
	}
	out.Name, out.Version, out.Listed = e.Listing.Name, e.Listing.Version, &e.Listed
	out.Resources, out.Prompts, out.LeftOut = e.Listing.Resources, e.Listing.Prompts, e.Listing.LeftOut
	for i := range e.Listing.Tools {
		out.Tools = append(out.Tools, s.toolFound(e.Server, &e.Listing.Tools[i]))
	}
	return out
}

type toolsRefreshCmd struct {
	composeFlags
	Servers []string      `arg:"" optional:"" help:"Servers to ask; without any, all." placeholder:"NAME"`
	Timeout time.Duration `help:"How long all of it may take." default:"5m" type:"seconds"`
}

// Help implements kong's HelpProvider.
func (*toolsRefreshCmd) Help() string {
	return `Examples:
  sallyport tools refresh
  sallyport tools refresh github`
}

// Run implements the command.
func (c *toolsRefreshCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	names := c.Servers
	if len(names) == 0 {
		for _, e := range sys.known.catalog.Entries() {
			names = append(names, e.Name)
		}
	}
	for _, name := range names {
		if _, ok := sys.known.catalog.Entry(name); !ok {
			return unknownServer(name, sys.library.Snapshot())
		}
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	var mu sync.Mutex
	failed := false
	each(names, func(name string) {
		e, err := sys.known.catalog.List(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = true
			fmt.Fprintf(a.stdio.Out, "%s: %s\n", hidden.Line(name), hidden.Escape(err.Error()))
			return
		}
		text := count(len(e.Listing.Tools), "tool")
		if report, err := sys.known.pins.Status(pinsOf(e.Server)); err == nil && !report.Quiet() {
			text += fmt.Sprintf(", %d changed, %d new since they were accepted", len(report.Changed), len(report.New))
			if others := slices.Concat(report.OtherChanged, report.OtherNew); len(others) > 0 {
				text += "; changed or new, too: " + hidden.Line(strings.Join(others[:min(5, len(others))], ", "))
				if more := len(others) - 5; more > 0 {
					text += fmt.Sprintf(" and %d more", more)
				}
			}
		}
		fmt.Fprintf(a.stdio.Out, "%s: %s\n", hidden.Line(name), text)
	})
	if failed {
		return exitError(exitFailed)
	}
	return nil
}

type toolsApproveCmd struct {
	composeFlags
	Server string   `arg:"" help:"The server's name."`
	Tools  []string `arg:"" optional:"" help:"Only these tools, or \"prompt NAME\", \"resource URI\", \"template URI\", \"instructions\"." placeholder:"TOOL"`
}

// Help implements kong's HelpProvider.
func (*toolsApproveCmd) Help() string {
	return `A server that changes what it says of its tools, prompts, resources or itself may have been taken over: a model reads that. Results say so, or, with servers.changedTools=refuse, what changed can be neither read nor called. Look at the change first. The command prints what it accepts.

Example:
  sallyport tools show github create_issue
  sallyport tools approve github
  sallyport tools approve github create_issue "prompt review" instructions`
}

// Run implements the command.
func (c *toolsApproveCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	done, err := sys.approveTools(a, c.Server, c.Tools...)
	if err != nil {
		return err
	}
	if len(done) == 0 {
		fmt.Fprintln(a.stdio.Out, "Nothing was changed or new.")
		return nil
	}
	fmt.Fprintf(a.stdio.Out, "Accepted: %s\n", hidden.Line(strings.Join(done, ", ")))
	return nil
}

// approveTools accepts what a server says of its tools, as of the last time
// that somebody looked.
func (s *system) approveTools(a *app, server string, tools ...string) ([]string, error) {
	e, ok := s.known.catalog.Entry(server)
	if !ok {
		return nil, unknownServer(server, s.library.Snapshot())
	}
	report, err := s.known.pins.Status(pinsOf(e.Server))
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		names := slices.DeleteFunc(report.Differences(), func(name string) bool { return name != t })
		switch len(names) {
		case 0:
			return nil, errors.New("nothing changed in " + hidden.Line(t))
		case 1:
		default:
			return nil, fmt.Errorf("both a tool and something else are called %s; approve all of %s, or nothing", hidden.Line(t), hidden.Line(server))
		}
	}
	if report.Quiet() {
		return nil, nil
	}
	for _, name := range report.Differences() {
		if len(tools) > 0 && !slices.Contains(tools, name) {
			continue
		}
		text, err := s.known.pins.Difference(pinsOf(e.Server), name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(a.stdio.Out, "%s\n%s\n", hidden.Line(name), text)
	}
	return s.known.pins.Approve(pinsOf(e.Server), tools...)
}

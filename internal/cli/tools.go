package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

type toolsCmd struct {
	Search  toolsSearchCmd  `cmd:"" help:"Search the tools of all servers by what they do."`
	List    toolsListCmd    `cmd:"" help:"List the tools of all servers, or of one."`
	Show    toolsShowCmd    `cmd:"" help:"Show everything about a tool, and what has changed in it."`
	Call    toolsCallCmd    `cmd:"" help:"Call a tool, with arguments as key=value."`
	Refresh toolsRefreshCmd `cmd:"" help:"Ask servers for their current tools."`
	Approve toolsApproveCmd `cmd:"" help:"Accept the current descriptions of a server's tools."`
}

// toolsFlags are the flags of the commands that read the catalog.
type toolsFlags struct {
	composeFlags
	Cached  bool          `help:"Start no server; use only what is already known."`
	Timeout time.Duration `help:"How long servers whose tools are unknown may take to list them." default:"60s" type:"seconds"`
}

// askAtATime is how many servers a command asks at the same time.
const askAtATime = 4

// learn asks the servers whose tools have never been listed.
func (f *toolsFlags) learn(u *ui, sys *app.System, only string) {
	if f.Cached || u.Settings.Catalog.Refresh == string(catalog.Off) {
		return
	}
	var names []string
	for _, e := range sys.Catalog.Entries() {
		if e.Listing == nil && (only == "" || only == e.Name) && (e.Failure == nil || only != "" || time.Now().After(e.Failure.Retry)) {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	if !u.quiet {
		fmt.Fprintf(u.stdio.Err, "sallyport: asking %s for the first time …\n", count(len(names), "server"))
	}
	ctx, cancel := context.WithTimeout(u.ctx, f.Timeout)
	defer cancel()
	each(names, func(name string) {
		_, _ = sys.Catalog.Want(ctx, name) // the output shows it
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

// toolFound is one tool as search and list print it.
type toolFound struct {
	Server      string  `json:"server"`
	ServerAlias string  `json:"serverAlias"`
	Tool        string  `json:"tool"`
	ToolAlias   string  `json:"toolAlias"`
	Call        string  `json:"call,omitempty"` // how code calls it
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

// findingOf describes a tool. call is how code calls it.
func findingOf(sys *app.System, e catalog.Server, t *tool.Tool, call string) toolFound {
	f := toolFound{
		Server: e.Name, ServerAlias: e.Alias, Tool: t.Name, ToolAlias: t.Alias,
		Description: t.Summary(), Signature: signature.Brief(t.InputSchema, t.OutputSchema), ReadOnly: t.ReadOnly,
		Hidden: hides(t),
	}
	if e.Program == "" { // saved tools
		f.Description, f.Signature = invisible.Line(t.Description), ""
		return f
	}
	f.Call = call
	f.Signature += signature.Learned(sys.Catalog.Shapes(e.Name).Of(t), true)
	f.State = toolState(sys, e, t.Name)
	return f
}

// withTools returns the server, or the saved tools, that the user means. No name
// stands for all.
func withTools(sys *app.System, text string) (string, error) {
	if text == "" || slices.ContainsFunc(sys.SavedEntries(), func(e catalog.Entry) bool { return e.Name == text }) {
		return text, nil
	}
	e, err := entryOf(sys, text)
	return e.Name, err
}

// entryOf returns what is known about the tools of the server that the user means.
func entryOf(sys *app.System, text string) (catalog.Entry, error) {
	now := sys.Library.Snapshot()
	name, err := serverNamed(now, text)
	if err != nil {
		return catalog.Entry{}, err
	}
	e, ok := sys.Catalog.Entry(name)
	if !ok {
		err = unknownServer(name, now)
	}
	return e, err
}

// toolState returns "changed", "new" or "".
func toolState(sys *app.System, e catalog.Server, tool string) string {
	report, err := sys.Pins.Status(pinsOf(e))
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

// hides reports whether a tool's strings contain invisible characters.
func hides(t *tool.Tool) bool {
	if len(invisible.In(t.Name+t.Title)) > 0 || len(invisible.In(t.Description)) > 0 {
		return true
	}
	for _, a := range signature.Arguments(t.InputSchema) {
		if len(invisible.In(a.Name)) > 0 || len(invisible.In(a.Description)) > 0 {
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

// call returns how code calls the tool, for a terminal.
func (f toolFound) call() string {
	if f.Signature == "" { // a saved tool, whose entry has the call
		return invisible.Line(f.Server + "." + f.Tool)
	}
	return invisible.Line(f.Call + f.Signature)
}

type toolsSearchCmd struct {
	toolsFlags
	Query    []string `arg:"" help:"What the tool should do, in plain words."`
	Limit    int      `help:"How many tools to show." default:"5"`
	Server   string   `help:"Only tools of this server." placeholder:"NAME" complete:"servers"`
	ReadOnly bool     `help:"Only tools that their server declares read-only."`
	JSON     bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*toolsSearchCmd) Help() string {
	return `Code searches tools in the same way, with runtime.search_tool_docs("…").

Example:
  sallyport tools search "create an issue"
  sallyport tools search --server github --limit 10 pull request`
}

// Run implements the command.
func (c *toolsSearchCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	if c.Server, err = withTools(sys, c.Server); err != nil {
		return err
	}
	c.learn(u, sys, c.Server)
	hits, missing := sys.Catalog.Search(catalog.Query{
		Text: strings.Join(c.Query, " "), Limit: max(1, c.Limit), Server: c.Server, ReadOnly: c.ReadOnly,
	}, sys.SavedEntries()...)
	out := struct {
		Tools   []toolFound     `json:"tools"`
		LeftOut []serverLeftOut `json:"leftOut,omitempty"`
	}{Tools: []toolFound{}}
	servers, calls := callsOf(sys), map[string]map[string]string{}
	for _, h := range hits {
		if calls[h.Server.Name] == nil {
			if e, ok := sys.Catalog.Entry(h.Server.Name); ok && e.Listing != nil {
				calls[h.Server.Name] = tool.Calls(e.Listing.Tools, e.Denied)
			}
		}
		f := findingOf(sys, h.Server, h.Tool, servers[h.Server.Name]+calls[h.Server.Name][h.Tool.Name])
		f.Score = h.Score
		out.Tools = append(out.Tools, f)
	}
	for _, m := range missing {
		out.LeftOut = append(out.LeftOut, serverLeftOut{m.Server.Name, whyNot(m.Failure)})
	}
	if c.JSON {
		return u.printJSON(out)
	}
	for _, f := range out.Tools {
		fmt.Fprintf(u.stdio.Out, "%s%s\n    %s\n", f.call(), f.mark(), f.Description)
	}
	if len(out.Tools) == 0 {
		fmt.Fprintln(u.stdio.Err, "sallyport: no tools found")
	}
	if catalog.AllWeak(hits) {
		fmt.Fprintln(u.stdio.Err, "sallyport: no tool matches well; these are the nearest")
	}
	for _, l := range out.LeftOut {
		fmt.Fprintf(u.stdio.Err, "sallyport: %s was left out: %s\n", invisible.Line(l.Server), invisible.Line(l.Reason))
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
	Server string `arg:"" optional:"" help:"Only this server, with its resources and prompts." placeholder:"NAME" complete:"servers"`
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
func (c *toolsListCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	name, err := withTools(sys, c.Server)
	if c.Server == "" {
		u.warn(sys.Problems)
	} else {
		u.warnOf(sys, cmp.Or(name, c.Server))
	}
	if err != nil {
		return err
	}
	c.Server = name
	c.learn(u, sys, c.Server)
	servers, calls := []toolsOfServer{}, callsOf(sys)
	for _, e := range append(sys.Catalog.Entries(), sys.SavedEntries()...) {
		if c.Server == "" || c.Server == e.Name {
			servers = append(servers, toolsOf(sys, &e, calls[e.Name]))
		}
	}
	if c.JSON {
		return u.printJSON(struct {
			Servers []toolsOfServer `json:"servers"`
		}{servers})
	}
	for _, s := range servers {
		head := invisible.Line(s.Server)
		if s.Version != "" {
			head += " (" + invisible.Line(s.Name+" "+s.Version) + ")"
		}
		if s.Listed != nil {
			head += ": " + count(len(s.Tools), "tool")
		}
		if s.LeftOut > 0 {
			head += fmt.Sprintf(" (%d left out)", s.LeftOut)
		}
		if s.Problem != "" {
			head += ": " + invisible.Line(s.Problem)
			if s.Retry != nil {
				head += " (asked again after " + s.Retry.Local().Format("2006-01-02 15:04") + ")"
			}
		}
		fmt.Fprintln(u.stdio.Out, u.paint(u.stdio.Out, terminal.Bold, head))
		table := u.table()
		table.Indent = 2
		for _, t := range s.Tools {
			table.Row(invisible.Line(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(t.Call, s.Module), "."), t.Tool))+t.mark(), t.Description)
		}
		if c.Server != "" {
			for _, r := range s.Resources {
				table.Row("resource "+invisible.Line(r.URI), invisible.Line(r.Name))
			}
			for _, p := range s.Prompts {
				table.Row("prompt "+invisible.Line(p.Name), invisible.Line(p.Description))
			}
		}
		if err := table.Write(u.stdio.Out); err != nil {
			return err
		}
	}
	return nil
}

func toolsOf(sys *app.System, e *catalog.Entry, module string) toolsOfServer {
	out := toolsOfServer{Server: e.Name, Module: module, Description: e.About(), Tools: []toolFound{}}
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
	calls := tool.Calls(e.Listing.Tools, e.Denied)
	for i := range e.Listing.Tools {
		t := &e.Listing.Tools[i]
		out.Tools = append(out.Tools, findingOf(sys, e.Server, t, module+calls[t.Name]))
	}
	return out
}

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

type serversCmd struct {
	List    serversListCmd    `cmd:"" default:"withargs" help:"List the servers: configured, disabled, offered by this project, or requested by code."`
	Show    serversShowCmd    `cmd:"" help:"Show everything about one server."`
	Test    serversTestCmd    `cmd:"" unused:"engine,python" help:"Start a server, list its tools, and print how long that took."`
	Add     serversAddCmd     `cmd:"" help:"Define a server in ~/MCPs."`
	Import  serversImportCmd  `cmd:"" help:"Copy the servers of another client, or of a file, into ~/MCPs."`
	Remove  serversRemoveCmd  `cmd:"" name:"remove" aliases:"rm" help:"Remove a server from ~/MCPs."`
	Enable  serversEnableCmd  `cmd:"" help:"Enable servers, whatever their file says."`
	Disable serversDisableCmd `cmd:"" help:"Disable servers, whatever their file says."`
	Login   serversLoginCmd   `cmd:"" help:"Sign in at servers that have a url."`
	Logout  serversLogoutCmd  `cmd:"" help:"Sign out at servers that have a url."`
	Trust   serversTrustCmd   `cmd:"" help:"Review and trust the servers that files in this folder define."`
	Approve serversApproveCmd `cmd:"" help:"Review and grant the servers that code requested."`
}

// serversFlags are the flags of the commands that need no sandbox.
type serversFlags struct {
	ServersConfig []string `help:"File of MCP server definitions that take precedence over those in ~/MCPs. Can be repeated." placeholder:"FILE"`
}

func (f *serversFlags) flags() []settings.Flag {
	if len(f.ServersConfig) == 0 {
		return nil
	}
	return []settings.Flag{{Name: "--servers-config", Key: "servers.config", Values: f.ServersConfig}}
}

type serversListCmd struct {
	serversFlags
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversListCmd) Help() string {
	return `Servers are defined in ~/MCPs/*.json, as {"mcpServers": {"name": {"command": "…", "args": ["…"]}}}, in the files of your other MCP clients, and in the file given with --servers-config. If a name is defined more than once, the first definition counts; 'servers show NAME' lists the others. Servers that files in this folder define are not started until you trust them.

Example:
  sallyport servers
  sallyport servers show filesystem
  sallyport servers test filesystem`
}

// serverLine is one server as list and show print it. It never contains the
// values of environment variables and headers.
type serverLine struct {
	Name         string               `json:"name"`
	Module       string               `json:"module,omitempty"`
	State        string               `json:"state"`            // ready, disabled, offered, changed, requested or rejected
	Reason       string               `json:"reason,omitempty"` // why it is rejected
	Transport    string               `json:"transport,omitempty"`
	Command      string               `json:"command,omitempty"`
	Args         []string             `json:"args,omitempty"`
	URL          string               `json:"url,omitempty"`
	Env          []string             `json:"env,omitempty"`     // names
	Headers      []string             `json:"headers,omitempty"` // names
	Uses         []string             `json:"uses,omitempty"`
	Cwd          string               `json:"cwd,omitempty"`
	Description  string               `json:"description,omitempty"`
	From         string               `json:"from,omitempty"` // the client
	Source       string               `json:"source,omitempty"`
	Line         int                  `json:"line,omitempty"`
	Disabled     bool                 `json:"disabled,omitempty"`
	Shadowed     []definitions.Origin `json:"shadowed,omitempty"`
	AllowTools   []string             `json:"allowTools,omitzero"`
	DenyTools    []string             `json:"denyTools,omitempty"`
	StartTimeout string               `json:"startTimeout,omitempty"`
	CallTimeout  string               `json:"callTimeout,omitempty"`
	Shared       sharedBy             `json:"shared,omitempty"`
	SharedWhy    string               `json:"sharedWhy,omitempty"` // why not by all
	May          []string             `json:"may,omitempty"`       // what it may ask, see servers.may
	MayWhy       string               `json:"mayWhy,omitempty"`    // why nothing
	// Tools that differ from when they were first seen.
	ChangedTools []string `json:"changedTools,omitempty"`
	NewTools     []string `json:"newTools,omitempty"`
	// ChangedOthers and NewOthers are instructions, prompts and resources.
	ChangedOthers []string `json:"changedOthers,omitempty"`
	NewOthers     []string `json:"newOthers,omitempty"`
	// Login is the user's at a server that has a url and uses OAuth.
	Login *loginLine `json:"login,omitempty"`
}

func serverLineOf(a *app.App, d upstream.Definition, module string) serverLine {
	l := serverLine{
		Name: d.Name, Module: module, State: d.State(), Transport: string(d.Transport), Command: d.Command, Args: d.Args, URL: d.URL,
		Env: d.EnvNames, Headers: d.HeaderNames, Uses: d.Uses, Cwd: d.Dir, Description: d.Description,
		From: d.Source, Source: d.File, Line: d.Line, Disabled: d.Disabled, Shadowed: d.Shadowed,
		AllowTools: d.AllowTools, DenyTools: d.DenyTools,
	}
	l.Shared, l.SharedWhy = sharing(a, d)
	l.May, l.MayWhy = a.MayAsk(d.Name)
	if d.StartTimeout > 0 {
		l.StartTimeout = d.StartTimeout.String()
	}
	if d.CallTimeout > 0 {
		l.CallTimeout = d.CallTimeout.String()
	}
	return l
}

// serverLines returns all servers, then requests by code, then rejected
// definitions.
func serverLines(a *app.App, lib *library.Library) []serverLine {
	lines := []serverLine{}
	snapshot := lib.Snapshot()
	module := modules(snapshot.Definitions)
	for _, d := range snapshot.Definitions {
		lines = append(lines, serverLineOf(a, d, module[d.Name]))
	}
	for _, r := range lib.Requests() {
		if _, defined := snapshot.Get(r.Name); !defined {
			l := serverLineOf(a, r.Parsed, "")
			l.State = "requested"
			lines = append(lines, l)
		}
	}
	for _, p := range snapshot.Problems {
		if rejected(p) {
			lines = append(lines, serverLine{Name: p.Server, State: "rejected", Reason: p.Reason, Source: p.File, Line: p.Line})
		}
	}
	return lines
}

// rejected reports whether a problem is the reason why a server is not used.
func rejected(p definitions.Problem) bool { return p.Server != "" && !p.Warning }

// Run implements the command.
func (c *serversListCmd) Run(u *ui) error {
	lib, problems, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	lines := serverLines(u.App, lib)
	u.markChanges(lines, lib.Snapshot())
	u.markLogins(lines, lib)
	if c.JSON {
		return u.printJSON(struct {
			Servers  []serverLine `json:"servers"`
			Problems []string     `json:"problems,omitempty"`
		}{lines, problems})
	}
	if len(lines) == 0 {
		fmt.Fprintln(u.stdio.Out, "No MCP servers are defined. Add one with 'sallyport servers add', put definitions into ~/MCPs/NAME.json, or name a file with --servers-config.")
	} else if err := c.table(u, lines); err != nil {
		return err
	}
	for _, p := range lib.Snapshot().Problems {
		if !rejected(p) { // those are in the table
			u.warn([]string{p.String()})
		}
	}
	return nil
}

// loginColumn is where the table has logins.
const loginColumn = 4

// table prints one line for each server, and below it what waits for the user.
func (c *serversListCmd) table(u *ui, lines []serverLine) error {
	head := []string{"NAME", "MODULE", "COMMAND", "STATE", "FROM"}
	logins := slices.ContainsFunc(lines, func(l serverLine) bool { return l.Login != nil })
	if logins {
		head = slices.Insert(head, loginColumn, "LOGIN")
	}
	t := u.table(head...)
	waiting := map[string]int{}
	for _, l := range lines {
		waiting[l.State]++
		from := cmp.Or(l.Source, "requested by code")
		if l.Reason != "" && l.Line > 0 {
			from += fmt.Sprintf(", line %d", l.Line)
		}
		if l.From != "" && l.From != definitions.NameMCPs {
			from += " (" + l.From + ")"
		}
		if n := len(l.Shadowed); n > 0 {
			from += fmt.Sprintf(", hides %d more", n)
		}
		row := []string{printable(l.Name), l.Module, l.commandLine(), l.State + l.forWhom() + l.why(), printable(from)}
		if logins {
			row = slices.Insert(row, loginColumn, l.Login.short())
		}
		t.Row(row...)
	}
	if err := t.Write(u.stdio.Out); err != nil {
		return err
	}
	if n := waiting["offered"] + waiting["changed"]; n > 0 {
		fmt.Fprintf(u.stdio.Out, "\n%d of them are defined by files in this folder and are not started: review them with 'sallyport servers trust'.\n", n)
	}
	if n := waiting["requested"]; n > 0 {
		fmt.Fprintf(u.stdio.Out, "\n%d of them were requested by code and are not started: review them with 'sallyport servers approve'.\n", n)
	}
	if slices.ContainsFunc(lines, func(l serverLine) bool { return l.changes() != "" }) {
		fmt.Fprintf(u.stdio.Out, "\nTools that changed since they were first seen: 'sallyport tools list NAME' names them, 'sallyport tools show NAME TOOL' shows the change, 'sallyport servers approve NAME' accepts it.\n")
	}
	return nil
}

// forWhom says for whom a server runs that can.
func (l *serverLine) forWhom() string {
	switch {
	case l.State != "ready":
		return ""
	case l.Shared == byAll:
		return " for all"
	}
	return " per " + string(l.Shared)
}

// why explains the state.
func (l *serverLine) why() string {
	if l.Reason != "" {
		return ": " + printable(l.Reason)
	}
	return l.changes()
}

func (l *serverLine) commandLine() string {
	if l.URL != "" {
		return printable(l.URL)
	}
	words := make([]string, 0, len(l.Args)+1)
	for _, word := range append([]string{l.Command}, l.Args...) {
		words = append(words, printable(word))
	}
	return strings.Join(words, " ")
}

// warn prints the problems with the definitions.
func (u *ui) warn(problems []string) {
	for _, p := range problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", u.paint(u.stdio.Err, terminal.Yellow, "warning:"), p)
	}
}

// warnOf prints the problems with the definitions of these servers.
func (u *ui) warnOf(sys *app.System, names ...string) {
	u.warn(problemsOf(sys.Library.Snapshot(), names))
}

// problemsOf returns the problems with the definitions of these servers. A server
// that was not found may be in a file that cannot be read.
func problemsOf(now *library.Snapshot, names []string) (out []string) {
	missing := slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(now.Definitions, func(d library.Definition) bool { return d.Name == name })
	})
	for _, p := range now.Problems {
		if slices.Contains(names, p.Server) || missing && p.Server == "" {
			out = append(out, p.String())
		}
	}
	return out
}

type serversShowCmd struct {
	serversFlags
	Name string `arg:"" help:"The server's name." complete:"all-servers"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversShowCmd) Help() string {
	return `Only the names of variables and headers are shown, not their values.

Example:
  sallyport servers show filesystem`
}

// Run implements the command.
func (c *serversShowCmd) Run(u *ui) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	d, err := find(lib, c.Name)
	if err != nil {
		return err
	}
	l := serverLineOf(u.App, d, modules(lib.Snapshot().Definitions)[d.Name])
	report := u.ToolChanges(d)
	l.ChangedTools, l.NewTools = report.Changed, report.New
	l.ChangedOthers, l.NewOthers = report.OtherChanged, report.OtherNew
	manager, done := u.Logins(lib)
	defer done()
	l.Login = loginAt(manager, d.Name)
	if c.JSON {
		return u.printJSON(l)
	}
	t := u.table()
	say := func(what, value string) {
		if value != "" {
			t.Row(what, value)
		}
	}
	list := func(values []string) string {
		out := make([]string, len(values))
		for i, v := range values {
			out[i] = printable(v)
		}
		return strings.Join(out, ", ")
	}
	say("name", printable(l.Name))
	say("state", l.State+wayOut(l))
	say("module", l.Module)
	say("changed tools", list(l.ChangedTools))
	say("new tools", list(l.NewTools))
	say("changed others", list(l.ChangedOthers))
	say("new others", list(l.NewOthers))
	if l.Description != "" {
		say("description", printable(l.Description))
	}
	say("transport", l.Transport)
	if l.URL != "" {
		say("url", l.commandLine())
	} else {
		say("command", l.commandLine())
	}
	if l.Cwd != "" {
		say("runs in", printable(l.Cwd))
	}
	say("variables", list(l.Env))
	say("headers", list(l.Headers))
	l.Login.rows(l.Name, say)
	say("your variables used", list(l.Uses))
	switch {
	case l.AllowTools != nil && len(l.AllowTools) == 0:
		say("only tools", "none")
	default:
		say("only tools", list(l.AllowTools))
	}
	say("not tools", list(l.DenyTools))
	say("runs", l.Shared.explain(l.SharedWhy))
	say("may ask", l.mayAsk())
	say("start timeout", l.StartTimeout)
	say("call timeout", l.CallTimeout)
	say("defined in", fmt.Sprintf("%s, line %d (%s)", printable(l.Source), l.Line, l.From))
	for _, o := range l.Shadowed {
		say("hides", fmt.Sprintf("%s, line %d (%s)", printable(o.File), o.Line, o.Source))
	}
	return t.Write(u.stdio.Out)
}

// mayAsk says what a server may ask while it works on a call.
func (l *serverLine) mayAsk() string {
	if len(l.May) == 0 {
		return "nothing: " + l.MayWhy
	}
	var parts []string
	for _, word := range l.May {
		switch word {
		case settings.MayElicit:
			parts = append(parts, "you")
		case settings.MaySample:
			parts = append(parts, "the client's model")
		}
	}
	return strings.Join(append(parts, "for the client's roots"), ", ")
}

// wayOut returns how to make a server ready.
func wayOut(l serverLine) string {
	switch l.State {
	case "disabled":
		return ": sallyport servers enable " + terminal.ShellWord(invisible.Line(l.Name))
	case "offered", "changed":
		return ": sallyport servers trust " + terminal.ShellWord(invisible.Line(l.Name))
	}
	return ""
}

package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// connection is the state of one client.
type connection struct {
	Client   string   `json:"client"`
	Title    string   `json:"title"`
	File     string   `json:"file"`
	State    string   `json:"state"` // connected, failed, disabled, absent or unchecked
	Name     string   `json:"name,omitempty"`
	Command  string   `json:"command,omitempty"`
	Server   string   `json:"server,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Tools    []string `json:"tools,omitempty"`
	StartMs  int64    `json:"startMs,omitempty"`
	Error    string   `json:"error,omitempty"`
	Warning  string   `json:"warning,omitempty"` // why it works now, but not for long or not everywhere
	Others   int      `json:"otherServers"`      // that the agent still sees
}

// status starts the connections of clients.
func (c *installCmd) status(u *ui, m connect.Machine) error {
	flags := clientFlags{Clients: c.Clients, Project: c.Project}
	if len(flags.Clients) > 0 && flags.Clients[0] == "status" {
		flags.Clients = flags.Clients[1:]
	}
	flags.All = len(flags.Clients) == 0
	targets, err := flags.targets(m)
	if err != nil {
		return err
	}
	lines, failed := []connection{}, false
	for _, t := range targets {
		l := c.check(u, m, t)
		failed = failed || l.State == "failed"
		lines = append(lines, l)
	}
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if c.JSON {
		err = u.printJSON(struct {
			Clients []connection `json:"clients"`
		}{lines})
	} else {
		err = connectionTable(u, lines)
	}
	if err == nil && failed {
		return exitError(exitFailed)
	}
	return err
}

// check starts the connection of one client.
func (c *installCmd) check(u *ui, m connect.Machine, t definitions.Target) connection {
	l := connection{Client: t.Client.Name, Title: t.Client.Title, File: t.File, State: "absent"}
	kept, err := m.Look(t)
	if err != nil {
		l.State, l.Error = "failed", err.Error()
		return l
	}
	for _, d := range kept.Servers {
		if !slices.Contains(kept.Own, d.Name) && !d.Disabled {
			l.Others++
		}
	}
	if k := kept; k.Fleeting != "" {
		l.Warning = fmt.Sprintf("%s. Repair it: %s install %s", k.Fleeting, m.Running().Find().Again(), l.Client)
	}
	if note := m.Trust(t); note != "" && len(kept.Own) > 0 {
		l.Warning = strings.TrimPrefix(l.Warning+". "+note, ". ")
	}
	if kept.Foreign != "" {
		l.Error = fmt.Sprintf("its entry named %s starts another program", connect.Name)
	}
	var own []definitions.Definition
	for _, d := range kept.Servers {
		if slices.Contains(kept.Own, d.Name) {
			own = append(own, d)
		}
	}
	if len(own) == 0 {
		return l
	}
	d := own[max(0, slices.IndexFunc(own, func(d definitions.Definition) bool { return !d.Disabled }))]
	l.Name, l.Command = d.Name, d.CommandLine()
	switch {
	case d.Disabled:
		l.State = "disabled"
		return l
	case d.Remote() != nil:
		l.State, l.Error = "failed", "it has a URL, not a command"
		return l
	case t.Project != "" && !nothingElse(m.Self, d.Launch()):
		// Whoever wrote the project's file does not start programs here.
		l.State, l.Error = "unchecked", "a project's entry is not started unless it is this program with 'serve' alone: "+l.Command
		return l
	}
	ctx, cancel := context.WithTimeout(u.ctx, c.Timeout)
	defer cancel()
	health, err := connect.Check(ctx, d.Launch(), os.Environ(), u.Version)
	if err != nil {
		l.State, l.Error = "failed", d.Redact(err.Error())
		return l
	}
	l.State, l.Server, l.Protocol, l.Tools, l.StartMs = "connected", health.Server, health.Protocol, health.Tools, health.Took.Milliseconds()
	return l
}

// nothingElse reports whether an entry starts this very program, with nothing more.
func nothingElse(self definitions.Self, l *definitions.Launch) bool {
	return self.IsFile(l.Command) && slices.Equal(l.Args, []string{"serve"}) && len(l.Env) == 0 && l.Dir == ""
}

func connectionTable(u *ui, lines []connection) error {
	w := tabwriter.NewWriter(u.stdio.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tSTATE\tDETAILS")
	for _, l := range lines {
		details := ""
		switch l.State {
		case "connected":
			details = fmt.Sprintf("%s, protocol %s, tools: %s, in %d ms", invisible.Line(l.Server), invisible.Line(l.Protocol), invisible.Line(strings.Join(l.Tools, ", ")), l.StartMs)
			if l.Others > 0 {
				details += fmt.Sprintf("; the client also has %s", count(l.Others, "other server"))
			}
		case "failed", "unchecked":
			details = invisible.Line(l.Error)
		case "absent":
			details = "connect it: sallyport install " + l.Client
			if l.Error != "" {
				details = l.Error + "; " + details
			}
		case "disabled":
			details = fmt.Sprintf("switched off in %s; switch it on: sallyport install %s", printable(l.File), l.Client)
		}
		if l.Warning != "" {
			details += ". Warning: " + invisible.Line(l.Warning)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Client, l.State, details)
	}
	return w.Flush()
}

// fleetingConnections returns the clients whose entry for Sallyport will not work
// for long.
func (u *ui) fleetingConnections() (found []app.Finding) {
	m, err := u.machine()
	if err != nil {
		return nil
	}
	targets, err := (&clientFlags{All: true}).targets(m)
	if err != nil {
		return nil // no client
	}
	for _, t := range targets {
		if kept, err := m.Look(t); err == nil && kept.Fleeting != "" {
			found = append(found, app.Finding{Check: "clients", Level: app.FindingWarn, Text: fmt.Sprintf("%s: %s. Repair it: %s install %s",
				t.Client.Title, kept.Fleeting, m.Running().Find().Again(), t.Client.Name)})
		}
	}
	return found
}

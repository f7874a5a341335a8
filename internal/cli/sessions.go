package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/session"
)

type sessionsCmd struct {
	List    sessionsListCmd    `cmd:"" default:"withargs" help:"List the sessions of every running Sallyport, and suspended ones."`
	Show    sessionsShowCmd    `cmd:"" help:"Show a session, and what is still running in it."`
	Reset   sessionsResetCmd   `cmd:"" help:"Delete the variables and files of sessions, so that they start anew. Their logs are kept."`
	Suspend sessionsSuspendCmd `cmd:"" help:"Suspend sessions to disk, which frees their memory."`
	Resume  sessionsResumeCmd  `cmd:"" help:"Resume suspended sessions before they are used."`
	Put     sessionsPutCmd     `cmd:"" help:"Copy files of this computer into a session."`
	Get     sessionsGetCmd     `cmd:"" help:"Copy files out of a session."`
	Export  sessionsExportCmd  `cmd:"" help:"Write the files of a session, and the source of what it ran, to an archive."`
	Import  sessionsImportCmd  `cmd:"" help:"Create a session with the files of an archive."`
	Remove  sessionsRemoveCmd  `cmd:"" name:"rm" help:"Remove sessions and their logs."`
	Logs    sessionsLogsCmd    `cmd:"" help:"Print the output of a session's executions, or their source."`
}

// tellProblems prints problems that do not prevent an answer.
func (u *ui) tellProblems(s *app.Sessions) {
	for _, p := range s.Problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", p)
	}
}

type sessionsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsListCmd) Help() string {
	return `Named sessions were requested by an agent with the argument session, or by you with 'sallyport run --session'. Every Sallyport that serves a client has one more session, without a name, which ends with that Sallyport: default@PROCESS.

A session is running in one process, suspended on disk, where any of your Sallyports finds it, or gone; then its next result says why.

Examples:
  sallyport sessions
  sallyport sessions list --json | jq '.sessions[] | select(.status == "running") | .address'`
}

// Run implements the command.
func (c *sessionsListCmd) Run(u *ui) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	u.tellProblems(s)
	total, err := s.Shelf.Total()
	if err != nil {
		return err
	}
	if c.JSON {
		if s.All == nil {
			s.All = []app.KnownSession{}
		}
		return u.printJSON(struct {
			Sessions []app.KnownSession `json:"sessions"`
			Disk     int64              `json:"diskBytes"`
			MaxDisk  int64              `json:"maxDiskBytes"`
		}{s.All, total, u.Settings.Sessions.MaxDisk})
	}
	if len(s.All) == 0 {
		fmt.Fprintln(u.stdio.Out, "There are no sessions: no Sallyport serves a client, and none is suspended.")
		return nil
	}
	environment := "" // no column
	if slices.ContainsFunc(s.All, func(k app.KnownSession) bool { return k.Environment != "" }) {
		environment = "ENVIRONMENT"
	}
	folders := "" // no column
	if slices.ContainsFunc(s.All, func(k app.KnownSession) bool { return len(k.Folders) > 0 }) {
		folders = "FOLDERS"
	}
	t := u.table("SESSION", "STATUS", environment, folders, "PROCESS", "CLIENT", "USED", "RUNS", "MEMORY", "DISK", "STILL RUNNING")
	for _, k := range s.All {
		status := string(k.Status)
		switch {
		case k.Turn != "":
			status += ", waits: " + printable(k.Turn)
		case k.Waiting > 0:
			status += ", busy"
		}
		t.Row(printable(k.Address), status, printable(k.Environment), foldersOf(&k), dash(k.Process), clientsOf(&k),
			ago(k.Used), strconv.FormatUint(k.Executions, 10), memoryNow(k.Memory), bytesOrDash(k.Disk), counts(&k))
	}
	if err := t.Write(u.stdio.Out); err != nil {
		return err
	}
	if total > 0 {
		fmt.Fprintf(u.stdio.Out, "Suspended sessions take %s on disk, of at most %s.\n", readable(total), readable(u.Settings.Sessions.MaxDisk))
	}
	return nil
}

// foldersOf names the folders of this computer that a session sees, where it sees them.
func foldersOf(k *app.KnownSession) string {
	var places []string
	for _, m := range k.Folders {
		places = append(places, printable(m.Target))
	}
	return strings.Join(places, ", ")
}

// clientsOf names the clients of a session.
func clientsOf(k *app.KnownSession) string {
	var names []string
	if k.Client != "" {
		names = append(names, printable(k.Client))
	}
	for _, user := range k.Users {
		if name := userName(user); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}

// userName is a client's own name, or its ID before it has one.
func userName(u session.User) string { return printable(cmp.Or(u.Client, "client "+u.ID)) }

type sessionsShowCmd struct {
	Name string `arg:"" help:"The session, as 'sallyport sessions' lists it." complete:"sessions"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsShowCmd) Help() string {
	return `What is still running is what the code left behind when its last execution ended: threads, asyncio tasks and child processes, as the sandbox reports them. In a suspended session they continue when it is resumed.

Examples:
  sallyport sessions show analysis
  sallyport sessions show default@4711`
}

// Run implements the command.
func (c *sessionsShowCmd) Run(u *ui) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	k, err := s.Find(c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(k)
	}
	t := u.table()
	row := func(what, text string) {
		if text != "" && text != "-" {
			t.Row(what, text)
		}
	}
	row("session", printable(k.Address))
	status := string(k.Status)
	if k.Waiting > 0 {
		status += fmt.Sprintf(", %d executions run or wait", k.Waiting)
	}
	if k.Turn != "" {
		status += ", for their turn: " + printable(k.Turn)
	}
	row("status", status)
	if k.Environment != "" {
		row("environment", printable(k.Environment))
	}
	for _, m := range k.Folders {
		row("folder", printable(fmt.Sprintf("%s at %s (%s)", m.Source, m.Target, m.Mode)))
	}
	row("lost", invisible.Line(k.Lost))
	row("process", dash(k.Process))
	if k.Client != "" {
		row("client", printable(k.Client))
	}
	for i, user := range k.Users {
		what := ""
		if i == 0 {
			what = "used by"
		}
		row(what, userName(user)+", since "+user.Since.Local().Format(time.DateTime))
	}
	row("created", k.Created.Local().Format(time.DateTime))
	row("last used", k.Used.Local().Format(time.DateTime)+" ("+ago(k.Used)+")")
	row("executions", strconv.FormatUint(k.Executions, 10))
	row("memory", memoryNow(k.Memory))
	if k.CPU != nil {
		row("processor time", k.CPU.Round(10*time.Millisecond).String())
	}
	row("on disk", bytesOrDash(k.Disk))
	row("still running", counts(k))
	for _, r := range k.Running {
		row("", printable(r))
	}
	row("log", k.Log)
	return t.Write(u.stdio.Out)
}

// counts summarizes what is running in a session.
func counts(k *app.KnownSession) string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{k.Background.Threads, "thread", "threads"}, {k.Background.Tasks, "task", "tasks"}, {k.Background.Children, "child process", "child processes"},
	} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// each calls do for every named session, and continues after a failure.
func (u *ui) each(names []string, do func(s *app.Sessions, k *app.KnownSession) error) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		k, err := s.Find(name)
		if err == nil {
			err = do(s, k)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sessions finds the sessions of all processes and on disk.
func (u *ui) sessions() (*app.Sessions, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	return u.FindSessions(u.ctx), nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sallyport/internal/broker"
	"sallyport/internal/control"
	"sallyport/internal/hidden"
	"sallyport/internal/session"
	"sallyport/internal/settings"
	"sallyport/internal/state"
)

// answerTimeout is how long a process may take to say what it has.
const answerTimeout = 5 * time.Second

type sessionsCmd struct {
	List      sessionsListCmd      `cmd:"" default:"withargs" help:"List sessions: of every running Sallyport, and those that sleep."`
	Show      sessionsShowCmd      `cmd:"" help:"Say all there is about a session, and what still runs in it."`
	Reset     sessionsResetCmd     `cmd:"" help:"Forget sessions' variables and files: they begin anew. Their logs stay."`
	Hibernate sessionsHibernateCmd `cmd:"" help:"Lay sessions to sleep on disk, which frees their memory."`
	Wake      sessionsWakeCmd      `cmd:"" help:"Wake sessions that sleep, before they are used."`
	Export    sessionsExportCmd    `cmd:"" help:"Write a session's files and the source of what it ran to an archive."`
	Import    sessionsImportCmd    `cmd:"" help:"Make a new session with the files of an archive."`
	Remove    sessionsRemoveCmd    `cmd:"" name:"rm" help:"Remove sessions and their logs."`
	Logs      sessionsLogsCmd      `cmd:"" help:"Print what the executions of a session wrote, or what they ran."`
}

// known is a session as the command line finds it.
type known struct {
	session.Info
	// Address is what it is called by: its name, with the process where that
	// alone does not tell.
	Address string `json:"address"`

	process *control.Process // that has it; nil: it lies on disk, or its process does not answer
	client  *control.Client
}

// asked is the name as its process knows it.
func (k *known) asked() string {
	if k.Unnamed {
		return ""
	}
	return k.Name
}

// sessions is what there is, of all processes and on disk.
type sessions struct {
	all       []known
	processes []*control.Process
	clients   map[*control.Process]*control.Client
	shelf     *session.Shelf
	stateDir  string
	problems  []string
}

// sessions asks every running Sallyport and reads the records.
func (a *app) sessions() (*sessions, error) {
	if err := a.configure(); err != nil {
		return nil, err
	}
	s := &sessions{clients: map[*control.Process]*control.Client{}, stateDir: a.settings.StateDir}
	s.shelf = session.NewShelf(session.Config{
		Logger: a.log, Records: state.At(s.stateDir).Sub("sessions"), Snapshots: snapshots(s.stateDir), Logs: logs(s.stateDir),
	})
	s.ask(a)
	disk, err := s.shelf.List()
	if err != nil {
		s.problems = append(s.problems, "records of sessions: "+err.Error())
	}
	s.merge(disk)
	return s, nil
}

// ask asks the processes.
func (s *sessions) ask(a *app) {
	ctx, cancel := context.WithTimeout(a.ctx, answerTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, dir := range a.env.runtimeDirs() {
		if dir = filepath.Join(dir, controlDir); seen[dir] {
			continue
		}
		seen[dir] = true
		found, err := control.Find(dir)
		if err != nil {
			s.problems = append(s.problems, err.Error())
		}
		for _, c := range found {
			asking.Go(func() {
				p, err := c.Process(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					s.problems = append(s.problems, err.Error())
					return
				}
				s.processes, s.clients[&p] = append(s.processes, &p), c
			})
		}
	}
	asking.Wait()
	slices.SortFunc(s.processes, func(a, b *control.Process) int {
		return a.Started.Compare(b.Started)
	})
}

// merge puts together what processes say and what lies on disk: a session is
// one thing, whoever tells of it.
func (s *sessions) merge(disk []session.Info) {
	onDisk := map[string]*session.Info{}
	for i := range disk {
		onDisk[disk[i].Name] = &disk[i]
	}
	for _, p := range s.processes {
		for _, i := range p.Sessions {
			k := known{Info: i, Address: i.Name, process: p, client: s.clients[p]}
			d := onDisk[i.Name]
			switch {
			case i.Unnamed, p.StateDir != s.stateDir:
				k.Address = i.Name + "@" + strconv.Itoa(p.PID)
			case d == nil:
			case d.Status == session.Awake && d.Process == p.PID, i.Status == session.Awake:
				delete(onDisk, i.Name)
			default:
				continue // it went on without this process
			}
			s.all = append(s.all, k)
		}
	}
	for _, i := range disk {
		if onDisk[i.Name] == nil {
			continue
		}
		answered := slices.ContainsFunc(s.processes, func(p *control.Process) bool { return p.PID == i.Process })
		if i.Status == session.Awake && !answered { // else it woke after the answer
			s.problems = append(s.problems, fmt.Sprintf("process %d, where %s is awake, does not say more about it", i.Process, i.Name))
		}
		s.all = append(s.all, known{Info: i, Address: i.Name})
	}
	slices.SortStableFunc(s.all, func(a, b known) int { return b.Used.Compare(a.Used) })
}

// find is the session that an address means.
func (s *sessions) find(address string) (*known, error) {
	name, process, qualified := strings.Cut(address, "@")
	if name == "" {
		name = broker.DefaultSession
	}
	var found []*known
	for i := range s.all {
		k := &s.all[i]
		if k.Name == name && (!qualified && (k.process == nil || k.process.StateDir == s.stateDir) ||
			qualified && k.process != nil && strconv.Itoa(k.process.PID) == process) {
			found = append(found, k)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var addresses []string
	for _, k := range s.all {
		addresses = append(addresses, k.Address)
	}
	if len(found) > 1 {
		var these []string
		for _, k := range found {
			these = append(these, k.Address)
		}
		return nil, fmt.Errorf("%s is in several processes: name one of %s", address, strings.Join(these, ", "))
	}
	err := fmt.Errorf("%w: %q", session.ErrUnknown, address)
	if near, ok := settings.Nearest(address, addresses, "@"); ok {
		return nil, fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return nil, fmt.Errorf("%w; 'sallyport sessions' lists them", err)
}

// tell says what went wrong beside the answer.
func (s *sessions) tell(a *app) {
	for _, p := range s.problems {
		fmt.Fprintln(a.stdio.Err, "sallyport:", p)
	}
}

type sessionsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsListCmd) Help() string {
	return `Named sessions are those that an agent asked for with the argument session, or you with 'sallyport run --session'. Every Sallyport that serves a client has one more, without a name, which ends with it: default@PROCESS.

A session is awake in one process, asleep on disk, where any of your Sallyports finds it, or gone; then its next result says why.

Examples:
  sallyport sessions
  sallyport sessions list --json | jq '.sessions[] | select(.status == "awake") | .address'`
}

// Run implements the command.
func (c *sessionsListCmd) Run(a *app) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	s.tell(a)
	total, err := s.shelf.Total()
	if err != nil {
		return err
	}
	if c.JSON {
		if s.all == nil {
			s.all = []known{}
		}
		return a.printJSON(struct {
			Sessions []known `json:"sessions"`
			Disk     int64   `json:"diskBytes"`
			MaxDisk  int64   `json:"maxDiskBytes"`
		}{s.all, total, a.settings.Sessions.MaxDisk})
	}
	if len(s.all) == 0 {
		fmt.Fprintln(a.stdio.Out, "There are no sessions: no Sallyport serves a client, and none sleep.")
		return nil
	}
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tSTATUS\tPROCESS\tCLIENT\tUSED\tRUNS\tMEMORY\tDISK\tSTILL RUNNING")
	for _, k := range s.all {
		status := string(k.Status)
		if k.Waiting > 0 {
			status += ", busy"
		}
		client := "-"
		if k.Client != "" {
			client = firstLine(printable(k.Client), 24)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", printable(k.Address), status, dash(k.Process), client,
			ago(k.Used), k.Executions, memoryNow(k.Memory), bytesOrDash(k.Disk), counts(k))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if total > 0 {
		fmt.Fprintf(a.stdio.Out, "Those that sleep take %s on disk, of %s that they may take.\n", readable(total), readable(a.settings.Sessions.MaxDisk))
	}
	return nil
}

type sessionsShowCmd struct {
	Name string `arg:"" help:"The session, as 'sallyport sessions' lists it."`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsShowCmd) Help() string {
	return `What still runs is what the code has left running when its last execution ended: threads, asyncio tasks and child processes, in the words of the sandbox. In a session that sleeps it goes on when that wakes.

Examples:
  sallyport sessions show analysis
  sallyport sessions show default@4711`
}

// Run implements the command.
func (c *sessionsShowCmd) Run(a *app) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	k, err := s.find(c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(k)
	}
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	row := func(what, text string) {
		if text != "" && text != "-" {
			fmt.Fprintf(w, "%s\t%s\n", what, text)
		}
	}
	row("session", printable(k.Address))
	status := string(k.Status)
	if k.Waiting > 0 {
		status += fmt.Sprintf(", %d executions run or wait", k.Waiting)
	}
	row("status", status)
	row("lost", hidden.Line(k.Lost))
	row("process", dash(k.Process))
	if k.Client != "" {
		row("client", printable(k.Client))
	}
	row("created", k.Created.Local().Format(time.DateTime))
	row("last used", k.Used.Local().Format(time.DateTime)+" ("+ago(k.Used)+")")
	row("executions", strconv.FormatUint(k.Executions, 10))
	row("memory", memoryNow(k.Memory))
	if k.CPU != nil {
		row("processor time", k.CPU.Round(10*time.Millisecond).String())
	}
	row("on disk", bytesOrDash(k.Disk))
	row("still running", counts(*k))
	for _, r := range k.Running {
		row("", printable(r))
	}
	row("log", k.Log)
	return w.Flush()
}

// counts is what goes on in a session.
func counts(k known) string {
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

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func memoryNow(n *int64) string {
	if n == nil {
		return "-"
	}
	return readable(*n)
}

func bytesOrDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return readable(n)
}

// readable is a number of bytes for people.
func readable(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/(1<<10), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/(1<<10), u+1
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %cB", v, units[u])
	}
	return fmt.Sprintf("%.0f %cB", v, units[u])
}

// ago is how long something is past.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "-"
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// each does something with every session that is named, and goes on after a
// failure.
func (a *app) each(names []string, do func(s *sessions, k *known) error) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		k, err := s.find(name)
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

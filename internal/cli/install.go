package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// clientFlags choose clients and what to do with their files.
type clientFlags struct {
	Clients []string `arg:"" optional:"" name:"client" help:"The clients, such as claude-code, codex or cursor." complete:"clients"`
	All     bool     `help:"All clients that are found on this machine."`
	Project bool     `help:"Use the clients' files in this folder, for everyone who works in it, instead of your own."`
	DryRun  bool     `help:"Show the changes, and write nothing."`
	Yes     bool     `help:"Write without asking." short:"y"`
	JSON    bool     `help:"Print JSON. Writes only together with --yes." name:"json"`

	force bool // also replace the entry of another program without asking
}

type installCmd struct {
	clientFlags
	Status   bool          `help:"Start each client's connection as the client would, and ask it for its tools. The exit status is 1 if one does not work."`
	Timeout  time.Duration `help:"With --status: how long a connection may take to start." default:"30" placeholder:"TIME" type:"seconds"`
	TakeOver bool          `help:"Also move the client's other servers behind Sallyport: copy them to ~/MCPs, and switch them off in the client, so that the agent reads one tool only."`
	GiveBack bool          `help:"Undo the last --take-over: restore the client's file and ~/MCPs to the byte."`
	Undo     bool          `help:"Restore the files to the byte as they were before the last change, or the last change of the given clients."`
	Force    bool          `help:"With --yes: also replace the entry of another program that has our name."`
	Link     string        `help:"Print a link that makes a client offer to add Sallyport: vscode, cursor or goose." placeholder:"CLIENT"`
}

// Help implements kong's HelpProvider.
func (*installCmd) Help() string {
	return `Shows the change in each client's configuration file, and asks before it writes. Comments and order stay as they are. What was there before is kept in the state directory, and --undo restores it to the byte, or only the entries where the client has written to the file since. The clients are: ` + strings.Join(clientNames(), ", ") + `.

Examples:
  sallyport install claude-code cursor
  sallyport install --all --dry-run
  sallyport install --project vscode
  sallyport install --status
  sallyport install --undo`
}

type uninstallCmd struct{ clientFlags }

// Help implements kong's HelpProvider.
func (*uninstallCmd) Help() string {
	return `Removes the entries that start Sallyport from the clients' configuration files, and nothing else.

Examples:
  sallyport uninstall cursor
  sallyport uninstall --all --yes`
}

func clientNames() (names []string) {
	for _, c := range definitions.Clients() {
		names = append(names, c.Name)
	}
	return names
}

// machine returns where clients are looked for.
func (u *ui) machine() (connect.Machine, error) {
	executable, err := os.Executable()
	if err != nil {
		return connect.Machine{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	if u.Env.Home() == "" {
		return connect.Machine{}, errors.New("there is no home directory, and so no file of a client: set HOME")
	}
	return connect.Machine{
		Places: definitions.Places{OS: runtime.GOOS, Home: u.Env.Home(), Dir: dir, Env: u.Env.Lookup},
		Self:   definitions.Self{Executable: executable},
	}, nil
}

func (u *ui) connections() connect.Journal {
	return connect.Journal{Dir: u.State().Area(store.Connections)}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func onPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// known returns the client of a name.
func known(name string) (*definitions.Client, error) {
	if c, ok := definitions.ClientNamed(name); ok {
		return c, nil
	}
	return nil, fmt.Errorf("there is no client %q; the known clients: %s", name, strings.Join(clientNames(), ", "))
}

var errNoClient = errors.New("no client was found on this machine")

// targets returns the files of the chosen clients.
func (f *clientFlags) targets(m connect.Machine) ([]definitions.Target, error) {
	var chosen []*definitions.Client
	present := slices.DeleteFunc(definitions.Clients(), func(c *definitions.Client) bool { return !c.Present(m.Places, exists, onPath) })
	for _, name := range f.Clients {
		c, err := known(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(chosen, c) {
			chosen = append(chosen, c)
		}
	}
	var names []string
	for _, c := range present {
		names = append(names, c.Name)
	}
	switch {
	case f.All && len(chosen) > 0:
		return nil, errors.New("give either clients or --all")
	case f.All && len(present) == 0:
		return nil, fmt.Errorf("%w; name one to connect it anyway: %s", errNoClient, strings.Join(clientNames(), ", "))
	case f.All:
		chosen = present
	case len(chosen) == 0 && len(present) == 0:
		return nil, fmt.Errorf("name a client; none was found on this machine. The known clients: %s", strings.Join(clientNames(), ", "))
	case len(chosen) == 0:
		return nil, fmt.Errorf("name a client, or give --all; found on this machine: %s", strings.Join(names, ", "))
	}
	var out []definitions.Target
	for _, c := range chosen {
		t, ok := c.Target(m.Places, f.Project, exists)
		if !ok && !f.All {
			return nil, fmt.Errorf("%s has no file for a project", c.Title)
		}
		if ok {
			out = append(out, t)
		}
	}
	return out, nil
}

// Run implements the command.
func (c *installCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	m, err := u.machine()
	if err != nil {
		return err
	}
	switch {
	case c.Status || len(c.Clients) > 0 && c.Clients[0] == "status":
		return c.status(u, m)
	case c.Link != "":
		link, err := connect.Link(c.Link, connect.Name)
		if err == nil {
			fmt.Fprintln(u.stdio.Out, link)
		}
		return err
	case c.Undo, c.GiveBack:
		return c.undo(u)
	}
	targets, err := c.targets(m)
	if err != nil {
		return err
	}
	start, notes, err := c.start(m)
	if err != nil {
		return err
	}
	c.force = c.Force
	if c.TakeOver {
		return c.takeOver(u, m, targets, start, notes)
	}
	return c.carryOut(u, "install", u.installPlans(m, targets, start), notes)
}

// Run implements the command.
func (c *uninstallCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	m, err := u.machine()
	if err != nil {
		return err
	}
	targets, err := c.targets(m)
	if err != nil {
		return err
	}
	var plans []planned
	for _, t := range targets {
		plans = append(plans, u.plan(m, t, func(k connect.Kept) (connect.Change, string, error) {
			change, err := k.Uninstall()
			return change, "remove", err
		}))
	}
	return c.carryOut(u, "uninstall", plans, nil)
}

// carryOut shows the changes, asks, and writes them.
func (f *clientFlags) carryOut(u *ui, action string, plans []planned, notes []string) error {
	todo, failed := f.show(u, action, plans, notes)
	write := todo > 0 && !f.DryRun && f.Yes
	if todo > 0 && !f.DryRun && !f.Yes && !f.JSON {
		if !terminal.Is(u.stdio.In) {
			return errors.New("nothing was written: there is no terminal to ask on; --yes writes without asking")
		}
		if write = u.agreed(fmt.Sprintf("Write %s?", count(todo, "file"))); !write {
			return cmp.Or(u.ctx.Err(), errors.New("nothing was written; --yes writes without asking"))
		}
	}
	if write {
		failed += f.write(u, action, plans)
	}
	if f.JSON {
		for i := range plans {
			plans[i].Notes = append(plans[i].Notes, notes...)
		}
		if err := u.printJSON(struct {
			Clients []planned `json:"clients"`
		}{plans}); err != nil {
			return err
		}
	}
	return f.summary(u, plans, failed)
}

// summary fails if a client's file could not be changed, and names those clients
// where there are others.
func (f *clientFlags) summary(u *ui, plans []planned, failed int) error {
	if failed == 0 {
		return nil
	}
	var names []string
	for _, p := range plans {
		if p.Error != "" {
			names = append(names, p.Title)
		}
	}
	if !f.JSON && len(plans) > 1 {
		fmt.Fprintf(u.stdio.Err, "sallyport: not changed, as said above: %s (%d of %s)\n", strings.Join(names, ", "), len(names), count(len(plans), "client"))
	}
	return exitError(exitFailed)
}

// write makes the changes, and returns how many could not be made.
func (f *clientFlags) write(u *ui, action string, plans []planned) (failed int) {
	group := connect.NewGroup()
	for i := range plans {
		p := &plans[i]
		if p.Error != "" || p.Action == "none" {
			continue
		}
		record, err := u.connections().Apply(group, action, p.changes)
		if err != nil {
			failed++
			p.Error = err.Error()
			if !f.JSON {
				fmt.Fprintf(u.stdio.Err, "sallyport: %s: %s\n", p.Title, escaped(p.Error))
			}
			continue
		}
		p.Written, p.Backup = true, u.connections().Backup(record.Files[len(record.Files)-1])
		if !f.JSON {
			fmt.Fprintf(u.stdio.Out, "Wrote %s%s\n", printable(p.File), backupNote(p.Backup))
		}
	}
	if !f.JSON && action != "uninstall" {
		undo := map[string]string{"install": "undo", "take-over": "give-back"}[action]
		again := connect.Name
		if m, err := u.machine(); err == nil {
			again = m.Running().Find().Again()
		}
		fmt.Fprintf(u.stdio.Out, "Restart the client, then check with: %s install --status. Undo: %[1]s install --%s\n", printable(again), undo)
	}
	if action != "uninstall" && failed < len(plans) {
		u.compile()
	}
	return failed
}

// compile compiles the embedded interpreter, where it is what runs code, so that the
// client's first call need not wait for it. What goes wrong that call reports.
func (u *ui) compile() {
	core, err := u.NewCore(app.Options{})
	if err != nil {
		u.Log.Debug("nothing was compiled", "reason", err)
		return
	}
	defer core.Close()
	u.await(core.PendingCompilation(u.ctx))
}

func backupNote(path string) string {
	if path == "" {
		return ""
	}
	return fmt.Sprintf(" (before: %s)", printable(path))
}

// indented puts what a file holds apart from what we say.
func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
}

// undo restores the files of the last change, or of the last of each client.
func (c *installCmd) undo(u *ui) error {
	for _, name := range c.Clients {
		if _, err := known(name); err != nil {
			return err
		}
	}
	journal := u.connections()
	records, err := journal.Records()
	if err != nil {
		return err
	}
	var chosen []connect.Record
	for _, r := range records {
		switch {
		case c.GiveBack && r.Action != "take-over":
		case len(c.Clients) == 0 && len(chosen) > 0 && r.Group != chosen[0].Group:
		case len(c.Clients) > 0 && (!slices.Contains(c.Clients, r.Client()) ||
			slices.ContainsFunc(chosen, func(other connect.Record) bool { return other.Client() == r.Client() })):
		default:
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return errors.New("there is nothing to undo")
	}
	for _, r := range chosen {
		for _, w := range r.Files {
			fmt.Fprintf(u.stdio.Out, "%s: as before '%s' on %s\n", printable(w.File), r.Action, r.Time.Local().Format("2006-01-02 15:04:05"))
		}
	}
	if c.DryRun {
		return nil
	}
	if !c.Yes {
		if !terminal.Is(u.stdio.In) {
			return errors.New("nothing was restored: there is no terminal to ask on; --yes restores without asking")
		}
		if !u.agreed("Restore?") {
			return cmp.Or(u.ctx.Err(), errors.New("nothing was restored; --yes restores without asking"))
		}
	}
	var errs []error
	for _, r := range chosen {
		err := journal.Undo(r)
		if errors.Is(err, connect.ErrChanged) {
			err = fmt.Errorf("%w. %s", err, instead(journal, r))
		}
		if err == nil {
			for _, w := range r.Files {
				fmt.Fprintf(u.stdio.Out, "Restored %s\n", printable(filepath.Clean(w.File)))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// instead says what to do where a record cannot be undone.
func instead(journal connect.Journal, r connect.Record) string {
	w := r.Files[len(r.Files)-1] // the client's
	kept := ""
	if backup := journal.Backup(w); backup != "" {
		kept = "; what was there before is in " + backup
	}
	if r.Action == "take-over" {
		var copies []string
		for _, file := range r.Files[:len(r.Files)-1] {
			copies = append(copies, file.File)
		}
		return fmt.Sprintf("The servers still work through Sallyport. To return them by hand, restore their entries in %s, and delete %s%s", w.File, strings.Join(copies, ", "), kept)
	}
	return fmt.Sprintf("'sallyport uninstall %s' removes only Sallyport%s", cmp.Or(w.Client, "CLIENT"), kept)
}

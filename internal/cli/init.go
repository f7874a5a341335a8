package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

type initCmd struct {
	Yes      bool          `help:"Connect all clients that are found, without asking." short:"y"`
	TakeOver bool          `help:"Also move their servers behind Sallyport, without asking."`
	Data     bool          `help:"Also build the environment data, with numpy, pandas, matplotlib and others, without asking."`
	Timeout  time.Duration `help:"How long a server may take to start, whose tools are counted." default:"30" placeholder:"TIME" type:"seconds"`
}

// Help implements kong's HelpProvider.
func (*initCmd) Help() string {
	return `Runs code in a sandbox to see whether this machine is ready, shows what it would change in the files of the MCP clients that it finds, and asks. Their files are written only after the last answer: Ctrl-C leaves them as they were. 'sallyport install --undo' and '--give-back' restore the files. Then it offers an environment with packages for data, which it downloads if you agree.

Examples:
  sallyport init
  sallyport init --yes
  sallyport init --yes --data`
}

// Run implements the command.
func (c *initCmd) Run(u *ui) error {
	doctor := &doctorCmd{}
	d, err := doctor.diagnose(u)
	if err != nil {
		return err
	}
	if !d.Usable {
		return doctor.report(u, d)
	}
	fmt.Fprintf(u.stdio.Out, "Code runs here: engine %s, first result in %d ms. %s known.\n", d.Engine.Backend, d.Trial.FirstMs, plural(d.Servers.Count, "MCP server is", "MCP servers are"))
	if d.Engine.Single {
		fmt.Fprintf(u.stdio.Out, "In this engine %s. 'sallyport doctor' shows which others there are, and what they lack here.\n", pureOnly)
	}
	if err := u.configure(); err != nil {
		return err
	}
	if err := c.clients(u); err != nil {
		return err
	}
	return c.data(u)
}

// clients connects the clients.
func (c *initCmd) clients(u *ui) error {
	m, err := u.machine()
	if err != nil {
		return err
	}
	install := &installCmd{clientFlags: clientFlags{All: true, Yes: c.Yes}, Timeout: c.Timeout}
	targets, err := install.targets(m)
	if errors.Is(err, errNoClient) {
		fmt.Fprintln(u.stdio.Out, "No MCP client was found on this machine, so nothing was written. Run code with: sallyport run -c 'print(6*7)'. Once there is a client, run this again, or name it: sallyport install CLIENT")
		return nil
	}
	if err != nil {
		return err
	}
	start, notes, err := install.start(m)
	if err != nil {
		return err
	}
	if !c.Yes && !terminal.Is(u.stdio.In) {
		return errors.New("nothing was written: there is no terminal to ask on; --yes writes without asking")
	}
	plans := u.installPlans(m, targets, start)
	todo, failed := install.show(u, "install", plans, notes)
	if todo > 0 && !c.Yes && !u.agreed(fmt.Sprintf("Connect %s?", count(todo, "client"))) {
		return c.unchanged(u)
	}
	action := "install"
	if others := otherServers(m, targets); len(others) > 0 {
		fmt.Fprintf(u.stdio.Out, "The clients also have %s, whose tools the agent reads: %s\n", count(len(others), "server"), printable(strings.Join(others, ", ")))
		move := c.TakeOver
		if !move && !c.Yes {
			move = u.agreed("Show what moving them behind Sallyport would change?")
		}
		if err := u.ctx.Err(); err != nil {
			return err
		}
		if move {
			moved, err := install.takeOverPlans(u, m, targets, start)
			if err != nil {
				return err
			}
			todoMoved, failedMoved := install.show(u, "take-over", moved, nil)
			if todoMoved > 0 && (c.TakeOver || u.agreed("Move them?")) {
				action, plans, todo, failed = "take-over", moved, todoMoved, failedMoved
			}
		}
	}
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if todo > 0 {
		failed += install.write(u, action, plans)
	}
	return install.summary(u, plans, failed)
}

func (*initCmd) unchanged(u *ui) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	return errors.New("nothing was written; --yes writes without asking")
}

// otherServers returns the servers that clients start besides Sallyport.
func otherServers(m connect.Machine, targets []definitions.Target) (names []string) {
	for _, t := range targets {
		kept, err := m.Look(t)
		if err != nil {
			continue // the plan says so
		}
		for _, d := range kept.Servers {
			if !d.Disabled && d.Name != connect.Name && !slices.Contains(kept.Own, d.Name) && !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/sallyport/sallyport/internal/manual"
	"github.com/sallyport/sallyport/internal/skill"
)

type skillCmd struct {
	Status    skillStatusCmd    `cmd:"" default:"withargs" help:"Show which clients have the skill."`
	Install   skillInstallCmd   `cmd:"" help:"Put the skill where clients look for skills."`
	Uninstall skillUninstallCmd `cmd:"" help:"Remove the skill."`
	Show      skillShowCmd      `cmd:"" help:"Print the skill."`
}

// Help implements kong's HelpProvider.
func (*skillCmd) Help() string {
	return `A skill is a document that a client's model reads when a task needs it. This one teaches models to find and call tools from Python, keep data and functions, and read long output. Clients that read skills: claude-code, codex, copilot (also in VS Code), cursor, gemini. Without a subcommand, shows the status.

Examples:
  sallyport skill
  sallyport skill install
  sallyport skill install claude-code --project`
}

// skillTarget are the arguments of the commands that look at clients.
type skillTarget struct {
	Clients []string `arg:"" optional:"" name:"client" help:"Clients: claude-code, codex, copilot, cursor, gemini. Without any, those that you have." complete:"skill-clients"`
	Project bool     `help:"Use the working directory's folders instead of those in your home directory."`
	JSON    bool     `help:"Print JSON." name:"json"`
}

// places returns where the clients look for the skill.
func (t *skillTarget) places(u *ui) ([]skill.Place, error) {
	f := skill.Folders{Home: u.Env.Home(), Env: u.Env.Lookup}
	if f.Home == "" {
		return nil, errors.New("there is no home directory: set HOME")
	}
	if t.Project {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		f.Project = dir
	}
	return f.Places(t.Clients)
}

// skillReport is what the commands print about one client.
type skillReport struct {
	Client string      `json:"client"`
	Path   string      `json:"path"`
	State  skill.State `json:"state,omitempty"` // after the command
	Done   string      `json:"done,omitempty"`  // installed, updated, removed, or nothing
	Backup string      `json:"backup,omitempty"`
	Error  string      `json:"error,omitempty"`
}

// print prints the reports and returns an error if there was one for any client.
func (t *skillTarget) print(u *ui, reports []skillReport) error {
	if t.JSON {
		err := u.printJSON(struct {
			Skills []skillReport `json:"skills"`
		}{append([]skillReport{}, reports...)})
		if err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(u.stdio.Out, 0, 4, 2, ' ', 0)
		for _, r := range reports {
			if r.Error != "" {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Client, cmp.Or(r.Done, string(r.State)), printable(r.Path))
			if r.Backup != "" {
				fmt.Fprintf(w, "\tyour file is now\t%s\n", printable(r.Backup))
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	var failed error
	for _, r := range reports {
		if r.Error != "" {
			fmt.Fprintf(u.stdio.Err, "sallyport: %s: %s\n", r.Client, printable(r.Error))
			failed = exitError(exitFailed)
		}
	}
	return failed
}

type skillStatusCmd struct{ skillTarget }

// Help implements kong's HelpProvider.
func (*skillStatusCmd) Help() string {
	return `Without clients, shows all of them. The states: absent, current, outdated (written by another version of Sallyport), changed (edited since, or not written by Sallyport).

Examples:
  sallyport skill status
  sallyport skill status --json | jq '.skills[] | select(.state != "current")'`
}

// Run implements the command.
func (c *skillStatusCmd) Run(u *ui) error {
	if len(c.Clients) == 0 {
		c.Clients = skill.Clients()
	}
	places, err := c.places(u)
	if err != nil {
		return err
	}
	var reports []skillReport
	for _, p := range places {
		r := skillReport{Client: p.Client, Path: p.Path()}
		if r.State, err = p.State(); err != nil {
			r.Error = err.Error()
		}
		reports = append(reports, r)
	}
	return c.print(u, reports)
}

type skillInstallCmd struct {
	skillTarget
	Force bool `help:"Also replace a file that was changed; a copy of it stays in the same folder."`
}

// Help implements kong's HelpProvider.
func (*skillInstallCmd) Help() string {
	return `Writes SKILL.md into the folder where each client looks for skills, such as ~/.claude/skills/sallyport. Running it again updates the file. A file that was edited is left as it is, with an error. Start the client again if it does not see the skill.

Examples:
  sallyport skill install
  sallyport skill install claude-code codex
  sallyport skill install gemini --project`
}

// Run implements the command.
func (c *skillInstallCmd) Run(u *ui) error {
	places, err := c.places(u)
	if err != nil {
		return err
	}
	if len(places) == 0 {
		return errors.New("no client that reads skills was found; name one, such as 'sallyport skill install claude-code'")
	}
	var reports []skillReport
	for _, p := range places {
		r := skillReport{Client: p.Client, Path: p.Path()}
		result, err := p.Install(c.Force)
		switch {
		case err != nil:
			r.State, r.Error = result.Before, err.Error()
		case !result.Changed:
			r.State, r.Done = skill.Current, "current already"
		case result.Before == skill.Absent:
			r.State, r.Done = skill.Current, "installed"
		default:
			r.State, r.Done = skill.Current, "updated"
		}
		r.Backup = result.Backup
		reports = append(reports, r)
	}
	return c.print(u, reports)
}

type skillUninstallCmd struct {
	skillTarget
	Force bool `help:"Also remove a file that was changed; a copy of it stays in the same folder."`
}

// Help implements kong's HelpProvider.
func (*skillUninstallCmd) Help() string {
	return `Removes the skill, and its folder if nothing else is in it. Without clients, removes it from all of them. A file that was edited is left as it is, with an error.

Examples:
  sallyport skill uninstall
  sallyport skill uninstall codex`
}

// Run implements the command.
func (c *skillUninstallCmd) Run(u *ui) error {
	if len(c.Clients) == 0 {
		c.Clients = skill.Clients()
	}
	places, err := c.places(u)
	if err != nil {
		return err
	}
	var reports []skillReport
	for _, p := range places {
		r := skillReport{Client: p.Client, Path: p.Path(), State: skill.Absent}
		result, err := p.Remove(c.Force)
		switch {
		case err != nil:
			r.State, r.Error = result.Before, err.Error()
		case result.Changed:
			r.Done = "removed"
		}
		r.Backup = result.Backup
		reports = append(reports, r)
	}
	return c.print(u, reports)
}

type skillShowCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*skillShowCmd) Help() string {
	return `Prints SKILL.md, for a client that 'sallyport skill install' does not know. It belongs into a folder named sallyport.

Example:
  mkdir -p .agents/skills/sallyport && sallyport skill show >.agents/skills/sallyport/SKILL.md`
}

// Run implements the command.
func (c *skillShowCmd) Run(u *ui) error {
	if c.JSON {
		return u.printJSON(struct {
			Name  string `json:"name"`
			Skill string `json:"skill"`
		}{manual.Name, manual.Skill()})
	}
	_, err := io.WriteString(u.stdio.Out, manual.Skill())
	return err
}

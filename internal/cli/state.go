package cli

import (
	"fmt"
)

type stateCmd struct {
	Check stateCheckCmd `cmd:"" default:"withargs" help:"Show what the state directory holds, and what is wrong with it."`
}

// Help implements kong's HelpProvider.
func (*stateCmd) Help() string {
	return `Without a subcommand, checks the directory.

Example:
  sallyport state check`
}

type stateCheckCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*stateCheckCmd) Help() string {
	return `Checks the directory's layout and permissions, and looks for foreign files, broken records and remains of crashed writes. It changes nothing and starts nothing. The exit status is 1 if anything is wrong.

Examples:
  sallyport state check
  sallyport state check --json | jq '.problems[]'`
}

// Run implements the command.
func (c *stateCheckCmd) Run(u *ui) error {
	if err := u.loadSettings(); err != nil {
		return err
	}
	r, err := u.CheckState()
	if err != nil {
		return err
	}
	if c.JSON {
		if err := u.printJSON(r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(u.stdio.Out, "%s, layout %d\n", printable(r.Path), r.Version)
		t := u.table()
		for _, a := range r.Areas {
			t.Row(string(a.Name), plural(a.Files, "file", "files"), fmt.Sprintf("%.1f MB", float64(a.Bytes)/1e6), a.Holds)
		}
		if err := t.Write(u.stdio.Out); err != nil {
			return err
		}
		for _, p := range r.Problems {
			fmt.Fprintf(u.stdio.Out, "problem: %s: %s\n", printable(p.Path), printable(p.Problem))
		}
		if len(r.Problems) == 0 {
			fmt.Fprintln(u.stdio.Out, "no problems")
		}
	}
	if len(r.Problems) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

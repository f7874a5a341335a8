package cli

import (
	"fmt"

	"github.com/sallyport/sallyport/internal/settings"
)

type configCmd struct {
	composeFlags
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*configCmd) Help() string {
	return `The output is a valid configuration file: you can save it as ~/.config/sallyport/config.yaml. In increasing precedence, settings come from defaults, that file, MCP_BRIDGE_… variables, SALLYPORT_… variables, and flags. docs/CONFIGURATION.md describes every setting. Errors are printed with their location, and the exit status is 2.

Examples:
  sallyport config
  sallyport config --json | jq '.settings[] | select(.origin.layer != "default")'
  sallyport run --set limits.memory=1g script.py`
}

// Run implements the command.
func (c *configCmd) Run(u *ui) error {
	if err := u.loadSettings(c.flags()...); err != nil {
		return err
	}
	file := u.Settings.File()
	if c.JSON {
		return u.printJSON(struct {
			File     settings.File    `json:"file"`
			Settings []settings.Entry `json:"settings"`
		}{file, u.Settings.Entries()})
	}
	switch {
	case file.Path == "":
		fmt.Fprintln(u.stdio.Out, "# No configuration file: there is no home directory.")
	case file.Read:
		fmt.Fprintf(u.stdio.Out, "# Configuration file: %q\n", file.Path)
	default:
		fmt.Fprintf(u.stdio.Out, "# Configuration file, which does not exist: %q\n", file.Path)
	}
	_, err := fmt.Fprint(u.stdio.Out, u.Settings.YAML())
	return err
}

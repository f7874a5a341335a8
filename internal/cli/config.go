package cli

import (
	"fmt"

	"sallyport/internal/settings"
)

type configCmd struct {
	composeFlags
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*configCmd) Help() string {
	return `The output has the form of a configuration file, which ~/.config/sallyport/config.yaml can be made from. Later places win: defaults, that file, MCP_BRIDGE_… variables, SALLYPORT_… variables, flags. docs/CONFIGURATION.md describes every setting. Whatever is wrong is printed, with its place, and the exit status is 2.

Examples:
  sallyport config
  sallyport config --json | jq '.settings[] | select(.origin.layer != "default")'
  sallyport run --set limits.memory=1g script.py`
}

// Run implements the command.
func (c *configCmd) Run(a *app) error {
	if err := a.configure(c.flags()...); err != nil {
		return err
	}
	file := a.settings.File()
	if c.JSON {
		return a.printJSON(struct {
			File     settings.File    `json:"file"`
			Settings []settings.Entry `json:"settings"`
		}{file, a.settings.Entries()})
	}
	switch {
	case file.Path == "":
		fmt.Fprintln(a.stdio.Out, "# There is no home directory, and so no configuration file.")
	case file.Read:
		fmt.Fprintf(a.stdio.Out, "# Configuration file: %q\n", file.Path)
	default:
		fmt.Fprintf(a.stdio.Out, "# Configuration file, not there: %q\n", file.Path)
	}
	_, err := fmt.Fprint(a.stdio.Out, a.settings.YAML())
	return err
}

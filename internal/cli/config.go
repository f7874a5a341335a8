package cli

import (
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/settings"
)

type configCmd struct {
	Show  configShowCmd  `cmd:"" default:"withargs" help:"Print the effective settings and where each comes from."`
	Get   configGetCmd   `cmd:"" help:"Print the value of a setting."`
	Set   configSetCmd   `cmd:"" help:"Set a setting in the configuration file."`
	Unset configUnsetCmd `cmd:"" unused:"set,log-level,log-format" help:"Remove settings from the configuration file."`
	Edit  configEditCmd  `cmd:"" unused:"set,log-level,log-format" help:"Open the configuration file in your editor, and check it."`
	Path  configPathCmd  `cmd:"" unused:"set,log-level,log-format" help:"Print the path of the configuration file."`
}

// Help implements kong's HelpProvider.
func (*configCmd) Help() string {
	return `Without a subcommand, prints the settings.

Examples:
  sallyport config
  sallyport config set limits.memory 1g
  sallyport config edit`
}

type configShowCmd struct {
	composeFlags
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*configShowCmd) Help() string {
	return `The output is a valid configuration file: you can save it as ~/.config/sallyport/config.yaml. In increasing precedence, settings come from defaults, that file, MCP_BRIDGE_… variables, SALLYPORT_… variables, and flags. docs/CONFIGURATION.md describes every setting. Errors are printed with their location, and the exit status is 2.

Examples:
  sallyport config
  sallyport config --json | jq '.settings[] | select(.origin.layer != "default")'
  sallyport run --set limits.memory=1g script.py`
}

// Run implements the command.
func (c *configShowCmd) Run(u *ui) error {
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
	if view := u.Rules().View(); err == nil && slices.ContainsFunc(view.Rules, func(r *toolpolicy.Rule) bool { return r.File == file.Path }) {
		_, err = fmt.Fprintln(u.stdio.Out, "# The file has rules for calls (policy.tools), too: 'sallyport policy' prints them.")
	}
	return err
}

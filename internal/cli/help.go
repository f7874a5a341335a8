package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/completion"
)

func newParser(g *grammar, stdio Stdio, exit func(int)) (*kong.Kong, error) {
	parser, err := kong.New(g,
		kong.Name("sallyport"),
		kong.Description("One guarded gate between an AI agent's Python and everything else: run_python in a hard-isolated, persistent sandbox in which every MCP server is a module."),
		kong.Writers(stdio.Out, stdio.Err),
		kong.Exit(exit),
		kong.NamedMapper("seconds", kong.MapperFunc(decodeSeconds)),
		kong.Vars(defaultsForHelp()),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 100}),
	)
	if err == nil {
		hideUnused(parser.Model.Node)
	}
	return parser, err
}

// hideUnused hides the flags that a command has in common with others, and does not
// read.
func hideUnused(n *kong.Node) {
	for _, f := range n.Flags {
		f.Hidden = f.Hidden || completion.Unused(n, f.Name)
	}
	for _, c := range n.Children {
		hideUnused(c)
	}
}

// printHelp prints a command's own flags before those of every command. It
// changes the model, so nothing can be parsed with it afterwards.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if node := ctx.Selected(); node != nil {
		node.Group = nil // groups are for the list of all commands
		for up := node.Parent; up != nil; up = up.Parent {
			for _, f := range up.Flags {
				if !completion.Unused(ctx.Selected(), f.Name) {
					node.Flags = append(node.Flags, f)
				}
			}
			up.Flags, up.Group = nil, nil
		}
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// printStart prints what to type first.
func printStart(w io.Writer) {
	name := "sallyport"
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(name); err != nil || !identical(found, self) {
			if name = self; strings.ContainsRune(name, ' ') {
				name = `"` + name + `"`
			}
		}
	}
	fmt.Fprintf(w, `Check this machine:   %[1]s doctor
Connect your clients: %[1]s install --all
Run a program:        %[1]s run -c "print(6 * 7)"
`, name)
}

// identical reports whether two paths name the same file.
func identical(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command, and its subcommand, or exit-codes." complete:"commands"`
}

// Help implements kong's HelpProvider.
func (*helpCmd) Help() string {
	return `Prints the same as --help after the command. Without a command, lists all commands. 'help exit-codes' prints what the exit statuses of all commands mean.

Examples:
  sallyport help
  sallyport help run
  sallyport help servers add
  sallyport help exit-codes`
}

// Run implements the command.
func (c *helpCmd) Run(u *ui, kctx *kong.Context) error {
	if len(c.Command) == 1 && c.Command[0] == exitTopic {
		_, err := io.WriteString(u.stdio.Out, exitsText())
		return err
	}
	node := kctx.Model.Node
	for _, word := range c.Command {
		next := below(node, []string{word})
		if next == nil {
			fmt.Fprintf(u.stdio.Err, "sallyport: %s\nTry '%s --help'.\n", noCommand(node, word), strings.Join(append([]string{"sallyport"}, pathOf(node)...), " "))
			return exitError(exitUsage)
		}
		node = next
	}
	asked, err := kong.Trace(kctx.Kong, append(pathOf(node), "--help"))
	if err != nil {
		return err
	}
	return asked.PrintUsage(false)
}

// Help implements kong's HelpProvider.
func (*serversCmd) Help() string {
	return `Without a subcommand, lists the servers.

Examples:
  sallyport servers
  sallyport servers add filesystem npx -y @modelcontextprotocol/server-filesystem ~/notes
  sallyport servers test filesystem`
}

// Help implements kong's HelpProvider.
func (*toolsCmd) Help() string {
	return `Examples:
  sallyport tools list github
  sallyport tools search "create an issue"`
}

// Help implements kong's HelpProvider.
func (*auditCmd) Help() string {
	return `Each decision about running code, using a server or calling a tool is recorded, and what came of it, with who asked for it and which rule or person decided (settings audit.*). Records are a chain: 'sallyport audit verify' finds what was changed, removed or cut.

Example:
  sallyport audit list --since 24h
  sallyport audit verify`
}

// Help implements kong's HelpProvider.
func (*approvalsCmd) Help() string {
	return `Without a subcommand, lists the questions.

Examples:
  sallyport approvals
  sallyport approvals --watch
  sallyport approvals approve k3vq.40
  sallyport approvals deny k3vq.40 --because 'write to /tmp instead'`
}

// Help implements kong's HelpProvider.
func (*sessionsCmd) Help() string {
	return `Without a subcommand, lists the sessions.

Examples:
  sallyport sessions
  sallyport sessions logs work`
}

// Help implements kong's HelpProvider.
func (*hubCmd) Help() string {
	return `Without a subcommand, shows the hubs that run.

Examples:
  sallyport hub
  sallyport hub restart`
}

// Help implements kong's HelpProvider.
func (*artifactsCmd) Help() string {
	return `Without a subcommand, lists the files.

Examples:
  sallyport artifacts
  sallyport artifacts save plot.png`
}

// Help implements kong's HelpProvider.
func (*runsCmd) Help() string {
	return `Without a subcommand, lists the runs.

Examples:
  sallyport runs
  sallyport runs wait ID`
}

// Help implements kong's HelpProvider.
func (*imageCmd) Help() string {
	return `Without a subcommand, lists the images.

Examples:
  sallyport image pull python:3.14-slim
  sallyport run --set image=python:3.14-slim -c 'import sys; sys.version'`
}

// Help implements kong's HelpProvider.
func (*deployCmd) Help() string {
	return `Example:
  sallyport deploy runpod --image docker.io/you/sallyport-worker:1 --dry-run`
}

// Help implements kong's HelpProvider.
func (*workerCmd) Help() string {
	return `Example:
  sallyport worker runpod --test-input '{"input": {"code": "print(6 * 7)"}}'`
}

// Help implements kong's HelpProvider.
func (*memoryCmd) Help() string {
	return `Without a subcommand, lists the values.

Examples:
  sallyport memory
  sallyport memory get greeting`
}

// Help implements kong's HelpProvider.
func (*savedToolsCmd) Help() string {
	return `Without a subcommand, lists the saved tools.

Examples:
  sallyport saved-tools
  sallyport saved-tools show report`
}

// Help implements kong's HelpProvider.
func (*carbonCmd) Help() string {
	return `Without a subcommand, reports what has run.

Examples:
  sallyport carbon
  sallyport carbon report --by server --since 7d`
}

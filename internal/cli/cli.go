// Package cli is the command line: flags, printing and asking. Package app
// constructs what the commands work with.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
)

// Stdio is what a command reads and writes.
type Stdio struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// globals are the flags of every command.
type globals struct {
	ConfigFile string   `name:"config" help:"Configuration file to read instead of ~/.config/sallyport/config.yaml." placeholder:"FILE"`
	Set        []string `help:"Change a setting, such as limits.memory=1g. Can be repeated. 'sallyport config' lists all settings." sep:"none" placeholder:"KEY=VALUE" complete:"assignment"`
	LogLevel   *string  `help:"Lowest level of the log lines on standard error: debug, info, warn or error (${log_level})." placeholder:"LEVEL" complete:"setting:log.level"`
	LogFormat  *string  `help:"Format of log lines: auto, text or json (${log_format})." placeholder:"FORM" complete:"setting:log.format"`
}

// grammar is the command line.
type grammar struct {
	globals `group:"Flags of every command:"`

	Doctor     doctorCmd     `cmd:"" group:"Getting started:" help:"Check whether sandboxes run here, how isolation and limits are enforced, and what to fix."`
	Init       initCmd       `cmd:"" group:"Getting started:" help:"Check this machine, connect the clients on it, and move their servers: one question each."`
	Install    installCmd    `cmd:"" group:"Getting started:" help:"Connect MCP clients to Sallyport, and check their connections."`
	Uninstall  uninstallCmd  `cmd:"" group:"Getting started:" help:"Remove Sallyport from MCP clients."`
	Serve      serveCmd      `cmd:"" group:"Getting started:" help:"Serve run_python to an MCP client on standard input and output."`
	Run        runCmd        `cmd:"" group:"Getting started:" help:"Run a Python program in a sandbox, without a client."`
	Skill      skillCmd      `cmd:"" group:"Getting started:" unused:"config,set,log-level,log-format" help:"Teach the models of your clients to use run_python."`
	Servers    serversCmd    `cmd:"" group:"What code can use:" help:"Show and test the MCP servers that code can use."`
	Tools      toolsCmd      `cmd:"" group:"What code can use:" unused:"engine,python" help:"Search, show and approve the tools of all servers."`
	Policy     policyCmd     `cmd:"" group:"What code can use:" help:"Show, explain and check the rules for calls."`
	SavedTools savedToolsCmd `cmd:"" group:"What code can use:" help:"Show, export and import the functions that code has saved for later sessions."`
	Memory     memoryCmd     `cmd:"" group:"What code can use:" help:"Show and change the values that code has kept for later sessions."`
	Env        envCmd        `cmd:"" group:"What code can use:" help:"Add, build, show and remove environments: the packages that code needs."`
	Image      imageCmd      `cmd:"" group:"What code can use:" help:"Pull, load, build and remove the OCI images that code can run in."`
	Sessions   sessionsCmd   `cmd:"" group:"Sessions and runs:" help:"Show and manage sessions, running and suspended."`
	Approvals  approvalsCmd  `cmd:"" group:"Sessions and runs:" help:"Show and answer calls that wait for approval."`
	Hub        hubCmd        `cmd:"" group:"Sessions and runs:" help:"Show, end and restart the process that all clients share."`
	Stats      statsCmd      `cmd:"" group:"Sessions and runs:" help:"Show how often and how long code, calls and starts have run, and what failed."`
	Audit      auditCmd      `cmd:"" group:"Sessions and runs:" help:"Show, export and verify the log of what was done and who allowed it."`
	Artifacts  artifactsCmd  `cmd:"" group:"Sessions and runs:" help:"Show, save and open the files that code has left."`
	Runs       runsCmd       `cmd:"" group:"Sessions and runs:" help:"Show and manage runs on runpod and kaggle."`
	Carbon     carbonCmd     `cmd:"" group:"Sessions and runs:" help:"Report and estimate energy and emissions."`
	Deploy     deployCmd     `cmd:"" group:"Workers:" help:"Deploy workers to a service."`
	Worker     workerCmd     `cmd:"" group:"Workers:" help:"Take jobs from a service's queue and run them in sandboxes."`
	State      stateCmd      `cmd:"" group:"Settings and help:" help:"Show what the state directory holds, and check it."`
	Config     configCmd     `cmd:"" group:"Settings and help:" help:"Print and change the settings."`
	Completion completionCmd `cmd:"" group:"Settings and help:" unused:"config,set,log-level,log-format" help:"Print a script that completes commands and names in your shell."`
	Version    versionCmd    `cmd:"" group:"Settings and help:" unused:"config,set,log-level,log-format" help:"Print the version, as --version does."`
	Upgrade    upgradeCmd    `cmd:"" group:"Settings and help:" unused:"config,set,log-level,log-format" help:"Replace this executable with the newest release, once its signature is verified."`
	Help       helpCmd       `cmd:"" group:"Settings and help:" unused:"config,set,log-level,log-format" help:"Print the help of a command, or the table of exit codes."`
}

// serveGrammar is the part of the grammar with which clients start Sallyport.
// Building the whole grammar takes as long as a fifth of a sandbox's start.
type serveGrammar struct {
	globals

	Serve serveCmd `cmd:""`
}

// ui is what every command gets: the terminal, the flags, and the App.
// configure sets the App's settings and log.
type ui struct {
	*app.App
	ctx     context.Context
	stdio   Stdio
	grammar *globals
	daemon  bool // other programs start the command and keep its log
	quiet   bool // the command prints JSON and shows no progress
	starts  *starts
	screen  *screen       // nil: no questions are asked besides what is written
	typed   *bufio.Reader // see line
	warned  []string      // of settings
}

// Main runs the command line args (without the program's name) and returns the
// exit status. Cancelling ctx and the signals of untilSignal end the command,
// which cleans up first.
func Main(ctx context.Context, args, environ []string, stdio Stdio) int {
	ctx, stop := untilSignal(ctx, stdio.Out)
	defer stop()
	stdio.Out, stdio.Err = terminal.Guard(stdio.Out), terminal.Guard(stdio.Err)
	defer terminal.Flush(stdio.Err)
	defer terminal.Flush(stdio.Out)
	if len(args) > 0 && args[0] == "serve" {
		var g serveGrammar
		refused := false
		parser, err := kong.New(&g, kong.Name("sallyport"), kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) { refused = true }),
			kong.NamedMapper("seconds", kong.MapperFunc(decodeSeconds)), kong.Vars(defaultsForHelp()))
		if err == nil {
			if kctx, err := parser.Parse(args); err == nil && !refused {
				return run(ctx, kctx, &g.globals, environ, stdio)
			}
		}
		// Errors and help need the whole grammar.
	}
	if slices.Equal(args, hubStartArgs) {
		u := newUI(ctx, &globals{}, environ, stdio)
		return u.ended((&hubRunCmd{Start: true}).Run(u), "hub")
	}
	if len(args) > 0 && args[0] == completeCommand {
		u := newUI(ctx, &globals{}, environ, Stdio{In: stdio.In, Out: stdio.Out, Err: io.Discard})
		if u.complete(args[1:]) != nil {
			return exitFailed
		}
		return exitOK
	}
	out := &outlet{w: stdio.Out}
	if !terminal.Is(stdio.Out) {
		stdio.Out = out
	}
	status := command(ctx, args, environ, stdio)
	if status == exitOK && out.closed.Load() {
		return exitClosed
	}
	return status
}

// command parses a command line and runs it.
func command(ctx context.Context, args, environ []string, stdio Stdio) int {
	var g grammar
	exited := -1
	parser, err := newParser(&g, stdio, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(stdio.Err, "sallyport:", err)
		return exitOurs
	}
	if len(args) == 0 {
		printStart(stdio.Out)
		return exitOK
	}
	args = withVersion(args, parser.Model.Node)
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if unheard(ctx, stdio.Out) { // the help
		return exitClosed
	}
	if err != nil {
		u := newUI(ctx, &g.globals, environ, stdio)
		text, command := mistaken(err)
		fmt.Fprintf(stdio.Err, "%s %s\n", u.paint(stdio.Err, terminal.Red, "sallyport:"), text)
		if flag, ok := strings.CutPrefix(err.Error(), "unknown flag "); ok && command == "sallyport servers add" {
			flag, _, _ = strings.Cut(flag, ",")
			fmt.Fprintf(stdio.Err, "Flags of the server's program follow it: %s NAME PROGRAM %s\n", command, invisible.Line(flag))
		}
		fmt.Fprintf(stdio.Err, "Try '%s --help'.\n", command)
		if len(args) > 0 && args[0] == "run" {
			return exitOurs
		}
		return exitUsage
	}
	return run(ctx, kctx, &g.globals, environ, stdio)
}

// withVersion turns --version before a command into the command version. It is
// no flag of every command: some have their own.
func withVersion(args []string, top *kong.Node) []string {
	version, asked := []string{"version"}, false
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		if args[i] == "--version" {
			asked = true
			continue
		}
		version = append(version, args[i])
		if i+1 < len(args) && slices.ContainsFunc(top.Flags, func(f *kong.Flag) bool { return args[i] == "--"+f.Name && !f.IsBool() }) {
			i++
			version = append(version, args[i])
		}
	}
	if asked {
		return version
	}
	return args
}

func newUI(ctx context.Context, flags *globals, environ []string, stdio Stdio) *ui {
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // gone: relative paths stay relative
	}
	return &ui{
		App: &app.App{Env: app.NewEnvironment(environ), Dir: dir, Version: readVersion().Version, Life: ctx},
		ctx: ctx, stdio: stdio, grammar: flags,
	}
}

// run runs the command that was parsed.
func run(ctx context.Context, kctx *kong.Context, flags *globals, environ []string, stdio Stdio) int {
	u := newUI(ctx, flags, environ, stdio)
	command, _, _ := strings.Cut(kctx.Command(), " ")
	if node := kctx.Selected(); node != nil {
		json := node.Target.FieldByName("JSON")
		u.quiet = json.IsValid() && json.Kind() == reflect.Bool && json.Bool()
	}
	u.daemon = command == "serve" || command == "worker"
	return u.ended(kctx.Run(u), command)
}

// ended reports how a command ended, and returns its exit status.
func (u *ui) ended(err error, command string) int {
	var status exitError
	var wrong *settings.Error
	switch {
	case err == nil:
		return exitOK
	case unheard(u.ctx, u.stdio.Out):
		return exitClosed
	case errors.As(err, &status):
		return int(status)
	case u.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(u.ctx))):
		fmt.Fprintln(u.stdio.Err, "sallyport: "+u.ending())
		return int(u.interrupted())
	}
	// The error may contain what a server sent.
	fmt.Fprintf(u.stdio.Err, "%s %s\n", u.paint(u.stdio.Err, terminal.Red, "sallyport:"), invisible.Escape(err.Error()))
	switch {
	case command == "run":
		return exitOurs
	case errors.As(err, &wrong):
		return exitUsage
	}
	return exitFailed
}

// decodeSeconds reads a duration in Go's form, or a number of seconds.
func decodeSeconds(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := settings.ParseDuration(strings.TrimPrefix(text, "-"))
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if d == 0 || strings.HasPrefix(text, "-") {
		return fmt.Errorf("%q: the duration must be greater than zero", text)
	}
	target.SetInt(int64(d))
	return nil
}

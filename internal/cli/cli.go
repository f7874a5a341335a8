// Package cli is the command line: it reads the environment, constructs
// everything else, and is the only package that does either.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"sallyport/internal/hidden"
	"sallyport/internal/settings"
	"sallyport/internal/terminal"
)

// Exit statuses of the program's own. A command that runs a program otherwise
// exits as that program did.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitTimeout     = 124 // as timeout(1)
	exitOurs        = 125 // Sallyport itself failed: as env(1) and docker run
	exitInterrupted = 130
	exitClosed      = 141 // as a program that SIGPIPE ends
)

// Stdio is what a command reads and writes.
type Stdio struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// globals are the flags of every command.
type globals struct {
	ConfigFile string   `name:"config" help:"Configuration file, in place of ~/.config/sallyport/config.yaml." placeholder:"FILE"`
	Set        []string `help:"Any setting, such as limits.memory=1g. Can be repeated. 'sallyport config' lists all." sep:"none" placeholder:"KEY=VALUE"`
	LogLevel   *string  `help:"Least level of log lines on standard error: debug, info, warn or error (${log_level})." placeholder:"LEVEL"`
	LogFormat  *string  `help:"Form of log lines: auto, text or json (${log_format})." placeholder:"FORM"`
}

// grammar is the command line.
type grammar struct {
	globals `group:"Flags of every command:"`

	Doctor     doctorCmd     `cmd:"" group:"To begin with:" help:"Check whether sandboxes run here, how isolation and limits are enforced, and what to fix."`
	Serve      serveCmd      `cmd:"" group:"To begin with:" help:"Serve run_python to an MCP client on standard input and output."`
	Run        runCmd        `cmd:"" group:"To begin with:" help:"Run a Python program in a sandbox, without a client."`
	Servers    serversCmd    `cmd:"" group:"What code can use:" help:"Show and test the MCP servers that code can use."`
	Tools      toolsCmd      `cmd:"" group:"What code can use:" help:"Find and show the tools of all servers."`
	SavedTools savedToolsCmd `cmd:"" group:"What code can use:" help:"Show and move the functions that code has saved for later sessions."`
	Memory     memoryCmd     `cmd:"" group:"What code can use:" help:"Show and change what code has kept for later sessions."`
	Image      imageCmd      `cmd:"" group:"What code can use:" help:"Get, load and remove the OCI images that code can run in."`
	Sessions   sessionsCmd   `cmd:"" group:"What runs and has run:" help:"Show and manage sessions: of all your Sallyports, awake and asleep."`
	Runs       runsCmd       `cmd:"" group:"What runs and has run:" help:"Show and manage runs on runpod and kaggle."`
	Carbon     carbonCmd     `cmd:"" group:"What runs and has run:" help:"Energy and emissions of what runs: reports, estimates, metrics."`
	Deploy     deployCmd     `cmd:"" group:"Workers:" help:"Put workers to work at a service."`
	Worker     workerCmd     `cmd:"" group:"Workers:" help:"Work for a service's queue: run other people's jobs in sandboxes."`
	Config     configCmd     `cmd:"" group:"Settings and help:" help:"Print the settings in force and where each came from."`
	Version    versionCmd    `cmd:"" group:"Settings and help:" help:"Print the version, as --version does."`
	Help       helpCmd       `cmd:"" group:"Settings and help:" help:"Print the help of a command."`
}

// serveGrammar is the part of the grammar with which clients start Sallyport.
// Putting the whole together takes as long as a fifth of a sandbox's start.
type serveGrammar struct {
	globals

	Serve serveCmd `cmd:""`
}

// exitError makes a command end with a status. A message, if any, has been
// printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// app is what every command gets.
type app struct {
	ctx     context.Context
	env     environment
	stdio   Stdio
	grammar *globals
	daemon  bool // other programs start the command, and keep its log

	// These two are there once configure has been called.
	settings *settings.Settings
	log      *slog.Logger
	images   *imageLibrary // nil until somebody needs it
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
		// What is wrong, or the help, is told with the whole at hand.
	}
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
	if args[0] == "--version" { // no flag of every command: some have their own
		args = append([]string{"version"}, args[1:]...)
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(stdio.Err, "sallyport: %v\nTry '%s --help'.\n", err, commandOf(err))
		if len(args) > 0 && args[0] == "run" {
			return exitOurs
		}
		return exitUsage
	}
	return run(ctx, kctx, &g.globals, environ, stdio)
}

// run runs the command that was parsed.
func run(ctx context.Context, kctx *kong.Context, flags *globals, environ []string, stdio Stdio) int {
	a := &app{ctx: ctx, env: newEnvironment(environ), stdio: stdio, grammar: flags}
	command, _, _ := strings.Cut(kctx.Command(), " ")
	a.daemon = command == "serve" || command == "worker"
	err := kctx.Run(a)
	var status exitError
	var wrong *settings.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		fmt.Fprintln(stdio.Err, "sallyport: "+a.ending())
		return int(a.interrupted())
	}
	// What a server said may be in it.
	fmt.Fprintf(stdio.Err, "sallyport: %s\n", hidden.Escape(err.Error()))
	switch {
	case kctx.Selected() != nil && kctx.Selected().Name == "run":
		return exitOurs
	case errors.As(err, &wrong):
		return exitUsage
	}
	return exitFailed
}

// commandOf is the command that a wrong command line was about, as far as it
// can be told.
func commandOf(err error) string {
	var wrong *kong.ParseError
	path := "sallyport"
	if errors.As(err, &wrong) && wrong.Context != nil {
		for _, step := range wrong.Context.Path {
			if step.Command != nil {
				path += " " + step.Command.Name
			}
		}
	}
	return path
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
		return fmt.Errorf("%q: a time greater than zero is needed", text)
	}
	target.SetInt(int64(d))
	return nil
}

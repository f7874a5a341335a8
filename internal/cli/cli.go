// Package cli is the command line: it reads the environment, constructs
// everything else, and is the only package that does either.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"reflect"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
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
)

// Stdio is what a command reads and writes.
type Stdio struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// grammar is the command line.
type grammar struct {
	LogLevel  slog.Level `help:"Least level of log lines on standard error: debug, info, warn or error." default:"warn" env:"SALLYPORT_LOG_LEVEL" placeholder:"LEVEL"`
	LogFormat string     `help:"Form of log lines: text or json." enum:"text,json" default:"text" env:"SALLYPORT_LOG_FORMAT" placeholder:"FORM"`

	Serve   serveCmd   `cmd:"" help:"Serve run_python to an MCP client on standard input and output."`
	Run     runCmd     `cmd:"" help:"Run a Python program in a sandbox, without a client."`
	Doctor  doctorCmd  `cmd:"" help:"Check whether sandboxes run here, how isolation and limits are enforced, and what to mend."`
	Servers serversCmd `cmd:"" help:"Show and test the MCP servers that code can use."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// exitError makes a command end with a status. A message, if any, has been
// printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// app is what every command gets.
type app struct {
	ctx   context.Context
	env   environment
	stdio Stdio
	log   *slog.Logger
}

// Main runs the command line args (without the program's name) and returns the
// exit status. Cancelling ctx, SIGINT and SIGTERM end the command, which
// cleans up first.
func Main(ctx context.Context, args, environ []string, stdio Stdio) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var g grammar
	exited := -1
	parser, err := kong.New(&g,
		kong.Name("sallyport"),
		kong.Description("One guarded gate between an AI agent's Python and everything else: run_python in a hard-isolated, persistent sandbox in which every MCP server is a module."),
		kong.Writers(stdio.Out, stdio.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.NamedMapper("seconds", kong.MapperFunc(decodeSeconds)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		fmt.Fprintln(stdio.Err, "sallyport:", err)
		return exitOurs
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(stdio.Err, "sallyport: %v\nTry 'sallyport --help'.\n", err)
		if len(args) > 0 && args[0] == "run" {
			return exitOurs
		}
		return exitUsage
	}
	a := &app{ctx: ctx, env: newEnvironment(environ), stdio: stdio}
	a.log = newLogger(stdio.Err, g.LogLevel, g.LogFormat)
	err = kctx.Run(a)
	var status exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintf(stdio.Err, "sallyport: %v\n", err)
	if kctx.Selected() != nil && kctx.Selected().Name == "run" {
		return exitOurs
	}
	return exitFailed
}

func newLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// decodeSeconds reads a duration in Go's form, or a number of seconds.
func decodeSeconds(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		n, numErr := strconv.ParseFloat(text, 64)
		if numErr != nil || math.IsNaN(n) || math.Abs(n) > math.MaxInt32 {
			return fmt.Errorf("%q is neither a number of seconds nor a duration such as 90s or 2m", text)
		}
		d = time.Duration(n * float64(time.Second))
	}
	if d <= 0 {
		return fmt.Errorf("%q: a time greater than zero is needed", text)
	}
	target.SetInt(int64(d))
	return nil
}

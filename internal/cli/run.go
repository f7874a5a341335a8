package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport/internal/broker"
	"sallyport/internal/hidden"
)

// maxProgram bounds a program that is read from a file or standard input.
const maxProgram = 8 << 20

// batchFlags are for engines that work somewhere else.
type batchFlags struct {
	GPU         bool     `help:"kaggle: run with a GPU." name:"gpu" group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	TPU         bool     `help:"kaggle: run with a TPU." name:"tpu" group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	Accelerator string   `help:"kaggle: the accelerator by its own name, such as NvidiaTeslaT4." placeholder:"NAME" group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	Internet    bool     `help:"kaggle: let the program reach the internet from there." group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	Dataset     []string `help:"kaggle: dataset to put beside the program, as OWNER/NAME. Can be repeated." placeholder:"DATASET" group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	Keep        bool     `help:"Leave the finished run at the service." group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
	Detach      bool     `help:"Hand the run over, print its ID, and do not wait." group:"Engines elsewhere (--backend kaggle, --backend runpod):"`
}

func (f *batchFlags) request() (broker.Batch, error) {
	asked := 0
	accelerator := f.Accelerator
	if accelerator != "" {
		asked++
	}
	if f.GPU {
		accelerator, asked = "gpu", asked+1
	}
	if f.TPU {
		accelerator, asked = "tpu", asked+1
	}
	if asked > 1 {
		return broker.Batch{}, errors.New("give one of --gpu, --tpu and --accelerator")
	}
	return broker.Batch{Accelerator: accelerator, Datasets: f.Dataset, Internet: f.Internet, Keep: f.Keep, Detach: f.Detach}, nil
}

type runCmd struct {
	composeFlags
	Server  []string      `help:"MCP server that the program may use. Can be repeated." short:"s" placeholder:"NAME"`
	Timeout time.Duration `help:"Limit on the program's own time (a number is seconds); time spent waiting for tools and for input is not counted." placeholder:"DURATION" type:"seconds"`
	JSON    bool          `help:"Print the whole result as JSON instead of the program's output." name:"json"`
	Code    string        `help:"The program itself, instead of a file." short:"c" placeholder:"CODE"`
	Session string        `help:"Run in the session of that name, with the variables that it has, and leave it for the next call." placeholder:"NAME"`
	Files   []string      `help:"File or directory to put into /workspace, under its own name or as SRC=DEST. Can be repeated." name:"file" placeholder:"PATH" sep:"none"`
	Out     string        `help:"Directory for the files that the program leaves in /workspace." placeholder:"DIR"`
	batchFlags
	Program []string `arg:"" optional:"" passthrough:"partial" name:"program" help:"The program, a file or - for standard input, and its own arguments."`
}

// Help implements kong's HelpProvider.
func (*runCmd) Help() string {
	return `Flags of 'sallyport run' come before the program: what follows its name is its own, in sys.argv.

The program's output appears as it comes, and it can read standard input. The exit status is the program's: n for sys.exit(n), 1 for an uncaught exception; 124 after a timeout, 137 when the memory limit ended it, 125 when Sallyport itself failed or files for --out are missing, 130 after Ctrl-C, and 128 and its number after another signal.

With --backend kaggle or runpod the program runs there, on your own account, where the setting backends allows that, and without standard input. Ctrl-C cancels the run where the service can do so; 'sallyport runs' finds one that goes on.

A file runs as a script (__name__ is "__main__"); with -c the last expression is echoed, as run_python does. With --out, a file that is there already is not overwritten: the new one gets another name.

Examples:
  sallyport run -c 'import sys; sys.version'
  sallyport run --server filesystem report.py
  sallyport run report.py --year 2026
  sallyport run --session work -c 'total = 42'
  sallyport run --file data.csv --out results plot.py
  sallyport run count.py <words.txt
  sallyport run --backend kaggle --gpu --timeout 30m train.py
  echo 'print(6*7)' | sallyport run -`
}

// Run implements the command.
func (c *runCmd) Run(a *app) error {
	if c.Code == "" && len(c.Program) > 0 && c.Program[0] == "--" {
		c.Program = c.Program[1:] // it ends the flags, as python's does
	} else if file := c.file(); strings.HasPrefix(file, "-") && file != "-" {
		fmt.Fprintf(a.stdio.Err, "sallyport: unknown flag %s\nTry 'sallyport run --help'.\n", hidden.Line(file))
		return exitError(exitOurs)
	}
	code, script, err := c.program(a.stdio.In)
	if err != nil {
		return err
	}
	var unsaved error
	c.unsaved = func(session string, err error) {
		unsaved = fmt.Errorf("session %s could not be kept: %w", session, err)
	}
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	adopted := a.adopt(sys)
	closed := sync.OnceFunc(func() {
		adopted()
		sys.close()
	})
	defer closed()
	if err := c.possible(a); err != nil {
		return err
	}
	a.warnOf(sys, c.Server...)
	a.awaitImage(sys)

	req := broker.Request{Shown: true, Measure: c.JSON, Code: code, Servers: c.Server, Timeout: c.Timeout, Script: script, Session: c.Session, Args: c.args()}
	if script {
		req.Filename = c.filename()
	}
	if c.far() {
		req.Backend = *c.Backend
	}
	if err := c.input(a, &req); err != nil {
		return err
	}
	if req.Batch, err = c.batchFlags.request(); err != nil {
		return err
	}
	if req.Files, err = readFiles(c.Files); err != nil {
		return err
	}
	var out *outDir
	if c.Out != "" {
		if out, err = a.out(c.Out); err != nil {
			return err
		}
		defer out.close()
		req.TakeFiles = out.create
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	var writeErr error // of the first write that failed
	if !c.JSON {
		req.OnStatus = a.statusLines()
		req.OnOutput = func(s broker.Stream, b []byte) {
			w := a.stdio.Out
			if s == broker.Stderr {
				w = a.stdio.Err
			}
			if closedPipe(writeErr) {
				return // nor of how it ends
			}
			if _, err := w.Write(b); err != nil && writeErr == nil {
				if writeErr = err; closedPipe(err) {
					cancel() // as a program that writes to nobody
				}
			}
		}
	}
	r := sys.broker.Execute(ctx, req)
	if c.JSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		if req.Batch.Detach && r.Run != "" {
			fmt.Fprintln(a.stdio.Out, r.Run)
		}
		if writeErr == nil || !closedPipe(writeErr) {
			c.explain(a, r)
		}
	}
	var untaken error
	if out != nil && r.Run != "" {
		untaken = c.fetched(a, sys, r, out)
	}
	closed()
	for _, err := range []error{untaken, unsaved} {
		if err != nil {
			fmt.Fprintln(a.stdio.Err, "sallyport: "+hidden.Escape(err.Error()))
		}
	}
	switch ends := exitError(status(r)); {
	case closedPipe(writeErr):
		return exitError(exitClosed)
	case a.ctx.Err() != nil:
		return a.interrupted()
	case writeErr != nil:
		return fmt.Errorf("writing the program's output: %w", writeErr)
	case ends == exitOK && (r.NotTaken || untaken != nil || unsaved != nil):
		return exitError(exitOurs)
	default:
		return ends
	}
}

// far says whether the program runs on a batch engine.
func (c *runCmd) far() bool { return c.Backend != nil && isBatch(*c.Backend) }

// possible refuses what was asked for and cannot be had, before anything runs.
func (c *runCmd) possible(a *app) error {
	most, setting := a.settings.Timeouts.Max, "timeouts.max"
	if c.far() {
		most, setting = a.settings.Runs.MaxTimeout, "runs.maxTimeout"
	}
	if c.Timeout > most {
		return fmt.Errorf("--timeout %v is more than %s allows (%v); allow more with --set %s=%v", c.Timeout, setting, most, setting, c.Timeout)
	}
	if c.Session != "" && a.settings.StateDir == "" {
		return errors.New("--session: there is no directory to keep a session in: set HOME, XDG_STATE_HOME or the setting stateDir")
	}
	return nil
}

// input connects standard input. An engine elsewhere gets none: what waits there
// to be read is not dropped without a word.
func (c *runCmd) input(a *app, req *broker.Request) error {
	if c.file() == "-" || a.stdio.In == nil {
		return nil // the program itself was read from it
	}
	if !c.far() {
		req.Stdin = a.stdio.In
		return nil
	}
	if f, ok := a.stdio.In.(*os.File); ok {
		info, err := f.Stat()
		if err != nil || info.Mode()&os.ModeCharDevice != 0 { // a terminal, or the null device
			return nil
		}
	}
	const waiting = 200 * time.Millisecond
	got := make(chan bool, 1)
	go func() {
		var one [1]byte
		n, _ := io.ReadFull(a.stdio.In, one[:])
		got <- n > 0
	}()
	select {
	case some := <-got:
		if some {
			return fmt.Errorf("engine %s runs the program far from here, where standard input does not reach it: send the data along with --file, or give </dev/null", *c.Backend)
		}
	case <-time.After(waiting):
		fmt.Fprintf(a.stdio.Err, "sallyport: standard input does not reach a program on %s: what comes there is not read\n", *c.Backend)
	}
	return nil
}

// file is the program's file; empty with -c.
func (c *runCmd) file() string {
	if c.Code != "" || len(c.Program) == 0 {
		return ""
	}
	return c.Program[0]
}

// args are the program's own arguments.
func (c *runCmd) args() []string {
	if c.file() == "" {
		return c.Program
	}
	return c.Program[1:]
}

// program reads the code to run, and whether it runs as a script.
func (c *runCmd) program(stdin io.Reader) (code string, script bool, err error) {
	switch {
	case c.Code != "":
		return c.Code, false, nil
	case c.file() == "":
		return "", false, errors.New("give a file, - for standard input, or -c CODE")
	}
	in := stdin
	if c.file() != "-" {
		f, err := os.Open(filepath.Clean(c.file()))
		if err != nil {
			return "", false, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxProgram+1))
	if err != nil {
		return "", false, err
	}
	if len(b) > maxProgram {
		return "", false, fmt.Errorf("the program is larger than %d MiB", maxProgram>>20)
	}
	if !utf8.Valid(b) {
		return "", false, errors.New("the program is not UTF-8 text: save it as UTF-8")
	}
	code = string(b)
	if strings.TrimSpace(code) == "" {
		code = "pass" // as an empty file is to python
	}
	return code, true, nil
}

// filename is what tracebacks call the program.
func (c *runCmd) filename() string {
	if c.file() == "-" {
		return "<stdin>"
	}
	return c.file()
}

// explain says on standard error what the program's own output does not.
func (c *runCmd) explain(a *app, r *broker.Result) {
	say := func(format string, args ...any) {
		fmt.Fprintf(a.stdio.Err, "sallyport: "+format+"\n", args...)
	}
	text := r.Error
	if a.ctx.Err() != nil {
		text = strings.Replace(text, "Cancelled by the client", a.ending(), 1)
	}
	if c.Session == "" { // what became of its variables is of no use
		text = strings.TrimSuffix(strings.TrimSuffix(text, "; "+broker.Kept), "; "+broker.Lost)
	}
	switch {
	case r.Status == broker.Timeout, r.Status == broker.ValidationError, r.OutOfMemory, r.ExitCode == nil && r.Status != broker.Success:
		if text != "" {
			say("%s", text)
		}
	}
	if r.Details != "" {
		say("%s", r.Details)
	}
	if c.Session != "" && r.StateLost != "" {
		say("the state of session %s is lost: %s", c.Session, r.StateLost)
	}
	for _, n := range r.Notes {
		say("%s", n)
	}
}

// status is the exit status for a result.
func status(r *broker.Result) int {
	switch {
	case r.Status == broker.Timeout:
		return exitTimeout
	case r.ExitCode != nil:
		return *r.ExitCode & 0xff
	case r.Status == broker.Success:
		return exitOK
	}
	return exitOurs
}

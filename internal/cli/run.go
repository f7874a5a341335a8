package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/hub/execution"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/wire"
)

// maxProgram bounds a program that is read from a file or standard input.
const maxProgram = 8 << 20

// batchFlags are the flags for batch services.
type batchFlags struct {
	Batch       string   `help:"Batch service to run the program on: kaggle or runpod, if the setting batch.services allows it." placeholder:"SERVICE" group:"Batch services (--batch kaggle, --batch runpod):" complete:"services"`
	GPU         bool     `help:"kaggle: run with a GPU." name:"gpu" group:"Batch services (--batch kaggle, --batch runpod):"`
	TPU         bool     `help:"kaggle: run with a TPU." name:"tpu" group:"Batch services (--batch kaggle, --batch runpod):"`
	Accelerator string   `help:"kaggle: the accelerator by its own name, such as NvidiaTeslaT4." placeholder:"NAME" group:"Batch services (--batch kaggle, --batch runpod):"`
	Internet    bool     `help:"kaggle: give the program access to the internet." group:"Batch services (--batch kaggle, --batch runpod):"`
	Dataset     []string `help:"kaggle: dataset that the program can read, as OWNER/NAME. Can be repeated." placeholder:"DATASET" group:"Batch services (--batch kaggle, --batch runpod):"`
	Keep        bool     `help:"Leave the finished run at the service." group:"Batch services (--batch kaggle, --batch runpod):"`
	Detach      bool     `help:"Submit the run, print its ID, and do not wait." group:"Batch services (--batch kaggle, --batch runpod):"`
}

// options returns the requested options, or nil if there are none.
func (f *batchFlags) options() (*broker.BatchOptions, error) {
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
		return nil, errors.New("give one of --gpu, --tpu and --accelerator")
	}
	if asked == 0 && len(f.Dataset) == 0 && !f.Internet && !f.Keep && !f.Detach {
		return nil, nil
	}
	return &broker.BatchOptions{Accelerator: accelerator, Datasets: f.Dataset, Internet: f.Internet, Keep: f.Keep, Detach: f.Detach}, nil
}

type runCmd struct {
	composeFlags
	Server  []string      `help:"MCP server that the program can use. Can be repeated." short:"s" placeholder:"NAME" complete:"servers"`
	Timeout time.Duration `help:"Limit on the program's own time (a number is seconds); time spent waiting for tools and input does not count." placeholder:"DURATION" type:"seconds"`
	JSON    bool          `help:"Print the whole result as JSON instead of the program's output." name:"json"`
	Code    string        `help:"The program itself, instead of a file." short:"c" placeholder:"CODE"`
	Session string        `help:"Run in the named session, which keeps its variables from call to call." placeholder:"NAME" complete:"sessions"`
	Files   []string      `help:"File or directory to copy into /workspace, under its own name or as SRC=DEST. Can be repeated." name:"file" placeholder:"PATH" sep:"none"`
	Mount   []string      `help:"Folder of this computer that the program sees: read-only at /mnt/NAME, or at PATH, and as MODE: ro, copy (a private copy) or rw (the program changes the folder). Can be repeated." placeholder:"DIR[:PATH][:MODE]" sep:"none" complete:"dirs"`
	Out     string        `help:"Directory for the files that the program leaves in /workspace." placeholder:"DIR"`

	packageFlags
	Standalone bool `help:"Run everything in this process, even if a hub runs: see 'sallyport hub'."`
	batchFlags
	Program []string `arg:"" optional:"" passthrough:"partial" name:"program" help:"The program, a file or - for standard input, and its own arguments." complete:"files"`
}

// Help implements kong's HelpProvider.
func (*runCmd) Help() string {
	return `Flags of 'sallyport run' come before the program: what follows the program goes to it, in sys.argv.

The program's output appears as it is written, and the program can read standard input. The exit status is the program's: n for sys.exit(n), 1 for an uncaught exception; 124 after a timeout, 137 if the memory limit ended it, 125 if Sallyport itself failed or files for --out are missing, 130 after Ctrl-C, and 128 plus its number after another signal ('sallyport help exit-codes').

If a hub runs with the same settings, the program runs there, and a named session is that of your clients ('sallyport hub'); --standalone keeps it in this process.

Where a rule of the policy says "ask", the command asks on its terminal, if standard input and standard error are one; what is typed then does not reach the program, whose output waits. Otherwise answer in another terminal with 'sallyport approvals'.

A script gets the packages that its header asks for (PEP 723, '# /// script'), and the Python that requires-python accepts; --with adds packages, and --env chooses an environment of the settings. The first run downloads wheels and builds an environment of them; later ones need no network. No code of the packages runs outside the sandbox.

With --mount the program sees a folder of this computer where it is, however large, and nothing next to it. A session keeps the folders that it began with. Your home directory as a whole, its hidden folders and directories of the system are refused; the setting files.mounts shows folders to every session.

With --batch kaggle or --batch runpod the program runs on that service, with your own account and without standard input, if the setting batch.services allows it. Ctrl-C cancels the run if the service can do that; 'sallyport runs' shows one that goes on.

A file runs as a script (__name__ is "__main__"); with -c the last expression is echoed, as run_python does. With --out, existing files are not overwritten: the new file gets another name.

Examples:
  sallyport run -c 'import sys; sys.version'
  sallyport run --with pandas -c 'import pandas; pandas.__version__'
  sallyport run --server filesystem report.py
  sallyport run report.py --year 2026
  sallyport run --session work -c 'total = 42'
  sallyport run --file data.csv --out results plot.py
  sallyport run --mount ~/data -c 'import os; os.listdir("/mnt/data")'
  sallyport run count.py <words.txt
  sallyport run --batch kaggle --gpu --timeout 30m train.py
  echo 'print(6*7)' | sallyport run -`
}

// Run implements the command.
func (c *runCmd) Run(u *ui) error {
	if c.Code == "" && len(c.Program) > 0 && c.Program[0] == "--" {
		c.Program = c.Program[1:] // it ends the flags, as python's does
	} else if file := c.file(); strings.HasPrefix(file, "-") && file != "-" {
		fmt.Fprintf(u.stdio.Err, "sallyport: unknown flag %s\nTry 'sallyport run --help'.\n", invisible.Line(file))
		return exitError(exitOurs)
	}
	code, script, err := c.program(u.input())
	if err != nil {
		return err
	}
	var unsaved error
	c.unsaved = func(session string, err error) {
		unsaved = fmt.Errorf("session %s could not be saved: %w", session, err)
	}
	if err := u.loadSettings(c.flags()...); err != nil {
		return err
	}
	if err := c.possible(u); err != nil {
		return err
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	mounts, err := readMounts(u.FolderRules(), c.Mount)
	if err != nil {
		return err
	}
	env, err := c.environment(u, code, script)
	if err != nil {
		return interrupted(u, err)
	}
	talk := c.dialog(u)
	by, sys, done, err := c.host(u, c.Standalone || c.Batch != "" || options != nil)
	if err != nil {
		return err
	}
	closed := sync.OnceFunc(done)
	defer closed()
	asked := func() {}
	if sys != nil {
		if c.Server, err = serversNamed(sys.Library.Snapshot(), c.Server); err != nil {
			return err
		}
		u.warnOf(sys, c.Server...)
		if c.Batch == "" {
			u.awaitImage(sys.Core)
		}
		asked = u.elsewhere(sys, talk, runClient)
		defer asked()
	}

	req := broker.Request{Principal: authz.Local(runClient), Batch: options, Shown: true, Servers: c.Server, Session: c.Session, Env: env, Mounts: mounts, Submission: broker.Submission{Measure: c.JSON, Code: code, Timeout: c.Timeout, Script: script, Args: c.args()}}
	if script {
		req.Filename = c.filename()
	}
	req.Backend = c.Batch
	if err := c.input(u, &req); err != nil {
		return err
	}
	if talk != nil {
		if req.Stdin != nil {
			req.Stdin = talk.keys
		}
		if there, ok := by.(*execution.Client); ok {
			req.RequestID = strings.ToLower(rand.Text())
			there.Asked, asked = talk.askFrom(req.RequestID)
			defer asked()
		}
	}
	if req.Files, err = readFiles(c.Files); err != nil {
		return err
	}
	var out *outDir
	if c.Out != "" {
		if out, err = u.out(c.Out); err != nil {
			return err
		}
		defer out.close()
		req.TakeFiles = out.create
	}
	ctx, cancel := context.WithCancel(u.ctx)
	defer cancel()
	var writeErr error // of the first write that failed
	progress := u.silentMeter("sallyport")
	defer progress.end()
	if u.screen != nil {
		u.screen.meter = progress
	}
	if !c.JSON {
		req.OnStatus = progress.status
		if sys == nil {
			req.OnStatus = u.starts.show
		}
		req.OnOutput = func(s wire.Stream, b []byte) {
			w := u.stdio.Out
			if s == wire.Stderr {
				w = u.stdio.Err
			}
			u.screen.output(w, b, func(b []byte) {
				if closedPipe(writeErr) {
					return // nor to how it ends
				}
				progress.pause()
				u.starts.stop() // a line may be unfinished
				if _, err := w.Write(b); err != nil && writeErr == nil {
					if writeErr = err; closedPipe(err) {
						cancel() // like a program whose output has no reader
					}
				}
			})
		}
	}
	r := by.Execute(ctx, req)
	asked() // and what was held is written
	progress.end()
	u.starts.stop()
	if c.JSON {
		if err := u.printJSON(r); err != nil {
			return err
		}
	} else {
		if c.Detach && r.Run != "" {
			fmt.Fprintln(u.stdio.Out, r.Run)
		}
		if writeErr == nil || !closedPipe(writeErr) {
			c.explain(u, r)
		}
	}
	var untaken error
	if out != nil && r.Run != "" { // of a batch service
		untaken = c.fetched(u, sys, r, out)
	}
	closed()
	for _, err := range []error{untaken, unsaved} {
		if err != nil {
			fmt.Fprintln(u.stdio.Err, "sallyport: "+invisible.Escape(err.Error()))
		}
	}
	switch ends := exitError(status(r)); {
	case closedPipe(writeErr):
		return exitError(exitClosed)
	case u.ctx.Err() != nil:
		return u.interrupted()
	case writeErr != nil:
		return fmt.Errorf("writing the program's output: %w", writeErr)
	case ends == exitOK && (r.NotTaken || untaken != nil || unsaved != nil):
		return exitError(exitOurs)
	default:
		return ends
	}
}

// dialog returns what asks the user about calls of the program; nil where that is
// elsewhere.
func (c *runCmd) dialog(u *ui) *dialog {
	if c.JSON || c.Batch != "" {
		return nil
	}
	return u.dialog(runClient)
}

// dialog returns what asks the user about calls on the terminal; nil where there is
// none.
func (u *ui) dialog(by string) *dialog {
	keys := newKeyboard(u.stdio.In)
	if keys == nil || !terminal.Real(u.stdio.Err) {
		return nil
	}
	u.screen = newScreen(u)
	return &dialog{ui: u, keys: keys, out: u.stdio.Err, by: by}
}

// possible rejects flags that cannot be satisfied, before anything runs.
func (c *runCmd) possible(u *ui) error {
	if services := settings.BatchServices(); c.Batch != "" && !slices.Contains(services, c.Batch) {
		return fmt.Errorf("--batch %s: no such batch service; there are %s; --engine selects an engine", c.Batch, strings.Join(services, " and "))
	}
	most, setting := u.Settings.Timeouts.Max, "timeouts.max"
	if c.Batch != "" {
		most, setting = u.Settings.Runs.MaxTimeout, "runs.maxTimeout"
	}
	if c.Timeout > most {
		return fmt.Errorf("--timeout %v is more than %s allows (%v); allow more with --set %s=%v", c.Timeout, setting, most, setting, c.Timeout)
	}
	if c.Session != "" && u.Settings.StateDir == "" {
		return errors.New("--session: there is no directory to save a session in: set the setting stateDir, XDG_STATE_HOME, or HOME to a directory that exists")
	}
	return nil
}

// input connects standard input. A batch service gets none, and waiting input
// is not dropped silently.
func (c *runCmd) input(u *ui, req *broker.Request) error {
	if c.file() == "-" || u.stdio.In == nil {
		return nil // the program itself was read from it
	}
	if c.Batch == "" {
		req.Stdin = u.stdio.In
		return nil
	}
	if f, ok := u.stdio.In.(*os.File); ok {
		info, err := f.Stat()
		if err != nil || info.Mode()&os.ModeCharDevice != 0 { // a terminal, or the null device
			return nil
		}
	}
	const waiting = 200 * time.Millisecond
	got := make(chan bool, 1)
	go func() {
		var one [1]byte
		n, _ := io.ReadFull(u.stdio.In, one[:])
		got <- n > 0
	}()
	select {
	case some := <-got:
		if some {
			return fmt.Errorf("standard input does not reach a program on %s: send the data along with --file, or redirect from /dev/null", c.Batch)
		}
	case <-time.After(waiting):
		fmt.Fprintf(u.stdio.Err, "sallyport: standard input does not reach a program on %s and is not read\n", c.Batch)
	}
	return nil
}

// file returns the program's file, or "" with -c.
func (c *runCmd) file() string {
	if c.Code != "" || len(c.Program) == 0 {
		return ""
	}
	return c.Program[0]
}

// args returns the program's own arguments.
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
		code = "pass" // like an empty file for python
	}
	return code, true, nil
}

// filename returns the name of the program in tracebacks.
func (c *runCmd) filename() string {
	if c.file() == "-" {
		return "<stdin>"
	}
	return c.file()
}

// explain reports on standard error what the program's own output does not
// show.
func (c *runCmd) explain(u *ui, r *broker.Result) {
	say := func(format string, args ...any) {
		fmt.Fprintf(u.stdio.Err, "sallyport: "+format+"\n", args...)
	}
	text := r.Error
	if u.ctx.Err() != nil {
		text = strings.Replace(text, "Cancelled by the client", u.ending(), 1)
	}
	if c.Session == "" { // the fate of its variables does not matter
		text = strings.TrimSuffix(strings.TrimSuffix(text, "; "+broker.Kept), "; "+broker.Lost)
	}
	switch {
	case r.Status == broker.Timeout, r.Status == broker.ValidationError, r.OutOfMemory, r.ExitCode == nil && r.Status != broker.Success,
		c.Session == "" && r.StateLost != "" && r.ExitCode != nil && *r.ExitCode > exitSignal:
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
	for _, line := range c.left(r) {
		say("%s", line)
	}
}

// status returns the exit status for a result.
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

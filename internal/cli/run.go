package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport/internal/broker"
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
	Timeout time.Duration `help:"Limit on the program's own time (a number is seconds); time spent waiting for tools is not counted." placeholder:"DURATION" type:"seconds"`
	JSON    bool          `help:"Print the whole result as JSON instead of the program's output." name:"json"`
	Code    string        `help:"The program itself, instead of a file." short:"c" placeholder:"CODE"`
	Session string        `help:"Run in the session of that name, with the variables that it has, and leave it for the next call." placeholder:"NAME"`
	Files   []string      `help:"File or directory to put into /workspace, under its own name or as SRC=DEST. Can be repeated." name:"file" placeholder:"PATH" sep:"none"`
	Out     string        `help:"Directory for the files that the program leaves in /workspace." placeholder:"DIR"`
	batchFlags
	File string   `arg:"" optional:"" help:"The program: a file, or - for standard input."`
	Args []string `arg:"" optional:"" passthrough:"" help:"The program's own arguments."`
}

// Help implements kong's HelpProvider.
func (*runCmd) Help() string {
	return `The program's output appears as it comes. The exit status is the program's: n for sys.exit(n), 1 for an uncaught exception; 124 after a timeout, 137 when the memory limit ended it, 125 when Sallyport itself failed, 130 after Ctrl-C.

With --backend kaggle or runpod the program runs there, on your own account, where the setting backends allows that. Ctrl-C cancels the run where the service can do so; 'sallyport runs' finds one that goes on.

A file runs as a script (__name__ is "__main__"); with -c the last expression is echoed, as run_python does.

Examples:
  sallyport run -c 'import sys; sys.version'
  sallyport run --server filesystem report.py
  sallyport run report.py --year 2026
  sallyport run --session work -c 'total = 42'
  sallyport run --file data.csv --out results plot.py
  sallyport run --backend kaggle --gpu --timeout 30m train.py
  echo 'print(6*7)' | sallyport run -`
}

// Run implements the command.
func (c *runCmd) Run(a *app) error {
	code, script, err := c.program(a.stdio.In)
	if err != nil {
		return err
	}
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	defer a.adopt(sys)()
	a.warnOf(sys, c.Server...)
	a.awaitImage(sys)

	req := broker.Request{Shown: true, Measure: c.JSON, Code: code, Servers: c.Server, Timeout: c.Timeout, Script: script, Session: c.Session, Args: c.Args}
	if script {
		req.Filename = c.filename()
	}
	if c.Backend != nil && isBatch(*c.Backend) {
		req.Backend = *c.Backend
	}
	if req.Batch, err = c.batchFlags.request(); err != nil {
		return err
	}
	if req.Files, err = readFiles(c.Files); err != nil {
		return err
	}
	req.TakeFiles = c.Out != ""
	var writeErr error // of the first write that failed
	if !c.JSON {
		req.OnStatus = a.statusLines()
		req.OnOutput = func(s broker.Stream, b []byte) {
			w := a.stdio.Out
			if s == broker.Stderr {
				w = a.stdio.Err
			}
			if _, err := w.Write(b); err != nil && writeErr == nil {
				writeErr = err
			}
		}
	}
	r := sys.broker.Execute(a.ctx, req)
	if c.JSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		if req.Batch.Detach && r.Run != "" {
			fmt.Fprintln(a.stdio.Out, r.Run)
		}
		c.explain(a, r)
	}
	if c.Out != "" {
		if err := c.writeFiles(a, sys, r); err != nil {
			return err
		}
	}
	if a.ctx.Err() != nil {
		return exitError(exitInterrupted)
	}
	if writeErr != nil {
		return fmt.Errorf("writing the program's output: %w", writeErr)
	}
	return exitError(status(r))
}

// program reads the code to run, and whether it runs as a script.
func (c *runCmd) program(stdin io.Reader) (code string, script bool, err error) {
	switch {
	case c.Code != "" && c.File != "":
		return "", false, errors.New("give either a file or -c CODE (arguments are for a file)")
	case c.Code != "":
		return c.Code, false, nil
	case c.File == "":
		return "", false, errors.New("give a file, - for standard input, or -c CODE")
	}
	in := stdin
	if c.File != "-" {
		f, err := os.Open(filepath.Clean(c.File))
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
	if c.File == "-" {
		return "<stdin>"
	}
	return c.File
}

// explain says on standard error what the program's own output does not.
func (c *runCmd) explain(a *app, r *broker.Result) {
	say := func(format string, args ...any) {
		fmt.Fprintf(a.stdio.Err, "sallyport: "+format+"\n", args...)
	}
	text := r.Error
	if a.ctx.Err() != nil {
		text = strings.Replace(text, "Cancelled by the client", "interrupted", 1)
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

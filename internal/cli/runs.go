package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"sallyport/internal/hidden"
	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
)

// pollEvery is how often the record of a run is read that another process
// follows.
const pollEvery = time.Second

type runsCmd struct {
	List   runsListCmd   `cmd:"" default:"withargs" help:"List runs on runpod and kaggle, the newest first."`
	Wait   runsWaitCmd   `cmd:"" help:"Wait for a run to end, and print its output."`
	Fetch  runsFetchCmd  `cmd:"" help:"Write the files that a run left, and its output, into a directory."`
	Cancel runsCancelCmd `cmd:"" help:"Tell the service to end runs."`
	Remove runsRemoveCmd `cmd:"" name:"rm" help:"Forget runs that have ended, with their output and files."`
}

// runs opens the runs of the settings in force, with the engines to ask.
func (a *app) runs() (store *runs.Store, done func(), err error) {
	if err := a.configure(); err != nil {
		return nil, nil, err
	}
	books, err := a.books("")
	if err != nil {
		return nil, nil, err
	}
	engines, err := a.batchEngines()
	if err != nil {
		if books != nil {
			books.Close()
		}
		return nil, nil, err
	}
	store = a.runsOf(engines)
	if books != nil {
		store.OnEnd(func(r *runs.Record) { books.Ran(r) })
	}
	return store, func() {
		if books != nil {
			books.Close()
		}
		for _, e := range engines {
			if err := e.Close(); err != nil {
				a.log.Warn("cleaning up", "error", err)
			}
		}
	}, nil
}

// lookTime bounds how long services are asked how runs are.
const lookTime = 20 * time.Second

// refresh asks the services how the runs are, and says where that failed.
func (a *app) refresh(store *runs.Store) {
	ctx, cancel := context.WithTimeout(a.ctx, lookTime)
	defer cancel()
	if err := store.Refresh(ctx); err != nil && a.ctx.Err() == nil {
		fmt.Fprintf(a.stdio.Err, "sallyport: some runs could not be asked for, and are shown as they were last seen: %s\n", hidden.Escape(err.Error()))
	}
}

type runsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*runsListCmd) Help() string {
	return `Runs are found here also when the program that began them has ended. The services are asked how those are that no program follows; one that was begun without --detach and whose program was killed is cancelled. What ended is kept for the time that the setting runs.keep says.

Example:
  sallyport runs list
  sallyport runs wait run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsListCmd) Run(a *app) error {
	store, done, err := a.runs()
	if err != nil {
		return err
	}
	defer done()
	a.refresh(store)
	list, problems := store.List()
	if c.JSON {
		if list == nil {
			list = []*runs.Record{}
		}
		return errors.Join(a.printJSON(struct {
			Runs []*runs.Record `json:"runs"`
		}{list}), problems)
	}
	if len(list) == 0 && problems == nil {
		fmt.Fprintln(a.stdio.Out, "There are no runs. `sallyport run --backend kaggle FILE` makes one, where the setting backends allows it.")
		return nil
	}
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tBACKEND\tSTATE\tSTARTED\tPROGRAM\tFILES")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Backend, stateOf(r), r.Created.Local().Format("2006-01-02 15:04"), hidden.Escape(r.Program), filesOf(r))
	}
	return errors.Join(w.Flush(), problems)
}

// stateOf is where a run is, in a word or two.
func stateOf(r *runs.Record) string {
	if r.State != runs.Ended || r.Result == nil {
		return string(r.State)
	}
	switch {
	case r.Result.End != sandbox.BatchExited:
		return string(r.Result.End)
	case r.Result.ExitCode != 0:
		return fmt.Sprintf("exit %d", r.Result.ExitCode)
	}
	return "done"
}

func filesOf(r *runs.Record) string {
	switch {
	case r.Trouble != "":
		return "not fetched"
	case len(r.Files) == 0:
		return ""
	}
	return fmt.Sprint(len(r.Files))
}

type runsWaitCmd struct {
	ID   string `arg:"" help:"The run."`
	Out  string `help:"Directory for the files that the run left." placeholder:"DIR"`
	JSON bool   `help:"Print the run's record as JSON instead of its output." name:"json"`
}

// Help implements kong's HelpProvider.
func (*runsWaitCmd) Help() string {
	return `The exit status is the program's, as with 'sallyport run'. Ctrl-C stops the waiting, and not the run.

Example:
  sallyport runs wait run-4k2jvqhx7mtz --out results`
}

// Run implements the command.
func (c *runsWaitCmd) Run(a *app) error {
	store, done, err := a.runs()
	if err != nil {
		return err
	}
	defer done()
	record, err := a.follow(store, c.ID)
	if err != nil {
		if a.ctx.Err() != nil {
			fmt.Fprintln(a.stdio.Err, "sallyport: the run goes on; `sallyport runs wait "+c.ID+"` waits again")
			return a.interrupted()
		}
		return err
	}
	var unwritten error
	if c.Out != "" {
		out, err := a.out(c.Out)
		if err != nil {
			return err
		}
		defer out.close()
		unwritten = a.copyRun(store, record, out, false)
	}
	if c.JSON {
		if err := a.printJSON(record); err != nil {
			return err
		}
	} else if err := a.printRun(store, record); err != nil {
		return err
	}
	if unwritten != nil {
		return unwritten
	}
	return exitError(runStatus(record))
}

// runStatus is the exit status for a run that has ended.
func runStatus(r *runs.Record) int {
	switch r.Result.End {
	case sandbox.BatchExited:
		return r.Result.ExitCode & 0xff
	case sandbox.BatchTimedOut:
		return exitTimeout
	}
	return exitOurs
}

// printRun prints what a run wrote, and how it ended unless it did well.
func (a *app) printRun(store *runs.Store, r *runs.Record) error {
	for _, stderr := range []bool{false, true} {
		f, err := store.Output(r.ID, stderr)
		if err != nil {
			return err
		}
		to := a.stdio.Out
		if stderr {
			to = a.stdio.Err
		}
		_, err = io.Copy(to, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	say := func(text string) { fmt.Fprintln(a.stdio.Err, "sallyport: "+hidden.Escape(text)) }
	if r.Result.Error != "" {
		say(r.Result.Error)
	}
	for _, n := range r.Result.Notes {
		say(n)
	}
	if r.Trouble != "" {
		say(r.Trouble)
	}
	if len(r.Files) > 0 {
		say(fmt.Sprintf("it left %d files: `sallyport runs fetch %s --out DIR` copies them", len(r.Files), r.ID))
	}
	return nil
}

// follow waits for a run, whoever follows it already, and says how it goes.
func (a *app) follow(store *runs.Store, id string) (*runs.Record, error) {
	status := a.statusLines()
	for {
		job, err := store.Attach(a.ctx, id)
		if err == nil {
			defer job.Close()
			record, err := job.Wait(a.ctx, func(p sandbox.Progress) { status(p.State) })
			if err != nil && a.ctx.Err() != nil && job.Record().State != runs.Ended {
				// Whose Sallyport has ended before: it is not to be cancelled for that.
				err = errors.Join(err, job.Detach())
			}
			return record, err
		}
		if !errors.Is(err, runs.ErrFollowed) {
			return nil, err
		}
		r, err := store.Get(id)
		if err != nil {
			return nil, err
		}
		if r.State == runs.Ended && r.Result != nil {
			return r, nil
		}
		status(r.Status)
		select {
		case <-a.ctx.Done():
			return nil, context.Cause(a.ctx)
		case <-time.After(pollEvery):
		}
	}
}

type runsFetchCmd struct {
	ID  string `arg:"" help:"The run, which must have ended."`
	Out string `help:"Directory for the files, which is made where it is not there." default:"." placeholder:"DIR"`
}

// Help implements kong's HelpProvider.
func (*runsFetchCmd) Help() string {
	return `Beside the run's own files, its output is written as ID.stdout and ID.stderr. A file that is there already is not overwritten: the new one gets another name.

Example:
  sallyport runs fetch run-4k2jvqhx7mtz --out results`
}

// Run implements the command.
func (c *runsFetchCmd) Run(a *app) error {
	store, done, err := a.runs()
	if err != nil {
		return err
	}
	defer done()
	record, err := store.Get(c.ID)
	if err != nil {
		return err
	}
	if record.State != runs.Ended {
		if err := store.Look(a.ctx, c.ID); err != nil {
			return err
		}
		if record, err = store.Get(c.ID); err != nil {
			return err
		}
	}
	if record.State != runs.Ended {
		return fmt.Errorf("run %s has not ended: it is %s (`sallyport runs wait %s` waits for it)", c.ID, record.State, c.ID)
	}
	if record.Trouble != "" {
		if record, err = a.follow(store, c.ID); err != nil {
			return err
		}
		if record.Trouble != "" {
			return errors.New(record.Trouble)
		}
	}
	out, err := a.out(c.Out)
	if err != nil {
		return err
	}
	defer out.close()
	return a.copyRun(store, record, out, true)
}

// copyRun copies what a run left into a directory. One file that cannot be
// copied is no reason to leave out the others.
func (a *app) copyRun(store *runs.Store, r *runs.Record, out *outDir, output bool) error {
	var failed []error
	if output {
		for _, stderr := range []bool{false, true} {
			failed = append(failed, copyStream(store, r, out, stderr))
		}
	}
	if !r.Fetched {
		return errors.Join(failed...)
	}
	from, err := store.Files(r.ID)
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	defer from.Close()
	for _, f := range r.Files {
		in, err := from.Open(f.Path)
		if err == nil {
			err = errors.Join(out.copy(f.Path, in), in.Close())
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func copyStream(store *runs.Store, r *runs.Record, out *outDir, stderr bool) error {
	name, size := r.ID+".stdout", r.Result.StdoutBytes
	if stderr {
		name, size = r.ID+".stderr", r.Result.StderrBytes
	}
	if size == 0 {
		return nil
	}
	in, err := store.Output(r.ID, stderr)
	if err != nil {
		return err
	}
	defer in.Close()
	return out.copy(name, in)
}

// copy writes a file.
func (o *outDir) copy(name string, from io.Reader) error {
	w, done, err := o.create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, done(err == nil))
}

type runsCancelCmd struct {
	IDs []string `arg:"" name:"id" help:"The runs."`
}

// Help implements kong's HelpProvider.
func (*runsCancelCmd) Help() string {
	return `A service that cannot end a run is no success: the message says where the run goes on, and until when.

Example:
  sallyport runs cancel run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsCancelCmd) Run(a *app) error {
	return a.eachRun(c.IDs, func(s *runs.Store, id string) error { return s.Cancel(a.ctx, id) })
}

// eachRun does something with runs, and names those with which it was done.
func (a *app) eachRun(ids []string, do func(*runs.Store, string) error) error {
	store, done, err := a.runs()
	if err != nil {
		return err
	}
	defer done()
	var failed []error
	for _, id := range ids {
		if err := do(store, id); err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintln(a.stdio.Out, id)
	}
	return errors.Join(failed...)
}

type runsRemoveCmd struct {
	IDs []string `arg:"" name:"id" help:"The runs, which must have ended."`
}

// Help implements kong's HelpProvider.
func (*runsRemoveCmd) Help() string {
	return `Example:
  sallyport runs rm run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsRemoveCmd) Run(a *app) error {
	return a.eachRun(c.IDs, (*runs.Store).Remove)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/invisible"
)

// pollEvery is how often to read the record of a run that another process
// follows.
const pollEvery = time.Second

type runsCmd struct {
	List   runsListCmd   `cmd:"" default:"withargs" help:"List runs on runpod and kaggle, the newest first."`
	Wait   runsWaitCmd   `cmd:"" help:"Wait for a run to end, and print its output."`
	Fetch  runsFetchCmd  `cmd:"" help:"Write the files that a run left, and its output, into a directory."`
	Cancel runsCancelCmd `cmd:"" help:"Tell the service to end runs."`
	Remove runsRemoveCmd `cmd:"" name:"rm" help:"Forget runs that have ended, with their output and files."`
}

// openRuns opens the runs; the caller must call done.
func (u *ui) openRuns() (store *runs.Store, done func(), err error) {
	if err := u.configure(); err != nil {
		return nil, nil, err
	}
	return u.OpenRuns()
}

// lookTime bounds how long services are asked about runs.
const lookTime = 20 * time.Second

// refresh asks the services about their runs, and reports failures.
func (u *ui) refresh(store *runs.Store) {
	ctx, cancel := context.WithTimeout(u.ctx, lookTime)
	defer cancel()
	if err := store.Refresh(ctx); err != nil && u.ctx.Err() == nil {
		fmt.Fprintf(u.stdio.Err, "sallyport: some runs could not be looked up and are shown as last seen: %s\n", invisible.Escape(err.Error()))
	}
}

type runsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*runsListCmd) Help() string {
	return `Lists runs even if the program that started them has ended. The service is asked about runs that no program follows; a run that was started without --detach and whose program was killed is cancelled. Finished runs are kept for as long as the setting runs.keep says.

Example:
  sallyport runs list
  sallyport runs wait run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsListCmd) Run(u *ui) error {
	store, done, err := u.openRuns()
	if err != nil {
		return err
	}
	defer done()
	u.refresh(store)
	list, problems := store.List()
	if c.JSON {
		if list == nil {
			list = []*runs.Record{}
		}
		return errors.Join(u.printJSON(struct {
			Runs []*runs.Record `json:"runs"`
		}{list}), problems)
	}
	if len(list) == 0 && problems == nil {
		fmt.Fprintln(u.stdio.Out, "There are no runs. `sallyport run --batch kaggle FILE` starts one, if the setting batch.services allows it.")
		return nil
	}
	t := u.table("RUN", "SERVICE", "STATE", "STARTED", "PROGRAM", "FILES")
	for _, r := range list {
		t.Row(r.ID, r.Service, stateOf(r), r.Created.Local().Format("2006-01-02 15:04"), invisible.Line(r.Program), filesOf(r))
	}
	return errors.Join(t.Write(u.stdio.Out), problems)
}

// stateOf returns a run's state in a word or two.
func stateOf(r *runs.Record) string {
	if r.State != runs.Ended || r.Result == nil {
		return string(r.State)
	}
	switch {
	case r.Result.End != batch.Exited:
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
	ID   string `arg:"" help:"The run." complete:"runs"`
	Out  string `help:"Directory for the files that the run left." placeholder:"DIR"`
	JSON bool   `help:"Print the run's record as JSON instead of its output." name:"json"`
}

// Help implements kong's HelpProvider.
func (*runsWaitCmd) Help() string {
	return `The exit status is the program's, as with 'sallyport run'. Ctrl-C stops waiting, but does not stop the run.

Example:
  sallyport runs wait run-4k2jvqhx7mtz --out results`
}

// Run implements the command.
func (c *runsWaitCmd) Run(u *ui) error {
	store, done, err := u.openRuns()
	if err != nil {
		return err
	}
	defer done()
	record, err := u.follow(store, c.ID)
	if err != nil {
		if u.ctx.Err() != nil {
			fmt.Fprintln(u.stdio.Err, "sallyport: the run goes on; `sallyport runs wait "+c.ID+"` waits again")
			return u.interrupted()
		}
		return err
	}
	var unwritten error
	if c.Out != "" {
		out, err := u.out(c.Out)
		if err != nil {
			return err
		}
		defer out.close()
		unwritten = u.copyRun(store, record, out, false)
	}
	if c.JSON {
		if err := u.printJSON(record); err != nil {
			return err
		}
	} else if err := u.printRun(store, record); err != nil {
		return err
	}
	if unwritten != nil {
		return unwritten
	}
	return exitError(runStatus(record))
}

// runStatus returns the exit status for a run that has ended.
func runStatus(r *runs.Record) int {
	switch r.Result.End {
	case batch.Exited:
		return r.Result.ExitCode & 0xff
	case batch.TimedOut:
		return exitTimeout
	}
	return exitOurs
}

// printRun prints a run's output, and how it ended unless it succeeded.
func (u *ui) printRun(store *runs.Store, r *runs.Record) error {
	for _, stderr := range []bool{false, true} {
		f, err := store.Output(r.ID, stderr)
		if err != nil {
			return err
		}
		to := u.stdio.Out
		if stderr {
			to = u.stdio.Err
		}
		_, err = io.Copy(to, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	say := func(text string) { fmt.Fprintln(u.stdio.Err, "sallyport: "+invisible.Escape(text)) }
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

// follow waits for a run, whoever else follows it, and reports its progress.
func (u *ui) follow(store *runs.Store, id string) (*runs.Record, error) {
	progress := u.silentMeter("sallyport")
	defer progress.end()
	for {
		job, err := store.Attach(u.ctx, id)
		if err == nil {
			defer job.Close()
			record, err := job.Wait(u.ctx, func(p batch.Progress) { progress.status(p.State) })
			if err != nil && u.ctx.Err() != nil && job.Record().State != runs.Ended {
				// Its Sallyport has already ended; do not cancel the run for that.
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
		progress.status(r.Status)
		select {
		case <-u.ctx.Done():
			return nil, context.Cause(u.ctx)
		case <-time.After(pollEvery):
		}
	}
}

type runsFetchCmd struct {
	ID  string `arg:"" help:"The run, which must have ended." complete:"runs"`
	Out string `help:"Directory for the files; created if it does not exist." default:"." placeholder:"DIR"`
}

// Help implements kong's HelpProvider.
func (*runsFetchCmd) Help() string {
	return `The run's output is also written, as ID.stdout and ID.stderr. Existing files are not overwritten: the new file gets another name.

Example:
  sallyport runs fetch run-4k2jvqhx7mtz --out results`
}

// Run implements the command.
func (c *runsFetchCmd) Run(u *ui) error {
	store, done, err := u.openRuns()
	if err != nil {
		return err
	}
	defer done()
	record, err := store.Get(c.ID)
	if err != nil {
		return err
	}
	if record.State != runs.Ended {
		if err := store.Look(u.ctx, c.ID); err != nil {
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
		if record, err = u.follow(store, c.ID); err != nil {
			return err
		}
		if record.Trouble != "" {
			return errors.New(record.Trouble)
		}
	}
	out, err := u.out(c.Out)
	if err != nil {
		return err
	}
	defer out.close()
	return u.copyRun(store, record, out, true)
}

// copyRun copies the files that a run left into a directory. If one file cannot
// be copied, it continues with the others.
func (u *ui) copyRun(store *runs.Store, r *runs.Record, out *outDir, output bool) error {
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
	IDs []string `arg:"" name:"id" help:"The runs." complete:"runs"`
}

// Help implements kong's HelpProvider.
func (*runsCancelCmd) Help() string {
	return `If the service cannot end a run, the command fails, and the message says where and until when the run continues.

Example:
  sallyport runs cancel run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsCancelCmd) Run(u *ui) error {
	return u.eachRun(c.IDs, func(s *runs.Store, id string) error { return s.Cancel(u.ctx, id) })
}

// eachRun calls do for each run, and prints those for which it succeeded.
func (u *ui) eachRun(ids []string, do func(*runs.Store, string) error) error {
	store, done, err := u.openRuns()
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
		fmt.Fprintln(u.stdio.Out, id)
	}
	return errors.Join(failed...)
}

type runsRemoveCmd struct {
	IDs []string `arg:"" name:"id" help:"The runs, which must have ended." complete:"runs"`
}

// Help implements kong's HelpProvider.
func (*runsRemoveCmd) Help() string {
	return `Example:
  sallyport runs rm run-4k2jvqhx7mtz`
}

// Run implements the command.
func (c *runsRemoveCmd) Run(u *ui) error {
	return u.eachRun(c.IDs, (*runs.Store).Remove)
}

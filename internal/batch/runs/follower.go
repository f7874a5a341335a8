package runs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	// noteEvery is how often a change of the status alone is written.
	noteEvery = 2 * time.Second
	// tidyTimeout bounds the cleanup at the service after a run has ended.
	tidyTimeout = 30 * time.Second
)

// ID returns the run's ID.
func (j *Follower) ID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record.ID
}

// Record returns what is known of the run now.
func (j *Follower) Record() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record
}

// Wait blocks until the run has ended, fetches its output and files, and
// returns the record. It calls observe, if not nil, with every change, from one
// goroutine at a time. An error means that the outcome could not be determined:
// the run may go on.
func (j *Follower) Wait(ctx context.Context, observe func(batch.Progress)) (*Record, error) {
	if r := j.Record(); r.State == Ended {
		if r.Trouble != "" && j.run != nil {
			j.fetch(ctx)
		}
		r = j.Record()
		j.store.reportEnd(r)
		return &r, nil
	}
	j.run.Observe(func(p batch.Progress) {
		j.note(p)
		if observe != nil {
			observe(p)
		}
	})
	result, err := j.run.Result(ctx)
	return j.finish(ctx, result, err)
}

// finish records what Result returned.
func (j *Follower) finish(ctx context.Context, result batch.Result, err error) (*Record, error) {
	if errors.Is(err, sandbox.ErrGone) {
		result, err = batch.Result{End: batch.Lost, ExitCode: -1, Error: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	j.ended(ctx, result)
	r := j.Record()
	return &r, nil
}

// settle is how long a run that has reported progress may still report its end.
const settle = time.Second

// look asks the service once for the run's state and records it. It fetches a
// run that has ended.
func (j *Follower) look(ctx context.Context) error {
	if j.Record().State == Ended {
		return nil
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var once sync.Once
	j.run.Observe(func(p batch.Progress) {
		j.note(p)
		once.Do(func() { time.AfterFunc(settle, stop) })
	})
	result, err := j.run.Result(looking)
	if err != nil && looking.Err() != nil && ctx.Err() == nil {
		return nil // it goes on
	}
	_, err = j.finish(ctx, result, err)
	return err
}

// note records a change in the run.
func (j *Follower) note(p batch.Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.record
	if r.State == Ended {
		return
	}
	due := time.Since(j.wrote) >= noteEvery
	changed := false
	if p.Running && r.State != Running {
		r.State, r.Began, changed, due = Running, time.Now().UTC(), true, true
	}
	if p.State != "" && p.State != r.Status {
		r.Status, changed = p.State, true
	}
	if p.Handle != nil {
		h := *p.Handle
		r.Handle, changed, due = &h, true, true
	}
	if changed && due {
		j.save()
	}
}

// save writes the record. The caller holds mu. A failure does not end the run,
// which is only harder to find again.
func (j *Follower) save() {
	j.wrote = time.Now()
	if err := j.store.write(&j.record); err != nil {
		j.store.log.Warn("the record of a run could not be written", "run", j.record.ID, "error", err)
	}
}

// ended records a result, and then fetches the files and cleans up at the
// service. The output is on disk before the record mentions it.
func (j *Follower) ended(ctx context.Context, b batch.Result) {
	for _, out := range []struct {
		data    *[]byte
		omitted *int64
	}{{&b.Stdout, &b.Truncated.Stdout}, {&b.Stderr, &b.Truncated.Stderr}} {
		if over := len(*out.data) - maxOutput; over > 0 {
			*out.data, *out.omitted = (*out.data)[:maxOutput], *out.omitted+int64(over)
		}
	}
	r := resultOf(b)
	dir := j.store.dir.Sub(j.ID())
	for _, out := range []struct {
		data   []byte
		stderr bool
	}{{b.Stdout, false}, {b.Stderr, true}} {
		if len(out.data) == 0 {
			continue
		}
		if err := dir.Write(streamName(out.stderr), out.data); err != nil {
			j.store.log.Warn("the output of a run could not be kept", "run", j.ID(), "error", err)
		}
	}
	j.mu.Lock()
	j.record.Result, j.record.State, j.record.Status, j.record.Ended = r, Ended, "", time.Now().UTC()
	j.record.Trouble = notYet // it stays if this program is killed meanwhile
	j.save()
	record := j.record
	j.mu.Unlock()
	j.store.reportEnd(record)
	j.fetch(ctx)
}

// notYet is Record.Trouble while the files are being fetched.
const notYet = "its files have not been fetched yet"

// fetch copies the files of a run that has ended, and removes what the run left
// at the service.
func (j *Follower) fetch(ctx context.Context) {
	files, err := j.files(ctx)
	if err == nil {
		tidy, end := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer end()
		if failed := j.run.Destroy(tidy); failed != nil && !errors.Is(failed, sandbox.ErrGone) {
			j.store.log.Warn("cleaning up after a run", "run", j.ID(), "error", failed)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Trouble = ""
	if err != nil {
		j.record.Trouble = "its files could not be fetched: " + err.Error()
	} else {
		j.record.Files, j.record.Fetched = files, len(files) > 0
	}
	j.save()
}

// files fetches into a temporary directory, which it renames when complete.
func (j *Follower) files(ctx context.Context) ([]batch.File, error) {
	dir, err := j.store.dir.Sub(j.ID()).OpenRoot()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	partial := filesName + ".part"
	if err := dir.RemoveAll(partial); err != nil {
		return nil, err
	}
	if err := dir.Mkdir(partial, 0o700); err != nil {
		return nil, err
	}
	root, err := dir.OpenRoot(partial)
	if err != nil {
		return nil, err
	}
	files, err := j.run.Fetch(ctx, root)
	if err == nil {
		err = listable(files)
	}
	if err := errors.Join(err, root.Close()); err != nil {
		_ = dir.RemoveAll(partial)
		return nil, err
	}
	if err := dir.RemoveAll(filesName); err != nil {
		return nil, err
	}
	return files, dir.Rename(partial, filesName)
}

// Cancel asks the service to end the run.
func (j *Follower) Cancel(ctx context.Context) error { return j.run.Cancel(ctx) }

// Detach lets the run go on when no process follows it.
func (j *Follower) Detach() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Detached = true
	return j.store.write(&j.record)
}

// Close stops following the run, which goes on if it has not ended. It is
// idempotent.
func (j *Follower) Close() {
	if j.unlock != nil {
		j.unlock()
		j.unlock = nil
	}
}

package runs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sallyport/internal/sandbox"
)

const (
	// noteEvery is how often a change of the status text alone is written.
	noteEvery = 2 * time.Second
	// tidyTimeout bounds what is done at the service after a run has ended.
	tidyTimeout = 30 * time.Second
)

// ID is the run's.
func (j *Job) ID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record.ID
}

// Record returns what is known of the run now.
func (j *Job) Record() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record
}

// Wait blocks until the run has ended, fetches its output and files, and
// returns the record. Observe, if not nil, is told how it goes, by one
// goroutine at a time. An error means that the end could not be found out: the
// run may go on.
func (j *Job) Wait(ctx context.Context, observe func(sandbox.Progress)) (*Record, error) {
	if r := j.Record(); r.State == Ended {
		if r.Trouble != "" && j.run != nil {
			j.fetch(ctx)
		}
		r = j.Record()
		j.store.tell(r)
		return &r, nil
	}
	results, ok := sandbox.As[sandbox.BatchResulter](j.run)
	if !ok {
		return nil, fmt.Errorf("run %s has no result: %w", j.ID(), sandbox.ErrUnsupported)
	}
	if o, ok := sandbox.As[sandbox.Observer](j.run); ok {
		o.Observe(func(p sandbox.Progress) {
			j.note(p)
			if observe != nil {
				observe(p)
			}
		})
	}
	result, err := results.Result(ctx)
	return j.over(ctx, result, err)
}

// over keeps what Result answered.
func (j *Job) over(ctx context.Context, result sandbox.BatchResult, err error) (*Record, error) {
	if errors.Is(err, sandbox.ErrGone) {
		result, err = sandbox.BatchResult{End: sandbox.BatchLost, ExitCode: -1, Error: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	j.ended(ctx, result)
	r := j.Record()
	return &r, nil
}

// settle is how long a run that tells that it goes on may still say that it has
// ended.
const settle = time.Second

// look asks the service once how the run is, and keeps that. A run that has
// ended is fetched.
func (j *Job) look(ctx context.Context) error {
	if j.Record().State == Ended {
		return nil
	}
	results, ok := sandbox.As[sandbox.BatchResulter](j.run)
	if !ok {
		return sandbox.ErrUnsupported
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var once sync.Once
	if o, ok := sandbox.As[sandbox.Observer](j.run); ok {
		o.Observe(func(p sandbox.Progress) {
			j.note(p)
			once.Do(func() { time.AfterFunc(settle, stop) })
		})
	}
	result, err := results.Result(looking)
	if err != nil && looking.Err() != nil && ctx.Err() == nil {
		return nil // it goes on
	}
	_, err = j.over(ctx, result, err)
	return err
}

// note keeps what a run tells of itself.
func (j *Job) note(p sandbox.Progress) {
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

// save writes the record. The caller holds mu. What cannot be written is not
// worth the run: it only is found again with more trouble.
func (j *Job) save() {
	j.wrote = time.Now()
	if err := j.store.write(&j.record); err != nil {
		j.store.log.Warn("the record of a run could not be written", "run", j.record.ID, "error", err)
	}
}

// ended keeps a result, and then fetches the files and tidies up at the
// service. The output is on disk before the record says that there is one.
func (j *Job) ended(ctx context.Context, b sandbox.BatchResult) {
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
	j.store.tell(record)
	j.fetch(ctx)
}

// notYet is the trouble of a run whose files are being fetched.
const notYet = "its files have not been fetched yet"

// fetch brings the files of a run that has ended, and removes what is left of
// it at the service.
func (j *Job) fetch(ctx context.Context) {
	files, err := j.files(ctx)
	if err == nil {
		tidy, end := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer end()
		if failed := j.run.Destroy(tidy); failed != nil && !errors.Is(failed, sandbox.ErrGone) {
			j.store.log.Warn("tidying up after a run", "run", j.ID(), "error", failed)
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

// files fetches into a directory that takes its place when it is whole.
func (j *Job) files(ctx context.Context) ([]sandbox.FetchedFile, error) {
	f, ok := sandbox.As[sandbox.Fetcher](j.run)
	if !ok {
		return nil, nil
	}
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
	files, err := f.Fetch(ctx, root)
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
func (j *Job) Cancel(ctx context.Context) error { return cancel(ctx, j.run) }

// Detach lets the run go on without anybody who follows it.
func (j *Job) Detach() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Detached = true
	return j.store.write(&j.record)
}

// Close stops following the run, which goes on if it has not ended. It is
// idempotent.
func (j *Job) Close() {
	if j.unlock != nil {
		j.unlock()
		j.unlock = nil
	}
}

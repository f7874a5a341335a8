package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/accounting"
	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// batchServices constructs the batch services that the settings allow.
func (a *App) batchServices() (map[string]batch.Service, error) {
	services := map[string]batch.Service{}
	for _, name := range a.Settings.BatchServices {
		make, ok := a.batchMakers()[name]
		if !ok {
			return nil, fmt.Errorf("batch.services: this version cannot run code on %s", name)
		}
		service, err := make()
		if err != nil {
			return nil, fmt.Errorf("batch.services: %s: %w", name, err)
		}
		services[name] = service
	}
	return services, nil
}

// batchMakers returns the constructors by the services' names.
func (a *App) batchMakers() map[string]func() (batch.Service, error) {
	return map[string]func() (batch.Service, error){
		settings.ServiceKaggle: a.kaggle,
		settings.ServiceRunPod: a.runpod,
	}
}

// runStore opens the runs on batch services. Those that end are entered into
// the books, which may be nil.
func (a *App) runStore(services map[string]batch.Service, books *accounting.Books) *runs.Store {
	out := runs.NewStore(a.state(store.Runs), services, a.Settings.Runs.Keep, runs.Limits{
		Disk: a.Settings.Runs.MaxDisk,
		Files: map[string]int64{
			settings.ServiceKaggle: 2 * a.kaggleOutput(), // the archive, and what is in it
			settings.ServiceRunPod: runpod.MaxFiles,
		},
	}, a.Log)
	if books != nil {
		out.OnEnd(func(r *runs.Record) { books.Ran(r) })
	}
	return out
}

// kaggleOutput bounds the files of one run, so that runs.maxDisk has room for it.
func (a *App) kaggleOutput() int64 {
	return min(a.Settings.Kaggle.MaxOutput, a.Settings.Runs.MaxDisk*2/5)
}

// ProbeBatch asks the batch services whether code can be sent to them.
func (c *Core) ProbeBatch(ctx context.Context) []*sandbox.Report {
	var reports []*sandbox.Report
	for _, name := range slices.Sorted(maps.Keys(c.Batch)) {
		report, err := c.Batch[name].Probe(ctx)
		if err != nil {
			report = &sandbox.Report{Backend: name, Remote: true, Findings: []sandbox.Finding{{Fatal: true, Title: "it could not be asked", Detail: err.Error()}}}
		}
		reports = append(reports, report)
	}
	return reports
}

// Choices returns the engine and the batch services that an agent may choose
// from. It is nil where there is no choice: naming the only one might mean
// searching for it.
func (c *Client) Choices() []string {
	if len(c.core.Batch) == 0 {
		return nil
	}
	return c.core.broker.Backends()
}

// Sweep removes in the background what need not be kept any more, and looks for runs
// that programs which died have left. stop ends that and waits for its end.
func (c *Core) Sweep() (stop func()) {
	ctx, cancel := context.WithCancel(c.app.Life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(c.Batch) > 0 {
			c.Runs.Sweep(ctx)
		}
		for ctx.Err() == nil {
			if err := c.artifacts.Sweep(); err != nil && !errors.Is(err, store.ErrNoPlace) {
				c.app.Log.Warn("removing old artifacts", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(sweepEvery):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// sweepEvery is how often old artifacts are removed.
const sweepEvery = time.Hour

// Adopt cancels in the background the runs of programs that were killed. stop
// waits for that, for at most adoptTime.
func (c *Core) Adopt() (stop func()) {
	if len(c.Batch) == 0 || !c.Runs.Orphans() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(c.app.Life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Runs.Adopt(ctx)
	}()
	return func() {
		defer cancel()
		select {
		case <-done:
		case <-time.After(adoptTime):
		}
	}
}

// adoptTime is how long a command that has ended waits until runs that other
// programs left are cancelled.
const adoptTime = 10 * time.Second

// OpenRuns opens the runs on batch services, with the services to ask. The
// caller calls done.
func (a *App) OpenRuns() (out *runs.Store, done func(), err error) {
	books, err := a.books(func() string { return "" }) // nothing runs here
	if err != nil {
		return nil, nil, err
	}
	services, err := a.batchServices()
	done = func() {
		if books != nil {
			books.Close()
		}
		for _, s := range services {
			if err := s.Close(); err != nil {
				a.Log.Warn("cleaning up", "error", err)
			}
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return a.runStore(services, books), done, nil
}

// RecordedRuns opens the records of runs without the services that know more.
func (a *App) RecordedRuns() *runs.Store { return a.runStore(nil, nil) }

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport/internal/mcpserver"
	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/runpod"
	"sallyport/internal/settings"
	"sallyport/internal/state"
)

// batchEngines constructs the engines that the settings let code be sent to.
func (a *app) batchEngines() (map[string]sandbox.Backend, error) {
	engines := map[string]sandbox.Backend{}
	for _, name := range a.settings.Backends {
		make, ok := a.batchMakers()[name]
		if !ok {
			return nil, fmt.Errorf("backends: this version cannot run code on %s", name)
		}
		engine, err := make()
		if err != nil {
			return nil, fmt.Errorf("backends: %s: %w", name, err)
		}
		engines[name] = engine
	}
	return engines, nil
}

// batchMakers are the constructors, by the engines' names.
func (a *app) batchMakers() map[string]func() (sandbox.Backend, error) {
	return map[string]func() (sandbox.Backend, error){
		settings.EngineKaggle: a.kaggle,
		settings.EngineRunPod: a.runpod,
	}
}

// runsOf are the runs of the settings in force.
func (a *app) runsOf(engines map[string]sandbox.Backend) *runs.Store {
	return runs.NewStore(state.At(a.settings.StateDir).Sub("runs"), engines, a.settings.Runs.Keep, runs.Limits{
		Disk: a.settings.Runs.MaxDisk,
		Files: map[string]int64{
			settings.EngineKaggle: 2 * a.kaggleOutput(), // the archive, and what is in it
			settings.EngineRunPod: runpod.MaxFiles,
		},
	}, a.log)
}

// kaggleOutput bounds the files of one run, so that runs.maxDisk has room for it.
func (a *app) kaggleOutput() int64 {
	return min(a.settings.Kaggle.MaxOutput, a.settings.Runs.MaxDisk*2/5)
}

// elsewhere asks the services of the engines that code can be sent to.
func (s *system) elsewhere(ctx context.Context) []*sandbox.Report {
	var reports []*sandbox.Report
	for _, name := range slices.Sorted(maps.Keys(s.batch)) {
		report, err := s.batch[name].Probe(ctx)
		if err != nil {
			report = &sandbox.Report{Backend: name, Remote: true, Findings: []sandbox.Finding{{Fatal: true, Title: "it could not be asked", Detail: err.Error()}}}
		}
		reports = append(reports, report)
	}
	return reports
}

// choices are the engines that an agent may choose from; none where there is
// no choice, for to name the own one it may have to be looked for.
func (s *system) choices() []string {
	if len(s.batch) == 0 {
		return nil
	}
	return s.broker.Backends()
}

// isBatch says whether an engine of that name has no channel.
func isBatch(name string) bool { return slices.Contains(settings.BatchEngines(), name) }

// sweep looks in the background for runs that programs which died have left, and
// returns what waits for that to stop.
func (a *app) sweep(sys *system) (stop func()) {
	if len(sys.batch) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sys.runs.Sweep(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// adopt ends in the background the runs of programs that were killed. stop waits
// for that, for a moment.
func (a *app) adopt(sys *system) (stop func()) {
	if len(sys.batch) == 0 || !sys.runs.Orphans() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sys.runs.Adopt(ctx)
	}()
	return func() {
		defer cancel()
		select {
		case <-done:
		case <-time.After(adoptTime):
		}
	}
}

// adoptTime is how long a command that has ended waits for runs to be cancelled
// that other programs left.
const adoptTime = 10 * time.Second

// runFiles are the files that runs left, as resources.
type runFiles struct{ store *runs.Store }

// maxRunResource bounds a file that a client reads as a resource.
const maxRunResource = 16 << 20

// List implements mcpserver.Resources.
func (f runFiles) List(context.Context) ([]mcpserver.Resource, error) {
	list, err := f.store.List()
	if list == nil && err != nil && !errors.Is(err, state.ErrNoPlace) {
		return nil, err
	}
	var out []mcpserver.Resource
	for _, r := range list {
		if !r.Fetched {
			continue
		}
		for _, file := range r.Files {
			out = append(out, mcpserver.Resource{
				URI: runs.URI(r.ID, file.Path), Name: file.Path, Size: file.Size, MIMEType: mime.TypeByExtension(path.Ext(file.Path)),
				Description: "left by run " + r.ID + " on " + r.Backend,
			})
		}
	}
	return out, nil
}

// Read implements mcpserver.Resources.
func (f runFiles) Read(_ context.Context, uri string) (*mcpserver.Content, error) {
	id, name, ok := runs.ParseURI(uri)
	if !ok {
		return nil, mcpserver.ErrNoResource
	}
	root, err := f.store.Files(id)
	if errors.Is(err, runs.ErrUnknown) || errors.Is(err, fs.ErrNotExist) {
		return nil, mcpserver.ErrNoResource
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, mcpserver.ErrNoResource
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRunResource+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxRunResource {
		return nil, fmt.Errorf("the file is larger than %d MiB: `sallyport runs fetch %s` copies it", maxRunResource>>20, id)
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if utf8.Valid(data) && (kind == "" || strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "application/json")) {
		if kind == "" {
			kind = "text/plain"
		}
		return &mcpserver.Content{MIMEType: kind, Text: string(data)}, nil
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	return &mcpserver.Content{MIMEType: kind, Blob: data}, nil
}

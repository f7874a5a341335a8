package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/process"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon/hardware"
	"github.com/sallyport/sallyport/internal/worker"
)

// WorkerPlace returns what RunPod has put into the environment.
func (a *App) WorkerPlace() worker.Place {
	p := worker.Place{
		GetJob:     a.Env["RUNPOD_WEBHOOK_GET_JOB"],
		PostOutput: a.Env["RUNPOD_WEBHOOK_POST_OUTPUT"],
		PostStream: a.Env["RUNPOD_WEBHOOK_POST_STREAM"],
		Ping:       a.Env["RUNPOD_WEBHOOK_PING"],
		Token:      a.Env["RUNPOD_AI_API_KEY"],
		WorkerID:   a.Env["RUNPOD_POD_ID"],
	}
	if ms, err := strconv.Atoi(a.Env["RUNPOD_PING_INTERVAL"]); err == nil && ms >= 1000 {
		p.PingEvery = time.Duration(ms) * time.Millisecond
	}
	if p.WorkerID == "" {
		p.WorkerID = "worker-" + strconv.Itoa(os.Getpid())
		p.Ping = "" // RunPod would not know whose it is
	}
	return p
}

// workerState is the directory of what a worker must not forget.
func (a *App) workerState() store.Dir { return a.state(store.Worker) }

// NewWorker constructs the worker that takes the jobs of a place.
func (a *App) NewWorker(place worker.Place, do func(context.Context, worker.Job, func(job.Chunk)) worker.Result) (*worker.Worker, error) {
	s := a.Settings.Worker
	// Long polls are open for a minute and a half: no timeout of the client's own.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return worker.New(worker.Options{
		Place: place, Do: do, Logger: a.Log, Version: a.Version,
		HTTP:        &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Concurrency: s.Concurrency, Drain: s.Drain, KeepResults: s.KeepResults,
		Outbox: a.workerState().Sub("results"), Refresh: s.Refresh, Progress: s.Progress,
	})
}

// NewExecutor constructs what runs jobs. The engine is returned, for the caller to
// close, even where it cannot be used.
func (a *App) NewExecutor(place worker.Place) (*worker.Executor, sandbox.Engine, error) {
	s := a.Settings.Worker
	var gpu *worker.GPU
	if program, err := lookIn("nvidia-smi", a.Env["PATH"]); err == nil {
		gpu = worker.FindGPU(a.Life, program)
	}
	backend, report, notes, err := a.workerEngine(gpu)
	if err != nil {
		return nil, backend, err
	}
	timeout := s.Timeout
	if a.Settings.Origin("worker.timeout").Layer == settings.LayerDefault {
		timeout = a.Settings.RunPod.MaxExecutionTime
	}
	for _, n := range notes {
		a.Log.Warn(n)
	}
	a.Log.Info("code runs in", "engine", report.Backend, "isolation", report.Isolation.String(), "runtime", report.Runtime, "gpu", fmt.Sprint(gpu))
	gate, err := a.workerGate()
	if err != nil {
		return nil, backend, err
	}
	e, err := worker.NewExecutor(worker.ExecutorConfig{
		Engine: backend, Program: python.Program(), Report: report, Gate: gate, Logger: a.Log,
		Limits: a.workerLimits(), Timeout: timeout, MaxTimeout: s.MaxTimeout,
		Grace: a.Settings.Timeouts.Grace, StartTimeout: a.Settings.Timeouts.Start,
		Sessions: s.Sessions, Internet: s.Internet && report.Backend == process.Name, PlainFiles: s.Files,
		Name: "sallyport " + a.Version, Worker: place.WorkerID, Region: a.Env["RUNPOD_DC_ID"],
		Notes: notes, GPU: gpu, Seen: worker.NewSeen(a.workerState().Sub("seen"), a.Log),
	})
	return e, backend, err
}

// workerGate returns the gate of a worker. What policy.minIsolation and
// policy.require demand of its machine is, where they are not set, what
// policy.batchServices demands. Jobs use no server.
func (a *App) workerGate() (*authz.Gate, error) {
	p, require := a.Settings.Policy, sandbox.Absent.String()
	for _, s := range []struct {
		key, otherwise string
		value          *string
	}{
		{"minIsolation", p.Remote.MinIsolation, &p.MinIsolation},
		{"require.memory", p.Remote.Memory, &p.Require.Memory},
		{"require.processes", p.Remote.Processes, &p.Require.Processes},
		{"require.disk", require, &p.Require.Disk},
		{"require.openFiles", require, &p.Require.OpenFiles},
		{"require.cpu", require, &p.Require.CPU},
	} {
		if a.Settings.Origin("policy."+s.key).Layer == settings.LayerDefault {
			*s.value = s.otherwise
		}
	}
	policy, err := policyOf(p)
	if err != nil {
		return nil, err
	}
	policy.Servers = nil
	return authz.New(authz.Config{Policy: policy}), nil
}

// workerLimits returns the limits of jobs that ask for none. A worker's machine
// exists for its jobs: unless limits.memory is set, they share nine tenths of its
// memory.
func (a *App) workerLimits() sandbox.Limits {
	l := limitsOf(a.Settings.Limits)
	if a.Settings.Origin("limits.memory").Layer == settings.LayerDefault {
		if all := hardware.Memory("/"); all > 0 {
			l.MemoryBytes = max(l.MemoryBytes, all/10*9/int64(max(1, a.Settings.Worker.Concurrency)))
		}
	}
	return l
}

// workerEngine constructs the engine that the setting names, or for auto the first
// that runs here. The notes are for every result: they say how well code is
// isolated.
func (a *App) workerEngine(gpu *worker.GPU) (sandbox.Engine, *sandbox.Report, []string, error) {
	wants := a.Settings.Worker.Engine
	runtimeDir, err := a.Env.runtimeDir()
	if err != nil {
		return nil, nil, nil, err
	}
	cacheDir, err := a.Env.cacheDir()
	if err != nil {
		return nil, nil, nil, err
	}
	var why string
	if wants != settings.EngineProcess && (wants == settings.EngineGVisor || gpu == nil) {
		b, err := gvisor.New(gvisor.Options{
			RuntimeDir: filepath.Join(runtimeDir, "gvisor"), CacheDir: cacheDir,
			Program: python.Program(), Interpreter: a.Settings.Python, Path: a.Env["PATH"], Home: a.Env.Home(), UserBus: a.Env.userBus(), Log: a.Log,
		})
		if err != nil {
			return nil, nil, nil, err
		}
		report, err := tryEngine(a.Life, b)
		if err == nil {
			return b, report, nil, nil
		}
		if wants == settings.EngineGVisor {
			return b, nil, nil, fmt.Errorf("gVisor does not run here: %w. Where the machine is a sandbox itself, worker.engine=process runs code on its kernel", err)
		}
		why = "gVisor does not run here (" + err.Error() + ")"
		if err := b.Close(); err != nil {
			a.Log.Warn("cleaning up", "error", err)
		}
	} else if wants == settings.WorkerAutomatic {
		why = "gVisor shows code no GPU"
	}
	b, err := process.New(process.Options{
		RuntimeDir: filepath.Join(runtimeDir, "process"), CacheDir: cacheDir,
		Program: python.Program(), Interpreter: a.Settings.Python, Path: a.Env["PATH"], Home: a.Env.Home(),
		Internet: a.Settings.Worker.Internet, GPU: gpu != nil, Link: "/workspace", Log: a.Log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	report, err := tryEngine(a.Life, b)
	if err != nil {
		return b, nil, nil, fmt.Errorf("engine process does not run here: %w", err)
	}
	note := "the code ran in engine process: this machine's own kernel, and no sandbox's, kept it apart"
	if why != "" {
		note += "; " + why
	}
	return b, report, []string{note}, nil
}

// tryEngine probes an engine and starts a sandbox in it once, because a probe
// alone cannot tell whether one starts.
func tryEngine(ctx context.Context, b sandbox.Engine) (*sandbox.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	report, err := b.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if !report.Usable {
		for _, f := range report.Findings {
			if f.Fatal {
				return nil, fmt.Errorf("%s (%s): %s", f.Title, f.Detail, f.Remedy)
			}
		}
		return nil, errors.New("it is not usable")
	}
	run, err := b.Start(ctx, &sandbox.Spec{ID: "try-" + strconv.Itoa(os.Getpid()), Owner: "worker", Program: python.Program()})
	if err != nil {
		return nil, err
	}
	return report, run.Destroy(ctx)
}

// lookIn returns the path of a program in a search path.
func lookIn(program, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

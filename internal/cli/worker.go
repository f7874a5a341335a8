package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sallyport/internal/carbon/hardware"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/gvisor"
	"sallyport/internal/sandbox/process"
	"sallyport/internal/sandbox/runpod/job"
	"sallyport/internal/settings"
	"sallyport/internal/state"
	"sallyport/internal/worker"
)

type workerCmd struct {
	RunPod workerRunPodCmd `cmd:"" name:"runpod" help:"Work for a RunPod serverless endpoint: take jobs, run their code in sandboxes, answer."`
}

type workerRunPodCmd struct {
	TestInput string  `help:"Run one job and print what it came to: JSON such as {\"input\": {\"code\": \"print(1)\"}}, or the file that holds it." placeholder:"JSON|FILE"`
	ServeAPI  bool    `help:"Serve RunPod's job API here instead, to try the worker." name:"serve-api"`
	Host      string  `help:"Address to serve on." default:"127.0.0.1"`
	Port      int     `help:"Port to serve on; 0 is any." default:"8000"`
	KeyFile   string  `help:"File with a key that requests must bring; needed to serve beyond this machine." placeholder:"FILE" type:"existingfile"`
	Engine    *string `help:"gvisor, process or auto (${worker_engine})." placeholder:"ENGINE"`

	Concurrency *string `help:"Jobs at a time (${worker_concurrency})." placeholder:"N"`
	Python      *string `help:"Interpreter that jobs run with (${python})." placeholder:"PYTHON"`
}

// Help implements kong's HelpProvider.
func (*workerRunPodCmd) Help() string {
	return `This is what an endpoint's image starts; 'sallyport deploy runpod' makes the endpoint. It takes {"input": {"code": "…"}}, and what 'sallyport run --backend runpod' sends, and answers {"stdout", "stderr", "return_code"} with more beside. RunPod says in the environment where jobs are; without that, --test-input or a file test_input.json runs one job, and --serve-api serves RunPod's job API (/run, /runsync, /status, /stream, /cancel, /health) here.

SIGTERM lets the jobs at work end (setting worker.drain) and takes no more.

Example:
  sallyport worker runpod --test-input '{"input": {"code": "print(6 * 7)"}}'
  sallyport worker runpod --serve-api --port 8000`
}

// Run implements the command.
func (c *workerRunPodCmd) Run(a *app) error {
	var flags []settings.Flag
	flags = appendFlag(flags, "--engine", "worker.engine", c.Engine)
	flags = appendFlag(flags, "--concurrency", "worker.concurrency", c.Concurrency)
	flags = appendFlag(flags, "--python", "python", c.Python)
	if err := a.configure(flags...); err != nil {
		return err
	}
	input, err := c.testInput(a)
	if err != nil {
		return err
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	place := a.place()
	if input == nil && !c.ServeAPI && place.GetJob == "" {
		return errors.New("nothing to do: RunPod's RUNPOD_WEBHOOK_GET_JOB is not in the environment; try --test-input or --serve-api")
	}
	executor, backend, err := a.executor(place)
	if backend != nil {
		defer func() {
			if err := backend.Close(); err != nil {
				a.log.Warn("cleaning up", "error", err)
			}
		}()
	}
	if err == nil {
		defer executor.Close()
	}
	switch {
	case err != nil:
		if input == nil && !c.ServeAPI {
			c.tell(a, place, err)
		}
		return err
	case input != nil:
		return c.once(a, executor, *input)
	case c.ServeAPI:
		return c.serve(a, executor, key)
	}
	w, err := a.worker(place, executor.Do)
	if err != nil {
		return err
	}
	return w.Run(a.ctx)
}

// tell lets RunPod know that this worker cannot work.
func (c *workerRunPodCmd) tell(a *app, place worker.Place, why error) {
	w, err := a.worker(place, func(context.Context, worker.Job, func(job.Chunk)) worker.Result { return worker.Result{} })
	if err == nil {
		w.Unhealthy(a.ctx, "sandbox", why.Error())
	}
}

// place is what RunPod has put into the environment.
func (a *app) place() worker.Place {
	p := worker.Place{
		GetJob:     a.env["RUNPOD_WEBHOOK_GET_JOB"],
		PostOutput: a.env["RUNPOD_WEBHOOK_POST_OUTPUT"],
		PostStream: a.env["RUNPOD_WEBHOOK_POST_STREAM"],
		Ping:       a.env["RUNPOD_WEBHOOK_PING"],
		Token:      a.env["RUNPOD_AI_API_KEY"],
		WorkerID:   a.env["RUNPOD_POD_ID"],
	}
	if ms, err := strconv.Atoi(a.env["RUNPOD_PING_INTERVAL"]); err == nil && ms >= 1000 {
		p.PingEvery = time.Duration(ms) * time.Millisecond
	}
	if p.WorkerID == "" {
		p.WorkerID = "worker-" + strconv.Itoa(os.Getpid())
		p.Ping = "" // RunPod would not know whose it is
	}
	return p
}

// workerState is where a worker keeps what it must not forget.
func (a *app) workerState() state.Dir { return state.At(a.settings.StateDir).Sub("worker") }

func (a *app) worker(place worker.Place, do func(context.Context, worker.Job, func(job.Chunk)) worker.Result) (*worker.Worker, error) {
	s := a.settings.Worker
	// Long polls are open for a minute and a half: no timeout of the client's own.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return worker.New(worker.Options{
		Place: place, Do: do, Logger: a.log, Version: readVersion().Version,
		HTTP:        &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Concurrency: s.Concurrency, Drain: s.Drain, KeepResults: s.KeepResults,
		Outbox: a.workerState().Sub("results"), Refresh: s.Refresh, Progress: s.Progress,
	})
}

// executor constructs what runs jobs. The backend is there to be closed also
// where it cannot be used.
func (a *app) executor(place worker.Place) (*worker.Executor, sandbox.Backend, error) {
	s := a.settings.Worker
	var gpu *worker.GPU
	if program, err := lookIn("nvidia-smi", a.env["PATH"]); err == nil {
		gpu = worker.FindGPU(a.ctx, program)
	}
	backend, report, notes, err := a.workerEngine(gpu)
	if err != nil {
		return nil, backend, err
	}
	timeout := s.Timeout
	if a.settings.Origin("worker.timeout").Layer == settings.LayerDefault {
		timeout = a.settings.RunPod.MaxExecutionTime
	}
	for _, n := range notes {
		a.log.Warn(n)
	}
	a.log.Info("code runs in", "engine", report.Backend, "isolation", report.Isolation.String(), "python", report.Python, "gpu", fmt.Sprint(gpu))
	e, err := worker.NewExecutor(worker.ExecutorConfig{
		Backend: backend, Report: report, Logger: a.log,
		Limits: a.workerLimits(), Timeout: timeout, MaxTimeout: s.MaxTimeout,
		Grace: a.settings.Timeouts.Grace, StartTimeout: a.settings.Timeouts.Start,
		Sessions: s.Sessions, Internet: s.Internet && report.Backend == process.Name, PlainFiles: s.Files,
		Name: "sallyport " + readVersion().Version, Worker: place.WorkerID, Region: a.env["RUNPOD_DC_ID"],
		Notes: notes, GPU: gpu, Seen: worker.NewSeen(a.workerState().Sub("seen"), a.log),
	})
	return e, backend, err
}

// workerLimits are the limits of jobs that ask for none. A worker's machine is
// there for its jobs: unless limits.memory says otherwise, they share nine
// tenths of its memory.
func (a *app) workerLimits() sandbox.Limits {
	l := limitsOf(a.settings.Limits)
	if a.settings.Origin("limits.memory").Layer == settings.LayerDefault {
		if all := hardware.Memory("/"); all > 0 {
			l.MemoryBytes = max(l.MemoryBytes, all/10*9/int64(max(1, a.settings.Worker.Concurrency)))
		}
	}
	return l
}

// workerEngine is the engine that the setting names, or with auto the first
// that runs here; the notes say what it is worth.
func (a *app) workerEngine(gpu *worker.GPU) (sandbox.Backend, *sandbox.Report, []string, error) {
	wants := a.settings.Worker.Engine
	runtimeDir, err := a.env.runtimeDir()
	if err != nil {
		return nil, nil, nil, err
	}
	cacheDir, err := a.env.cacheDir()
	if err != nil {
		return nil, nil, nil, err
	}
	var why string
	if wants != settings.EngineProcess && (wants == settings.EngineGVisor || gpu == nil) {
		b, err := gvisor.New(gvisor.Options{
			RuntimeDir: filepath.Join(runtimeDir, "gvisor"), CacheDir: cacheDir,
			Python: a.settings.Python, Path: a.env["PATH"], Home: a.env.home(), UserBus: a.env.userBus(), Log: a.log,
		})
		if err != nil {
			return nil, nil, nil, err
		}
		report, err := tryEngine(a.ctx, b)
		if err == nil {
			return b, report, nil, nil
		}
		if wants == settings.EngineGVisor {
			return b, nil, nil, fmt.Errorf("gVisor does not run here: %w. Where the machine is a sandbox itself, worker.engine=process runs code on its kernel", err)
		}
		why = "gVisor does not run here (" + err.Error() + ")"
		if err := b.Close(); err != nil {
			a.log.Warn("cleaning up", "error", err)
		}
	} else if wants == settings.WorkerAutomatic {
		why = "gVisor shows code no GPU"
	}
	b, err := process.New(process.Options{
		RuntimeDir: filepath.Join(runtimeDir, "process"), CacheDir: cacheDir,
		Python: a.settings.Python, Path: a.env["PATH"], Home: a.env.home(),
		Internet: a.settings.Worker.Internet, GPU: gpu != nil, Link: "/workspace", Log: a.log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	report, err := tryEngine(a.ctx, b)
	if err != nil {
		return b, nil, nil, fmt.Errorf("engine process does not run here: %w", err)
	}
	note := "the code ran in engine process: this machine's own kernel, and no sandbox's, kept it apart"
	if why != "" {
		note += "; " + why
	}
	return b, report, []string{note}, nil
}

// tryEngine probes an engine, and runs nothing in a place where a sandbox
// does not start: what can be known of that before is not enough.
func tryEngine(ctx context.Context, b sandbox.Backend) (*sandbox.Report, error) {
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
	run, err := b.Start(ctx, &sandbox.Spec{ID: "try-" + strconv.Itoa(os.Getpid()), Owner: "worker"})
	if err != nil {
		return nil, err
	}
	return report, run.Destroy(ctx)
}

// lookIn finds a program in a search path.
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

// testInput is the job of --test-input, or of a file test_input.json here where
// there is no other work; nil is none.
func (c *workerRunPodCmd) testInput(a *app) (*worker.Job, error) {
	text := []byte(c.TestInput)
	from := "--test-input"
	switch {
	case c.TestInput == "" && (c.ServeAPI || a.env["RUNPOD_WEBHOOK_GET_JOB"] != ""):
		return nil, nil
	case c.TestInput == "":
		b, err := os.ReadFile("test_input.json")
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		text, from = b, "test_input.json"
	case !strings.HasPrefix(strings.TrimSpace(c.TestInput), "{"):
		b, err := os.ReadFile(c.TestInput)
		if err != nil {
			return nil, err
		}
		text, from = b, c.TestInput
	}
	var j worker.Job
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", from, err)
	}
	if len(j.Input) == 0 {
		return nil, fmt.Errorf("%s: the job has no \"input\"", from)
	}
	if j.ID == "" {
		j.ID = "local_test"
	}
	// The same test may be run any number of times.
	j.ID += "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	return &j, nil
}

// once runs one job and prints its result.
func (c *workerRunPodCmd) once(a *app, e *worker.Executor, j worker.Job) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(worker.ErrShutdown) })()
	r := e.Do(ctx, j, nil)
	enc := json.NewEncoder(a.stdio.Out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	if r.Error != "" {
		return exitError(exitFailed)
	}
	return nil
}

// key is what requests must bring; "" where only this machine can make them.
func (c *workerRunPodCmd) key() (string, error) {
	var key string
	if c.KeyFile != "" {
		b, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return "", err
		}
		if key = strings.TrimSpace(string(b)); key == "" {
			return "", fmt.Errorf("%s is empty", c.KeyFile)
		}
	}
	if ip := net.ParseIP(c.Host); key == "" && c.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("--host %s: whoever reaches that address could run code here: give a key with --key-file", c.Host)
	}
	return key, nil
}

// serve serves the job API until the command ends.
func (c *workerRunPodCmd) serve(a *app, e *worker.Executor, key string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return err
	}
	api := worker.NewServer(worker.ServerOptions{Do: e.Do, Logger: a.log, Concurrency: a.settings.Worker.Concurrency, Key: key})
	defer api.Close()
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(a.stdio.Err, "Serving RunPod's job API on http://%s (POST /runsync {\"input\": {\"code\": \"…\"}}). Ctrl-C ends it.\n", l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-a.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.settings.Worker.Drain)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
	return nil
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/worker"
)

type workerCmd struct {
	RunPod workerRunPodCmd `cmd:"" name:"runpod" help:"Work for a RunPod serverless endpoint: take jobs, run their code in sandboxes, answer."`
}

type workerRunPodCmd struct {
	TestInput string  `help:"Run one job and print its result: JSON such as {\"input\": {\"code\": \"print(1)\"}}, or a file that contains it." placeholder:"JSON|FILE"`
	ServeAPI  bool    `help:"Serve RunPod's job API here instead, to try the worker." name:"serve-api"`
	Host      string  `help:"Address to serve on." default:"127.0.0.1"`
	Port      int     `help:"Port to serve on; 0 is any." default:"8000"`
	KeyFile   string  `help:"File with a key that requests must contain; required to serve other machines." placeholder:"FILE" type:"existingfile"`
	Engine    *string `help:"Engine: gvisor, process or auto (${worker_engine})." placeholder:"ENGINE" complete:"setting:worker.engine"`

	Concurrency *string `help:"Jobs at a time (${worker_concurrency})." placeholder:"N"`
	Python      *string `help:"Python interpreter for jobs (${python})." placeholder:"PYTHON" complete:"files"`
}

// Help implements kong's HelpProvider.
func (*workerRunPodCmd) Help() string {
	return `An endpoint's image starts this command; 'sallyport deploy runpod' creates the endpoint. It accepts {"input": {"code": "…"}} and the jobs of 'sallyport run --batch runpod', and answers {"stdout", "stderr", "return_code"} and more. The environment variables that RunPod sets say where the jobs are. Without them, --test-input or a file test_input.json runs one job, and --serve-api serves RunPod's job API (/run, /runsync, /status, /stream, /cancel, /health) here.

On SIGTERM it takes no more jobs and lets the running ones end (setting worker.drain).

Example:
  sallyport worker runpod --test-input '{"input": {"code": "print(6 * 7)"}}'
  sallyport worker runpod --serve-api --port 8000`
}

// Run implements the command.
func (c *workerRunPodCmd) Run(u *ui) error {
	var flags []settings.Flag
	flags = appendFlag(flags, "--engine", "worker.engine", c.Engine)
	flags = appendFlag(flags, "--concurrency", "worker.concurrency", c.Concurrency)
	flags = appendFlag(flags, "--python", "python", c.Python)
	if err := u.configure(flags...); err != nil {
		return err
	}
	input, err := c.testInput(u)
	if err != nil {
		return err
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	place := u.WorkerPlace()
	if input == nil && !c.ServeAPI && place.GetJob == "" {
		return errors.New("nothing to do: RunPod's RUNPOD_WEBHOOK_GET_JOB is not in the environment; try --test-input or --serve-api")
	}
	executor, backend, err := u.NewExecutor(place)
	if backend != nil {
		defer func() {
			if err := backend.Close(); err != nil {
				u.Log.Warn("cleaning up", "error", err)
			}
		}()
	}
	if err == nil {
		defer executor.Close()
	}
	switch {
	case err != nil:
		if input == nil && !c.ServeAPI {
			c.tell(u, place, err)
		}
		return err
	case input != nil:
		return c.once(u, executor, *input)
	case c.ServeAPI:
		return c.serve(u, executor, key)
	}
	w, err := u.NewWorker(place, executor.Do)
	if err != nil {
		return err
	}
	return w.Run(u.ctx)
}

// tell informs RunPod that this worker cannot work.
func (c *workerRunPodCmd) tell(u *ui, place worker.Place, why error) {
	w, err := u.NewWorker(place, func(context.Context, worker.Job, func(job.Chunk)) worker.Result { return worker.Result{} })
	if err == nil {
		w.Unhealthy(u.ctx, "sandbox", why.Error())
	}
}

// testInput returns the job of --test-input, or that of a file test_input.json
// if there is no other work, or nil.
func (c *workerRunPodCmd) testInput(u *ui) (*worker.Job, error) {
	text := []byte(c.TestInput)
	from := "--test-input"
	switch {
	case c.TestInput == "" && (c.ServeAPI || u.Env["RUNPOD_WEBHOOK_GET_JOB"] != ""):
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
	// The same test may run any number of times.
	j.ID += "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	return &j, nil
}

// once runs one job and prints its result.
func (c *workerRunPodCmd) once(u *ui, e *worker.Executor, j worker.Job) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(u.ctx))
	defer cancel(nil)
	defer context.AfterFunc(u.ctx, func() { cancel(worker.ErrShutdown) })()
	r := e.Do(ctx, j, nil)
	enc := json.NewEncoder(u.stdio.Out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	if r.Error != "" {
		return exitError(exitFailed)
	}
	return nil
}

// key returns what requests must contain, or "" if only this machine can make
// them.
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
		return "", fmt.Errorf("--host %s: anyone who can reach this address could run code here: give a key with --key-file", c.Host)
	}
	return key, nil
}

// serve serves the job API until the command ends.
func (c *workerRunPodCmd) serve(u *ui, e *worker.Executor, key string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return err
	}
	api := worker.NewServer(worker.ServerOptions{Do: e.Do, Logger: u.Log, Concurrency: u.Settings.Worker.Concurrency, Key: key})
	defer api.Close()
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(u.stdio.Err, "Serving RunPod's job API on http://%s (POST /runsync {\"input\": {\"code\": \"…\"}}). Ctrl-C ends it.\n", l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-u.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.Settings.Worker.Drain)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
	return nil
}

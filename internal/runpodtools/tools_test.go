package runpodtools

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod"
	"github.com/sallyport/sallyport/internal/broker"
)

type executor struct {
	asked  broker.Request
	result *broker.Result
}

func (e *executor) Submit(r broker.Request) func(context.Context) *broker.Result {
	e.asked = r
	return func(context.Context) *broker.Result { return e.result }
}

func TestExecute(t *testing.T) {
	zero, two := 0, 2
	for _, c := range []struct {
		name    string
		result  broker.Result
		want    string
		isError bool
	}{
		{"well", broker.Result{Status: broker.Success, ExitCode: &zero, Stdout: []string{"Hello", ""}, QueuedMs: 824, Ran: 3391 * time.Millisecond},
			"Code execution completed in 3.39 seconds (delayed 0.82 seconds)\n\n--- OUTPUT ---\nHello\n\n\n--- RETURN CODE ---\n0\n", false},
		{"an exit code", broker.Result{Status: broker.Failed, ExitCode: &two, Stderr: []string{"bad"}, Error: "x"},
			"Code execution completed in 0.00 seconds (delayed 0.00 seconds)\n\n--- ERRORS ---\nbad\n\n--- RETURN CODE ---\n2\n", true},
		{"not completed", broker.Result{Status: broker.Failed, Error: "no worker took the run"}, "Code execution failed: no worker took the run\n", true},
		{"too long", broker.Result{Status: broker.Timeout, Error: "up", Stdout: []string{"part"}}, "Code execution timed out: up\n\n--- OUTPUT ---\npart\n", true},
		{"files and notes", broker.Result{Status: broker.Success, ExitCode: &zero, Artifacts: []broker.Artifact{{Path: "a.png", Size: 3, URI: "u"}}, Notes: []string{"n"}, Truncated: &broker.Truncated{Stdout: 7}},
			"Code execution completed in 0.00 seconds (delayed 0.00 seconds)\n\n--- RETURN CODE ---\n0\n\n(7 bytes of output and 0 of errors were left out)\n\n--- FILES ---\na.png (3 bytes) u\n\n--- NOTES ---\nn\n", false},
		{"progress", broker.Result{Status: broker.Success, ExitCode: new(int), Run: "r1", Stdout: []string{"1%\r\x1b[1m2%"}},
			"Code execution completed in 0.00 seconds (delayed 0.00 seconds)\n\n--- OUTPUT ---\n2%\n\n--- RETURN CODE ---\n0\n\n--- NOTES ---\nfolded: 1 earlier state of a line that was written over left out. `sallyport runs wait r1` prints all of it\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &executor{result: &c.result}
			a := (&Tools{Executor: e, Timeout: 42 * time.Second}).Execute(t.Context(), authz.Local("test"), "print(1)", nil)
			if a.Text != c.want || a.IsError != c.isError {
				t.Errorf("error %v:\n%s", a.IsError, a.Text)
			}
			if e.asked.Code != "print(1)" || e.asked.Backend != "runpod" || e.asked.Timeout != 42*time.Second || !e.asked.Script {
				t.Errorf("asked for %+v", e.asked)
			}
		})
	}
}

func TestUnfolded(t *testing.T) {
	e := &executor{result: &broker.Result{Status: broker.Success, ExitCode: new(int), Stdout: []string{"1%\r2%"}}}
	if a := (&Tools{Executor: e, Unfolded: true}).Execute(t.Context(), authz.Local("test"), "", nil); !strings.Contains(a.Text, "1%\r2%") || strings.Contains(a.Text, "folded") {
		t.Errorf("got %q, want the raw output", a.Text)
	}
}

type pulse struct {
	h   *runpod.Health
	err error
}

func (p pulse) Health(context.Context) (*runpod.Health, error) { return p.h, p.err }

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		pulse   pulse
		want    string
		isError bool
	}{
		{pulse{h: &runpod.Health{Endpoint: "e", Idle: 1, InQueue: 2, Completed: 3}}, "RunPod status: ready\nEndpoint: e\nWorkers: 1 idle, 0 running, 0 starting, 0 waiting for a machine, 0 unhealthy\nQueue: 2 jobs wait, 0 run; 3 completed", false},
		{pulse{h: &runpod.Health{}}, "the next call starts one", false},
		{pulse{h: &runpod.Health{Running: 1}}, "busy", false},
		{pulse{h: &runpod.Health{Initializing: 1, Unhealthy: 1}}, "starting", false},
		{pulse{h: &runpod.Health{Unhealthy: 1}}, "start and crash", true},
		{pulse{h: &runpod.Health{Throttled: 1}}, "no free machine", false},
		{pulse{err: errors.New("refused the API key")}, "not available\nrefused the API key", true},
	} {
		a := (&Tools{Pulse: c.pulse}).Status(t.Context())
		if !strings.Contains(a.Text, c.want) || a.IsError != c.isError || strings.Contains(a.Text, "Unknown") {
			t.Errorf("error %v: %s", a.IsError, a.Text)
		}
	}
}

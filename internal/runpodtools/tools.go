// Package runpodtools is the two tools of the first RunPod server for agents,
// execute_python_code and check_runpod_status, with their form of results.
package runpodtools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod"
	"github.com/sallyport/sallyport/internal/broker"
)

// The tools' names.
const (
	Execute = "execute_python_code"
	Status  = "check_runpod_status"
)

// An Executor runs code. [*broker.Client] is one.
type Executor interface {
	Submit(broker.Request) func(context.Context) *broker.Result
}

// A Pulse tells how the endpoint is. [*runpod.Service] is one.
type Pulse interface {
	Health(ctx context.Context) (*runpod.Health, error)
}

// Tools are both tools.
type Tools struct {
	Executor Executor
	Pulse    Pulse
	// Timeout bounds the code of one call.
	Timeout time.Duration
	// Unfolded has answers show output as the code wrote it.
	Unfolded bool
}

// Answer is what a tool says.
type Answer struct {
	Text    string
	Images  []broker.Image
	IsError bool
}

// Execute runs code on the endpoint. The code runs as a script. status, if
// not nil, receives the progress.
func (t *Tools) Execute(ctx context.Context, principal authz.Principal, code string, status func(string)) *Answer {
	r := t.Executor.Submit(broker.Request{
		Principal: principal,
		Backend:   runpod.Name,
		OnStatus:  status,
		Submission: broker.Submission{
			Code:    code,
			Script:  true,
			Timeout: t.Timeout,
		},
	})(ctx)
	return &Answer{Text: t.text(r), Images: r.Images, IsError: r.IsError()}
}

// text is a result in the first server's form. That called every answer of
// RunPod's a completed execution; here only code that has ended is one.
func (t *Tools) text(raw *broker.Result) string {
	r, lost := raw, ""
	if !t.Unfolded {
		r, lost = raw.Folded()
	}
	if lost != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("folded: %s left out. `sallyport runs wait %s` prints all of it", lost, r.Run))
	}
	var b strings.Builder
	section := func(title, body string) {
		if body != "" {
			fmt.Fprintf(&b, "\n--- %s ---\n%s\n", title, body)
		}
	}
	ran := max(r.Ran, 0)
	switch {
	case r.ExitCode != nil:
		fmt.Fprintf(&b, "Code execution completed in %s seconds (delayed %s seconds)\n", seconds(ran), seconds(time.Duration(r.QueuedMs)*time.Millisecond))
	case r.Status == broker.Timeout:
		fmt.Fprintf(&b, "Code execution timed out: %s\n", r.Error)
	default:
		fmt.Fprintf(&b, "Code execution failed: %s\n", r.Error)
	}
	section("OUTPUT", strings.Join(r.Stdout, "\n"))
	section("ERRORS", strings.Join(r.Stderr, "\n"))
	if r.ExitCode != nil {
		section("RETURN CODE", strconv.Itoa(*r.ExitCode))
	}
	if r.Truncated != nil {
		fmt.Fprintf(&b, "\n(%d bytes of output and %d of errors were left out)\n", r.Truncated.Stdout, r.Truncated.Stderr)
	}
	var files []string
	for _, a := range r.Artifacts {
		files = append(files, fmt.Sprintf("%s (%d bytes) %s", a.Path, a.Size, a.URI))
	}
	section("FILES", strings.Join(files, "\n"))
	section("NOTES", strings.Join(r.Notes, "\n"))
	return b.String()
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }

// Status reports whether the endpoint would accept code now.
func (t *Tools) Status(ctx context.Context) *Answer {
	h, err := t.Pulse.Health(ctx)
	if err != nil {
		return &Answer{Text: "RunPod status: not available\n" + err.Error(), IsError: true}
	}
	idle := max(h.Idle, h.Ready)
	state := "no workers are running; the next call starts one"
	switch {
	case idle > 0:
		state = "ready"
	case h.Running > 0:
		state = "busy; calls wait for a worker"
	case h.Initializing > 0:
		state = "starting"
	case h.Unhealthy > 0:
		state = "unhealthy: workers start and crash; read their logs at https://console.runpod.io/serverless/user/endpoint/" + h.Endpoint
	case h.Throttled > 0:
		state = "waiting: RunPod has no free machine of the kind that the endpoint asks for"
	}
	return &Answer{
		Text: fmt.Sprintf("RunPod status: %s\nEndpoint: %s\nWorkers: %d idle, %d running, %d starting, %d waiting for a machine, %d unhealthy\nQueue: %d jobs wait, %d run; %d completed, %d failed, %d retried so far",
			state, h.Endpoint, idle, h.Running, h.Initializing, h.Throttled, h.Unhealthy, h.InQueue, h.InProgress, h.Completed, h.Failed, h.Retried),
		IsError: idle+h.Running+h.Initializing == 0 && h.Unhealthy > 0,
	}
}

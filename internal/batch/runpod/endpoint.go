package runpod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

const (
	reportAge    = 24 * time.Hour // how long a worker's report is believed
	plainAge     = 10 * time.Minute
	healthWait   = 20 * time.Second
	probeRuntime = 30 * time.Second
	probeWait    = 20 * time.Second // a worker that sleeps answers in time, one that has to start does not
	sayWaiting   = 10 * time.Second
)

// known is what an endpoint's worker says of itself. Every result brings it
// again.
type known struct {
	URL      string      `json:"url"`
	Endpoint string      `json:"endpoint"`
	At       time.Time   `json:"at"`
	Worker   string      `json:"worker,omitempty"`
	Report   *job.Report `json:"report,omitempty"`  // nil: it says nothing
	Instead  string      `json:"instead,omitempty"` // what it answered instead, for people
}

func (k *known) fresh() bool {
	age := time.Since(k.At)
	return age >= 0 && age < reportAge && (k.Report != nil || age < plainAge)
}

func reportFile(endpoint string) string { return store.FileName("endpoint-"+endpoint, ".json") }

// recall is what is known of an endpoint, or nil.
func (b *Service) recall(endpoint string) *known {
	b.mu.Lock()
	k := b.reported[endpoint]
	b.mu.Unlock()
	if k == nil {
		data, err := b.opts.State.Read(reportFile(endpoint), 64<<10)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
				b.log.Warn("runpod: what was known of the endpoint cannot be read", "error", err)
			}
			return nil
		}
		k = &known{}
		if json.Unmarshal(data, k) != nil || k.URL != b.url || k.Endpoint != endpoint {
			return nil
		}
	}
	if !k.fresh() {
		return nil
	}
	return k
}

// remember keeps what a worker said, for this program and the next.
func (b *Service) remember(endpoint string, a *job.Answer, instead string) *known {
	k := &known{URL: b.url, Endpoint: endpoint, At: time.Now().UTC()}
	if speaks(a) {
		k.Worker, k.Report = line(a.Worker, 100), a.Report
	} else {
		k.Instead = line(instead, 200)
	}
	b.mu.Lock()
	before := b.reported[endpoint]
	// Thousands of results say the same.
	if before != nil && time.Since(before.At) < time.Minute && before.Worker == k.Worker && reflect.DeepEqual(before.Report, k.Report) {
		b.mu.Unlock()
		return before
	}
	b.reported[endpoint] = k
	b.mu.Unlock()
	data, err := json.Marshal(k)
	if err == nil && len(data) < 32<<10 {
		if err = b.opts.State.Write(reportFile(endpoint), data); errors.Is(err, store.ErrNoPlace) {
			err = nil
		}
	}
	if err != nil {
		b.log.Warn("runpod: what is known of the endpoint could not be kept", "error", err)
	}
	return k
}

// speaks: the answer is one of Sallyport's worker that we understand.
func speaks(a *job.Answer) bool {
	return a != nil && a.Version == job.Version && a.Report != nil
}

// errSleeping: no worker has answered in time.
var errSleeping = errors.New("no worker of the endpoint has answered yet")

// worker is what the endpoint's worker says of itself, from memory or by a job
// that has no code. Only one at a time asks. A worker that does not answer
// within wait is errSleeping, and the question is taken back.
func (b *Service) worker(ctx context.Context, endpoint string, wait time.Duration) (*known, error) {
	for {
		if k := b.recall(endpoint); k != nil {
			return k, nil
		}
		b.mu.Lock()
		busy := b.asking[endpoint]
		if busy == nil {
			b.asking[endpoint] = make(chan struct{})
		}
		b.mu.Unlock()
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.asking[endpoint])
		delete(b.asking, endpoint)
	}()
	ttl := max(wait, time.Minute) + probeRuntime + 5*time.Minute
	body, err := json.Marshal(map[string]any{
		"input":  job.Input{Sallyport: &job.Request{Version: job.Version, Probe: 1}},
		"policy": map[string]int64{"executionTimeout": probeRuntime.Milliseconds(), "ttl": ttl.Milliseconds()},
	})
	if err != nil {
		return nil, err
	}
	patience := time.AfterFunc(sayWaiting, func() {
		b.log.Warn("runpod: no code is sent before a worker has said what it enforces, and none has answered yet: one may be starting", "endpoint", endpoint)
	})
	defer patience.Stop()
	// A question has no effect: one that RunPod loses is asked again.
	const questions = 3
	began := time.Now()
	var r *run
	var res batch.Result
	for asked := 1; ; asked++ {
		r = &run{b: b, api: b.api(endpoint), spec: runSpec{Endpoint: endpoint, Queue: wait, Timeout: probeRuntime, TTL: ttl, OutputBytes: maxTrouble, Sent: time.Now()}, probe: true}
		st, t := b.submit(ctx, r.api, "runsync", body, true)
		if t != nil {
			return nil, b.explain("probe", endpoint, t)
		}
		r.adopt(st)
		res, err = r.Result(ctx)
		lost := errors.Is(err, sandbox.ErrGone) || err == nil && r.died
		if !lost || asked == questions || time.Since(began) >= max(wait, time.Minute) {
			break
		}
		b.log.Warn("runpod: RunPod lost the job that asks the worker what it enforces: it is sent again", "endpoint", endpoint)
	}
	if err != nil {
		_ = r.Destroy(ctx)
		return nil, err
	}
	switch {
	case r.died:
		return nil, b.fail("probe", sandbox.ErrUnavailable, "%s", res.Error)
	case res.End == batch.Expired:
		return nil, fmt.Errorf("%w: %s", errSleeping, res.Error)
	case speaks(r.answer):
		return b.remember(endpoint, r.answer, ""), nil
	case r.lastStatus == completed || r.lastStatus == failed:
		return b.remember(endpoint, nil, res.Error), nil
	}
	return nil, b.fail("probe", sandbox.ErrUnavailable, "%s", res.Error)
}

// Probe implements batch.Service. Where the endpoint's worker is not known
// yet, it is asked, which may wake it.
func (b *Service) Probe(ctx context.Context) (*sandbox.Report, error) {
	report := &sandbox.Report{Backend: Name, Remote: true, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	fatal := func(err error) (*sandbox.Report, error) {
		report.Findings = append(report.Findings, sandbox.Finding{Fatal: true, Title: reason(err)})
		return report, nil
	}
	endpoint := b.opts.Endpoint
	if endpoint == "" {
		return fatal(errors.New(noEndpoint))
	}
	h, err := b.health(ctx, b.api(endpoint), healthWait)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return fatal(err)
	}
	report.Usable = true
	w := h.Workers
	report.Findings = append(report.Findings, sandbox.Finding{
		Title: fmt.Sprintf("endpoint %s: %s; %.0f jobs wait, %.0f run", endpoint, crew(h), h.Jobs.InQueue, h.Jobs.InProgress),
	})
	if w.Unhealthy > 0 && !h.alive() {
		report.Findings = append(report.Findings, sandbox.Finding{
			Title: "the endpoint's workers are unhealthy: they start and crash", Remedy: unhealthyRemedy(endpoint),
		})
	}
	wait := probeWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(max(time.Until(deadline)-5*time.Second, 0), wait)
	}
	k, err := b.worker(ctx, endpoint, wait)
	switch {
	case errors.Is(err, errSleeping):
		report.Findings = append(report.Findings, sandbox.Finding{
			Title: "no worker has said yet what it enforces: the first run waits for one", Detail: strings.TrimPrefix(err.Error(), errSleeping.Error()+": "),
		})
		return report, nil
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		report.Usable = false
		return fatal(err)
	case k.Report == nil && !b.opts.AcceptUnknown:
		report.Usable = false
		return fatal(errors.New(k.refused()))
	case k.Report == nil:
		report.Findings = append(report.Findings, sandbox.Finding{
			Title: "the endpoint's worker does not say what it enforces; runpod.acceptUnknownWorker accepts that",
		})
		return report, nil
	}
	said := k.Report.Report(Name)
	report.Isolation, report.Limits = said.Isolation, said.Limits
	report.Runtime = line(said.Runtime, 100)
	return report, nil
}

// refused says why a worker that says nothing gets no code.
func (k *known) refused() string {
	instead := ""
	if k.Instead != "" {
		instead = " (asked for that, it answered: " + k.Instead + ")"
	}
	return "the worker of endpoint " + k.Endpoint + " does not say how it isolates code and which limits it enforces" + instead + ", so no code was sent. Deploy Sallyport's own worker (`sallyport deploy runpod`), or set runpod.acceptUnknownWorker: true to trust this one"
}

// reason is an engine's error without the engine's name before it.
func reason(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

func (b *Service) health(ctx context.Context, a *api, patience time.Duration) (*health, error) {
	answer, t := a.ask(ctx, patience, "health", "", nil)
	if t != nil {
		return nil, b.explain("probe", a.endpoint, t)
	}
	h := &health{}
	if err := json.Unmarshal(answer, h); err != nil {
		return nil, b.fail("probe", sandbox.ErrUnavailable, "RunPod's health of endpoint %s cannot be read", a.endpoint)
	}
	return h, nil
}

// Health is what the endpoint's own health says, for people and tools.
type Health struct {
	Endpoint                                                 string
	InQueue, InProgress, Completed, Failed, Retried          int
	Idle, Running, Ready, Initializing, Throttled, Unhealthy int
}

// Health asks RunPod for the endpoint's queue and workers.
func (b *Service) Health(ctx context.Context) (*Health, error) {
	if b.opts.Endpoint == "" {
		return nil, b.fail("health", sandbox.ErrUnavailable, noEndpoint)
	}
	h, err := b.health(ctx, b.api(b.opts.Endpoint), healthWait)
	if err != nil {
		return nil, err
	}
	j, w := h.Jobs, h.Workers
	return &Health{Endpoint: b.opts.Endpoint,
		InQueue: int(j.InQueue), InProgress: int(j.InProgress), Completed: int(j.Completed), Failed: int(j.Failed), Retried: int(j.Retried),
		Idle: int(w.Idle), Running: int(w.Running), Ready: int(w.Ready), Initializing: int(w.Initializing), Throttled: int(w.Throttled), Unhealthy: int(w.Unhealthy)}, nil
}

// crew is an endpoint's workers in words.
func crew(h *health) string {
	w := h.Workers
	var parts []string
	for _, p := range []struct {
		n    number
		what string
	}{{w.Running, "running"}, {max(w.Idle, w.Ready), "idle"}, {w.Initializing, "starting"}, {w.Throttled, "waiting for a free machine"}, {w.Unhealthy, "unhealthy"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%.0f %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no workers yet"
	}
	return "workers: " + strings.Join(parts, ", ")
}

func unhealthyRemedy(endpoint string) string {
	return "read the workers' logs at https://console.runpod.io/serverless/user/endpoint/" + endpoint + ": often the image cannot be pulled, or its program ends at once"
}

// unmet is what a worker's report lacks of what the policy demands; empty:
// nothing.
func unmet(r *job.Report, isolation sandbox.Isolation, require map[sandbox.Resource]sandbox.Enforcement) string {
	said := r.Report(Name)
	var lacks []string
	if said.Isolation < isolation {
		lacks = append(lacks, fmt.Sprintf("isolation %s (it has %s)", isolation, said.Isolation))
	}
	for res, want := range require {
		if have := said.Limits[res].Enforcement; have < want {
			lacks = append(lacks, fmt.Sprintf("a %s limit on %s (it has %s)", want, res, have))
		}
	}
	slices.Sort(lacks)
	return strings.Join(lacks, ", ")
}

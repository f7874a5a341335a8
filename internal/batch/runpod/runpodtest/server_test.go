package runpodtest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// api calls a Server as a client, or with a worker's key as a worker.
type api struct {
	t   *testing.T
	s   *Server
	key string
}

func (a api) call(method, path, body string) (int, http.Header, map[string]any) {
	a.t.Helper()
	req, err := http.NewRequest(method, "http://runpod.test/v2/"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", a.key)
	res, err := a.s.Transport().RoundTrip(req)
	if err != nil {
		return 0, nil, nil
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, nil
	}
	var m map[string]any
	_ = json.Unmarshal(b, &m)
	return res.StatusCode, res.Header, m
}

func fixture(t *testing.T, opts Options) (*Server, *ManualClock, api, api) {
	clock := NewManualClock()
	opts.Clock, opts.Endpoints, opts.TakeWait = clock, []string{"ep1"}, -1
	s := New(opts)
	return s, clock, api{t, s, "Bearer " + Key}, api{t, s, WorkerKey}
}

func submit(t *testing.T, a api, body string) string {
	t.Helper()
	status, _, m := a.call("POST", "ep1/run", body)
	if status != 200 || m["status"] != InQueue {
		t.Fatalf("run: %d %v", status, m)
	}
	return m["id"].(string)
}

func wantStatus(t *testing.T, a api, id, want string) map[string]any {
	t.Helper()
	status, _, m := a.call("GET", "ep1/status/"+id, "")
	if status != 200 || m["status"] != want {
		t.Fatalf("status: %d %v, want %s", status, m, want)
	}
	return m
}

func TestLifeOfAJob(t *testing.T) {
	_, clock, client, worker := fixture(t, Options{})
	id := submit(t, client, `{"input":{"code":"x"}}`)
	clock.Advance(3 * time.Second)
	if status, _, m := worker.call("GET", "ep1/job-take/w1?gpu=A&job_in_progress=0", ""); status != 200 || m["id"] != id {
		t.Fatalf("take: %d %v", status, m)
	}
	wantStatus(t, client, id, InProgress)
	worker.call("POST", "ep1/job-stream/w1/"+id+"?isStream=false", `{"output":{"stdout":"a"}}`)
	if _, _, m := client.call("GET", "ep1/stream/"+id, ""); len(m["stream"].([]any)) != 1 || m["status"] != InProgress {
		t.Errorf("stream: %v", m)
	}
	worker.call("POST", "ep1/job-done/w1/"+id+"?isStream=false", `{"status":"IN_PROGRESS","output":"half"}`)
	if m := wantStatus(t, client, id, InProgress); m["output"] != "half" {
		t.Errorf("progress: %v", m)
	}
	clock.Advance(2 * time.Second)
	worker.call("POST", "ep1/job-done/w1/"+id+"?isStream=false", `{"output":{"stdout":"ab"}}`)
	m := wantStatus(t, client, id, Completed)
	if m["delayTime"] != 3000.0 || m["executionTime"] != 2000.0 || m["workerId"] != "w1" {
		t.Errorf("done: %v", m)
	}
	clock.Advance(30 * time.Minute)
	if status, _, _ := client.call("GET", "ep1/status/"+id, ""); status != 404 {
		t.Errorf("after its retention: %d", status)
	}
}

func TestPolicyEndsJobs(t *testing.T) {
	_, clock, client, worker := fixture(t, Options{})
	id := submit(t, client, `{"input":{},"policy":{"executionTimeout":5000}}`)
	worker.call("GET", "ep1/job-take/w1?", "")
	clock.Advance(5 * time.Second)
	wantStatus(t, client, id, TimedOut)
	if _, _, m := worker.call("GET", "ep1/job-stop/w1", ""); len(m["jobsToStop"].([]any)) != 1 {
		t.Errorf("job-stop: %v", m)
	}
	id = submit(t, client, `{"input":{},"policy":{"ttl":10000}}`)
	worker.call("GET", "ep1/job-take/w1?", "")
	clock.Advance(10 * time.Second)
	if status, _, _ := client.call("GET", "ep1/status/"+id, ""); status != 404 {
		t.Errorf("past its ttl, while it runs: %d", status)
	}
	for _, body := range []string{`{"input":{},"policy":{"ttl":1}}`, `{"input":{},"policy":{"executionTimeout":4999}}`, `{}`, `{`} {
		if status, _, _ := client.call("POST", "ep1/run", body); status != 400 {
			t.Errorf("%s: %d", body, status)
		}
	}
}

func TestRedelivery(t *testing.T) {
	s, clock, client, worker := fixture(t, Options{})
	id := submit(t, client, `{"input":{}}`)
	worker.call("GET", "ep1/job-take/w1?", "")
	s.Kill("ep1", "w1")
	wantStatus(t, client, id, InQueue)
	if status, _, _ := worker.call("POST", "ep1/job-done/w1/"+id, `{"output":1}`); status != 404 {
		t.Errorf("a killed worker's result: %d", status)
	}
	worker.call("GET", "ep1/job-take/w2?", "")
	clock.Advance(time.Minute) // w2 says nothing
	wantStatus(t, client, id, InQueue)
	worker.call("GET", "ep1/job-take/w3?", "")
	s.DeliverTwice("ep1", id)
	if _, _, m := worker.call("GET", "ep1/job-take/w4?", ""); m["id"] != id {
		t.Fatalf("not delivered twice: %v", m)
	}
	worker.call("POST", "ep1/job-done/w3/"+id, `{"output":"first"}`)
	worker.call("POST", "ep1/job-done/w4/"+id, `{"output":"second"}`)
	if m := wantStatus(t, client, id, Completed); m["output"] != "first" || m["retries"] != 3.0 {
		t.Errorf("%v", m)
	}
	if _, _, m := client.call("GET", "ep1/health", ""); m["jobs"].(map[string]any)["retried"] != 3.0 {
		t.Errorf("health: %v", m)
	}
}

func TestCancelRetryPurge(t *testing.T) {
	_, _, client, worker := fixture(t, Options{})
	id := submit(t, client, `{"input":{}}`)
	if _, _, m := client.call("POST", "ep1/cancel/"+id, ""); m["status"] != Cancelled {
		t.Errorf("cancel: %v", m)
	}
	if status, _, _ := client.call("POST", "ep1/retry/"+id, ""); status != 400 {
		t.Errorf("retry of a cancelled job: %d", status)
	}
	id = submit(t, client, `{"input":{}}`)
	worker.call("GET", "ep1/job-take/w1?", "")
	worker.call("POST", "ep1/job-done/w1/"+id, `{"error":"boom"}`)
	if m := wantStatus(t, client, id, Failed); m["error"] != "boom" {
		t.Errorf("failed: %v", m)
	}
	client.call("POST", "ep1/retry/"+id, "")
	wantStatus(t, client, id, InQueue)
	if _, _, m := client.call("POST", "ep1/purge-queue", ""); m["removed"] != 1.0 {
		t.Errorf("purge: %v", m)
	}
	wantStatus(t, client, id, Cancelled)
}

func TestKeysAndRates(t *testing.T) {
	s, clock, client, worker := fixture(t, Options{Rates: map[string]Rate{"status": {2, 0}}})
	if status, _, _ := (api{t, s, "Bearer wrong"}).call("GET", "ep1/health", ""); status != 401 {
		t.Errorf("a wrong key: %d", status)
	}
	if status, _, _ := (api{t, s, Key}).call("GET", "ep1/health", ""); status != 200 {
		t.Errorf("a raw key: %d", status)
	}
	if status, _, _ := worker.call("GET", "ep1/health", ""); status != 401 {
		t.Errorf("a worker's token: %d", status)
	}
	if status, _, _ := client.call("GET", "other/health", ""); status != 404 {
		t.Errorf("no such endpoint: %d", status)
	}
	id := submit(t, client, `{"input":{}}`)
	wantStatus(t, client, id, InQueue)
	wantStatus(t, client, id, InQueue)
	clock.Advance(4 * time.Second)
	status, h, _ := client.call("GET", "ep1/status/"+id, "")
	if status != 429 || h.Get("Retry-After") != "6" {
		t.Errorf("over the rate: %d, Retry-After %q", status, h.Get("Retry-After"))
	}
	clock.Advance(6 * time.Second)
	wantStatus(t, client, id, InQueue)
}

func TestFaults(t *testing.T) {
	s, _, client, _ := fixture(t, Options{})
	s.Inject(Fault{Op: "run", Times: 1, Before: true})
	if status, _, _ := client.call("POST", "ep1/run", `{"input":{}}`); status != 0 || len(s.Jobs("ep1")) != 0 {
		t.Errorf("broken before: %d, %d jobs", status, len(s.Jobs("ep1")))
	}
	s.Inject(Fault{Op: "run", Times: 1, After: true})
	if status, _, _ := client.call("POST", "ep1/run", `{"input":{}}`); status != 0 || len(s.Jobs("ep1")) != 1 {
		t.Errorf("broken after: %d, %d jobs", status, len(s.Jobs("ep1")))
	}
	s.Inject(Fault{Op: "health", Times: 1, Cut: true})
	if status, _, _ := client.call("GET", "ep1/health", ""); status != 0 {
		t.Errorf("cut: %d", status)
	}
	undo := s.Inject(Fault{Status: 429, Retry: 1500 * time.Millisecond})
	status, h, _ := client.call("GET", "ep1/health", "")
	if status != 429 || h.Get("Retry-After") != "2" {
		t.Errorf("storm: %d %q", status, h.Get("Retry-After"))
	}
	if status, _, _ := client.call("GET", "serverless", ""); status != 200 {
		t.Errorf("a fault of the job API in REST: %d", status)
	}
	undo()
	if status, _, _ := client.call("GET", "ep1/health", ""); status != 200 {
		t.Errorf("after the storm: %d", status)
	}
}

func TestREST(t *testing.T) {
	_, clock, client, worker := fixture(t, Options{Boot: 20 * time.Second})
	status, _, m := client.call("POST", "templates", `{"name":"t","image":"a/b:1","disk":10,"serverless":true,"category":"NVIDIA","env":{"A":"1"}}`)
	if status != 201 {
		t.Fatalf("template: %d %v", status, m)
	}
	tpl := m["id"].(string)
	body := `{"name":"e","type":"QUEUE","scaling":{"type":"QUEUE_DELAY","queueDelay":4},"templateId":"` + tpl +
		`","gpu":{"pools":["ADA_24"]},"workers":{"min":1,"max":3,"idleTimeout":300},"timeout":600000}`
	status, _, m = client.call("POST", "serverless", body)
	if status != 201 {
		t.Fatalf("endpoint: %d %v", status, m)
	}
	ep := m["id"].(string)
	if m["image"] != "a/b:1" || !strings.HasSuffix(m["requestUrls"].(map[string]any)["run"].(string), "/v2/"+ep+"/run") {
		t.Errorf("endpoint: %v", m)
	}
	for _, bad := range []string{`{}`, strings.Replace(body, "QUEUE_DELAY", "X", 1), strings.Replace(body, `"name"`, `"nam"`, 1), strings.Replace(body, `300}`, `3601}`, 1)} {
		if status, h, m := client.call("POST", "serverless", bad); status != 422 || h.Get("Content-Type") != "application/problem+json" || m["errors"] == nil {
			t.Errorf("%s: %d %v", bad, status, m)
		}
	}
	summary := func() map[string]any {
		_, _, m := client.call("GET", "serverless/"+ep+"/workers", "")
		return m["summary"].(map[string]any)
	}
	if s := summary(); s["initializing"] != 1.0 || s["total"] != 1.0 {
		t.Errorf("at first: %v", s)
	}
	clock.Advance(20 * time.Second)
	worker.call("GET", ep+"/job-take/w9?gpu=L4", "")
	if s := summary(); s["idle"] != 2.0 {
		t.Errorf("when booted: %v", s)
	}
	if status, _, _ := client.call("DELETE", "templates/"+tpl, ""); status != 400 {
		t.Errorf("a template in use: %d", status)
	}
	status, _, m = client.call("PATCH", "serverless/"+ep, `{"workers":{"min":0,"max":1,"idleTimeout":5}}`)
	if status != 200 || m["workers"].(map[string]any)["max"] != 1.0 || m["name"] != "e" {
		t.Errorf("patched: %d %v", status, m)
	}
	// The schema of a change has no null.
	if status, _, m := client.call("PATCH", "serverless/"+ep, `{"gpu":null,"cpu":[{"id":"cpu3c","vcpuCount":2}]}`); status != 422 {
		t.Errorf("gpu is null: got %d %v, want 422", status, m)
	}
	if status, _, _ := client.call("DELETE", "serverless/"+ep, ""); status != 204 {
		t.Errorf("delete: %d", status)
	}
	if status, _, _ := client.call("DELETE", "templates/"+tpl, ""); status != 204 {
		t.Errorf("delete: %d", status)
	}
	if status, _, m := client.call("GET", "catalog/gpus", ""); status != 200 || len(m["gpus"].([]any)) == 0 {
		t.Errorf("catalog: %d", status)
	}
}

package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/rest"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
)

func spec() *Spec {
	return &Spec{
		Name: "mine", Image: "docker.io/me/worker:1", Env: map[string]string{"MAX_EXECUTION_TIME": "30"}, Disk: 20,
		GPUs: []string{"AMPERE_16"}, GPUCount: 1, Min: 1, Max: 3, Idle: 5 * time.Minute, Timeout: 10 * time.Minute,
		QueueDelay: 4 * time.Second, FlashBoot: "FLASHBOOT",
	}
}

type double struct {
	*runpodtest.Server
	d   *Deployer
	log *bytes.Buffer
}

func fixture(t *testing.T, opts runpodtest.Options) double {
	t.Helper()
	opts.Key = "rp-key"
	s := runpodtest.New(opts)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	api, err := rest.New(h.URL, "rp-key", "test", h.Client())
	if err != nil {
		t.Fatal(err)
	}
	api.Sleep = func(context.Context, time.Duration) error { return nil }
	log := &bytes.Buffer{}
	return double{s, &Deployer{API: api, Progress: log, Every: time.Millisecond}, log}
}

func (d double) up(t *testing.T, s *Spec) *Outcome {
	t.Helper()
	out, err := d.d.Up(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func steps(o *Outcome) (list []string) {
	for _, s := range o.Steps {
		list = append(list, s.Method+" "+strings.Split(s.Path, "/")[2])
	}
	return list
}

func want(t *testing.T, o *Outcome, what string) {
	t.Helper()
	if got := strings.Join(steps(o), ", "); got != what {
		t.Errorf("steps %q, want %q", got, what)
	}
}

func TestUpChangeDown(t *testing.T) {
	d := fixture(t, runpodtest.Options{})
	d.d.DryRun = true
	o := d.up(t, spec())
	want(t, o, "POST templates, POST serverless")
	if o.Endpoint != "" || d.Count("createEndpoint")+d.Count("createTemplate") != 0 {
		t.Errorf("a dry run made something: %+v", o)
	}
	d.d.DryRun = false
	first := d.up(t, spec())
	want(t, first, "POST templates, POST serverless")
	if first.Endpoint == "" || first.Template == "" {
		t.Fatalf("%+v", first)
	}
	again := d.up(t, spec())
	want(t, again, "")
	if again.Endpoint != first.Endpoint || again.Template != first.Template {
		t.Errorf("%+v, and before %+v", again, first)
	}
	s := spec()
	s.Max, s.Env, s.Image = 5, map[string]string{"MAX_EXECUTION_TIME": "60"}, "docker.io/me/worker:2"
	s.DataCenters = []string{"EU-RO-1"}
	changed := d.up(t, s)
	want(t, changed, "PATCH templates, PATCH serverless")
	for step, fields := range map[int]string{0: "env image", 1: "dataCenterIds workers"} {
		have := map[string]bool{}
		for k := range changed.Steps[step].Body {
			have[k] = true
		}
		for f := range strings.FieldsSeq(fields) {
			if !have[f] {
				t.Errorf("step %d lacks %s: %v", step, f, changed.Steps[step].Body)
			}
			delete(have, f)
		}
		if len(have) > 0 {
			t.Errorf("step %d changes more: %v", step, have)
		}
	}
	want(t, d.up(t, s), "")
	down, err := d.d.Down(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	want(t, down, "DELETE serverless, DELETE templates")
	down, err = d.d.Down(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	want(t, down, "")
}

// TestCrashBetween: a deployment that made its template and died goes on, and
// makes nothing twice.
func TestCrashBetween(t *testing.T) {
	d := fixture(t, runpodtest.Options{})
	s := spec()
	ctx, cancel := context.WithCancel(t.Context())
	d.d.Progress = writer(func(p []byte) {
		if bytes.Contains(p, []byte("POST /v2/serverless")) {
			cancel()
		}
	})
	if _, err := d.d.Up(ctx, s); err == nil {
		t.Fatal("it went on")
	}
	d.d.Progress = d.log
	want(t, d.up(t, s), "POST serverless")
	want(t, d.up(t, s), "")
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// TestLostAnswers: the service does what it is told, and its answer is lost.
func TestLostAnswers(t *testing.T) {
	s := runpodtest.New(runpodtest.Options{Key: "rp-key"})
	lose := true
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && lose {
			s.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		s.ServeHTTP(w, r)
	}))
	defer h.Close()
	h.Config.ErrorLog = nil
	api, err := rest.New(h.URL, "rp-key", "test", h.Client())
	if err != nil {
		t.Fatal(err)
	}
	d := &Deployer{API: api}
	o, err := d.Up(t.Context(), spec())
	if err != nil || o.Endpoint == "" || o.Template == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	lose = false
	again, err := d.Up(t.Context(), spec())
	if err != nil || len(again.Steps) > 0 || again.Endpoint != o.Endpoint {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestLeavesOthersAlone(t *testing.T) {
	d := fixture(t, runpodtest.Options{})
	theirs := rest.Object{"name": "mine-template", "image": "theirs", "serverless": true}
	if _, err := d.d.API.Send(t.Context(), "POST", "/v2/templates", theirs); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() (*Outcome, error){
		"up":   func() (*Outcome, error) { return d.d.Up(t.Context(), spec()) },
		"down": func() (*Outcome, error) { return d.d.Down(t.Context(), "mine") },
	} {
		o, err := f()
		if err == nil || !strings.Contains(err.Error(), "has not made") || len(o.Steps) > 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	other := fixture(t, runpodtest.Options{})
	ep := spec().endpoint()
	ep["image"] = "theirs"
	if _, err := other.d.API.Send(t.Context(), "POST", "/v2/serverless", ep); err != nil {
		t.Fatal(err)
	}
	if o, err := other.d.Up(t.Context(), spec()); err == nil || len(o.Steps) > 0 {
		t.Errorf("an endpoint of others: %+v, %v", o, err)
	}
	if o, err := other.d.Down(t.Context(), "mine"); err == nil || len(o.Steps) > 0 {
		t.Errorf("an endpoint of others: %+v, %v", o, err)
	}
}

func TestAwait(t *testing.T) {
	d := fixture(t, runpodtest.Options{Boot: 50 * time.Millisecond})
	o := d.up(t, spec())
	var said []string
	say := func(status string) { said = append(said, status) }
	sum, err := d.d.Await(t.Context(), o.Endpoint, 1, say)
	if err != nil || sum.Idle < 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	if got, want := slices.Compact(said), []string{"1 starting", "1 idle"}; !slices.Equal(got, want) {
		t.Errorf("got the status %q, want %q", got, want)
	}
	ill := fixture(t, runpodtest.Options{BootStatus: "UNHEALTHY"})
	o = ill.up(t, spec())
	if _, err := ill.d.Await(t.Context(), o.Endpoint, 1, say); err == nil || !strings.Contains(err.Error(), "unhealthy") {
		t.Errorf("%v", err)
	}
	slow := fixture(t, runpodtest.Options{Boot: time.Hour})
	o = slow.up(t, spec())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := slow.d.Await(ctx, o.Endpoint, 1, say); err == nil || !strings.Contains(err.Error(), "no worker") {
		t.Errorf("%v", err)
	}
}

func TestProblems(t *testing.T) {
	d := fixture(t, runpodtest.Options{})
	bad := spec()
	bad.Idle = 2 * time.Hour
	_, err := d.d.Up(t.Context(), bad)
	if err == nil || !strings.Contains(err.Error(), "workers.idleTimeout") || !rest.IsStatus(err, 422) {
		t.Errorf("%v", err)
	}
	h := httptest.NewServer(d.Server)
	defer h.Close()
	api, err := rest.New(h.URL, "wrong-key", "test", h.Client())
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&Deployer{API: api}).Up(t.Context(), spec())
	if !rest.IsStatus(err, 401) || strings.Contains(err.Error(), "wrong-key") {
		t.Errorf("%v", err)
	}
	for _, base := range []string{"http://api.runpod.io", "ftp://localhost", "https://u:p@api.runpod.io", "nonsense"} {
		if _, err := rest.New(base, "k", "test", h.Client()); err == nil {
			t.Errorf("a key would be sent to %s", base)
		}
	}
	if _, err := rest.New("https://api.runpod.io", "", "test", h.Client()); err == nil {
		t.Error("no key is needed")
	}
	if errors.Is(err, rest.ErrUnknown) {
		t.Error("a refused request is not unknown")
	}
}

// TestHostileAnswers: what the service says of itself is no address, and what
// it repeats has no key.
func TestHostileAnswers(t *testing.T) {
	status := http.StatusOK
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			fmt.Fprintf(w, `{"detail": "you said %s"}`, r.Header.Get("Authorization"))
			return
		}
		fmt.Fprintf(w, `{"templates": [{"id": "x; reboot", "name": %q}]}`, spec().templateName())
	}))
	defer h.Close()
	api, err := rest.New(h.URL, "the-key", "test", h.Client())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Deployer{API: api}).Down(t.Context(), spec().Name); err == nil || !strings.Contains(err.Error(), "an invalid ID") {
		t.Error(err)
	}
	status = http.StatusBadRequest
	if _, err := (&Deployer{API: api}).Up(t.Context(), spec()); err == nil || strings.Contains(err.Error(), "the-key") || !strings.Contains(err.Error(), "you said") {
		t.Error(err)
	}
	// A wait that ends in the middle of a request says what was waited for.
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := (&Deployer{API: api}).Await(ctx, "ep", 1, func(string) {}); err == nil || !strings.Contains(err.Error(), "no worker of ep is ready yet") {
		t.Error(err)
	}
}

func TestTwoOfAName(t *testing.T) {
	d := fixture(t, runpodtest.Options{})
	first := d.up(t, spec())
	ep := maps.Clone(spec().endpoint())
	ep["templateId"] = first.Template
	if _, err := d.d.API.Send(t.Context(), "POST", "/v2/serverless", ep); err != nil {
		t.Fatal(err)
	}
	if _, err := d.d.Up(t.Context(), spec()); err == nil || !strings.Contains(err.Error(), "two of the name") {
		t.Errorf("%v", err)
	}
}

// TestOtherKind: RunPod's API cannot take away GPUs or CPUs, so an endpoint of
// the other kind is left as it is, with its template.
func TestOtherKind(t *testing.T) {
	gpu, cpu := spec(), spec()
	cpu.GPUs, cpu.CPU, cpu.VCPUs = nil, "cpu3c", 2
	for _, c := range []struct {
		has, wants *Spec
		err        string
	}{
		{gpu, cpu, "have a GPU, and RunPod cannot change an endpoint to a CPU alone"},
		{cpu, gpu, "have a CPU alone, and RunPod cannot change an endpoint to a GPU"},
	} {
		d := fixture(t, runpodtest.Options{})
		d.up(t, c.has)
		out, err := d.d.Up(t.Context(), c.wants)
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "--destroy") {
			t.Errorf("got %v, want %q and what to do", err, c.err)
		}
		if len(out.Steps) != 0 {
			t.Errorf("got the steps %v, want none", steps(out))
		}
		if out := d.up(t, c.has); len(out.Steps) != 0 {
			t.Errorf("afterwards: got the steps %v, want none", steps(out))
		}
		if _, err := d.d.Down(t.Context(), c.has.Name); err != nil {
			t.Error(err)
		}
		d.up(t, c.wants)
	}
}

// Values of variables whose names suggest a secret are not shown.
func TestWithoutSecrets(t *testing.T) {
	step := Step{Method: "POST", Body: rest.Object{"name": "n", "env": map[string]string{"API_KEY": "x", "my_token": "y", "PLAIN": "z", MarkVariable: "n"}}}
	got, _ := step.WithoutSecrets().Body["env"].(map[string]string)
	if want := map[string]string{"API_KEY": "***", "my_token": "***", "PLAIN": "z", MarkVariable: "n"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if env := step.Body["env"].(map[string]string); env["API_KEY"] != "x" {
		t.Error("the step itself was changed")
	}
}

// Package deploy deploys Sallyport's worker as a RunPod endpoint: it creates a
// template and an endpoint with given names, or updates them if they differ.
// Repeating it changes nothing; after a crash it continues. It never takes over
// a template or an endpoint that it has not created.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/rest"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// MarkVariable is the environment variable that marks a template as ours. Its
// value is the endpoint's name.
const MarkVariable = "SALLYPORT_DEPLOY_RUNPOD_NAME"

// Spec describes the wanted endpoint.
type Spec struct {
	Name  string
	Image string
	// Env is the workers' environment.
	Env map[string]string
	// Disk is their disk in GB.
	Disk int
	// Registry is RunPod's ID of a registry's credentials; "" is none.
	Registry string
	// GPUs are RunPod's pools, in order of preference; empty: CPU, by its
	// RunPod ID, and VCPUs of it.
	GPUs     []string
	GPUCount int
	CPU      string
	VCPUs    int
	// DataCenters where workers may be; empty: any.
	DataCenters []string
	Min, Max    int
	Idle        time.Duration
	Timeout     time.Duration // of a job
	QueueDelay  time.Duration // that makes another worker start
	FlashBoot   string
}

// templateName is the template of an endpoint.
func (s *Spec) templateName() string { return s.Name + "-template" }

// template is the template as RunPod is to have it.
func (s *Spec) template() rest.Object {
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[MarkVariable] = s.Name
	o := rest.Object{
		"name": s.templateName(), "image": s.Image, "disk": s.Disk, "env": env,
		"serverless": true, "public": false, "startSsh": false, "startJupyter": false,
		"category": "NVIDIA",
	}
	if len(s.GPUs) == 0 {
		o["category"] = "CPU"
	}
	if s.Registry != "" {
		o["registry"] = s.Registry
	}
	return o
}

// endpoint is the endpoint as RunPod is to have it, but for its template.
func (s *Spec) endpoint() rest.Object {
	o := rest.Object{
		"name": s.Name, "type": "QUEUE",
		"scaling":   map[string]any{"type": "QUEUE_DELAY", "queueDelay": s.QueueDelay.Seconds()},
		"workers":   map[string]any{"min": s.Min, "max": s.Max, "idleTimeout": int(s.Idle.Seconds())},
		"timeout":   s.Timeout.Milliseconds(),
		"flashboot": s.FlashBoot,
	}
	if len(s.GPUs) > 0 {
		o["gpu"] = map[string]any{"pools": s.GPUs, "count": s.GPUCount}
	} else {
		o["cpu"] = []any{map[string]any{"id": s.CPU, "vcpuCount": s.VCPUs}}
	}
	if len(s.DataCenters) > 0 {
		o["dataCenterIds"] = s.DataCenters
	}
	return o
}

// Step is a request that changes something.
type Step struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Body   rest.Object `json:"body,omitempty"`
	Why    string      `json:"why"`
}

// secretName matches variables whose values are not shown.
var secretName = lazyregexp.New(`(?i)key|token|secret|passw|credential`)

// WithoutSecrets returns the step without the values of variables that may be
// secret.
func (s Step) WithoutSecrets() Step {
	env, ok := s.Body["env"].(map[string]string)
	if !ok {
		return s
	}
	body := rest.Object{}
	for k, v := range s.Body {
		body[k] = v
	}
	masked := map[string]string{}
	for k, v := range env {
		if secretName().MatchString(k) && k != MarkVariable {
			v = "***"
		}
		masked[k] = v
	}
	body["env"] = masked
	s.Body = body
	return s
}

// Outcome is the state after a deployment.
type Outcome struct {
	Endpoint string        `json:"endpoint,omitempty"`
	Template string        `json:"template,omitempty"`
	Steps    []Step        `json:"steps"` // that were done, or with DryRun would be
	Workers  *rest.Summary `json:"workers,omitempty"`
}

// A Deployer creates, updates and removes endpoints.
type Deployer struct {
	API *rest.Client
	// DryRun: nothing is changed.
	DryRun bool
	// Progress receives messages for the user.
	Progress io.Writer
	// Every is how often workers are looked at; 0 is 3 seconds.
	Every time.Duration
}

// placeholder stands in a dry run for the ID of what would be made.
const placeholder = "{template}"

// Up creates the endpoint, or updates it to match the spec.
func (d *Deployer) Up(ctx context.Context, s *Spec) (*Outcome, error) {
	out := &Outcome{Steps: []Step{}}
	template, endpoint, err := d.find(ctx, s.Name)
	if err != nil {
		return out, err
	}
	if template != nil && template.Env()[MarkVariable] != s.Name {
		return out, notOurs("template", s.templateName())
	}
	if endpoint != nil && template == nil {
		return out, notOurs("endpoint", s.Name)
	}
	if endpoint != nil {
		if err := s.changeable(endpoint); err != nil {
			return out, err
		}
	}
	want := s.template()
	oldImage := ""
	if template != nil {
		oldImage = template.Text("image")
	}
	changed, err := d.settle(ctx, out, "/v2/templates", "template", template, want, func(ctx context.Context) (rest.Object, error) {
		return one(ctx, d.API.Templates, s.templateName())
	})
	if err != nil {
		return out, err
	}
	out.Template = changed.ID()
	wanted := s.endpoint()
	if endpoint != nil {
		delete(wanted, "type")
		// The answer does not tell the template, only its image.
		if image := endpoint.Text("image"); image != "" && image != s.Image && image != oldImage {
			wanted["templateId"] = out.Template
		}
	} else {
		wanted["templateId"] = out.Template
	}
	there, err := d.settle(ctx, out, "/v2/serverless", "endpoint", endpoint, wanted, func(ctx context.Context) (rest.Object, error) {
		return one(ctx, d.API.Endpoints, s.Name)
	})
	if err != nil {
		return out, err
	}
	if out.Endpoint = there.ID(); out.Endpoint == placeholder {
		out.Endpoint = ""
	}
	if out.Template == placeholder {
		out.Template = ""
	}
	return out, nil
}

// changeable returns an error if no request can make the endpoint what the spec
// describes. RunPod changes the fields that a request provides: none of them
// takes away GPUs, which may not be null, or CPUs.
func (s *Spec) changeable(endpoint rest.Object) error {
	if t := endpoint.Text("type"); t != "" && t != "QUEUE" {
		return fmt.Errorf("endpoint %s is of type %s, which cannot be changed: choose another --name", s.Name, t)
	}
	has, want := "a GPU", "a CPU alone"
	cpus, _ := endpoint["cpu"].([]any)
	other := endpoint["gpu"] != nil
	if len(s.GPUs) > 0 {
		has, want = want, has
		other = len(cpus) > 0
	}
	if other {
		return fmt.Errorf("the workers of endpoint %s have %s, and RunPod cannot change an endpoint to %s: choose another --name, or remove it (sallyport deploy runpod --name %[1]s --destroy) and deploy it again, under a new ID", s.Name, has, want)
	}
	return nil
}

// Down removes the endpoint and its template, if they are ours.
func (d *Deployer) Down(ctx context.Context, name string) (*Outcome, error) {
	out := &Outcome{Steps: []Step{}}
	template, endpoint, err := d.find(ctx, name)
	if err != nil {
		return out, err
	}
	if template != nil && template.Env()[MarkVariable] != name {
		return out, notOurs("template", template.Name())
	}
	if endpoint != nil {
		if template == nil || endpoint.Text("image") != template.Text("image") {
			return out, notOurs("endpoint", name)
		}
		if err := d.remove(ctx, out, "/v2/serverless/"+endpoint.ID(), "the endpoint "+name); err != nil {
			return out, err
		}
	}
	if template != nil {
		if err := d.remove(ctx, out, "/v2/templates/"+template.ID(), "the template "+template.Name()); err != nil {
			return out, err
		}
	}
	return out, nil
}

func notOurs(what, name string) error {
	return fmt.Errorf("there is a %s %q that 'sallyport deploy' has not made: it is left alone; choose another --name", what, name)
}

// find looks for both by their names.
func (d *Deployer) find(ctx context.Context, name string) (template, endpoint rest.Object, err error) {
	s := &Spec{Name: name}
	if template, err = one(ctx, d.API.Templates, s.templateName()); err != nil {
		return nil, nil, err
	}
	endpoint, err = one(ctx, d.API.Endpoints, name)
	return template, endpoint, err
}

// validID: IDs become parts of addresses, and of a command that people copy.
var validID = lazyregexp.New(`\A[A-Za-z0-9_-]{1,64}\z`)

// one is the object of that name, nil where there is none.
func one(ctx context.Context, list func(context.Context) ([]rest.Object, error), name string) (rest.Object, error) {
	all, err := list(ctx)
	if err != nil {
		return nil, err
	}
	var found rest.Object
	for _, o := range all {
		// RunPod may add to a name what it does to the object.
		if o.Name() != name && o.Name() != name+" -fb" {
			continue
		}
		if !validID().MatchString(o.ID()) {
			return nil, fmt.Errorf("RunPod lists %q with an invalid ID", name)
		}
		if found != nil {
			return nil, fmt.Errorf("there are two of the name %q (%s and %s): remove one", name, found.ID(), o.ID())
		}
		found = o
	}
	return found, nil
}

// settle creates the object, or updates the fields that differ.
func (d *Deployer) settle(ctx context.Context, out *Outcome, path, what string, there, want rest.Object, again func(context.Context) (rest.Object, error)) (rest.Object, error) {
	if there == nil {
		step := Step{"POST", path, want, "there is no " + what + " " + want.Name()}
		if made, err := d.do(ctx, out, step); err == nil {
			return made, nil
		} else if !errors.Is(err, rest.ErrUnknown) {
			return nil, fmt.Errorf("making the %s: %w", what, err)
		} else if there, err = again(ctx); err != nil || there == nil {
			// It was not made, or that cannot be found out now.
			return nil, errors.Join(fmt.Errorf("making the %s: %w: try again", what, rest.ErrUnknown), err)
		}
		return there, nil
	}
	change := difference(there, want)
	if len(change) == 0 {
		d.say("The %s %s (%s) is as it should be.", what, want.Name(), there.ID())
		return there, nil
	}
	step := Step{"PATCH", path + "/" + there.ID(), change, "otherwise: " + strings.Join(slices.Sorted(maps.Keys(change)), ", ")}
	if _, err := d.do(ctx, out, step); err != nil {
		return nil, fmt.Errorf("changing the %s: %w", what, err)
	}
	return there, nil
}

func (d *Deployer) remove(ctx context.Context, out *Outcome, path, what string) error {
	_, err := d.do(ctx, out, Step{"DELETE", path, nil, what})
	if err != nil && !rest.IsStatus(err, 404) {
		return fmt.Errorf("removing %s: %w", what, err)
	}
	return nil
}

// do sends a request, unless this is a dry run.
func (d *Deployer) do(ctx context.Context, out *Outcome, s Step) (rest.Object, error) {
	if d.DryRun {
		out.Steps = append(out.Steps, s)
		return rest.Object{"id": placeholder}, nil
	}
	d.say("%s %s (%s)", s.Method, s.Path, s.Why)
	var body any
	if s.Body != nil {
		body = s.Body
	}
	o, err := d.API.Send(ctx, s.Method, s.Path, body)
	if err == nil {
		out.Steps = append(out.Steps, s)
		if s.Method == "POST" && !validID().MatchString(o.ID()) {
			err = errors.New("RunPod's answer has no id")
		}
	}
	return o, err
}

func (d *Deployer) say(format string, args ...any) {
	if d.Progress != nil {
		fmt.Fprintf(d.Progress, format+"\n", args...)
	}
}

// difference are the wanted fields that are not so. Of an object, only what is
// wanted of it is compared; the environment is compared whole.
func difference(there, want rest.Object) rest.Object {
	out := rest.Object{}
	for field, value := range want {
		has := there[field]
		same := covers(has, value)
		if field == "env" {
			env, _ := value.(map[string]string)
			same = maps.Equal(there.Env(), env)
		}
		if field == "name" {
			same = true // found by it
		}
		if !same {
			out[field] = value
		}
	}
	return out
}

// covers reports whether a value from JSON has everything that is wanted.
func covers(has, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := has.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range w {
			if !covers(h[k], v) {
				return false
			}
		}
		return true
	case []string:
		list := make([]any, len(w))
		for i, s := range w {
			list[i] = s
		}
		return covers(has, list)
	case []any:
		h, ok := has.([]any)
		return ok && slices.EqualFunc(h, w, covers)
	case int:
		f, ok := has.(float64)
		return ok && f == float64(w)
	case int64:
		f, ok := has.(float64)
		return ok && f == float64(w)
	}
	return reflect.DeepEqual(has, want)
}

// Await waits until a worker of the endpoint is ready. status receives what the
// workers do, each time that it is looked at.
func (d *Deployer) Await(ctx context.Context, endpoint string, min int, status func(string)) (*rest.Summary, error) {
	every := d.Every
	if every == 0 {
		every = 3 * time.Second
	}
	if min == 0 {
		d.say("No worker runs until the first job comes (--min-workers 0).")
		return nil, nil
	}
	var last rest.Summary
	unhealthy := 0
	for {
		w, err := d.API.Workers(ctx, endpoint)
		if err != nil && ctx.Err() != nil {
			return &last, tooLate(ctx, endpoint, last)
		}
		if err != nil {
			return &last, fmt.Errorf("the workers of %s: %w", endpoint, err)
		}
		now := w.Summary
		status(describe(now))
		last = now
		if now.Idle+now.Running > 0 {
			return &last, nil
		}
		if unhealthy++; now.Unhealthy == 0 || now.Initializing > 0 {
			unhealthy = 0
		}
		if unhealthy >= 5 {
			return &last, fmt.Errorf("every worker of %s is unhealthy: see their logs in RunPod's console; the image may not start, or the sandbox may not run there", endpoint)
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return &last, tooLate(ctx, endpoint, last)
		}
	}
}

// tooLate returns why the wait has ended with ctx.
func tooLate(ctx context.Context, endpoint string, last rest.Summary) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no worker of %s is ready yet (%s): RunPod may have no such machine free; 'sallyport deploy runpod' goes on waiting, and --gpu or --data-center choose others", endpoint, describe(last))
	}
	return ctx.Err()
}

func describe(s rest.Summary) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Idle, "idle"}, {s.Running, "running"}, {s.Initializing, "starting"}, {s.Throttled, "throttled"}, {s.Unhealthy, "unhealthy"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if parts == nil {
		return "none yet"
	}
	return strings.Join(parts, ", ")
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"sallyport/internal/deploy"
	"sallyport/internal/hidden"
	"sallyport/internal/sandbox/runpod/rest"
	"sallyport/internal/settings"
)

type deployCmd struct {
	RunPod deployRunPodCmd `cmd:"" name:"runpod" help:"Make, change or remove a RunPod serverless endpoint of Sallyport's worker."`
}

type deployRunPodCmd struct {
	Name       *string  `help:"Name of the endpoint (${deploy_runpod_name})." placeholder:"NAME"`
	Image      *string  `help:"Image of the workers (${deploy_runpod_image})." placeholder:"IMAGE"`
	GPU        []string `help:"GPU pool that workers may come from; can be repeated (${deploy_runpod_gpu})." name:"gpu" placeholder:"POOL"`
	CPU        *string  `help:"Kind of CPU, for workers without a GPU, such as cpu3c." name:"cpu" placeholder:"KIND"`
	Disk       *string  `help:"Disk of each worker in GB (${deploy_runpod_disk})." placeholder:"GB"`
	MinWorkers *string  `help:"Workers that always run and always cost (${deploy_runpod_minWorkers})." placeholder:"N"`
	MaxWorkers *string  `help:"The most workers (${deploy_runpod_maxWorkers})." placeholder:"N"`
	Idle       *string  `help:"How long a worker without a job is kept (${deploy_runpod_idleTimeout})." name:"idle-timeout" placeholder:"TIME"`
	Timeout    *string  `help:"How long a job may run that does not say it (${deploy_runpod_timeout})." placeholder:"TIME"`
	FlashBoot  *string  `help:"off, flashboot or priority_flashboot (${deploy_runpod_flashboot})." name:"flashboot" placeholder:"MODE"`
	Registry   *string  `help:"RunPod's ID of the image registry's credentials." placeholder:"ID"`
	DataCenter []string `help:"Data center that workers may be in; can be repeated (${deploy_runpod_dataCenters})." placeholder:"ID"`
	Env        []string `help:"Variable of the workers' environment; can be repeated. What is secret belongs into RunPod's own secrets." sep:"none" placeholder:"NAME=VALUE"`
	Wait       *string  `help:"How long to wait for a worker (${deploy_runpod_wait})." placeholder:"TIME"`
	NoWait     bool     `help:"Do not wait for a worker."`
	DryRun     bool     `help:"Print the requests that would change something, and change nothing."`
	Destroy    bool     `help:"Remove the endpoint and its template."`
	JSON       bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*deployRunPodCmd) Help() string {
	return `Looks for a template and an endpoint of the name, makes what is missing and changes what is otherwise: done again, it changes nothing. What 'sallyport deploy' has not made is left alone. The key is read from RUNPOD_API_KEY or the setting runpod.key. Workers cost money, those of --min-workers all the time.

Example:
  sallyport deploy runpod --image docker.io/you/sallyport-worker:1 --dry-run
  sallyport deploy runpod --image docker.io/you/sallyport-worker:1 --gpu AMPERE_16
  sallyport deploy runpod --destroy`
}

// Run implements the command.
func (c *deployRunPodCmd) Run(a *app) error {
	if err := a.configure(c.flags()...); err != nil {
		return err
	}
	set := a.settings.Deploy
	key, err := readSecret(a.ctx, "runpod.key", a.settings.RunPod.Key)
	if err != nil {
		return err
	}
	api, err := rest.New(set.URL, key, "sallyport/"+readVersion().Version, &http.Client{})
	if err != nil {
		return err
	}
	d := &deploy.Deployer{API: api, DryRun: c.DryRun, Progress: escapingWriter{a.stdio.Err}}
	var out *deploy.Outcome
	if c.Destroy {
		out, err = d.Down(a.ctx, set.Name)
	} else {
		var spec *deploy.Spec
		if spec, err = c.spec(a); err != nil {
			return err
		}
		out, err = d.Up(a.ctx, spec)
		if err == nil && !c.DryRun && !c.NoWait {
			ctx, cancel := context.WithTimeout(a.ctx, set.Wait)
			defer cancel()
			out.Workers, err = d.Await(ctx, out.Endpoint, spec.Min)
		}
	}
	if perr := c.print(a, out, set.Name); perr != nil {
		return errors.Join(err, perr)
	}
	return err
}

func (c *deployRunPodCmd) flags() []settings.Flag {
	var flags []settings.Flag
	for _, f := range []struct {
		name, key string
		value     *string
	}{
		{"--name", "name", c.Name}, {"--image", "image", c.Image}, {"--cpu", "cpu", c.CPU}, {"--disk", "disk", c.Disk},
		{"--min-workers", "minWorkers", c.MinWorkers}, {"--max-workers", "maxWorkers", c.MaxWorkers},
		{"--idle-timeout", "idleTimeout", c.Idle}, {"--timeout", "timeout", c.Timeout}, {"--flashboot", "flashboot", c.FlashBoot},
		{"--registry", "registry", c.Registry}, {"--wait", "wait", c.Wait},
	} {
		flags = appendFlag(flags, f.name, "deploy.runpod."+f.key, f.value)
	}
	if len(c.GPU) > 0 {
		flags = append(flags, settings.Flag{Name: "--gpu", Key: "deploy.runpod.gpu", Values: c.GPU})
	}
	if len(c.DataCenter) > 0 {
		flags = append(flags, settings.Flag{Name: "--data-center", Key: "deploy.runpod.dataCenters", Values: c.DataCenter})
	}
	return flags
}

var variableName = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)

// spec is the endpoint that the settings describe.
func (c *deployRunPodCmd) spec(a *app) (*deploy.Spec, error) {
	set := a.settings.Deploy
	s := &deploy.Spec{
		Name: set.Name, Image: set.Image, Disk: set.Disk, Registry: set.Registry,
		GPUs: set.GPUs, GPUCount: set.GPUCount, CPU: set.CPU, VCPUs: set.VCPUs, DataCenters: set.DataCenters,
		Min: set.MinWorkers, Max: set.MaxWorkers, Idle: set.Idle, Timeout: set.Timeout, QueueDelay: set.QueueDelay,
		FlashBoot: strings.ToUpper(set.FlashBoot),
		Env: map[string]string{
			// What the first RunPod server called it; the worker reads it.
			"MAX_EXECUTION_TIME": fmt.Sprintf("%g", a.settings.RunPod.MaxExecutionTime.Seconds()),
		},
	}
	// The kind that was asked for last counts: a flag before a file.
	if s.CPU != "" && len(s.GPUs) > 0 {
		layers := []settings.Layer{settings.LayerDefault, settings.LayerFile, settings.LayerEnvironment, settings.LayerFlag}
		switch gpu, cpu := slices.Index(layers, a.settings.Origin("deploy.runpod.gpu").Layer), slices.Index(layers, a.settings.Origin("deploy.runpod.cpu").Layer); {
		case gpu > cpu:
			s.CPU = ""
		case cpu > gpu:
			s.GPUs = nil
		}
	}
	switch {
	case s.Image == "":
		return nil, errors.New("no image: build deploy/runpod/Dockerfile, push it to a registry and name it with --image (docs/engines/runpod.md)")
	case s.CPU != "" && len(s.GPUs) > 0:
		return nil, errors.New("both a GPU and a kind of CPU are asked for: take one away")
	case s.CPU == "" && len(s.GPUs) == 0:
		s.GPUs = []string{"AMPERE_16", "AMPERE_24", "ADA_24"} // small ones
	}
	if s.Max < s.Min {
		return nil, fmt.Errorf("at most %d workers, and %d at least: raise --max-workers", s.Max, s.Min)
	}
	for _, entry := range c.Env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !variableName.MatchString(name) {
			return nil, errors.New("--env: write NAME=VALUE")
		}
		if name == deploy.MarkVariable || strings.HasPrefix(name, "RUNPOD_") {
			return nil, fmt.Errorf("--env %s: that variable is set already", name)
		}
		s.Env[name] = value
	}
	return s, nil
}

// escapingWriter is for what a service says, on a terminal.
type escapingWriter struct{ to io.Writer }

func (e escapingWriter) Write(p []byte) (int, error) {
	text, newline := strings.CutSuffix(string(p), "\n")
	text = hidden.Escape(text)
	if newline {
		text += "\n"
	}
	_, err := io.WriteString(e.to, text)
	return len(p), err
}

// secretName is that of a variable whose value is not shown.
var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|credential`)

// withoutSecrets is a step without the values of the environment that may be secret.
func withoutSecrets(s deploy.Step) deploy.Step {
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
		if secretName.MatchString(k) && k != deploy.MarkVariable {
			v = "***"
		}
		masked[k] = v
	}
	body["env"] = masked
	s.Body = body
	return s
}

// print tells what was done, or would be.
func (c *deployRunPodCmd) print(a *app, out *deploy.Outcome, name string) error {
	if out == nil {
		return nil
	}
	out.Steps = slices.Clone(out.Steps)
	for i, s := range out.Steps {
		out.Steps[i] = withoutSecrets(s)
	}
	if c.JSON {
		enc := json.NewEncoder(a.stdio.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(out)
	}
	w := escapingWriter{a.stdio.Out}
	if c.DryRun {
		if len(out.Steps) == 0 {
			fmt.Fprintln(w, "Nothing would be changed.")
		}
		for _, s := range out.Steps {
			fmt.Fprintf(a.stdio.Out, "%s %s\n", s.Method, hidden.Escape(s.Path))
			if s.Body != nil {
				enc := json.NewEncoder(a.stdio.Out)
				enc.SetIndent("", "  ")
				if err := enc.Encode(s.Body); err != nil {
					return err
				}
			}
		}
		return nil
	}
	switch {
	case c.Destroy && len(out.Steps) == 0:
		fmt.Fprintf(w, "There is no endpoint %s, and no template.\n", name)
	case c.Destroy:
		fmt.Fprintf(w, "Removed %s.\n", name)
	case out.Endpoint != "":
		fmt.Fprintf(w, "Endpoint %s: %s\n", name, out.Endpoint)
		fmt.Fprintf(w, "Use it: export RUNPOD_ENDPOINT_ID=%s; sallyport --set backends=runpod run --backend runpod FILE.py\n", out.Endpoint)
	}
	return nil
}

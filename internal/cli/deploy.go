package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/batch/deploy"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
)

type deployCmd struct {
	RunPod deployRunPodCmd `cmd:"" name:"runpod" help:"Create, change or remove a RunPod serverless endpoint that runs Sallyport's worker."`
}

type deployRunPodCmd struct {
	Name       *string  `help:"Name of the endpoint (${deploy_runpod_name})." placeholder:"NAME"`
	Image      *string  `help:"Image of the workers (${deploy_runpod_image})." placeholder:"IMAGE"`
	GPU        []string `help:"GPU pool that workers may come from; can be repeated (${deploy_runpod_gpu})." name:"gpu" placeholder:"POOL"`
	CPU        *string  `help:"Kind of CPU, for workers without a GPU, such as cpu3c." name:"cpu" placeholder:"KIND"`
	Disk       *string  `help:"Disk of each worker in GB (${deploy_runpod_disk})." placeholder:"GB"`
	MinWorkers *string  `help:"Workers that always run and always cost (${deploy_runpod_minWorkers})." placeholder:"N"`
	MaxWorkers *string  `help:"Maximum number of workers (${deploy_runpod_maxWorkers})." placeholder:"N"`
	Idle       *string  `help:"How long a worker without a job is kept (${deploy_runpod_idleTimeout})." name:"idle-timeout" placeholder:"TIME"`
	Timeout    *string  `help:"Time limit of a job that sets none (${deploy_runpod_timeout})." placeholder:"TIME"`
	FlashBoot  *string  `help:"off, flashboot or priority_flashboot (${deploy_runpod_flashboot})." name:"flashboot" placeholder:"MODE" complete:"setting:deploy.runpod.flashboot"`
	Registry   *string  `help:"RunPod's ID of the image registry's credentials." placeholder:"ID"`
	DataCenter []string `help:"Data center that workers may be in; can be repeated (${deploy_runpod_dataCenters})." placeholder:"ID"`
	Env        []string `help:"Variable of the workers' environment; can be repeated. Put secrets into RunPod's own secrets instead." sep:"none" placeholder:"NAME=VALUE"`
	Wait       *string  `help:"How long to wait for a worker (${deploy_runpod_wait})." placeholder:"TIME"`
	NoWait     bool     `help:"Do not wait for a worker."`
	DryRun     bool     `help:"Print the requests that would make changes, without making them."`
	Destroy    bool     `help:"Remove the endpoint and its template."`
	JSON       bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*deployRunPodCmd) Help() string {
	return `Looks for a template and an endpoint with this name, creates what is missing and changes what differs; running it again changes nothing. It leaves alone what 'sallyport deploy' has not created. The key is read from RUNPOD_API_KEY or the setting runpod.key. Workers cost money, those of --min-workers all the time.

Example:
  sallyport deploy runpod --image docker.io/you/sallyport-worker:1 --dry-run
  sallyport deploy runpod --image docker.io/you/sallyport-worker:1 --gpu AMPERE_16
  sallyport deploy runpod --destroy`
}

// Run implements the command.
func (c *deployRunPodCmd) Run(u *ui) error {
	if err := u.configure(c.flags()...); err != nil {
		return err
	}
	set := u.Settings.Deploy
	d, err := u.Deployer(u.ctx)
	if err != nil {
		return err
	}
	d.DryRun, d.Progress = c.DryRun, escapingWriter{u.stdio.Err}
	var out *deploy.Outcome
	if c.Destroy {
		out, err = d.Down(u.ctx, set.Name)
	} else {
		var spec *deploy.Spec
		if spec, err = u.DeploySpec(c.Env); err != nil {
			return err
		}
		out, err = d.Up(u.ctx, spec)
		if err == nil && !c.DryRun && !c.NoWait {
			ctx, cancel := context.WithTimeout(u.ctx, set.Wait)
			defer cancel()
			meter := u.meter("workers of " + set.Name)
			defer meter.end()
			out.Workers, err = d.Await(ctx, out.Endpoint, spec.Min, func(status string) { meter.tell(status, 0, 0) })
			meter.end()
		}
	}
	if perr := c.print(u, out, set.Name); perr != nil {
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

// escapingWriter escapes a service's messages for a terminal.
type escapingWriter struct{ to io.Writer }

func (e escapingWriter) Write(p []byte) (int, error) {
	text, newline := strings.CutSuffix(string(p), "\n")
	text = invisible.Escape(text)
	if newline {
		text += "\n"
	}
	_, err := io.WriteString(e.to, text)
	return len(p), err
}

// print reports what was done, or would be.
func (c *deployRunPodCmd) print(u *ui, out *deploy.Outcome, name string) error {
	if out == nil {
		return nil
	}
	out.Steps = slices.Clone(out.Steps)
	for i, s := range out.Steps {
		out.Steps[i] = s.WithoutSecrets()
	}
	if c.JSON {
		enc := json.NewEncoder(u.stdio.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(out)
	}
	w := escapingWriter{u.stdio.Out}
	if c.DryRun {
		if len(out.Steps) == 0 {
			fmt.Fprintln(w, "Nothing would change.")
		}
		for _, s := range out.Steps {
			fmt.Fprintf(u.stdio.Out, "%s %s\n", s.Method, invisible.Escape(s.Path))
			if s.Body != nil {
				enc := json.NewEncoder(u.stdio.Out)
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
		fmt.Fprintf(w, "Use it: export RUNPOD_ENDPOINT_ID=%s; sallyport --set batch.services=runpod run --batch runpod FILE.py\n", out.Endpoint)
	}
	return nil
}

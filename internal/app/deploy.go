package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/batch/deploy"
	"github.com/sallyport/sallyport/internal/batch/runpod/rest"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/settings"
)

// Deployer constructs what deploys workers at RunPod. It reads the key.
func (a *App) Deployer(ctx context.Context) (*deploy.Deployer, error) {
	key, err := a.RunPodKey(ctx)
	if err != nil {
		return nil, err
	}
	api, err := rest.New(a.Settings.Deploy.URL, key, "sallyport/"+a.Version, &http.Client{})
	if err != nil {
		return nil, err
	}
	return &deploy.Deployer{API: api}, nil
}

var variableName = lazyregexp.New(`\A[A-Za-z_][A-Za-z0-9_]*\z`)

// DeploySpec returns the endpoint that the settings describe. Env is added to
// the environment of its workers: each entry is NAME=VALUE.
func (a *App) DeploySpec(env []string) (*deploy.Spec, error) {
	set := a.Settings.Deploy
	s := &deploy.Spec{
		Name: set.Name, Image: set.Image, Disk: set.Disk, Registry: set.Registry,
		GPUs: set.GPUs, GPUCount: set.GPUCount, CPU: set.CPU, VCPUs: set.VCPUs, DataCenters: set.DataCenters,
		Min: set.MinWorkers, Max: set.MaxWorkers, Idle: set.Idle, Timeout: set.Timeout, QueueDelay: set.QueueDelay,
		FlashBoot: strings.ToUpper(set.FlashBoot),
		Env: map[string]string{
			// The worker reads this name, which the first RunPod server used.
			"MAX_EXECUTION_TIME": fmt.Sprintf("%g", a.Settings.RunPod.MaxExecutionTime.Seconds()),
		},
	}
	// The last choice counts: a flag takes precedence over a file.
	if s.CPU != "" && len(s.GPUs) > 0 {
		layers := []settings.Layer{settings.LayerDefault, settings.LayerFile, settings.LayerEnvironment, settings.LayerFlag}
		switch gpu, cpu := slices.Index(layers, a.Settings.Origin("deploy.runpod.gpu").Layer), slices.Index(layers, a.Settings.Origin("deploy.runpod.cpu").Layer); {
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
		return nil, errors.New("both a GPU and a kind of CPU are requested: remove one of them")
	case s.CPU == "" && len(s.GPUs) == 0:
		s.GPUs = []string{"AMPERE_16", "AMPERE_24", "ADA_24"} // small ones
	}
	if s.Max < s.Min {
		return nil, fmt.Errorf("the maximum of %d workers is less than the minimum of %d: raise --max-workers", s.Max, s.Min)
	}
	for _, entry := range env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !variableName().MatchString(name) {
			return nil, errors.New("--env: write NAME=VALUE")
		}
		if name == deploy.MarkVariable || strings.HasPrefix(name, "RUNPOD_") {
			return nil, fmt.Errorf("--env %s: that variable is already set", name)
		}
		s.Env[name] = value
	}
	return s, nil
}

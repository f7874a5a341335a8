package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

func TestDeploySpec(t *testing.T) {
	flag := func(key string, values ...string) settings.Flag {
		f := settings.Flag{Name: "--set", Key: "deploy.runpod." + key, Values: values}
		if len(values) == 1 && key != "gpu" {
			f.Value, f.Values = values[0], nil
		}
		return f
	}
	image := flag("image", "you/worker:1")
	tests := []struct {
		name  string
		flags []settings.Flag
		env   []string
		gpus  []string
		cpu   string
		want  string // part of the error
	}{
		{"small GPUs", []settings.Flag{image}, []string{"A=b=c"}, []string{"AMPERE_16", "AMPERE_24", "ADA_24"}, "", ""},
		{"a CPU", []settings.Flag{image, flag("cpu", "cpu3c")}, nil, nil, "cpu3c", ""},
		{"both", []settings.Flag{image, flag("cpu", "cpu3c"), flag("gpu", "ADA_24")}, nil, nil, "", "both a GPU and a kind of CPU"},
		{"no image", nil, nil, nil, "", "no image"},
		{"fewer at most than at least", []settings.Flag{image, flag("minWorkers", "3"), flag("maxWorkers", "2")}, nil, nil, "", "the maximum of 2 workers"},
		{"no variable", []settings.Flag{image}, []string{"A"}, nil, "", "NAME=VALUE"},
		{"a name that is none", []settings.Flag{image}, []string{"1A=b"}, nil, "", "NAME=VALUE"},
		{"a variable of RunPod's", []settings.Flag{image}, []string{"RUNPOD_X=b"}, nil, "", "already set"},
		{"our mark", []settings.Flag{image}, []string{"SALLYPORT_DEPLOY_RUNPOD_NAME=b"}, nil, "", "already set"},
	}
	for _, tt := range tests {
		s, err := settings.Load(settings.Sources{Flags: tt.flags})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got, err := (&App{Settings: s}).DeploySpec(tt.env)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil || !slices.Equal(got.GPUs, tt.gpus) || got.CPU != tt.cpu || got.Image != "you/worker:1" || len(tt.env) > 0 && got.Env["A"] != "b=c" || got.Env["MAX_EXECUTION_TIME"] == "" {
			t.Errorf("%s: got %+v (%v), want GPUs %q and CPU %q", tt.name, got, err, tt.gpus, tt.cpu)
		}
	}
}

package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sallyport/internal/runpodtools"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/runpod"
	"sallyport/internal/settings"
	"sallyport/internal/state"
	"sallyport/internal/upstream/secret"
)

// runpod constructs the engine of that name. The key is read when it is first
// needed.
func (a *app) runpod() (sandbox.Backend, error) {
	return a.runpodEngine()
}

func (a *app) runpodEngine() (*runpod.Backend, error) {
	s := a.settings.RunPod
	return runpod.New(runpod.Options{
		Key:           func(ctx context.Context) (string, error) { return readSecret(ctx, "runpod.key", s.Key) },
		Endpoint:      s.Endpoint,
		URL:           s.URL,
		AcceptUnknown: s.AcceptUnknownWorker,
		State:         state.At(a.settings.StateDir).Sub("runpod"),
		Proxy:         a.env.proxy(),
		Log:           a.log,
	})
}

// readSecret is the secret of a setting: itself, or what it points to.
func readSecret(ctx context.Context, setting, value string) (string, error) {
	kind, name, _ := strings.Cut(value, ":")
	if !(kind == "file" && filepath.IsAbs(name)) && kind != "keyring" {
		return value, nil
	}
	got, err := secret.Reader{}.Read(ctx, kind, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	return strings.TrimSpace(got), nil
}

// runpodTools are the tools of the first RunPod server, where they are on.
func (a *app) runpodTools(sys *system) *runpodtools.Tools {
	pulse, ok := sandbox.As[runpodtools.Pulse](sys.batch[settings.EngineRunPod])
	if !a.settings.Tools.RunPod || !ok {
		return nil
	}
	return &runpodtools.Tools{Executor: sys.broker, Pulse: pulse, Timeout: a.settings.RunPod.MaxExecutionTime}
}

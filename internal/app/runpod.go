package app

import (
	"context"
	"fmt"
	"github.com/sallyport/sallyport/internal/store"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod"
	"github.com/sallyport/sallyport/internal/runpodtools"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/upstream/secret"
)

// runpod constructs the batch service on RunPod. The key is read when it is first
// needed.
func (a *App) runpod() (batch.Service, error) {
	s := a.Settings.RunPod
	return runpod.New(runpod.Options{
		Key:           a.RunPodKey,
		Endpoint:      s.Endpoint,
		URL:           s.URL,
		AcceptUnknown: s.AcceptUnknownWorker,
		State:         a.state(store.RunPod),
		Proxy:         a.Env.proxy(),
		Log:           a.Log,
	})
}

// RunPodKey returns the key of the settings, which may name a file or an entry of
// the keyring that holds it.
func (a *App) RunPodKey(ctx context.Context) (string, error) {
	return a.readSecret(ctx, "runpod.key", a.Settings.RunPod.Key)
}

// readSecret returns the secret of a setting: the value, or what it points to.
func (a *App) readSecret(ctx context.Context, setting, value string) (string, error) {
	kind, name, _ := strings.Cut(value, ":")
	if !(kind == "file" && filepath.IsAbs(name)) && kind != "keyring" {
		a.secrets.Add(value)
		return value, nil
	}
	got, err := secret.Reader{Bus: a.Env.userBus()}.Read(ctx, kind, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	a.secrets.Add(got)
	return strings.TrimSpace(got), nil
}

// RunPodTools returns the tools of the first RunPod server, where the settings
// ask for them.
func (c *Client) RunPodTools() *runpodtools.Tools {
	set := c.app.Settings
	pulse, ok := sandbox.As[runpodtools.Pulse](c.core.Batch[settings.ServiceRunPod])
	if !set.Tools.RunPod || !ok {
		return nil
	}
	return &runpodtools.Tools{Executor: c.Broker, Pulse: pulse, Timeout: set.RunPod.MaxExecutionTime, Unfolded: !set.Output.Fold}
}

package app

import (
	"slices"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// additions returns what finds packages for running sandboxes; nil where there is no
// state directory.
func (a *App) additions() bridge.Packages {
	set := a.Settings
	if set.StateDir == "" {
		return nil
	}
	most := set.Limits.Packages
	for _, e := range set.Environments {
		most = max(most, e.Limits.Packages)
	}
	return environment.NewAdditions(environment.AdditionsConfig{
		State: a.state(store.Packages), Scratch: a.ImageStore().Scratch, Pip: a.Pip, MaxBytes: most,
		Allowed: slices.DeleteFunc(slices.Clone(set.Policy.Packages), settings.IsPackagesWord),
	})
}

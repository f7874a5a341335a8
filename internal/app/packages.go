package app

import (
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// packagesPolicy is policy.packages, as the configuration file has it now: a user who
// allows a package need not start anything again.
type packagesPolicy struct {
	mu   sync.Mutex
	now  *settings.Settings
	read time.Time // when the file that was read last had been changed
}

// words returns the setting. A file that cannot be read changes nothing.
func (p *packagesPolicy) words() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := time.Time{}
	if info, err := os.Stat(p.now.File().Path); err == nil {
		changed = info.ModTime()
	}
	if !changed.Equal(p.read) {
		if again, err := p.now.Reload(); err == nil {
			p.now, p.read = again, changed
		}
	}
	return p.now.Policy.Packages
}

// allowed is for authz.Config.
func (p *packagesPolicy) allowed() []string {
	return slices.DeleteFunc(slices.Clone(p.words()), func(word string) bool { return word == settings.NoPackages })
}

// additions returns what finds packages for running sandboxes; nil where there is no
// state directory.
func (a *App) additions(policy *packagesPolicy) bridge.Packages {
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
		Allowed: func() []string { return slices.DeleteFunc(slices.Clone(policy.words()), settings.IsPackagesWord) },
	})
}

package app

import (
	"os"
	"slices"
	"strings"
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

// words returns the setting. A file that cannot be read changes nothing: while it is
// wrong, the rules for calls let no code install anything.
func (p *packagesPolicy) words() []string { return p.fresh().Policy.Packages }

// by is for authz.Config.
func (p *packagesPolicy) by() string { return narrowedBy(p.fresh().Entry(settings.PackagesKey)) }

func (p *packagesPolicy) fresh() *settings.Settings {
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
	return p.now
}

// allowed is for authz.Config.
func (p *packagesPolicy) allowed() []string {
	return slices.DeleteFunc(slices.Clone(p.words()), func(word string) bool { return word == settings.NoPackages })
}

// askedFor returns what variables and flags say of a setting, whether it counts or not.
func askedFor(e settings.Entry) string {
	var said []string
	for _, i := range e.Ignored {
		said = append(said, i.Value)
	}
	if by := narrowedBy(e); by != "" {
		said = append(said, strings.Join(e.Value.([]string), ","))
	}
	return strings.Join(said, "; ")
}

// narrowedBy names the variable or the flag that a setting is from, if it is.
func narrowedBy(e settings.Entry) string {
	if e.Origin.Overrides() {
		return e.Origin.Name
	}
	return ""
}

// additions returns what finds packages for running sandboxes; nil where there is no
// state directory.
func (a *App) additions(policy *packagesPolicy) bridge.Packages {
	set := a.Settings
	if set.StateDir == "" {
		return nil
	}
	return environment.NewAdditions(environment.AdditionsConfig{
		State: a.state(store.Packages), Scratch: a.ImageStore().Scratch, Pip: a.Pip, MaxBytes: a.mostPackages(),
		Allowed: func() []string { return slices.DeleteFunc(slices.Clone(policy.words()), settings.IsPackagesWord) },
	})
}

// mostPackages is the largest of the limits on packages.
func (a *App) mostPackages() int64 {
	most := a.Settings.Limits.Packages
	for _, e := range a.Settings.Environments {
		most = max(most, e.Limits.Packages)
	}
	return most
}

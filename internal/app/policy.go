package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// limitsAsked returns only the limits that the user has set. A batch service
// decides the others: what is right here may be wrong there.
func (a *App) limitsAsked() sandbox.Limits {
	l := limitsOf(a.Settings.Limits)
	is := func(key string) bool { return a.Settings.Origin("limits."+key).Layer != settings.LayerDefault }
	for key, limit := range map[string]*int64{
		"memory": &l.MemoryBytes, "workspace": &l.WorkspaceBytes, "tmp": &l.TmpBytes, "packages": &l.PackagesBytes, "output": &l.OutputBytes,
	} {
		if !is(key) {
			*limit = 0
		}
	}
	for key, limit := range map[string]*int{"processes": &l.Processes, "openFiles": &l.OpenFiles} {
		if !is(key) {
			*limit = 0
		}
	}
	if !is("cpus") {
		l.CPUs = 0
	}
	return l
}

// limitsOf returns the limits in the form of the sandbox contract.
func limitsOf(l settings.Limits) sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes:    l.Memory,
		Processes:      l.Processes,
		CPUs:           l.CPUs,
		WorkspaceBytes: l.Workspace,
		TmpBytes:       l.Tmp,
		PackagesBytes:  l.Packages,
		OpenFiles:      l.OpenFiles,
		OutputBytes:    l.Output,
	}
}

// Rules reads the user's rules for calls.
func (a *App) Rules() *toolpolicy.Rules { return a.RulesWith(nil) }

// RulesWith is Rules with another content of the configuration file, unless that is
// nil.
func (a *App) RulesWith(content []byte) *toolpolicy.Rules {
	return a.rules(a.Settings.File(), profileFloor(a.Settings.Entry(settings.ProfileKey)), a.state(store.Rules), content)
}

// profileFloor returns the strictest profile that a variable or a flag has asked
// for, also where the file's is stricter: the file may change. It is empty if none
// has.
func profileFloor(e settings.Entry) string {
	floor := -1
	if e.Origin.Overrides() {
		floor = slices.Index(settings.Profiles, e.Value.(string))
	}
	for _, i := range e.Ignored {
		floor = max(floor, slices.Index(settings.Profiles, i.Value))
	}
	if floor < 0 {
		return ""
	}
	return settings.Profiles[floor]
}

// RulesOf reads the rules for calls of a configuration file with which no settings
// could be loaded.
func (a *App) RulesOf(file settings.File) *toolpolicy.Rules {
	return a.rules(file, "", store.At(""), nil)
}

func (a *App) rules(file settings.File, floor string, state store.Dir, instead []byte) *toolpolicy.Rules {
	return toolpolicy.Open(toolpolicy.Config{
		Path: file.Path, Named: file.Named, Home: a.Env.Sources(a.Dir, "").Home, Profile: floor, Instead: instead,
		Had: func() toolpolicy.Had { return hadRules(state, file.Path) },
	})
}

// ruled is the record of a configuration file that had rules for calls.
type ruled struct {
	Path string         `json:"path"`
	Had  toolpolicy.Had `json:"had"`
}

func ruledName(path string) string { return store.FileName(path, ".json") }

// hadRules returns what a configuration file and its directory had when a program
// last read them. A record that cannot be understood counts as one of everything.
func hadRules(state store.Dir, path string) toolpolicy.Had {
	data, err := state.Read(ruledName(path), 64<<10)
	if err != nil {
		return toolpolicy.Had{} // there is none, or the state directory cannot be used at all
	}
	var r ruled
	if json.Unmarshal(data, &r) != nil || r.Path != path {
		return toolpolicy.Had{Config: true, Directory: true}
	}
	return r.Had
}

// keepHadRules has it kept what the configuration file has, for processes that
// begin later.
func (a *App) keepHadRules(rules *toolpolicy.Rules) {
	state, path := a.state(store.Rules), a.Settings.File().Path
	if !state.Placed() || path == "" {
		return
	}
	rules.Keep(func(had toolpolicy.Had) {
		var data []byte
		var err error
		if had == (toolpolicy.Had{}) {
			if err = state.Remove(ruledName(path)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else if data, err = json.Marshal(ruled{path, had}); err == nil {
			err = state.Write(ruledName(path), append(data, '\n'))
		}
		if err != nil {
			a.Log.Warn("that there are rules for calls cannot be recorded: a program that begins later will not notice if they vanish", "error", err)
		}
	})
}

// gateOf returns the gate that the settings describe. with has what is not in the
// settings.
func gateOf(set *settings.Settings, with authz.Config) (*authz.Gate, error) {
	policy, err := policyOf(set.Policy)
	if err != nil {
		return nil, err
	}
	with.Policy, with.Requests, with.RefuseChanged = policy, set.Policy.Requests, set.Servers.ChangedTools == settings.ChangedRefuse
	with.May = func(server string) inquiry.Takes { return mayAsk(set, server) }
	return authz.New(with), nil
}

// mayAsk returns what a server may ask. The settings have no word for roots, which
// tell little: servers that may ask anything may ask for them.
func mayAsk(set *settings.Settings, name string) inquiry.Takes {
	if set.Approvals.Timeout == 0 { // no one is asked anything
		return inquiry.Takes{}
	}
	words := set.Servers.MayOf(name)
	elicit := slices.Contains(words, settings.MayElicit)
	return inquiry.Takes{Forms: elicit, URLs: elicit, Sampling: slices.Contains(words, settings.MaySample), Roots: len(words) > 0}
}

// policyOf returns the policy that the settings describe. A word that the
// contract does not have is an error, so that no policy becomes a weaker one.
func policyOf(p settings.Policy) (*authz.Policy, error) {
	least, err := byName(isolations(), p.MinIsolation)
	if err != nil {
		return nil, fmt.Errorf("policy.minIsolation: %w", err)
	}
	out := &authz.Policy{MinIsolation: least, Servers: p.Servers, Require: map[sandbox.Resource]sandbox.Enforcement{}}
	for resource, word := range map[sandbox.Resource]string{
		sandbox.Memory:    p.Require.Memory,
		sandbox.Processes: p.Require.Processes,
		sandbox.Disk:      p.Require.Disk,
		sandbox.OpenFiles: p.Require.OpenFiles,
		sandbox.CPU:       p.Require.CPU,
	} {
		out.Require[resource], err = byName(enforcements(), word)
		if err != nil {
			return nil, fmt.Errorf("policy.require: %s: %w", resource, err)
		}
	}
	out.Remote, err = remoteOf(p)
	return out, err
}

// remoteOf returns what the settings demand of batch services.
func remoteOf(p settings.Policy) (out authz.Remote, err error) {
	out.MinIsolation, err = byName(isolations(), p.Remote.MinIsolation)
	if err != nil {
		return out, fmt.Errorf("policy.batchServices.minIsolation: %w", err)
	}
	out.Require = map[sandbox.Resource]sandbox.Enforcement{}
	for resource, word := range map[sandbox.Resource]string{sandbox.Memory: p.Remote.Memory, sandbox.Processes: p.Remote.Processes} {
		out.Require[resource], err = byName(enforcements(), word)
		if err != nil {
			return out, fmt.Errorf("policy.batchServices: %s: %w", resource, err)
		}
	}
	return out, nil
}

func isolations() []sandbox.Isolation {
	return []sandbox.Isolation{
		sandbox.NoIsolation, sandbox.PlatformIsolation, sandbox.ContainerIsolation, sandbox.WasmIsolation, sandbox.KernelIsolation,
	}
}

func enforcements() []sandbox.Enforcement {
	return []sandbox.Enforcement{sandbox.Absent, sandbox.Soft, sandbox.Hard}
}

// byName returns the value whose String method returns name.
func byName[T fmt.Stringer](values []T, name string) (T, error) {
	i := slices.IndexFunc(values, func(v T) bool { return v.String() == name })
	if i < 0 {
		var zero T
		return zero, fmt.Errorf("unknown value %q", name)
	}
	return values[i], nil
}

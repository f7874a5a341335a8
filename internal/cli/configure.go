package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
	"sallyport/internal/settings"
)

// configure loads the settings, with those of the command line: the flags
// that every command has, then the command's own.
func (a *app) configure(own ...settings.Flag) error {
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // relative paths stay relative
	}
	var flags []settings.Flag
	for _, text := range a.grammar.Set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return &settings.Error{Problems: []settings.Problem{{Name: "--set " + text, Message: "write --set KEY=VALUE"}}}
		}
		flags = append(flags, settings.Flag{Name: "--set " + key, Key: key, Value: value})
	}
	flags = appendFlag(flags, "--log-level", "log.level", a.grammar.LogLevel)
	flags = appendFlag(flags, "--log-format", "log.format", a.grammar.LogFormat)
	home := a.env.home()
	if fi, err := os.Stat(home); err != nil || !fi.IsDir() {
		home = "" // nothing is read there, and nothing is kept
	}
	a.settings, err = settings.Load(settings.Sources{
		Environ:    a.env,
		Home:       home,
		Dir:        dir,
		ConfigFile: a.grammar.ConfigFile,
		Flags:      append(flags, own...),
	})
	if err != nil {
		return err
	}
	a.log = newLogger(a.stdio.Err, a.settings.Log, a.daemon)
	return nil
}

// appendFlag adds a flag that was given.
func appendFlag(flags []settings.Flag, name, key string, value *string) []settings.Flag {
	if value == nil {
		return flags
	}
	return append(flags, settings.Flag{Name: name, Key: key, Value: *value})
}

func (f *composeFlags) flags() []settings.Flag {
	var out []settings.Flag
	if len(f.ServersConfig) > 0 {
		out = append(out, settings.Flag{Name: "--servers-config", Key: "servers.config", Values: f.ServersConfig})
	}
	if f.Backend != nil && !isBatch(*f.Backend) {
		out = appendFlag(out, "--backend", "engine", f.Backend)
	}
	out = appendFlag(out, "--python", "python", f.Python)
	return appendFlag(out, "--debug-gvisor", "debug.gvisor", f.DebugGvisor)
}

// defaultsForHelp are the default values that the help names.
func defaultsForHelp() map[string]string {
	vars := map[string]string{}
	s, err := settings.Load(settings.Sources{})
	if err != nil {
		return vars // cannot happen: nothing was read
	}
	for _, e := range s.Entries() {
		name := strings.ReplaceAll(e.Key, ".", "_")
		vars[name] = "setting " + e.Key
		if value := fmt.Sprint(e.Value); value != "" && value != "[]" {
			vars[name] += ", by default " + value
		}
	}
	return vars
}

// limitsAsked are those limits that the user has set. The others are left to
// the place that runs the code: what is right here may be wrong there.
func (a *app) limitsAsked() sandbox.Limits {
	l := limitsOf(a.settings.Limits)
	is := func(key string) bool { return a.settings.Origin("limits."+key).Layer != settings.LayerDefault }
	for key, limit := range map[string]*int64{
		"memory": &l.MemoryBytes, "workspace": &l.WorkspaceBytes, "tmp": &l.TmpBytes, "output": &l.OutputBytes,
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

// limitsOf are the limits in the contract's form.
func limitsOf(l settings.Limits) sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes:    l.Memory,
		Processes:      l.Processes,
		CPUs:           l.CPUs,
		WorkspaceBytes: l.Workspace,
		TmpBytes:       l.Tmp,
		OpenFiles:      l.OpenFiles,
		OutputBytes:    l.Output,
	}
}

// policyOf is the policy that the settings describe. A word that is none of
// the contract's is an error, so that nothing is ever taken for less.
func policyOf(p settings.Policy) (*policy.Policy, error) {
	least, err := byName(isolations(), p.MinIsolation)
	if err != nil {
		return nil, fmt.Errorf("policy.minIsolation: %w", err)
	}
	out := &policy.Policy{MinIsolation: least, Servers: p.Servers, Require: map[sandbox.Resource]sandbox.Enforcement{}}
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

// remoteOf is what the settings demand of places that code is sent to.
func remoteOf(p settings.Policy) (out policy.Remote, err error) {
	out.MinIsolation, err = byName(isolations(), p.Remote.MinIsolation)
	if err != nil {
		return out, fmt.Errorf("policy.elsewhere.minIsolation: %w", err)
	}
	out.Require = map[sandbox.Resource]sandbox.Enforcement{}
	for resource, word := range map[sandbox.Resource]string{sandbox.Memory: p.Remote.Memory, sandbox.Processes: p.Remote.Processes} {
		out.Require[resource], err = byName(enforcements(), word)
		if err != nil {
			return out, fmt.Errorf("policy.elsewhere: %s: %w", resource, err)
		}
	}
	return out, nil
}

func isolations() []sandbox.Isolation {
	return []sandbox.Isolation{
		sandbox.NoIsolation, sandbox.PlatformIsolation, sandbox.ContainerIsolation, sandbox.KernelIsolation,
	}
}

func enforcements() []sandbox.Enforcement {
	return []sandbox.Enforcement{sandbox.Absent, sandbox.Soft, sandbox.Hard}
}

// byName is the value that prints itself so.
func byName[T fmt.Stringer](values []T, name string) (T, error) {
	i := slices.IndexFunc(values, func(v T) bool { return v.String() == name })
	if i < 0 {
		var zero T
		return zero, fmt.Errorf("there is no %q", name)
	}
	return values[i], nil
}

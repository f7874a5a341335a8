package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
)

// configure is loadSettings for commands that use the state directory. It fails
// if a newer program wrote that directory.
func (u *ui) configure(own ...settings.Flag) error {
	if err := u.loadSettings(own...); err != nil {
		return err
	}
	return u.State().CheckVersion()
}

// flags returns the settings that the global flags give.
func (u *ui) flags() ([]settings.Flag, error) {
	var flags []settings.Flag
	for _, text := range u.grammar.Set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, &settings.Error{Problems: []settings.Problem{{Name: "--set " + text, Message: "write --set KEY=VALUE"}}}
		}
		flags = append(flags, settings.Flag{Name: "--set " + key, Key: key, Value: value})
	}
	flags = appendFlag(flags, "--log-level", "log.level", u.grammar.LogLevel)
	return appendFlag(flags, "--log-format", "log.format", u.grammar.LogFormat), nil
}

// loadSettings loads the settings, including those of the command line: global
// flags, then the command's own.
func (u *ui) loadSettings(own ...settings.Flag) error {
	flags, err := u.flags()
	if err != nil {
		return err
	}
	set, err := u.Env.LoadSettings(u.Dir, u.grammar.ConfigFile, append(flags, own...))
	if err != nil {
		return err
	}
	u.Settings, u.Log = set, newLogger(asideWriter{u}, set.Log, u.daemon, terminal.Colours(u.stdio.Err, u.variable))
	for _, w := range set.Warnings() {
		if !slices.Contains(u.warned, w) { // some commands load twice
			u.warned = append(u.warned, w)
			u.Log.Warn(w)
		}
	}
	return nil
}

// appendFlag appends a flag if it was given.
func appendFlag(flags []settings.Flag, name, key string, value *string) []settings.Flag {
	if value == nil {
		return flags
	}
	return append(flags, settings.Flag{Name: name, Key: key, Value: *value})
}

// mentioned are the settings that the help text mentions: ${log_level} is log.level. The
// parser looks at all of them for each flag, so others would slow every start of the
// program. It fails where one is missing.
var mentioned = []string{
	"engine", "python", "log.level", "log.format", "servers.startTimeout", "worker.engine", "worker.concurrency",
	"deploy.runpod.name", "deploy.runpod.image", "deploy.runpod.gpu", "deploy.runpod.dataCenters", "deploy.runpod.disk",
	"deploy.runpod.minWorkers", "deploy.runpod.maxWorkers", "deploy.runpod.idleTimeout", "deploy.runpod.flashboot",
	"deploy.runpod.timeout", "deploy.runpod.wait",
}

// defaultsForHelp returns the default values that the help text mentions.
func defaultsForHelp() map[string]string {
	vars := map[string]string{}
	s, err := settings.Load(settings.Sources{})
	if err != nil {
		return vars // cannot happen: nothing was read
	}
	for _, e := range s.Entries() {
		if !slices.Contains(mentioned, e.Key) {
			continue
		}
		name := strings.ReplaceAll(e.Key, ".", "_")
		vars[name] = "setting " + e.Key
		if value := fmt.Sprint(e.Value); value != "" && value != "[]" {
			vars[name] += ", by default " + value
		}
	}
	return vars
}

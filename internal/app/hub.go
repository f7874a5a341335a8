package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/systemd"
)

// Origin is how a Sallyport was started: what another process needs to serve its
// client as it would have.
type Origin struct {
	Environ    []string        `json:"environ"`
	Dir        string          `json:"dir"`
	ConfigFile string          `json:"configFile,omitempty"`
	Flags      []settings.Flag `json:"flags,omitempty"`
	// ServersConfig has files that the user named.
	ServersConfig []string `json:"serversConfig,omitempty"`
}

// hubDir is the directory of the sockets of hubs in a runtime directory.
const hubDir = "hub"

// HubDir returns the directory of the sockets of this user's hubs. Its errors are
// those of a runtime directory.
func (a *App) HubDir() (string, error) {
	dir, err := a.Env.runtimeDir()
	return filepath.Join(dir, hubDir), err
}

// clients are settings that each client of a hub has for itself, by the beginning
// of their keys. Nothing that clients share may read them.
var clients = []string{"answer.", "hub.", "log.", "output.", "servers.config", "servers.sources", "servers.fallbackConfig"}

// HubSettings returns what decides whether two clients can have the same hub: the
// program, and all that changes who runs code and how it is confined.
func (a *App) HubSettings() map[string]string {
	out := a.Settings.Fingerprint(func(key string) bool {
		return slices.ContainsFunc(clients, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	// The file is read again and again. What variables and flags say holds for good.
	out[settings.PackagesKey] = askedFor(a.Settings.Entry(settings.PackagesKey))
	out[settings.ProfileKey+" at least"] = profileFloor(a.Settings.Entry(settings.ProfileKey))
	out["version"] = a.Version
	out["build"] = buildID()
	out["home"] = a.Env.Home()
	out["rules for calls"] = a.Settings.File().Path // read again and again, and not part of the settings
	// Different search paths may well lead to the same programs.
	for _, name := range []string{a.Settings.Python, python.Program().Interpreter, settings.EnginePodman, settings.EngineDocker} {
		if name != "" && !filepath.IsAbs(name) {
			out["program "+name], _ = lookIn(name, a.Env["PATH"]) // none is an answer, too
		}
	}
	for name, value := range a.Env {
		if named(name, deciding) {
			out["variable "+name] = fmt.Sprintf("set (%.8x)", sha256.Sum256([]byte(value)))
		}
	}
	if strings.HasPrefix(a.Settings.RunPod.Key, "keyring:") || strings.HasPrefix(a.Settings.Approvals.Notify.Secret, "keyring:") {
		out["keyring"] = a.Env.userBus()
	}
	if a.Settings.Carbon.Dashboard == settings.DashboardOn {
		out["directory"] = a.Dir // CodeCarbon's configuration may lie there
	}
	return out
}

// HubKey names the hub of these settings.
func (a *App) HubKey() string {
	h := sha256.New()
	of := a.HubSettings()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(h, "%d %s %d %s\n", len(name), name, len(of[name]), of[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// deciding are variables, or beginnings of their names, that decide where code
// runs and who pays for it.
var deciding = []string{"CODECARBON_*", "CONTAINERS_*", "CONTAINER_*", "DOCKER_*", "KAGGLE_*", "RUNPOD_*", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}

// everyday are variables that are the same for all clients of a user, or that
// only say how to reach others.
var everyday = []string{
	"ALL_PROXY", "APPDATA", "DBUS_SESSION_BUS_ADDRESS", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_*", "LOCALAPPDATA", "LOGNAME",
	"NO_PROXY", "PATH", "REGISTRY_AUTH_FILE", "SSH_AUTH_SOCK", "SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
	"USERPROFILE", "XDG_*", "all_proxy", "http_proxy", "https_proxy", "no_proxy",
}

// named reports whether a variable is in a list.
func named(name string, list []string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// HubOrigin returns how the hub of these settings is started. It has none of the
// client's own variables and files.
func (a *App) HubOrigin(o Origin) Origin {
	out := Origin{ConfigFile: o.ConfigFile, Flags: o.Flags}
	if a.Settings.Carbon.Dashboard == settings.DashboardOn {
		out.Dir = a.Dir
	}
	if out.ConfigFile != "" && !filepath.IsAbs(out.ConfigFile) {
		out.ConfigFile = filepath.Join(a.Dir, out.ConfigFile)
	}
	for _, kv := range o.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if named(name, deciding) || named(name, everyday) || settings.Ours(name) {
			out.Environ = append(out.Environ, kv)
		}
	}
	return out
}

// HubEnviron returns the environment of the hub's process: what does not depend
// on who started it, as far as possible, and no secret.
func (a *App) HubEnviron() []string {
	var out []string
	for name, value := range a.Env {
		if named(name, everyday) && !strings.HasSuffix(strings.ToUpper(name), "_PROXY") { // which may have a password
			out = append(out, name+"="+value)
		}
	}
	slices.Sort(out)
	return out
}

// buildID identifies the build of this program. It is read once: a hub compares it
// for each client.
var buildID = sync.OnceValue(func() string {
	if id, err := executable.BuildID(executable.Own); err == nil {
		return id[:16]
	}
	path, err := Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
})

// Outdated reports whether the executable is no longer the one that this process
// runs: it was replaced, and clients start another.
func (a *App) Outdated() bool {
	path, err := os.Readlink(executable.Own)
	return err == nil && strings.HasSuffix(path, " (deleted)")
}

// Busy reports whether code runs, or waits for its turn.
func (c *Core) Busy() bool {
	return c.broker.Executions() > 0 || slices.ContainsFunc(c.broker.Sessions(), func(i session.Info) bool { return i.Waiting > 0 })
}

// Executions returns how many executions run code, and how many wait for a place to.
func (c *Core) Executions() (running, waiting int) { return c.broker.Turns() }

// detachTimeout bounds how long the start of a hub waits for the user's systemd.
const detachTimeout = time.Second

// Detach moves this process, where the user has a systemd, out of the control
// group of whoever started it: a service manager that ends a client ends what is
// in its group.
func (a *App) Detach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	unit := fmt.Sprintf("sallyport-hub-%d.scope", os.Getpid())
	return systemd.Scope(ctx, a.Env.userBus(), unit, "Sallyport's hub", os.Getpid())
}

// A RunningHub is a hub of this user.
type RunningHub struct {
	*control.Process
	Control *control.Client
}

// Hubs returns the hubs of this user that run, and the numbers of the processes
// that serve one client alone.
func (a *App) Hubs(ctx context.Context) (hubs []RunningHub, alone []int, problems []string) {
	s := a.running(ctx)
	alone = []int{}
	for _, p := range s.processes {
		if p.Hub != nil {
			hubs = append(hubs, RunningHub{p, s.clients[p]})
		} else {
			alone = append(alone, p.PID)
		}
	}
	return hubs, alone, s.Problems
}

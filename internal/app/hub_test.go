package app

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// deciders are the settings, by the beginning of their keys, that decide which
// hub serves a client: all that its clients share reads them. A new setting
// belongs here or, if only what belongs to one client reads it, to clients.
var deciders = []string{
	"approvals.", "artifacts.", "audit.", "batch.", "cache.", "carbon.", "catalog.", "container.", "debug.", "deploy.", "engine", "environment", "files.", "image", "images.", "kaggle.", "limits.", "memories.", "metrics.",
	"policy.", "python", "runpod.", "runs.", "savedTools.", "servers.allowSelf", "servers.callTimeout", "servers.changedTools", "servers.clientMetadata",
	"servers.connections", "servers.idleStop", "servers.inherit", "servers.maxCalls", "servers.maxMessage", "servers.may", "servers.plainHttp",
	"servers.sampling.", "servers.sharing", "servers.startTimeout", "servers.stopGrace", "sessions.", "stateDir", "timeouts.", "tools.", "traces.", "worker.",
}

// TestSettingsOfHubs: each setting belongs either to the hub or to a client.
func TestSettingsOfHubs(t *testing.T) {
	in := func(list []string, key string) bool {
		return slices.ContainsFunc(list, func(p string) bool {
			return key == p || strings.HasSuffix(p, ".") && strings.HasPrefix(key, p)
		})
	}
	a := &App{Env: Environment{"HOME": t.TempDir(), "PATH": "/usr/bin"}}
	var err error
	if a.Settings, err = a.Env.LoadSettings(t.TempDir(), "", nil); err != nil {
		t.Fatal(err)
	}
	key := a.HubSettings()
	for _, s := range settings.Describe() {
		decides, own := in(deciders, s.Key), in(clients, s.Key)
		if decides == own {
			t.Errorf("%s: it decides the hub: %v, and it is a client's own: %v; name it in one of the lists deciders and clients", s.Key, decides, own)
		}
		if _, got := key[s.Key]; got != decides {
			t.Errorf("%s: got it in the key of the hub: %v, want %v", s.Key, got, decides)
		}
	}
}

// A client's own settings and variables lead it to no other hub.
func TestHubKey(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	of := func(extra Environment, flags ...settings.Flag) string {
		env := Environment{"HOME": home, "PATH": "/usr/bin"}
		for name, value := range extra {
			env[name] = value
		}
		set, err := env.LoadSettings(dir, "", flags)
		if err != nil {
			t.Fatal(err)
		}
		return (&App{Env: env, Dir: dir, Settings: set}).HubKey()
	}
	set := func(key, value string) settings.Flag {
		return settings.Flag{Name: "--set", Key: key, Value: value}
	}
	first := of(nil)
	for _, test := range []struct {
		what  string
		key   string
		other bool
	}{
		{"a variable of the client", of(Environment{"GITHUB_TOKEN": "secret"}), false},
		{"answers", of(nil, set("answer.within", "20s")), false},
		{"usage in results", of(nil, set("output.usage", "true")), false},
		{"log lines", of(nil, set("log.level", "debug")), false},
		{"the keyring", of(Environment{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}), false},
		{"authorities", of(Environment{"SSL_CERT_FILE": "/x"}), false},
		{"memory", of(nil, set("limits.memory", "1g")), true},
		{"packages, as the file says anyway", of(Environment{"SALLYPORT_POLICY_PACKAGES": "none"}), true},
		{"the profile, as the file says anyway", of(Environment{"SALLYPORT_POLICY_PROFILE": "open"}), true},
		{"the engine", of(nil, set("engine", "podman")), true},
		{"the state directory", of(Environment{"XDG_STATE_HOME": dir}), true},
		{"where Docker is", of(Environment{"DOCKER_HOST": "tcp://other"}), true},
	} {
		if (test.key != first) != test.other {
			t.Errorf("%s: got another hub: %v, want %v", test.what, test.key != first, test.other)
		}
	}
	file := filepath.Join(home, ".config", "sallyport", "config.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("policy:\n  packages: any\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := of(nil); got != first {
		t.Errorf("packages in the file, which a hub reads again: got hub %s, want %s", got, first)
	}
	// A key that the hub itself reads is of one keyring.
	key := func(bus string) string {
		return of(Environment{"DBUS_SESSION_BUS_ADDRESS": bus, "SALLYPORT_RUNPOD_KEY": "keyring:runpod"})
	}
	if one, two := key("unix:path=/x"), key("unix:path=/y"); one == two {
		t.Errorf("a key for RunPod in two keyrings: got one hub, %s, want two", one)
	}
}

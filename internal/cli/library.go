package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"

	"sallyport/internal/bridge"
	"sallyport/internal/state"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/definitions"
	"sallyport/internal/upstream/library"
)

// lookup looks a variable of the environment up.
func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// library reads which servers the user has. Problems of the files are returned
// as they are to be said; changed is called when other definitions come into
// force.
func (a *app) library(serversConfig []string, changed func(*library.Snapshot)) (*library.Library, []string, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // a folder that is gone offers nothing
	}
	set, log := a.settings, a.log
	if changed == nil { // the command says itself what is wrong
		log = slog.New(slog.DiscardHandler)
	}
	lib := library.New(library.Config{
		Places:    definitions.Places{OS: runtime.GOOS, Home: a.env.home(), Dir: dir, Env: a.env.lookup},
		Names:     set.Servers.Sources,
		Files:     set.Servers.Config,
		Fallback:  set.Servers.FallbackConfig,
		Self:      definitions.Self{Executable: executable},
		AllowSelf: set.Servers.AllowSelf,
		State:     state.At(set.StateDir),
		Grant:     set.Policy.Requests,
		Check: func(d library.Definition) error {
			return upstream.Check(d, upstream.Options{PlainHTTP: set.Servers.PlainHTTP})
		},
		Log:     log,
		Changed: changed,
	})
	var problems []string
	for _, p := range lib.Snapshot().Problems {
		if !p.Warning && p.Server == "" && slices.ContainsFunc(serversConfig, func(name string) bool { return sameFile(name, p.File) }) {
			// The user named this file: going on without it is no answer.
			return nil, nil, errors.New(p.String())
		}
		problems = append(problems, p.String())
	}
	return lib, problems, nil
}

// userServers are the servers that the user has, as they are at any moment.
type userServers struct {
	bridge.Source
	*library.Library
}

// Version implements bridge.Live.
func (u userServers) Version(again bool) uint64 { return u.Current(again).Version }

// openLibrary is for commands that need no sandbox.
func (a *app) openLibrary(f *serversFlags) (*library.Library, []string, error) {
	if err := a.configure(f.flags()...); err != nil {
		return nil, nil, err
	}
	return a.library(f.ServersConfig, nil)
}

// aliases are the names of modules, by server.
func aliases(defs []upstream.Definition) map[string]string {
	out := make(map[string]string, len(defs))
	for i, alias := range upstream.ServerAliases(defs) {
		out[defs[i].Name] = alias
	}
	return out
}

// unknownServer is the error for a name that there is not.
func unknownServer(name string, snapshot *library.Snapshot) error {
	for _, p := range snapshot.Problems {
		if p.Server == name && !p.Warning {
			return fmt.Errorf("server %q is rejected, and not used: %s", name, p)
		}
	}
	names := make([]string, 0, len(snapshot.Definitions))
	for _, d := range snapshot.Definitions {
		names = append(names, d.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no server %q; none is defined", name)
	}
	near := definitions.Near(name, names, 5)
	return fmt.Errorf("there is no server %q; the nearest of %d: %s", name, len(names), printable(strings.Join(near, ", ")))
}

// find returns a server by its name.
func find(lib *library.Library, name string) (upstream.Definition, error) {
	snapshot := lib.Current(true)
	d, ok := snapshot.Get(name)
	if !ok {
		return d, unknownServer(name, snapshot)
	}
	return d, nil
}

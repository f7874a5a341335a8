package cli

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

// openLibrary opens the library for commands that need no sandbox.
func (u *ui) openLibrary(f *serversFlags) (*library.Library, []string, error) {
	if err := u.configure(f.flags()...); err != nil {
		return nil, nil, err
	}
	return u.OpenLibrary(f.ServersConfig)
}

// modules returns how code writes each server. Those that it cannot use change
// nothing for the others.
func modules(defs []upstream.Definition) map[string]string {
	var names []string
	for _, d := range defs {
		if d.State() == "ready" {
			names = append(names, d.Name)
		}
	}
	calls := tool.ServerCalls(names)
	for _, d := range defs {
		if _, ok := calls[d.Name]; !ok {
			calls[d.Name] = tool.ServerCalls(append(names, d.Name))[d.Name]
		}
	}
	return calls
}

// callsOf returns how code writes the servers that it may use.
func callsOf(sys *app.System) map[string]string {
	var names []string
	for _, e := range sys.Catalog.Entries() {
		names = append(names, e.Name)
	}
	return tool.ServerCalls(names)
}

// elsewhere says why a server is missing that the code of a client has.
const elsewhere = " (for a server of a client, use its --servers-config and its folder)"

// unknownServer returns the error for a name that no server has.
func unknownServer(name string, snapshot *library.Snapshot) error {
	for _, p := range snapshot.Problems {
		if p.Server == name && !p.Warning {
			return fmt.Errorf("server %q was rejected and is not used: %s", name, p)
		}
	}
	names := make([]string, 0, len(snapshot.Definitions))
	for _, d := range snapshot.Definitions {
		names = append(names, d.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no server %q; none is defined%s", name, elsewhere)
	}
	near := definitions.Near(name, names, 5)
	return fmt.Errorf("there is no server %q; the nearest of %d: %s%s", name, len(names), printable(strings.Join(near, ", ")), elsewhere)
}

// find returns the server that the user means.
func find(lib *library.Library, name string) (upstream.Definition, error) {
	snapshot := lib.Current(true)
	name, err := serverNamed(snapshot, name)
	d, _ := snapshot.Get(name)
	return d, err
}

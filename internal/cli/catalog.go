package cli

import (
	"context"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/catalog"
	"sallyport/internal/pins"
	"sallyport/internal/state"
)

// Borrow implements bridge.Lender.
func (u userServers) Borrow(ctx context.Context, name string, use func(bridge.Server) error) error {
	return u.Source.(bridge.Lender).Borrow(ctx, name, use)
}

// knowledge is what is remembered of servers' tools: what they are, and which
// form of them the user accepted.
type knowledge struct {
	catalog *catalog.Catalog
	pins    *pins.Book
}

// remember opens what is remembered of the servers of a source.
func (a *app) remember(s *system, source bridge.Source) knowledge {
	dir := state.At(a.settings.StateDir)
	k := knowledge{pins: pins.Open(dir.Sub("pins"), a.log)}
	secret, err := catalog.Secret(dir.Sub("catalog"))
	if err != nil {
		a.log.Warn("what is known of servers cannot be kept", "error", err)
	}
	k.catalog = catalog.New(catalog.Config{
		Source:  bridge.NewListable(source, s.policy, secret),
		Dir:     dir.Sub("catalog"),
		Log:     a.log,
		Refresh: catalog.Refresh(a.settings.Catalog.Refresh),
		MaxAge:  a.settings.Catalog.MaxAge,
		Timeout: a.settings.Servers.StartTimeout + 30*time.Second,
		Observe: bridge.Observer(k.pins, func(server string, err error) {
			a.log.Warn("pins: what the tools of a server were cannot be told", "server", server, "error", err)
		}),
	})
	return k
}

// pinsOf are the pins of a server of the catalog.
func pinsOf(s catalog.Server) pins.Server { return pins.Server{Name: s.Name, Key: s.Program} }

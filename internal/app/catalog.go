package app

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

// catalog opens what is known about the tools of the servers of a source.
func (a *App) catalog(source bridge.Source, gate *authz.Gate, accepted *pins.Book) *catalog.Catalog {
	dir := a.state(store.Catalog)
	secret, err := catalog.Secret(dir)
	if err != nil {
		a.Log.Warn("what is known about servers cannot be saved", "error", err)
	}
	return catalog.New(catalog.Config{
		Source:  bridge.NewListable(source, gate, secret, accepted, a.Log),
		Dir:     dir,
		Log:     a.Log,
		Refresh: catalog.Refresh(a.Settings.Catalog.Refresh),
		MaxAge:  a.Settings.Catalog.MaxAge,
		Timeout: a.Settings.Servers.StartTimeout + 30*time.Second,
	})
}

// SavedEntries returns the saved tools in the form that the catalog has servers
// in, if there are any.
func (c *Client) SavedEntries() []catalog.Entry {
	if _, taken := c.Library.Snapshot().Get(bridge.SavedServer); taken || !c.app.Settings.Saved.Enabled {
		return nil
	}
	e, err := bridge.SavedEntry(c.app.SavedTools())
	if err != nil || len(e.Listing.Tools) == 0 {
		return nil // 'sallyport saved-tools' says what is wrong
	}
	return []catalog.Entry{e}
}

// ToolChanges reports how the tools of a server differ from what the user
// accepted.
func (a *App) ToolChanges(d upstream.Definition) pins.Report {
	report, err := a.Pins().Status(bridge.Pinned(d))
	if err != nil {
		return pins.Report{} // nothing was ever accepted
	}
	return report
}

// noServers is the definitions of a library, none of which can be started.
type noServers struct{ *library.Library }

// Definitions implements bridge.Source.
func (s noServers) Definitions() []upstream.Definition { return s.Snapshot().Definitions }

// Open implements bridge.Source.
func (s noServers) Open(context.Context, string) (bridge.Server, error) {
	return nil, errors.New("nothing is started")
}

// KnownTools returns what is stored about the tools of a library's servers. It
// starts and writes nothing.
func (a *App) KnownTools(lib *library.Library) []catalog.Entry {
	dir := a.state(store.Catalog)
	gate, err := gateOf(a.Settings, authz.Config{})
	secret := catalog.Known(dir)
	if err != nil || secret == nil {
		return nil
	}
	c := catalog.New(catalog.Config{Source: bridge.NewListable(noServers{lib}, gate, secret, nil, a.Log), Dir: dir, Refresh: catalog.Off})
	defer c.Close()
	return c.Entries()
}

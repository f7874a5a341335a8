package app

import (
	"github.com/sallyport/sallyport/internal/store"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/upstream"
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

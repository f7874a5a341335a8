package bridge

import (
	"slices"

	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// savedKey marks the entry of the saved tools, which no file of the catalog
// has.
const savedKey = "saved tools"

// SavedEntry returns the saved tools in the form that the catalog has servers
// in, as a server named SavedServer.
func SavedEntry(kept SavedTools) (catalog.Entry, error) {
	tools, _, err := kept.List()
	if err != nil {
		return catalog.Entry{}, err
	}
	e := catalog.Entry{Listing: &catalog.Listing{}, Server: catalog.Server{
		Name: SavedServer, Alias: SavedServer, Key: savedKey,
		Description: "Tools that earlier sessions saved with save_tool: from user_tools import NAME.",
	}}
	for i := range tools {
		t := &tools[i]
		v := t.Current()
		e.Listing.Tools = append(e.Listing.Tools, tool.Tool{
			Name: t.Name, Alias: t.Name, Description: describeSaved(t.Name, v), InputSchema: v.Schema,
		})
	}
	return e, nil
}

// savedEntry is SavedEntry; it returns the same entry as long as the saved
// tools do not change. saved is false for another name, for a configured server
// of that name, and if saved tools are switched off.
func (x *Execution) savedEntry(name string) (e catalog.Entry, saved bool, err error) {
	b, owner := x.bridge, x.principal.Owner
	if name != SavedServer {
		return catalog.Entry{}, false, nil
	}
	kept := b.config.Stores.SavedTools(owner)
	if kept == nil {
		return catalog.Entry{}, false, nil
	}
	if _, taken := b.current(false).servers[SavedServer]; taken {
		return catalog.Entry{}, false, nil
	}
	if e, err = SavedEntry(kept); err != nil {
		return catalog.Entry{}, true, keepError(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.saved[owner]; have == nil || !slices.EqualFunc(have.Tools, e.Listing.Tools, func(a, b tool.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && string(a.InputSchema) == string(b.InputSchema)
	}) {
		b.saved[owner] = e.Listing
	}
	e.Listing = b.saved[owner]
	return e, true, nil
}

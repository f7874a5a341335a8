package bridge

import (
	"slices"

	"sallyport/internal/catalog"
)

// savedKey marks the entry of the saved tools, which no file of the catalog has.
const savedKey = "saved tools"

// SavedEntry is the saved tools as the catalog has servers: of a server whose
// name is SavedServer.
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
		e.Listing.Tools = append(e.Listing.Tools, catalog.Tool{
			Name: t.Name, Alias: t.Name, Description: describeSaved(t.Name, v), InputSchema: v.Schema,
		})
	}
	return e, nil
}

// savedEntry is SavedEntry, the same as long as the saved tools do not change.
// saved is false for another name, for a server that is called so, and where
// no tools are kept at all.
func (b *Bridge) savedEntry(name string) (e catalog.Entry, saved bool, err error) {
	if name != SavedServer || b.config.Tools == nil {
		return catalog.Entry{}, false, nil
	}
	if _, taken := b.current(false).servers[SavedServer]; taken {
		return catalog.Entry{}, false, nil
	}
	if e, err = SavedEntry(b.config.Tools); err != nil {
		return catalog.Entry{}, true, keepError(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved == nil || !slices.EqualFunc(b.saved.Tools, e.Listing.Tools, func(a, b catalog.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && string(a.InputSchema) == string(b.InputSchema)
	}) {
		b.saved = e.Listing
	}
	e.Listing = b.saved
	return e, true, nil
}

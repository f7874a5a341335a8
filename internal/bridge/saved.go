package bridge

import (
	"sallyport/internal/catalog"
)

// savedKey marks the entry of the saved tools, which no file of the catalog has.
const savedKey = "saved tools"

// savedEntry is savedDefinition as the catalog has servers. As long as the
// saved tools do not change it is the same listing.
func (b *Bridge) savedEntry(name string) (e catalog.Entry, saved bool, err error) {
	d, saved, err := b.savedDefinition(name)
	if !saved || err != nil {
		return catalog.Entry{}, saved, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved == nil || b.savedVersion != d.Version {
		b.saved, b.savedVersion = &catalog.Listing{}, d.Version
		for i := range d.Tools {
			t := &d.Tools[i]
			b.saved.Tools = append(b.saved.Tools, catalog.Tool{Name: t.Name, Alias: t.Alias, Description: t.Description, InputSchema: t.InputSchema})
		}
	}
	e.Server = catalog.Server{Name: d.Name, Alias: d.Alias, Description: d.Description, Key: savedKey}
	e.Listing = b.saved
	return e, true, nil
}

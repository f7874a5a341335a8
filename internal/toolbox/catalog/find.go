package catalog

import (
	"reflect"
	"slices"

	"github.com/sallyport/sallyport/internal/toolbox/search"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// index is what a search works on: the tools of all servers at one moment.
type index struct {
	entries []Entry
	search  *search.Index
	places  []place // of search's documents
}

// of reports whether the index was made from these entries.
func (x *index) of(entries []Entry) bool {
	return slices.EqualFunc(x.entries, entries, func(a, b Entry) bool {
		return reflect.DeepEqual(a.Server, b.Server) && a.Listing == b.Listing
	})
}

// place is where a document came from.
type place struct{ server, tool int }

// Query is a search.
type Query struct {
	Text     string
	Limit    int
	Server   string // empty: all
	ReadOnly bool   // leave out tools that may change something
}

// Hit is a tool that a search found.
type Hit struct {
	Server Server
	Tool   *tool.Tool // shared: must not be modified
	Score  float64
	Weak   bool // see search.Hit
}

// AllWeak reports whether hits are there, and none that matches well.
func AllWeak(hits []Hit) bool {
	return len(hits) > 0 && !slices.ContainsFunc(hits, func(h Hit) bool { return !h.Weak })
}

// Missing is a server that could not be searched.
type Missing struct {
	Server Server
	// Failure is nil if the server has not been listed yet.
	Failure *Failure
}

// Search ranks the tools of all known servers. It does not wait: servers that
// it could not search are missing. Extra are tools that the catalog does not
// keep, under the servers that they are shown as; an Entry whose Listing is the
// same pointer as before counts as unchanged.
func (c *Catalog) Search(q Query, extra ...Entry) (hits []Hit, missing []Missing) {
	entries := append(c.Entries(), extra...)
	for _, e := range entries {
		if e.Listing == nil && (q.Server == "" || q.Server == e.Name) {
			missing = append(missing, Missing{e.Server, e.Failure})
		}
	}
	if len(missing) > 0 {
		c.Wake()
	}
	x := c.indexed(entries)
	options := search.Options{Limit: q.Limit, ReadOnly: q.ReadOnly}
	if q.Server != "" {
		options.Servers = []string{q.Server}
	}
	for _, h := range x.search.Search(q.Text, options) {
		at := x.places[h.Doc]
		e := &x.entries[at.server]
		hits = append(hits, Hit{e.Server, &e.Listing.Tools[at.tool], h.Score, h.Weak})
	}
	return hits, missing
}

// indexed returns the index of these entries: the one in memory if nothing has
// changed since.
func (c *Catalog) indexed(entries []Entry) *index {
	c.mu.Lock()
	known := c.index
	c.mu.Unlock()
	if known != nil && known.of(entries) {
		return known
	}
	x := &index{entries: entries}
	var docs []search.Doc
	for i, e := range entries {
		if e.Listing == nil {
			continue
		}
		about := e.About()
		for j := range e.Listing.Tools {
			docs = append(docs, document(e.Name, about, &e.Listing.Tools[j]))
			x.places = append(x.places, place{i, j})
		}
	}
	x.search = search.New(docs)
	c.mu.Lock()
	c.index = x
	c.mu.Unlock()
	return x
}

func document(server, about string, t *tool.Tool) search.Doc {
	const mostText = 4 << 10
	d := search.Doc{
		Server: server, ServerDescription: about, ReadOnly: t.ReadOnly,
		Name: t.Name, Description: clip(t.Description, mostText),
	}
	if t.Title != "" && t.Title != t.Name {
		d.Description = clip(t.Title, 200) + ". " + d.Description
	}
	for _, a := range signature.Arguments(t.InputSchema) {
		d.Arguments = append(d.Arguments, search.Argument{Name: clip(a.Name, 100), Description: clip(a.Description, 1000)})
	}
	return d
}

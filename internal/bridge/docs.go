package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// defaultFound and maxFound bound the answer to a search.
	defaultFound, maxFound = 5, 20
	// searchTimeout is how long a search that found nothing waits for servers that
	// were never listed, of which parallelStarts start in parallel. Listing
	// continues afterwards, so that a later search finds more.
	searchTimeout  = 3 * time.Second
	parallelStarts = 8
	// queryTimeout is how long a query about one server waits for it.
	queryTimeout = 30 * time.Second
)

// document describes one tool, in the form that clients of the first
// code-execution bridge know, with a signature. A summary is what a model
// needs to choose and to call: a name, a line, the signature.
type document struct {
	Server      string `json:"server"`
	ServerAlias string `json:"serverAlias"`
	Tool        string `json:"tool"`
	ToolAlias   string `json:"toolAlias"`
	// Call is how code calls the tool, if not as mcp_<serverAlias>.<toolAlias>.
	Call        string `json:"call,omitempty"`
	Description string `json:"description,omitempty"`
	Signature   string `json:"signature,omitempty"`
	// Load is the code that creates the server's module, if it is not loaded yet.
	Load string `json:"load,omitempty"`
	// Warning says that the tool has changed since the user accepted it.
	Warning     string          `json:"warning,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"` // detail "full"
}

// detail is how much of a tool is shown.
type detail int

const (
	brief detail = iota // for one of several
	whole               // for the only one: the whole signature
	full                // also description and schema, unchanged
)

// describeTool writes the document of a tool that passed accepted. calls are
// those of all tools of its server. A saved tool describes itself.
func (x *Execution) describeTool(s catalog.Server, t *tool.Tool, calls map[string]string, how detail) document {
	d := document{Server: s.Name, ServerAlias: s.Alias, Tool: t.Name, ToolAlias: t.Alias}
	saved := s.Key == savedKey
	if server, ok := x.bridge.current(false).calls[s.Name]; ok && !saved && calls[t.Name] != "" {
		if call := server + calls[t.Name]; call != "mcp_"+s.Alias+"."+t.Alias {
			d.Call = call
		}
	}
	if saved || how == full {
		d.Description = t.Description
	} else {
		d.Description = t.Summary()
	}
	switch {
	case saved && len(t.InputSchema) == 0:
	case how == brief:
		d.Signature = signature.Brief(t.InputSchema, t.OutputSchema)
	default:
		d.Signature = signature.Whole(t.InputSchema, t.OutputSchema)
	}
	if !saved && d.Signature != "" {
		d.Signature += signature.Learned(x.bridge.catalog.Shapes(s.Name).Of(t), how == brief)
	}
	if how == full {
		d.InputSchema = t.InputSchema
	}
	if !saved {
		d.Warning = x.bridge.warning(s, t.Name)
		if !x.isGranted(s.Name) {
			d.Load = fmt.Sprintf("await runtime.load_server(%s)", tool.PythonString(s.Name))
		}
	}
	return d
}

// docsParams are the parameters of both methods.
type docsParams struct {
	Server string   `json:"server"`
	Tool   *string  `json:"tool"`
	Query  string   `json:"query"`
	Limit  *float64 `json:"limit"`
	Detail string   `json:"detail"`
	// Own: the guest looks for a tool that a hint could name.
	Own bool `json:"own"`
}

func parseDocsParams(raw json.RawMessage) (docsParams, error) {
	var p docsParams
	if jsonscan.Kind(raw) != '{' || json.Unmarshal(raw, &p) != nil {
		return p, &wire.CallError{Kind: wire.KindInvalid,
			Message: "'server', 'tool', 'query' and 'detail' must be strings, 'limit' must be an integer"}
	}
	return p, nil
}

// queryDocs answers with the documents of one server's tools, or of one tool.
// Reading about a server needs no grant, only the policy's permission. A server
// that was never listed is listed now.
func (x *Execution) queryDocs(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	entry, err := x.known(ctx, p.Server)
	if err != nil {
		return nil, err
	}
	how := brief
	switch {
	case p.Detail == "full":
		how = full
	case p.Tool != nil:
		how = whole
	}
	tools := entry.Listing.Tools
	if p.Tool != nil {
		if tools, err = fitting(tools, *p.Tool, p.Server); err != nil {
			return nil, err
		}
	}
	calls := tool.Calls(entry.Listing.Tools, entry.Denied)
	docs := []document{}
	for i := range tools {
		docs = append(docs, x.describeTool(entry.Server, &tools[i], calls, how))
	}
	return json.Marshal(docs)
}

// fitting returns the tool of that name, or the only one with that alias.
func fitting(tools []tool.Tool, name, server string) ([]tool.Tool, error) {
	found, err := tool.Find(tools, name)
	switch {
	case err != nil:
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: clip(err.Error(), 1000)}
	case found == nil:
		return nil, &wire.CallError{Kind: wire.KindNotFound, Message: "Tool '" + clip(name, 100) + "' not found for server " + server + nearestTool(tools, name)}
	}
	return []tool.Tool{*found}, nil
}

// known returns what is known about a server, or about the saved tools.
func (x *Execution) known(ctx context.Context, name string) (catalog.Entry, error) {
	b := x.bridge
	saved, ok, err := x.savedEntry(name)
	if ok || err != nil {
		return saved, err
	}
	s, err := b.server(name)
	if err != nil {
		return catalog.Entry{}, err
	}
	permit, err := x.admit(ctx, authz.DescribeServer{Server: s})
	if err != nil {
		return catalog.Entry{}, err
	}
	entry, err := x.describeKnown(ctx, name)
	finish(&permit, 0, err)
	return entry, err
}

// describeKnown returns what the catalog knows about a server, which is listed
// now if it never was.
func (x *Execution) describeKnown(ctx context.Context, name string) (catalog.Entry, error) {
	b := x.bridge
	if x.isGranted(name) {
		// It runs, and reports changes.
		if _, err := b.describe(ctx, x.principal, name); err != nil {
			return catalog.Entry{}, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, fmt.Errorf("its tools are not known yet: it did not list them within %s", queryTimeout))
	defer cancel()
	entry, err := b.catalog.Want(ctx, name)
	class := ""
	switch {
	case err == nil:
		listing := *entry.Listing
		listing.Tools = b.accepted(pinned(entry.Server), listing.Tools)
		entry.Listing = &listing
		return entry, nil
	case errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) != nil:
		class = context.Cause(ctx).Error()
	case errors.Is(err, catalog.ErrUnknown): // removed at this moment
		return entry, b.unknown(name)
	default:
		class = catalog.Class(err)
	}
	return entry, &wire.CallError{Kind: wire.KindUnavailable, Message: publicFailure(name, class)}
}

// searchDocs answers with the tools that match the query best, of all known
// servers, loaded or not. The servers that it could not search are named in the
// result's notes.
func (x *Execution) searchDocs(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	q := catalog.Query{Text: clip(p.Query, 1000), Limit: defaultFound, Server: p.Server}
	if strings.TrimSpace(q.Text) == "" {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'query' value"}
	}
	if p.Limit != nil {
		q.Limit = int(max(1, min(maxFound, *p.Limit)))
	}
	var saved []catalog.Entry
	if s, ok, err := x.savedEntry(SavedServer); ok && err == nil {
		saved = append(saved, s)
	}
	hits, missing := x.bridge.catalog.Search(q, saved...)
	if len(hits) == 0 && len(missing) > 0 {
		if x.bridge.listMissing(ctx, missing) {
			hits, missing = x.bridge.catalog.Search(q, saved...)
		}
	}
	if !p.Own {
		x.leftOut(missing)
	}
	if !p.Own && catalog.AllWeak(hits) {
		x.note(fmt.Sprintf("no tool matches %q well: what the search returned is only the nearest. discovered_servers() lists the servers", invisible.Line(clip(q.Text, 100))))
	}
	how := brief
	if p.Detail == "full" {
		how = full
	}
	docs := []document{}
	calls := map[string]map[string]string{}
	for _, h := range hits {
		if calls[h.Server.Name] == nil {
			if e, ok := x.bridge.catalog.Entry(h.Server.Name); ok && e.Listing != nil {
				calls[h.Server.Name] = tool.Calls(e.Listing.Tools, e.Denied)
			}
		}
		for _, t := range x.bridge.accepted(pinned(h.Server), []tool.Tool{*h.Tool}) {
			docs = append(docs, x.describeTool(h.Server, &t, calls[h.Server.Name], how))
		}
	}
	return json.Marshal(docs)
}

// listMissing lists servers that were never listed, for a moment. It reports
// whether there were any.
func (b *Bridge) listMissing(ctx context.Context, missing []catalog.Missing) bool {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, parallelStarts)
	any := false
	for _, m := range missing {
		if m.Failure != nil {
			continue
		}
		any = true
		all.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				_, _ = b.catalog.Want(ctx, m.Server.Name) // the next search reports the outcome
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
	return any
}

// leftOut notes which servers a search did not cover.
func (x *Execution) leftOut(missing []catalog.Missing) {
	if len(missing) == 0 {
		return
	}
	const most = 5
	var parts []string
	for _, m := range missing[:min(most, len(missing))] {
		why := "its tools are not known yet"
		if m.Failure != nil {
			why = reason(m.Failure)
		}
		parts = append(parts, invisible.Line(m.Server.Name)+" ("+why+")")
	}
	if more := len(missing) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	x.note("the search left out " + strings.Join(parts, ", "))
}

// reason returns why a server could not be listed, for a line that names it
// already.
func reason(f *catalog.Failure) string {
	if f.Class == "" { // noted by a release without classes
		return "failed"
	}
	return f.Class
}

// serverLine is a server as discovered_servers(detailed=True) shows it.
type serverLine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Problem is why its tools are unknown, or may have changed.
	Problem string `json:"problem,omitempty"`
}

// discovered answers with a line for every server that code may be granted.
func (x *Execution) discovered() (json.RawMessage, error) {
	lines := []serverLine{}
	for _, e := range x.bridge.catalog.Entries() {
		line := serverLine{Name: e.Name, Description: x.bridge.about(&e)}
		if e.Failure != nil {
			line.Problem = reason(e.Failure)
		}
		lines = append(lines, line)
	}
	return json.Marshal(lines)
}

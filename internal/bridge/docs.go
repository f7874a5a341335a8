package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sallyport/internal/catalog"
	"sallyport/internal/hidden"
	"sallyport/internal/signature"
	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/wire"
)

const (
	// defaultFound and maxFound bound the answer to a search.
	defaultFound, maxFound = 5, 20
	// searchTimeout is how long a search that found nothing waits for servers
	// that were never listed, of which parallelStarts start side by side.
	// Listing goes on after it, so that a later search knows more.
	searchTimeout  = 3 * time.Second
	parallelStarts = 8
	// queryTimeout is how long a question about one server waits for it.
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
	Description string `json:"description,omitempty"`
	Signature   string `json:"signature,omitempty"`
	// Load is what makes the server's module, where there is none yet.
	Load string `json:"load,omitempty"`
	// Warning: the tool is not as it was when the user accepted it.
	Warning     string          `json:"warning,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"` // detail "full"
}

// detail is how much of a tool is told.
type detail int

const (
	brief detail = iota // of one among several
	whole               // of the only one: the whole signature
	full                // and description and schema as they are
)

// describeTool writes the document of a tool. A saved one is described by
// itself.
func (x *Execution) describeTool(s catalog.Server, t *catalog.Tool, how detail) document {
	d := document{Server: s.Name, ServerAlias: s.Alias, Tool: t.Name, ToolAlias: t.Alias}
	saved := s.Key == savedKey
	if saved || how == full {
		d.Description = hidden.Strip(t.Description)
	} else {
		d.Description = t.Summary()
	}
	input := hidden.StripJSON(t.InputSchema, hidden.Schema)
	switch {
	case saved && len(input) == 0:
	case how == brief:
		d.Signature = signature.Brief(input)
	default:
		d.Signature = signature.Whole(input, hidden.StripJSON(t.OutputSchema, hidden.Schema))
	}
	if how == full {
		d.InputSchema = input
	}
	if !saved {
		d.Warning = x.bridge.warning(s, t.Name)
		if !x.isGranted(s.Name) {
			d.Load = fmt.Sprintf("await runtime.load_server(%s)", pythonString(s.Name))
		}
	}
	return d
}

// pythonString quotes the name of a server. JSON's form is Python's, too.
func pythonString(s string) string {
	if !strings.ContainsAny(s, `'"\`) && len(hidden.In(s)) == 0 {
		return "'" + s + "'"
	}
	quoted, err := json.Marshal(s)
	if err != nil { // cannot happen: a string
		return "''"
	}
	return string(quoted)
}

// docsParams are the parameters of both methods.
type docsParams struct {
	Server string   `json:"server"`
	Tool   *string  `json:"tool"`
	Query  string   `json:"query"`
	Limit  *float64 `json:"limit"`
	Detail string   `json:"detail"`
}

func parseDocsParams(raw json.RawMessage) (docsParams, error) {
	var p docsParams
	if jsonrpc.Kind(raw) != '{' || json.Unmarshal(raw, &p) != nil {
		return p, &wire.CallError{Kind: wire.KindInvalid,
			Message: "'server', 'tool', 'query' and 'detail' must be strings, 'limit' must be an integer"}
	}
	return p, nil
}

// queryDocs answers with the documents of one server's tools, or of one tool.
// Reading about a server needs no grant, only the policy's leave. A server that
// was never listed is listed now.
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
	docs := []document{}
	for i := range entry.Listing.Tools {
		t := &entry.Listing.Tools[i]
		if p.Tool == nil || *p.Tool == t.Name || *p.Tool == t.Alias {
			docs = append(docs, x.describeTool(entry.Server, t, how))
		}
	}
	if p.Tool != nil && len(docs) == 0 {
		return nil, &wire.CallError{Kind: wire.KindNotFound, Message: "Tool '" + clip(*p.Tool, 100) + "' not found for server " + p.Server}
	}
	return json.Marshal(docs)
}

// known is what is known of a server, or of the saved tools.
func (x *Execution) known(ctx context.Context, name string) (catalog.Entry, error) {
	b := x.bridge
	saved, ok, err := b.savedEntry(name)
	if ok || err != nil {
		return saved, err
	}
	if err := b.Check(name); err != nil {
		return catalog.Entry{}, x.refusal(name, err)
	}
	if x.isGranted(name) {
		// It runs, and says so when something has changed.
		if _, err := b.describe(ctx, name); err != nil {
			return catalog.Entry{}, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, fmt.Errorf("its tools are not known yet: it did not list them within %s", queryTimeout))
	defer cancel()
	entry, err := b.catalog.Want(ctx, name)
	class := ""
	switch {
	case err == nil:
		return b.accepted(entry), nil
	case errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) != nil:
		class = context.Cause(ctx).Error()
	case errors.Is(err, catalog.ErrUnknown): // taken away this moment
		return entry, b.unknown(name)
	default:
		class = catalog.Class(err)
	}
	return entry, &wire.CallError{Kind: wire.KindUnavailable, Message: publicFailure(name, class)}
}

// searchDocs answers with the tools that fit the query best, of all servers
// that are known, loaded or not. The servers that it could not look at are
// named in the result's notes.
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
	if s, ok, err := x.bridge.savedEntry(SavedServer); ok && err == nil {
		saved = append(saved, s)
	}
	hits, missing := x.bridge.catalog.Search(q, saved...)
	if len(hits) == 0 && len(missing) > 0 {
		if x.bridge.listMissing(ctx, missing) {
			hits, missing = x.bridge.catalog.Search(q, saved...)
		}
	}
	x.leftOut(missing)
	how := brief
	if p.Detail == "full" {
		how = full
	}
	docs := []document{}
	for _, h := range hits {
		if t := x.bridge.acceptedTool(h.Server, h.Tool); t != nil {
			docs = append(docs, x.describeTool(h.Server, t, how))
		}
	}
	return json.Marshal(docs)
}

// listMissing lists servers that were never listed, for a moment. It says
// whether there was one.
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
				_, _ = b.catalog.Want(ctx, m.Server.Name) // the next search says what came of it
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
	return any
}

// leftOut notes which servers a search did not look at.
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
		parts = append(parts, hidden.Line(m.Server.Name)+" ("+why+")")
	}
	if more := len(missing) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	x.note("the search left out " + strings.Join(parts, ", "))
}

// reason is why a server could not be listed, in a line that need not name it.
func reason(f *catalog.Failure) string {
	if f.Class == "" { // noted by a release that had none
		return "failed"
	}
	return f.Class
}

// serverLine is a server as discovered_servers(detailed=True) shows it.
type serverLine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Problem is why its tools are not known, or may be others by now.
	Problem string `json:"problem,omitempty"`
}

// discovered answers with a line on every server that code may be granted.
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

package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/wire"
)

const (
	// defaultFound and maxFound bound the answer to a search.
	defaultFound, maxFound = 5, 20
	// searchTimeout is how long a search waits for servers that have to be
	// started, of which parallelStarts start side by side. A start goes on
	// after it, so that a later search finds the server running.
	searchTimeout  = 3 * time.Second
	parallelStarts = 8
)

// document describes one tool, in the form that clients of the first
// code-execution bridge know.
type document struct {
	Server      string          `json:"server"`
	ServerAlias string          `json:"serverAlias"`
	Tool        string          `json:"tool"`
	ToolAlias   string          `json:"toolAlias"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"` // detail "full"
}

func describeTool(s *wire.Server, t *wire.Tool, full bool) document {
	d := document{Server: s.Name, ServerAlias: s.Alias, Tool: t.Name, ToolAlias: t.Alias, Description: t.Description}
	if full {
		d.InputSchema = t.InputSchema
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
// Reading about a server needs no grant, only the policy's leave.
func (x *Execution) queryDocs(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	definition, saved, err := x.bridge.savedDefinition(p.Server)
	if !saved {
		if err := x.bridge.Check(p.Server); err != nil {
			return nil, x.refusal(p.Server, err)
		}
		definition, err = x.bridge.describe(ctx, p.Server)
	}
	if err != nil {
		return nil, err
	}
	docs := []document{}
	for i := range definition.Tools {
		t := &definition.Tools[i]
		if p.Tool == nil || *p.Tool == t.Name || *p.Tool == t.Alias {
			docs = append(docs, describeTool(&definition.Server, t, p.Detail == "full"))
		}
	}
	if p.Tool != nil && len(docs) == 0 {
		return nil, &wire.CallError{Kind: wire.KindNotFound, Message: "Tool '" + clip(*p.Tool, 100) + "' not found for server " + p.Server}
	}
	return json.Marshal(docs)
}

// searchDocs answers with the tools in whose words all words of the query
// occur, those with more of them in the name first. It looks at the servers
// whose tools are known, and starts the others only when those have nothing.
func (x *Execution) searchDocs(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(clip(p.Query, 1000)))
	if len(words) == 0 {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'query' value"}
	}
	limit := defaultFound
	if p.Limit != nil {
		limit = int(max(1, min(maxFound, *p.Limit)))
	}
	known := x.bridge.known()
	if saved, ok, err := x.bridge.savedDefinition(SavedServer); ok && err == nil {
		known = append(known, saved)
	}
	found := search(known, words, p.Detail == "full")
	if len(found) == 0 {
		found = search(x.bridge.describeAll(ctx), words, p.Detail == "full")
	}
	return json.Marshal(found[:min(limit, len(found))])
}

// search ranks; the order of servers and their tools breaks ties.
func search(servers []Definition, words []string, full bool) []document {
	type hit struct {
		document
		inName int
	}
	var hits []hit
	for i := range servers {
		s := &servers[i].Server
		for j := range s.Tools {
			t := &s.Tools[j]
			name := strings.ToLower(t.Name + " " + t.Alias)
			all := name + " " + strings.ToLower(s.Name+" "+s.Alias+" "+s.Description+" "+t.Description)
			inName := 0
			for _, w := range words {
				if !strings.Contains(all, w) {
					inName = -1
					break
				}
				if strings.Contains(name, w) {
					inName++
				}
			}
			if inName >= 0 {
				hits = append(hits, hit{describeTool(s, t, full), inName})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.inName, a.inName) })
	docs := make([]document, len(hits))
	for i, h := range hits {
		docs[i] = h.document
	}
	return docs
}

// known are the definitions of servers that have been described before.
func (b *Bridge) known() []Definition {
	discovered := b.current(false).discovered
	b.mu.Lock()
	defer b.mu.Unlock()
	var known []Definition
	for _, s := range discovered {
		if d := b.cache[s.Name]; d != nil {
			known = append(known, d.definition)
		}
	}
	return known
}

// describeAll describes every server that may be used. Those that do not start
// in time, or at all, are left out: a search is no place to fail for them.
func (b *Bridge) describeAll(ctx context.Context) []Definition {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	discovered := b.current(false).discovered
	definitions := make([]Definition, len(discovered))
	ok := make([]bool, len(discovered))
	var all sync.WaitGroup
	slots := make(chan struct{}, parallelStarts)
	for i, s := range discovered {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d, err := b.describe(ctx, s.Name)
			definitions[i], ok[i] = d, err == nil
		})
	}
	all.Wait()
	var described []Definition
	for i, d := range definitions {
		if ok[i] {
			described = append(described, d)
		}
	}
	return described
}

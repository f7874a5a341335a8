package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sallyport/internal/budget"
	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/upstream/remote"
)

// Bounds of a server's list of tools.
const (
	maxTools     = 20_000
	maxPages     = 2_000
	maxToolBytes = 16 << 20
	maxToolName  = 512
)

// Tool is one tool of a server. Its raw members are as the server sent them and
// must not be changed.
type Tool struct {
	Name, Alias        string
	Title, Description string
	InputSchema        json.RawMessage // always an object
	OutputSchema       json.RawMessage // nil if there is none
	Annotations        json.RawMessage // nil if there are none
	Raw                json.RawMessage // the whole definition

	mirrored []remote.Mirrored // arguments that a call repeats in headers
}

// toolCache holds a server's tools until they change.
type toolCache struct {
	fetching chan struct{} // holds one token while nobody fetches

	mu         sync.Mutex
	tools      []Tool
	valid      bool
	expires    time.Time // zero: when the server says so
	generation int       // of the server's tools, counted by its notices
}

func newToolCache() *toolCache {
	c := &toolCache{fetching: make(chan struct{}, 1)}
	c.fetching <- struct{}{}
	return c
}

func (c *toolCache) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.valid = false
}

func (c *toolCache) get() ([]Tool, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.valid && !c.expires.IsZero() && time.Now().After(c.expires) {
		c.valid = false
	}
	return c.tools, c.generation, c.valid
}

// forget is invalidate, of what last returns too.
func (c *toolCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.tools, c.valid = nil, false
}

// last returns the tools that were listed last, also where they are old.
func (c *toolCache) last() []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools
}

// put keeps tools that were asked for at a generation.
func (c *toolCache) put(tools []Tool, generation int, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools = tools
	c.valid = generation == c.generation
	c.expires = time.Time{}
	if ttl > 0 {
		c.expires = time.Now().Add(ttl)
	}
}

// Tools returns the tools that the definition allows, in the server's order,
// from all pages. The list is cached until the server says that it changed; it
// is shared and must not be changed. Concurrent callers share one request.
func (s *Server) Tools(ctx context.Context) ([]Tool, error) {
	if tools, _, ok := s.tools.get(); ok {
		return tools, nil
	}
	select {
	case <-s.tools.fetching:
		defer func() { s.tools.fetching <- struct{}{} }()
	case <-ctx.Done():
		return nil, s.failure("tools/list", context.Cause(ctx))
	}
	tools, generation, ok := s.tools.get()
	if ok {
		return tools, nil
	}
	done := s.begin()
	tools, ttl, err := s.fetchTools(ctx)
	done(err)
	if err != nil {
		return nil, s.failure("tools/list", err)
	}
	if s.session.listChanged {
		ttl = 0
	}
	s.tools.put(tools, generation, ttl)
	return tools, nil
}

// fetchTools asks for page after page.
func (s *Server) fetchTools(ctx context.Context) (tools []Tool, ttl time.Duration, err error) {
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	list := toolList{server: s, names: make(map[string]bool)}
	seen := make(map[string]bool) // cursors
	var cursor json.RawMessage
	lease := budget.From(ctx)
	held := lease.Held()
	for page := 1; ; page++ {
		lease.Reduce(held) // nothing of the last page is kept
		var members []byte
		if cursor != nil {
			members = append([]byte(`"cursor":`), cursor...)
		}
		raw, err := s.conn.Call(ctx, "tools/list", s.session.params(members))
		if err != nil {
			var answered *jsonrpc.Error
			if errors.As(err, &answered) && (answered.Code == jsonrpc.CodeMethodNotFound || !s.session.hasTools) {
				break // it has none
			}
			return nil, 0, err
		}
		next, ttlMillis, err := list.page(raw)
		if err != nil {
			return nil, 0, err
		}
		ttl = time.Duration(ttlMillis) * time.Millisecond
		switch key := string(next); {
		case next == nil:
			return list.finish(), ttl, nil
		case seen[key]:
			s.log.Warn("tools/list goes round in circles; what came so far counts", "pages", page)
			return list.finish(), ttl, nil
		case list.full || page >= maxPages:
			s.log.Warn("the server has too many tools; the first ones count", "tools", len(list.tools), "pages", page)
			return list.finish(), ttl, nil
		default:
			seen[key] = true
			cursor = bytes.Clone(next)
		}
	}
	return list.finish(), ttl, nil
}

// toolList collects the tools of several pages.
type toolList struct {
	server *Server
	tools  []Tool
	names  map[string]bool
	bytes  int
	full   bool
	odd    int // entries that were left out
}

// page takes one answer and returns the cursor of the next, or nil.
func (l *toolList) page(raw json.RawMessage) (next json.RawMessage, ttlMillis int64, err error) {
	var tools json.RawMessage
	err = jsonrpc.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "tools":
			tools = value
		case "nextCursor":
			if kind := jsonrpc.Kind(value); kind != 'n' && string(value) != `""` {
				next = value
			}
		case "ttlMs":
			_ = json.Unmarshal(value, &ttlMillis) // a hint
		}
		return true
	})
	if err != nil || tools == nil {
		return nil, 0, fmt.Errorf("%w: tools/list without a list of tools", ErrBadAnswer)
	}
	if len(next) > 64<<10 {
		return nil, 0, fmt.Errorf("%w: a cursor of %d bytes", ErrBadAnswer, len(next))
	}
	err = jsonrpc.Elements(tools, func(value json.RawMessage) bool {
		l.add(value)
		return !l.full
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: tools is not a list", ErrBadAnswer)
	}
	return next, max(0, min(ttlMillis, int64(24*time.Hour/time.Millisecond))), nil
}

func (l *toolList) add(raw json.RawMessage) {
	raw = bytes.Clone(raw) // not to hold on to the page
	tool, ok := parseTool(raw)
	if !ok || l.names[tool.Name] {
		l.odd++
		return
	}
	if _, ok := l.server.conn.(withHeaders); ok && l.server.session.era == eraStateless {
		var err error
		if tool.mirrored, err = remote.MirroredArguments(tool.InputSchema); err != nil {
			l.server.log.Warn("a tool is left out: its schema says headers that cannot be sent", "tool", tool.Name, "err", err)
			return
		}
	}
	if l.bytes += len(raw); len(l.tools) >= maxTools || l.bytes > maxToolBytes {
		l.full = true
		return
	}
	l.names[tool.Name] = true
	l.tools = append(l.tools, tool)
}

// finish gives aliases, which depend on all tools, and then leaves out what the
// definition does not allow.
func (l *toolList) finish() []Tool {
	if l.odd > 0 {
		l.server.log.Log(context.Background(), slog.LevelWarn, "tools without a usable name, or named twice, are left out", "tools", l.odd)
	}
	names := make([]string, len(l.tools))
	for i := range l.tools {
		names[i] = l.tools[i].Name
	}
	allowed := make([]Tool, 0, len(l.tools))
	for i, alias := range ToolAliases(names) {
		l.tools[i].Alias = alias
		if l.server.def.ToolAllowed(names[i]) {
			allowed = append(allowed, l.tools[i])
		}
	}
	return allowed
}

var anyObject = json.RawMessage(`{"type":"object"}`)

// parseTool cuts a tool's definition into its members without copying them.
func parseTool(raw json.RawMessage) (Tool, bool) {
	t := Tool{Raw: raw, InputSchema: anyObject}
	var titleInAnnotations string
	err := jsonrpc.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "name":
			_ = json.Unmarshal(value, &t.Name) // checked below
		case "title":
			_ = json.Unmarshal(value, &t.Title)
		case "description":
			_ = json.Unmarshal(value, &t.Description)
		case "inputSchema":
			if jsonrpc.Kind(value) == '{' {
				t.InputSchema = value
			}
		case "outputSchema":
			if jsonrpc.Kind(value) == '{' {
				t.OutputSchema = value
			}
		case "annotations":
			if jsonrpc.Kind(value) == '{' {
				t.Annotations = value
				var a struct {
					Title string `json:"title"`
				}
				_ = json.Unmarshal(value, &a)
				titleInAnnotations = a.Title
			}
		}
		return true
	})
	if t.Title == "" {
		t.Title = titleInAnnotations
	}
	return t, err == nil && t.Name != "" && len(t.Name) <= maxToolName
}

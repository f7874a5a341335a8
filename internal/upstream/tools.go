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

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Bounds of a server's list of tools.
const (
	maxTools     = 20_000
	maxPages     = 2_000
	maxToolBytes = 16 << 20
	// maxOneTool and maxToolDepth bound one tool, which is reduced beyond them.
	maxOneTool   = 4 << 20
	maxToolDepth = jsonrpc.DefaultMaxDepth - 10 // less than a list may have with it
)

// toolCache holds a server's tools until they change.
type toolCache struct {
	fetching chan struct{} // holds one token while no caller fetches

	mu         sync.Mutex
	tools      []tool.Tool
	mirrored   map[string][]remote.Mirrored // by tool: arguments that a call repeats in headers
	notes      []string                     // what of the last list is left out
	valid      bool
	expires    time.Time // zero: when the server says so
	generation int       // counts the server's notices of changed tools
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

func (c *toolCache) get() ([]tool.Tool, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.valid && !c.expires.IsZero() && time.Now().After(c.expires) {
		c.valid = false
	}
	return c.tools, c.generation, c.valid
}

// forget invalidates the tools, for headersOf too.
func (c *toolCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.tools, c.mirrored, c.valid = nil, nil, false
}

// headersOf returns the arguments that a call of a tool repeats in headers, by
// the last list, even an old one. It reports false if there is no list.
func (c *toolCache) headersOf(name string) (mirrored []remote.Mirrored, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mirrored[name], c.tools != nil
}

// put stores tools that were requested at a generation.
func (c *toolCache) put(tools []tool.Tool, list *toolList, generation int, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools, c.mirrored, c.notes = tools, list.mirrored, list.notes
	c.valid = generation == c.generation
	c.expires = time.Time{}
	if ttl > 0 {
		c.expires = time.Now().Add(ttl)
	}
}

// Tools returns the tools that the definition allows, in the server's order,
// from all pages. It caches the list until the server announces a change. The
// list is shared; callers must not modify it. Concurrent callers share one
// request.
func (s *Server) Tools(ctx context.Context) ([]tool.Tool, error) {
	if tools, _, ok := s.tools.get(); ok {
		return s.allowed(tools), nil
	}
	select {
	case <-s.tools.fetching:
		defer func() { s.tools.fetching <- struct{}{} }()
	case <-ctx.Done():
		return nil, s.failure("tools/list", context.Cause(ctx))
	}
	tools, generation, ok := s.tools.get()
	if ok {
		return s.allowed(tools), nil
	}
	done := s.begin()
	list, ttl, err := s.fetchTools(ctx)
	done(err)
	if err != nil {
		return nil, s.failure("tools/list", err)
	}
	if s.session.listChanged {
		ttl = 0
	}
	tools = list.finish()
	s.tools.put(tools, list, generation, ttl)
	return s.allowed(tools), nil
}

// LeftOut says what of the last list of tools is left out, and why.
func (s *Server) LeftOut() []string {
	s.tools.mu.Lock()
	defer s.tools.mu.Unlock()
	return s.tools.notes
}

// fetchTools requests page after page.
func (s *Server) fetchTools(ctx context.Context) (list *toolList, ttl time.Duration, err error) {
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	list = &toolList{server: s, names: make(map[string]bool), mirrored: make(map[string][]remote.Mirrored)}
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
		var deep *jsonrpc.DeepError
		if errors.As(err, &deep) && deep.Result != nil {
			raw, err = deep.Result, nil // add sees to each tool
		}
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
			return list, ttl, nil
		case seen[key]:
			s.log.Warn("tools/list goes round in circles; what came so far counts", "pages", page)
			return list, ttl, nil
		case list.full || page >= maxPages:
			s.log.Warn("the server has too many tools; the first ones count", "tools", len(list.tools), "pages", page)
			return list, ttl, nil
		default:
			seen[key] = true
			cursor = bytes.Clone(next)
		}
	}
	return list, ttl, nil
}

// toolList collects the tools of several pages.
type toolList struct {
	server *Server
	tools  []tool.Tool
	names  map[string]bool
	bytes  int
	full   bool
	odd    int      // how many entries were left out
	notes  []string // for the user, see note

	mirrored map[string][]remote.Mirrored
}

// page parses one answer and returns the cursor of the next page, or nil.
func (l *toolList) page(raw json.RawMessage) (next json.RawMessage, ttlMillis int64, err error) {
	var tools json.RawMessage
	err = jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "tools":
			tools = value
		case "nextCursor":
			if kind := jsonscan.Kind(value); kind != 'n' && string(value) != `""` {
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
	err = elements(tools, "name", func(value json.RawMessage) bool {
		l.add(value)
		return !l.full
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: tools is not a list", ErrBadAnswer)
	}
	return next, max(0, min(ttlMillis, int64(24*time.Hour/time.Millisecond))), nil
}

func (l *toolList) add(raw json.RawMessage) {
	raw = bytes.Clone(raw) // do not keep the whole page in memory
	t, ok := tool.Parse(raw)
	switch {
	case !ok:
		l.odd++
		l.note("an entry without a usable name is left out: %.100q", raw)
		return
	case l.names[t.Name]:
		l.odd++
		l.note("a second tool named %.100q is left out", t.Name)
		return
	}
	if depth, _ := jsonscan.RawMembers(raw, func(_, _ []byte) bool { return true }); depth > maxToolDepth || len(raw) > maxOneTool {
		why := fmt.Sprintf("nests %d levels deep", depth)
		if len(raw) > maxOneTool {
			why = fmt.Sprintf("takes %d bytes", len(raw))
		}
		l.note("what %.100q says of itself %s: its schema is left out", t.Name, why)
		raw = tool.Reduce(raw, "what the tool says of itself "+why)
		t, _ = tool.Parse(raw)
	}
	var mirrored []remote.Mirrored
	if _, ok := l.server.conn.(withHeaders); ok && l.server.session.era == eraStateless {
		var err error
		if mirrored, err = remote.MirroredArguments(t.InputSchema); err != nil {
			l.server.log.Warn("a tool is left out: its schema wants headers that cannot be sent", "tool", t.Name, "err", err)
			l.note("tool %.100q is left out: %v", t.Name, err)
			return
		}
	}
	if l.bytes += len(raw); len(l.tools) >= maxTools || l.bytes > maxToolBytes {
		l.full = true
		return
	}
	l.names[t.Name] = true
	l.tools = append(l.tools, t)
	if len(mirrored) > 0 {
		l.mirrored[t.Name] = mirrored
	}
}

// maxNotes bounds the notes of one list.
const maxNotes = 20

// note says what is left out.
func (l *toolList) note(format string, args ...any) {
	if len(l.notes) < maxNotes {
		l.notes = append(l.notes, fmt.Sprintf(format, args...))
	}
}

// finish says what was left out.
func (l *toolList) finish() []tool.Tool {
	if l.odd > 0 {
		l.server.log.Log(context.Background(), slog.LevelWarn, "tools without a usable name, or named twice, are left out", "tools", l.odd)
	}
	return l.tools
}

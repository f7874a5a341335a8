package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// ErrNotOffered means that the server does not have what was asked for, such as
// resources.
var ErrNotOffered = errors.New("the server does not offer this")

// Bounds of what a server may list.
const (
	maxListed      = 20_000
	maxListedBytes = 32 << 20
)

// Resources returns a JSON array of all resources that the server lists, each
// as the server sent it. It caches nothing. Failures are those of CallTool, and
// ErrNotOffered.
func (s *Server) Resources(ctx context.Context) (json.RawMessage, error) {
	return s.list(ctx, "resources/list", "resources", "uri")
}

// ResourceTemplates is like Resources, for templates of URIs.
func (s *Server) ResourceTemplates(ctx context.Context) (json.RawMessage, error) {
	return s.list(ctx, "resources/templates/list", "resourceTemplates", "uriTemplate")
}

// Prompts is like Resources, for prompts.
func (s *Server) Prompts(ctx context.Context) (json.RawMessage, error) {
	return s.list(ctx, "prompts/list", "prompts", "name")
}

// ReadResource returns the ReadResourceResult as the server sent it.
func (s *Server) ReadResource(ctx context.Context, uri string) (json.RawMessage, error) {
	quoted, err := json.Marshal(uri)
	if err != nil {
		return nil, &Error{Server: s.def.Name, Op: "resources/read", Err: err}
	}
	return s.ask(ctx, "resources/read", append([]byte(`"uri":`), quoted...))
}

// GetPrompt returns the GetPromptResult as the server sent it. args is one JSON
// object, or empty for none.
func (s *Server) GetPrompt(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	if jsonscan.Kind(args) != '{' || !jsonscan.Valid(args) {
		return nil, &Error{Server: s.def.Name, Op: "prompts/get", Kind: ErrInvalidArguments}
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, &Error{Server: s.def.Name, Op: "prompts/get", Err: err}
	}
	members := append(append(append([]byte(`"name":`), quoted...), `,"arguments":`...), args...)
	return s.ask(ctx, "prompts/get", members)
}

// ask makes one request, as CallTool makes calls.
func (s *Server) ask(ctx context.Context, method string, members []byte) (json.RawMessage, error) {
	d, leave := s.enter(ctx)
	result, err := d.converse(members, func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		return s.conn.Call(ctx, method, params)
	})
	leave(err)
	if err != nil {
		return nil, s.refused(method, err)
	}
	return result, nil
}

// list requests page after page and joins the elements under key.
func (s *Server) list(ctx context.Context, method, key, name string) (json.RawMessage, error) {
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	done := s.begin()
	joined, err := s.pages(ctx, method, key, name)
	done(err)
	if err != nil {
		return nil, s.refused(method, err)
	}
	return joined, nil
}

func (s *Server) pages(ctx context.Context, method, key, name string) (json.RawMessage, error) {
	joined := []byte{'['}
	listed := 0
	seen := map[string]bool{} // cursors
	var cursor json.RawMessage
	lease := budget.From(ctx)
	held := lease.Held()
	for page := 1; ; page++ {
		lease.Reduce(held) // nothing of the last page is kept
		var members []byte
		if cursor != nil {
			members = append([]byte(`"cursor":`), cursor...)
		}
		raw, err := s.conn.Call(ctx, method, s.session.params(members))
		if err != nil {
			return nil, err
		}
		entries, next, err := pageOf(raw, method, key)
		if err != nil {
			return nil, err
		}
		full := false
		err = elements(entries, name, func(value json.RawMessage) bool {
			if full = listed >= maxListed || len(joined)+len(value) > maxListedBytes; full {
				return false
			}
			if listed++; listed > 1 {
				joined = append(joined, ',')
			}
			joined = append(joined, value...)
			return true
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %s is not a list", ErrBadAnswer, key)
		case full || page >= maxPages:
			s.log.Warn("the server lists too much; the first entries count", "method", method, "entries", listed)
			return append(joined, ']'), nil
		case next == nil || seen[string(next)]:
			return append(joined, ']'), nil
		}
		seen[string(next)] = true
		cursor = bytes.Clone(next)
	}
}

// elements calls yield for each element of a list until it returns false. null is
// an empty list, as some languages write it. The elements of an object get their
// keys as the member called name, unless they have one.
func elements(list json.RawMessage, name string, yield func(json.RawMessage) bool) error {
	switch jsonscan.Kind(list) {
	case 'n':
		return nil
	case '{':
		_, err := jsonscan.RawMembers(list, func(key, value []byte) bool {
			if jsonscan.Kind(value) != '{' {
				return yield(value)
			}
			named := fmt.Appendf(nil, `{"%s":%s`, name, key)
			if inner := bytes.TrimSpace(value[1:]); inner[0] != '}' {
				named = append(named, ',')
			}
			return yield(append(named, value[1:]...)) // the last member of a name counts
		})
		return err
	}
	return jsonscan.Elements(list, yield)
}

// pageOf parses one answer. next is nil on the last page.
func pageOf(raw json.RawMessage, method, key string) (entries, next json.RawMessage, err error) {
	err = jsonscan.Members(raw, func(name string, value json.RawMessage) bool {
		switch name {
		case key:
			entries = value
		case "nextCursor":
			if jsonscan.Kind(value) != 'n' && string(value) != `""` {
				next = value
			}
		}
		return true
	})
	if err != nil || entries == nil {
		return nil, nil, fmt.Errorf("%w: %s without %s", ErrBadAnswer, method, key)
	}
	if len(next) > 64<<10 {
		return nil, nil, fmt.Errorf("%w: a cursor of %d bytes", ErrBadAnswer, len(next))
	}
	return entries, next, nil
}

// refused is failure, except that an unknown method means ErrNotOffered.
func (s *Server) refused(method string, err error) error {
	var answered *jsonrpc.Error
	if errors.As(err, &answered) && answered.Code == jsonrpc.CodeMethodNotFound {
		return &Error{Server: s.def.Name, Op: method, Kind: ErrNotOffered}
	}
	return s.failure(method, err)
}

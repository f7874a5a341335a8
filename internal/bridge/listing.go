package bridge

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"sallyport/internal/catalog"
	"sallyport/internal/pins"
	"sallyport/internal/policy"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/jsonrpc"
)

// Lender is a Source that lends a server for a look, as [upstream.Manager]
// does: one that was started for it is ended again.
type Lender interface {
	Borrow(ctx context.Context, name string, use func(Server) error) error
}

func (m manager) Borrow(ctx context.Context, name string, use func(Server) error) error {
	return m.m.Borrow(ctx, name, func(s *upstream.Server) error { return use(s) })
}

// Listable is a Source as the catalog sees it: the servers that code may be
// granted. It is safe for concurrent use.
type Listable struct {
	source Source
	policy *policy.Policy
	secret []byte
	pins   *pins.Book
	log    *slog.Logger

	mu      sync.Mutex
	version uint64
	servers []catalog.Server
}

// NewListable makes one. Secret keeps the names that definitions get from
// telling what is in them. What servers say is compared with the pins, if there
// are any, before anybody reads it.
func NewListable(source Source, p *policy.Policy, secret []byte, book *pins.Book, log *slog.Logger) *Listable {
	return &Listable{source: source, policy: p, secret: secret, pins: book, log: log}
}

// Servers implements [catalog.Source].
func (l *Listable) Servers() []catalog.Server {
	version := uint64(1)
	if live, ok := l.source.(Live); ok {
		version = live.Version(false)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == version {
		return l.servers
	}
	l.version, l.servers = version, nil
	for _, d := range l.source.Definitions() {
		if d.Disabled || d.Offer != "" || l.policy.CheckServer(d.Name) != nil {
			continue
		}
		l.servers = append(l.servers, catalog.Server{
			Name: d.Name, Alias: d.Alias, Description: d.Description,
			Key: definitionKey(l.secret, d), Program: Pinned(d).Key,
		})
	}
	return l.servers
}

// definitionKey is a name for everything in a definition that may change what
// the server has. It changes when a secret does and tells none.
func definitionKey(secret []byte, d upstream.Definition) string {
	launch := d.Launch()
	written := struct {
		Name, Command, Dir string
		Args               []string
		Env                map[string]string
		Allow, Deny        []string
		Transport, URL     string
		Headers            map[string]string
	}{
		Name: d.Name, Command: launch.Command, Dir: launch.Dir, Args: launch.Args, Env: launch.Env,
		Allow: d.AllowTools, Deny: d.DenyTools, Transport: string(d.Transport),
	}
	if r := d.Remote(); r != nil {
		written.URL, written.Headers = r.URL, r.Headers
	}
	encoded, err := json.Marshal(written)
	if err != nil { // cannot happen: texts, and maps of texts
		encoded = []byte(d.Name)
	}
	h := hmac.New(sha256.New, secret)
	h.Write(encoded)
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// Pinned is the server whose tools the user accepted: its name and what runs,
// as they may be shown. A new token makes no new server of it.
func Pinned(d upstream.Definition) pins.Server {
	h := sha256.New()
	for _, list := range [][]string{{d.Name, d.Command, d.Dir, d.URL}, d.Args, d.EnvNames, d.HeaderNames} {
		for _, s := range list {
			fmt.Fprintf(h, "%d:%s,", len(s), s)
		}
		h.Write([]byte{0})
	}
	return pins.Server{Name: d.Name, Key: hex.EncodeToString(h.Sum(nil)[:20])}
}

// List implements [catalog.Source].
func (l *Listable) List(ctx context.Context, name string) (*catalog.Listing, error) {
	var listing *catalog.Listing
	look := func(s Server) error {
		tools, err := s.Tools(ctx)
		if err != nil {
			return err
		}
		listing = ListingOf(s, tools)
		all := Said(s, tools)
		if offers, ok := s.(Offers); ok {
			for _, kind := range []pins.Kind{pins.Resource, pins.Template, pins.Prompt} {
				raw, err := offeredList(ctx, offers, kind)
				if err != nil {
					continue // that it does not tell them is no trouble
				}
				all = append(all, itemsOf(kind, raw))
				switch kind {
				case pins.Resource:
					listing.Resources = items(raw)
				case pins.Prompt:
					listing.Prompts = items(raw)
				}
			}
		}
		l.compare(name, all)
		return nil
	}
	if lender, ok := l.source.(Lender); ok {
		err := lender.Borrow(ctx, name, look)
		return listing, err
	}
	s, err := l.source.Open(ctx, name)
	if err == nil {
		err = look(s)
	}
	return listing, err
}

// compare compares what a server says with what was accepted.
func (l *Listable) compare(name string, all []pins.Listed) {
	servers := l.Servers()
	i := slices.IndexFunc(servers, func(s catalog.Server) bool { return s.Name == name })
	if i < 0 || l.pins == nil {
		return
	}
	if _, err := l.pins.Check(pinned(servers[i]), all...); err != nil {
		l.log.Warn("pins: what a server says cannot be compared with what was accepted", "server", name, "error", err)
	}
}

func pinned(s catalog.Server) pins.Server { return pins.Server{Name: s.Name, Key: s.Program} }

// Said is what a running server that has these tools says of them and of itself.
func Said(s Server, tools []upstream.Tool) []pins.Listed {
	listed := pins.Listed{Kind: pins.Tool, Items: make([]pins.Item, len(tools))}
	for i := range tools {
		t := &tools[i]
		it, _ := pins.ItemOf(pins.Tool, t.Raw)
		listed.Items[i] = pins.Item{
			Name: t.Name, Title: t.Title, Description: t.Description,
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, Rest: it.Rest,
		}
	}
	all := []pins.Listed{listed}
	if known, ok := s.(interface{ Info() upstream.Info }); ok {
		info := known.Info()
		all = append(all, pins.Listed{Kind: pins.Instructions, Items: []pins.Item{{Title: info.Server.Title, Description: info.Instructions}}})
	}
	return all
}

// ListingOf is what is known of a running server that has these tools.
func ListingOf(s Server, tools []upstream.Tool) *catalog.Listing {
	listing := &catalog.Listing{Tools: make([]catalog.Tool, len(tools))}
	if known, ok := s.(interface{ Info() upstream.Info }); ok {
		info := known.Info()
		listing.Name, listing.Version, listing.About = info.Server.Name, info.Server.Version, info.Instructions
		if listing.About == "" {
			listing.About = info.Server.Title
		}
	}
	for i := range tools {
		t := &tools[i]
		listing.Tools[i] = catalog.Tool{
			Name: t.Name, Alias: t.Alias, Title: t.Title, Description: t.Description,
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, ReadOnly: readOnly(t.Annotations),
		}
	}
	return listing
}

func readOnly(annotations json.RawMessage) bool {
	var a struct {
		ReadOnlyHint bool `json:"readOnlyHint"`
	}
	return len(annotations) > 0 && json.Unmarshal(annotations, &a) == nil && a.ReadOnlyHint
}

// items reads resources or prompts by their names.
func items(list json.RawMessage) []catalog.Item {
	if jsonrpc.Kind(list) != '[' {
		return nil
	}
	out := []catalog.Item{}
	_ = jsonrpc.Elements(list, func(value json.RawMessage) bool { // valid since it arrived
		var it catalog.Item
		if json.Unmarshal(value, &it) == nil && it.Name+it.URI != "" {
			out = append(out, it)
		}
		return true
	})
	return out
}

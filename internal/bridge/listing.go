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

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// Lender is a Source that lends a server for a short look, as
// [upstream.Manager] does: a server that was started for it is ended again.
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
	gate   *authz.Gate
	secret []byte
	pins   *pins.Book
	log    *slog.Logger

	mu      sync.Mutex
	version uint64
	servers []catalog.Server
	facts   map[string]*authz.Server
}

// NewListable makes a Listable. Secret keeps the keys of definitions from
// revealing their contents. What servers say is compared with the pins, if
// there are any, before anything reads it.
func NewListable(source Source, gate *authz.Gate, secret []byte, book *pins.Book, log *slog.Logger) *Listable {
	return &Listable{source: source, gate: gate, secret: secret, pins: book, log: log}
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
	l.version, l.servers, l.facts = version, nil, map[string]*authz.Server{}
	for _, d := range l.source.Definitions() {
		facts := factsOf(d, l.source)
		if !l.gate.Visible(self, authz.DescribeServer{Server: facts}) {
			continue
		}
		l.facts[d.Name] = facts
		l.servers = append(l.servers, catalog.Server{
			Name: d.Name, Alias: d.Alias, Description: d.Description,
			Key: definitionKey(l.secret, d), Program: Pinned(d).Key, Denied: d.DenyTools,
		})
	}
	return l.servers
}

// definitionKey returns a key for everything in a definition that may change
// what the server has. It changes with a secret, but reveals none.
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
	if err != nil { // cannot happen: strings, and maps of strings
		encoded = []byte(d.Name)
	}
	h := hmac.New(sha256.New, secret)
	h.Write(encoded)
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// Pinned returns the server whose tools the user accepted: its name and its
// command, as they may be shown. A new token does not make it a new server.
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
	l.Servers()
	l.mu.Lock()
	facts, ok := l.facts[name]
	l.mu.Unlock()
	if !ok {
		return nil, &upstream.Error{Server: name, Kind: upstream.ErrUnknownServer}
	}
	permit, err := l.gate.Admit(ctx, self, authz.DescribeServer{Server: facts})
	if err != nil {
		return nil, err
	}
	listing, err := l.list(ctx, name, &permit)
	finish(&permit, 0, err)
	return listing, err
}

// list does what List was permitted to do.
func (l *Listable) list(ctx context.Context, name string, permit *authz.Permit) (*catalog.Listing, error) {
	var listing *catalog.Listing
	look := func(s Server) error {
		tools, err := toolsOf(ctx, s, permit)
		if err != nil {
			return err
		}
		listing = listingOf(s, tools)
		all := said(s, tools)
		if _, ok := s.(Offers); ok {
			for _, kind := range []pins.Kind{pins.Resource, pins.Template, pins.Prompt} {
				raw, err := offeredList(ctx, s, permit, kind)
				if err != nil {
					continue // a server without them is fine
				}
				all = append(all, pins.List(kind, raw))
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

// compare compares a server's descriptions with what was accepted.
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

// said returns the descriptions of a running server that has these tools.
func said(s Server, tools []tool.Tool) []pins.Listed {
	all := []pins.Listed{pins.Tools(tools)}
	if known, ok := s.(interface{ Info() upstream.Info }); ok {
		info := known.Info()
		all = append(all, pins.About(info.Server.Title, info.Instructions))
	}
	return all
}

// listingOf returns what is known about a running server that has these tools.
func listingOf(s Server, tools []tool.Tool) *catalog.Listing {
	listing := &catalog.Listing{Tools: slices.Clone(tools)}
	if known, ok := s.(interface{ Info() upstream.Info }); ok {
		info := known.Info()
		listing.Name, listing.Version, listing.About = info.Server.Name, info.Server.Version, info.Instructions
		if listing.About == "" {
			listing.About = info.Server.Title
		}
	}
	return listing
}

// items reads resources or prompts by their names.
func items(list json.RawMessage) []catalog.Item {
	if jsonscan.Kind(list) != '[' {
		return nil
	}
	out := []catalog.Item{}
	_ = jsonscan.Elements(list, func(value json.RawMessage) bool { // validated on arrival
		var it catalog.Item
		if json.Unmarshal(value, &it) == nil && it.Name+it.URI != "" {
			out = append(out, it)
		}
		return true
	})
	return out
}

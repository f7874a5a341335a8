// Package bridge turns what sandboxed code asks for into authorised calls on
// MCP servers. What an execution may reach is granted to that execution alone;
// everything that arrives from the code is checked here, and what goes back
// says no more of the host than the code may know.
package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"sallyport/internal/catalog"
	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/policy"
	"sallyport/internal/upstream"
	"sallyport/internal/wire"
)

// Source is where servers come from: [Upstream] of the servers that a user
// has, or a test's.
type Source interface {
	// Definitions lists the servers, sorted by name. It changes only with the
	// Version of a [Live] source.
	Definitions() []upstream.Definition
	// Open returns the running server, which it starts if need be.
	Open(ctx context.Context, name string) (Server, error)
}

// Live is a Source whose servers may change while the program runs.
type Live interface {
	Source
	// Version changes with Definitions, and is zero at no time. It is asked for
	// with every execution, so that it has to be cheap; again says that what
	// was true a moment ago is not good enough.
	Version(again bool) uint64
}

// Server is a running MCP server, as [upstream.Server] describes it.
type Server interface {
	Tools(ctx context.Context) ([]upstream.Tool, error)
	CallTool(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error)
}

// Upstream makes a Source of the user's servers. Nil makes one without any.
func Upstream(m *upstream.Manager) Source { return manager{m} }

type manager struct{ m *upstream.Manager }

func (m manager) Definitions() []upstream.Definition {
	if m.m == nil {
		return nil
	}
	return m.m.Definitions()
}

func (m manager) Open(ctx context.Context, name string) (Server, error) {
	s, err := m.m.Server(ctx, name)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Definition is a server as a sandbox learns it. Version changes with it.
type Definition struct {
	wire.Server
	Version string
}

// Config is what a Bridge needs.
type Config struct {
	Source Source         // required
	Policy *policy.Policy // required
	Memory Memory         // nil: code is told that it is switched off
	Tools  SavedTools     // as Memory
	// Facts are what code is told of its limits.
	Facts wire.SessionFacts
	// MaxCalls bounds the calls of one execution that servers work on at a
	// time; more wait. 0 is 128.
	MaxCalls int
	// Catalog knows the servers of Source, as a [Listable]; nil: one in memory.
	Catalog *catalog.Catalog
	// Pins are the forms of tools that the user accepted; nil: all are.
	Pins *pins.Book
	// RefuseChanged: a tool that is not as it was accepted cannot be called.
	RefuseChanged bool
	Log           *slog.Logger // nil: nothing is logged
}

// A Bridge grants servers to executions. It is safe for concurrent use.
type Bridge struct {
	config  Config
	catalog *catalog.Catalog
	own     bool // the catalog is nobody else's
	log     *slog.Logger
	view    atomic.Pointer[view]

	mu    sync.Mutex
	cache map[string]*described
	saved *catalog.Listing // the saved tools when they were last looked at
	// unsure are the servers, by the key of their pins, whose last comparison
	// with what was accepted failed.
	unsure map[string]error
	// hides are the prompts and resources of each server with hidden characters,
	// and hidesTold those, and the tools, that were reported.
	hides     map[string][]string
	hidesTold map[string]string
	// looked are the servers whose prompts and resources were compared.
	looked map[serverKind]Offers
	// failures are the last one of each server that was logged.
	failures map[string]string
}

// serverKind is one list of a server.
type serverKind struct {
	server string
	kind   pins.Kind
}

// view is what there is at one time. It is not changed; a new one takes its
// place.
type view struct {
	version    uint64
	servers    map[string]upstream.Definition
	discovered []wire.ServerInfo
}

// described is the definition made of one list of tools.
type described struct {
	tools      []upstream.Tool
	report     pins.Report // of the same tools
	definition Definition
}

// New returns a bridge to the servers of a source.
func New(config Config) (*Bridge, error) {
	if config.Source == nil || config.Policy == nil {
		return nil, errors.New("bridge: a source and a policy are required")
	}
	if config.MaxCalls == 0 {
		config.MaxCalls = 128
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	own := config.Catalog == nil
	if own {
		config.Catalog = catalog.New(catalog.Config{Source: NewListable(config.Source, config.Policy, nil, config.Pins, config.Log), Log: config.Log})
	}
	b := &Bridge{config: config, catalog: config.Catalog, own: own, log: config.Log, cache: map[string]*described{}, failures: map[string]string{},
		unsure: map[string]error{}, hides: map[string][]string{}, hidesTold: map[string]string{}, looked: map[serverKind]Offers{}}
	b.current(false)
	return b, nil
}

// Close ends what the Bridge began by itself. Calls of executions fail from then
// on, or end with their contexts. It is idempotent.
func (b *Bridge) Close() {
	if b.own {
		b.catalog.Close()
	}
}

// Busy says that an execution runs, which the catalog does not work beside.
// What it returns ends that, and must be called once.
func (b *Bridge) Busy() func() { return b.catalog.Busy() }

// current is what there is now.
func (b *Bridge) current(again bool) *view {
	have := b.view.Load()
	version := uint64(1)
	if live, ok := b.config.Source.(Live); ok {
		version = live.Version(again)
	}
	if have != nil && have.version == version {
		return have
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have = b.view.Load(); have != nil && have.version == version {
		return have
	}
	v := &view{version: version, servers: map[string]upstream.Definition{}}
	for _, d := range b.config.Source.Definitions() {
		v.servers[d.Name] = d
		if !d.Disabled && d.Offer == "" && b.config.Policy.CheckServer(d.Name) == nil {
			v.discovered = append(v.discovered, wire.ServerInfo{Name: d.Name, Alias: d.Alias, Description: hidden.Strip(d.Description)})
		}
	}
	if v.discovered == nil && have != nil && have.discovered != nil {
		v.discovered = []wire.ServerInfo{} // there were some: a sandbox has to hear that there are none
	}
	for name := range b.cache {
		if _, ok := v.servers[name]; !ok {
			delete(b.cache, name)
			delete(b.failures, name)
			delete(b.hides, name)
			delete(b.hidesTold, name)
			maps.DeleteFunc(b.looked, func(k serverKind, _ Offers) bool { return k.server == name })
		}
	}
	b.view.Store(v)
	return v
}

// Discovered lists the servers that code may be granted, and a text that
// changes with the list.
func (b *Bridge) Discovered() ([]wire.ServerInfo, string) {
	v := b.current(false)
	return v.discovered, strconv.FormatUint(v.version, 10)
}

// Check answers whether an execution may be granted the server, without
// starting it.
func (b *Bridge) Check(name string) error {
	d, ok := b.current(false).servers[name]
	if !ok {
		// It may have been added this very moment.
		if d, ok = b.current(true).servers[name]; !ok {
			return b.unknown(name)
		}
	}
	if err := b.config.Policy.CheckServer(name); err != nil {
		return err
	}
	switch {
	case d.Disabled:
		return fmt.Errorf("MCP server %q is disabled (%s)", name, wayTo(d))
	case d.Offer != "":
		return fmt.Errorf("MCP server %q is of a project that the user has not trusted (%s)", name, wayTo(d))
	}
	return nil
}

// unknown is the error for a name that is not configured.
func (b *Bridge) unknown(name string) error {
	message := "Unknown MCP server: " + clip(name, 100)
	discovered := b.current(false).discovered
	if len(discovered) == 0 {
		return errors.New(message + " (no MCP server is configured)")
	}
	names := make([]string, len(discovered))
	for i, s := range discovered {
		names[i] = s.Name
	}
	return fmt.Errorf("%s (nearest: %s)", message, strings.Join(nearest(name, names, 3), ", "))
}

// describe starts a server if need be and returns its definition. Of a list of
// tools that has not changed the very same definition is returned, whatever
// its size.
func (b *Bridge) describe(ctx context.Context, name string) (Definition, error) {
	if err := b.Check(name); err != nil {
		return Definition{}, err
	}
	server, err := b.config.Source.Open(ctx, name)
	if err != nil {
		return Definition{}, b.failed(ctx, name, err, false)
	}
	tools, err := server.Tools(ctx)
	if err != nil {
		return Definition{}, b.failed(ctx, name, err, false)
	}
	d, ok := b.current(false).servers[name]
	if !ok { // taken away while it started
		return Definition{}, b.unknown(name)
	}
	b.mu.Lock()
	c := b.cache[name]
	b.mu.Unlock()
	if c != nil && same(c.tools, tools) &&
		c.definition.Alias == d.Alias && c.definition.Description == hidden.Strip(d.Description) && c.definition.Cwd == d.Dir &&
		(c.report.Quiet() || c.report.Same(b.status(Pinned(d)))) {
		return c.definition, nil
	}
	report := b.observe(d, server, tools)
	definition := Definition{Server: wire.Server{
		Name: d.Name, Alias: d.Alias, Description: hidden.Strip(d.Description), Cwd: d.Dir,
		Tools: make([]wire.Tool, len(tools)),
	}}
	for i, t := range tools {
		definition.Tools[i] = wire.Tool{
			Name: t.Name, Alias: t.Alias, Description: t.Description,
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema,
		}
	}
	definition.Tools = b.acceptedTools(Pinned(d), definition.Tools)
	definition.Version = version(&definition.Server)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cache[name] = &described{tools: tools, report: report, definition: definition}
	return definition, nil
}

// same says whether two lists are one and the same memory.
func same(a, b []upstream.Tool) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// version is a digest of what a sandbox is told of a server.
func version(s *wire.Server) string {
	h := sha256.New()
	add := func(p []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	add([]byte(s.Alias))
	add([]byte(s.Description))
	add([]byte(s.Cwd))
	for _, t := range s.Tools {
		add([]byte(t.Name))
		add([]byte(t.Alias))
		add([]byte(t.Description))
		add(t.InputSchema)
		add(t.OutputSchema)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// An Execution is what one run of code may reach. It is safe for concurrent
// use.
type Execution struct {
	bridge *Bridge
	names  []string // asked for with the run, in order, each once
	calls  chan struct{}

	mu      sync.Mutex
	granted map[string]bool
	loaded  []string // by the code itself, in order
	notes   []string // see Notes
}

// Begin grants servers to one execution. The names must have passed Check.
func (b *Bridge) Begin(names []string) *Execution {
	x := &Execution{bridge: b, calls: make(chan struct{}, b.config.MaxCalls)}
	if len(names) == 0 {
		return x // granted stays nil until the code loads a server
	}
	x.granted = make(map[string]bool, len(names))
	for _, name := range names {
		if !x.granted[name] {
			x.granted[name] = true
			x.names = append(x.names, name)
		}
	}
	return x
}

// Names are the servers granted with the run, in the order asked for.
func (x *Execution) Names() []string { return slices.Clone(x.names) }

// Prepare starts the granted servers, side by side, and returns their
// definitions in the order of Names. The first failure in that order is the
// error.
func (x *Execution) Prepare(ctx context.Context) ([]Definition, error) {
	if len(x.names) == 0 {
		return nil, nil
	}
	definitions := make([]Definition, len(x.names))
	errs := make([]error, len(x.names))
	var all sync.WaitGroup
	for i, name := range x.names[1:] {
		all.Go(func() { definitions[i+1], errs[i+1] = x.bridge.describe(ctx, name) })
	}
	definitions[0], errs[0] = x.bridge.describe(ctx, x.names[0])
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return definitions, nil
}

func (x *Execution) isGranted(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.granted[name]
}

func (x *Execution) grant(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.granted == nil {
		x.granted = map[string]bool{}
	}
	if !x.granted[name] {
		x.granted[name] = true
		x.loaded = append(x.loaded, name)
	}
}

// Granted are the servers that the code could reach in the end: those of Names,
// then what it loaded itself.
func (x *Execution) Granted() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(x.names, x.loaded)
}

// Package bridge turns the requests of sandboxed code into authorised calls on
// MCP servers. What an execution may reach is granted to that execution alone.
// Everything that arrives from the code is checked here, and answers tell no
// more about the host than the code may know.
package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// Source is where servers come from: [Upstream] for the user's servers, or a
// test's.
type Source interface {
	// Definitions lists the servers, sorted by name. It changes only with the
	// Version of a [Live] source.
	Definitions() []upstream.Definition
	// Open returns the running server, and starts it if need be.
	Open(ctx context.Context, name string) (Server, error)
}

// Live is a Source whose servers may change while the program runs.
type Live interface {
	Source
	// Version changes with Definitions, and is never zero. Every execution calls
	// it, so it must be cheap. again means that a result from a moment ago is not
	// good enough.
	Version(again bool) uint64
}

// Server is a running MCP server, as [upstream.Server] describes it.
type Server interface {
	Tools(ctx context.Context) ([]tool.Tool, error)
	CallTool(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error)
}

// Upstream makes a Source of the user's servers. Nil makes one without servers.
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

// Stores keeps what code saves, separately for each owner: an owner's code
// never finds what another's has saved.
type Stores interface {
	// Memory returns nil if memory is switched off.
	Memory(owner string) Memory
	// SavedTools returns nil if saved tools are switched off.
	SavedTools(owner string) SavedTools
}

// noStores keeps nothing.
type noStores struct{}

func (noStores) Memory(string) Memory         { return nil }
func (noStores) SavedTools(string) SavedTools { return nil }

// Config is what a Bridge needs.
type Config struct {
	Source Source      // required
	Gate   *authz.Gate // required
	Stores Stores      // nil: nothing is kept
	// MaxCalls bounds the calls of one execution that servers work on at a time;
	// further calls wait. 0 means 128.
	MaxCalls int
	// Catalog knows the servers of Source, as a [Listable]; nil means one in
	// memory.
	Catalog *catalog.Catalog
	// Pins are the forms of tools that the user accepted; nil accepts all. The gate
	// decides whether other forms are refused.
	Pins *pins.Book
	// Results are used again where the user's rules say so; nil: none are. Source is
	// then an Identified.
	Results *results.Cache
	// Packages finds packages that code adds; nil: it can add none.
	Packages Packages
	// Inquiries puts what servers ask to people and clients; nil: no one is asked.
	Inquiries Inquiries
	Sampling  Sampling     // the zero Sampling lets no server ask the model
	Log       *slog.Logger // nil: nothing is logged
}

// A Bridge grants servers to executions. It is safe for concurrent use.
type Bridge struct {
	config  Config
	id      string // tells it from the other Bridges of the process
	catalog *catalog.Catalog
	own     bool // no one else uses the catalog
	log     *slog.Logger
	view    atomic.Pointer[view]

	mu    sync.Mutex
	cache map[string]*described
	saved map[string]*catalog.Listing // by owner: the saved tools when they were last read
	// unsure has the servers, by the key of their pins, whose last comparison with
	// what was accepted failed.
	unsure map[string]error
	// hides has the prompts and resources of each server with hidden characters,
	// and hidesTold those, and the tools, that were reported.
	hides     map[string][]string
	hidesTold map[string]string
	// looked has the servers whose prompts and resources were compared.
	looked map[serverKind]Server
	// failures has the last failure of each server.
	failures map[string]trouble
	hosts    map[*host]bool // of the calls in flight
}

// serverKind is one list of a server.
type serverKind struct {
	server string
	kind   pins.Kind
}

// view holds the servers at one time. It is immutable; a new one replaces it.
type view struct {
	version    uint64
	servers    map[string]upstream.Definition
	facts      map[string]*authz.Server // of the same servers, for the gate
	discovered []wire.ServerInfo
	calls      map[string]string // how code writes those of discovered
}

// described is the definition made from one list of tools.
type described struct {
	tools      []tool.Tool
	report     pins.Report     // of the same tools
	shapes     *catalog.Shapes // that the signatures show
	lessons    map[string]*lesson
	facts      map[string]toolFacts
	definition wire.Server
}

// count is how many Bridges there have been.
var count atomic.Uint64

// New returns a bridge to the servers of a source.
func New(config Config) (*Bridge, error) {
	if config.Source == nil || config.Gate == nil {
		return nil, errors.New("bridge: a source and a gate are required")
	}
	if config.MaxCalls == 0 {
		config.MaxCalls = 128
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Stores == nil {
		config.Stores = noStores{}
	}
	own := config.Catalog == nil
	if own {
		config.Catalog = catalog.New(catalog.Config{Source: NewListable(config.Source, config.Gate, nil, config.Pins, config.Log), Log: config.Log})
	}
	b := &Bridge{config: config, id: strconv.FormatUint(count.Add(1), 10), catalog: config.Catalog, own: own, log: config.Log, cache: map[string]*described{}, saved: map[string]*catalog.Listing{}, failures: map[string]trouble{},
		unsure: map[string]error{}, hides: map[string][]string{}, hidesTold: map[string]string{}, looked: map[serverKind]Server{}, hosts: map[*host]bool{}}
	b.current(false)
	return b, nil
}

// Close ends what the Bridge started by itself. Calls of executions fail from
// then on, or end with their contexts. It is idempotent.
func (b *Bridge) Close() {
	if b.own {
		b.catalog.Close()
	}
}

// Busy reports that an execution runs, which pauses the catalog's background
// work. The function that it returns ends that, and must be called once.
func (b *Bridge) Busy() func() { return b.catalog.Busy() }

// current returns the view of the current servers.
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
	v := &view{version: version, servers: map[string]upstream.Definition{}, facts: map[string]*authz.Server{}}
	for _, d := range b.config.Source.Definitions() {
		facts := factsOf(d, b.config.Source)
		v.servers[d.Name], v.facts[d.Name] = d, facts
		if b.config.Gate.Visible(self, authz.LoadServer{Server: facts}) {
			v.discovered = append(v.discovered, wire.ServerInfo{Name: d.Name, Alias: d.Alias, Description: invisible.Strip(d.Description)})
		}
	}
	names := make([]string, len(v.discovered))
	for i, s := range v.discovered {
		names[i] = s.Name
	}
	v.calls = tool.ServerCalls(names)
	if v.discovered == nil && have != nil && have.discovered != nil {
		v.discovered = []wire.ServerInfo{} // not nil: a sandbox that had servers must hear that there are none now
	}
	for name := range b.cache {
		if _, ok := v.servers[name]; !ok {
			delete(b.cache, name)
			delete(b.failures, name)
			delete(b.hides, name)
			delete(b.hidesTold, name)
			maps.DeleteFunc(b.looked, func(k serverKind, _ Server) bool { return k.server == name })
		}
	}
	b.view.Store(v)
	return v
}

// Discovered lists the servers that code may be granted, and returns a version
// that changes with the list.
func (b *Bridge) Discovered() ([]wire.ServerInfo, string) {
	v := b.current(false)
	return v.discovered, b.id + "." + strconv.FormatUint(v.version, 10)
}

// unknown returns the error for a name that is not configured.
func (b *Bridge) unknown(name string) error {
	message := "Unknown MCP server: " + clip(name, 100)
	discovered := b.current(false).discovered
	if len(discovered) == 0 {
		return &wire.CallError{Kind: wire.KindNotFound, Message: message + " (no MCP server is configured)"}
	}
	names := make([]string, len(discovered))
	for i, s := range discovered {
		names[i] = s.Name
	}
	return &wire.CallError{Kind: wire.KindNotFound, Message: message + " (nearest: " + strings.Join(Nearest(name, names, 3), ", ") + ")"}
}

// describe starts a server if need be and returns its definition. If the list
// of tools has not changed, it returns the very same definition, whatever its
// size.
func (b *Bridge) describe(ctx context.Context, p authz.Principal, name string) (wire.Server, error) {
	s, err := b.server(name)
	if err != nil {
		return wire.Server{}, err
	}
	permit, err := b.config.Gate.Admit(ctx, p, authz.LoadServer{Server: s})
	if err != nil {
		return wire.Server{}, err
	}
	d, err := signingIn(ctx, b, &permit, func() (wire.Server, error) { return b.load(ctx, name, &permit) })
	finish(&permit, 0, err)
	return d, err
}

// load does what describe was permitted to do.
func (b *Bridge) load(ctx context.Context, name string, permit *authz.Permit) (wire.Server, error) {
	server, err := b.open(ctx, permit)
	if err != nil {
		return wire.Server{}, err
	}
	tools, err := toolsOf(ctx, server, permit)
	if err != nil {
		return wire.Server{}, b.failed(ctx, name, err, false)
	}
	d, ok := b.current(false).servers[name]
	if !ok { // removed while it started
		return wire.Server{}, b.unknown(name)
	}
	b.mu.Lock()
	c := b.cache[name]
	b.mu.Unlock()
	shapes := b.catalog.Shapes(name)
	if c != nil && same(c.tools, tools) && c.shapes == shapes &&
		c.definition.Alias == d.Alias && c.definition.Description == invisible.Strip(d.Description) && c.definition.Cwd == d.Dir && slices.Equal(c.definition.Denied, d.DenyTools) &&
		(c.report.Quiet() || c.report.Same(b.status(Pinned(d)))) {
		return c.definition, nil
	}
	report := b.observe(d, server, tools)
	definition := wire.Server{
		Name: d.Name, Alias: d.Alias, Description: invisible.Strip(d.Description), Cwd: d.Dir, Denied: d.DenyTools,
		Tools: b.accepted(Pinned(d), tools),
	}
	room := maxSignatures
	lessons := map[string]*lesson{}
	facts := b.toolFacts(Pinned(d), definition.Tools, report)
	for i := range definition.Tools {
		t := &definition.Tools[i]
		learned := ""
		if len(t.OutputSchema) == 0 && i < maxSigned {
			lessons[t.Name] = &lesson{form: catalog.FormOf(t)}
			learned = signature.Learned(shapes.Of(t), false)
		}
		t.Title, t.Annotations = "", tool.Annotations{}
		t.Unwrap = signature.Unwrapped(t.OutputSchema)
		if len(t.InputSchema)+len(t.OutputSchema) <= maxSignedSchema && i < maxSigned && room > 0 {
			t.Signature, t.Renamed = signature.Sandbox(t.InputSchema, t.OutputSchema)
			t.Signature += learned
			room -= len(t.Signature)
		} else {
			t.Renamed = signature.Renamed(signature.Arguments(t.InputSchema))
		}
	}
	definition.Version = version(&definition)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cache[name] = &described{tools: tools, report: report, shapes: shapes, lessons: lessons, facts: facts, definition: definition}
	return definition, nil
}

// Bounds of the signatures of one server that a sandbox receives. Without a
// signature it shows only the names of the arguments.
const (
	maxSigned       = 2000     // tools
	maxSignedSchema = 64 << 10 // bytes of a tool's schemas
	maxSignatures   = 4 << 20  // bytes of all signatures
)

// same reports whether two lists share their memory.
func same(a, b []tool.Tool) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// version returns a digest of what a sandbox receives about a server.
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
	add([]byte(strings.Join(s.Denied, "\x00")))
	for _, t := range s.Tools {
		add([]byte(t.Name))
		add([]byte(t.Alias))
		add([]byte(t.Description))
		add(t.InputSchema)
		add(t.OutputSchema)
		add([]byte(t.Signature)) // a learned shape changes it
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// An Execution is what one run of code may reach. It is safe for concurrent
// use.
type Execution struct {
	bridge    *Bridge
	principal authz.Principal
	names     []string // requested with the run, in order, each once
	session   string   // see InSession
	calls     chan struct{}
	counts    authz.Counts
	tell      func(server, line string) // see Hear

	mu      sync.Mutex
	granted map[string]bool
	// unsigned has the servers where the user is not asked again to sign in.
	unsigned map[string]bool
	loaded   []string // by the code itself, in order
	steps    steps
	notes    []string // see Notes
	reused   reused
	sampled  Sampling       // what servers have asked of the model
	refused  map[string]int // see declinedBy

	additions additions
}

// Begin grants servers to one execution. The names must have passed Check for
// the same principal.
func (b *Bridge) Begin(p authz.Principal, names []string) *Execution {
	x := &Execution{bridge: b, principal: p, calls: make(chan struct{}, b.config.MaxCalls)}
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

// InSession makes the execution reach the servers that a session has for itself,
// and returns it.
func (x *Execution) InSession(session string) *Execution {
	x.session = session
	return x
}

// Names returns the servers granted with the run, in the order of the request.
func (x *Execution) Names() []string { return slices.Clone(x.names) }

// Prepare starts the granted servers in parallel, and returns their definitions
// in the order of Names. The first failure in that order is the error.
func (x *Execution) Prepare(ctx context.Context) ([]wire.Server, error) {
	if len(x.names) == 0 {
		return nil, nil
	}
	ctx = x.within(ctx)
	for _, name := range x.names {
		x.begin(name, "")
	}
	definitions := make([]wire.Server, len(x.names))
	errs := make([]error, len(x.names))
	var all sync.WaitGroup
	for i, name := range x.names[1:] {
		all.Go(func() {
			defer x.end(name, "")
			definitions[i+1], errs[i+1] = x.bridge.describe(ctx, x.principal, name)
		})
	}
	definitions[0], errs[0] = x.bridge.describe(ctx, x.principal, x.names[0])
	x.end(x.names[0], "")
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

// Granted returns the servers that the code could reach in the end: those of
// Names, then those that it loaded itself.
func (x *Execution) Granted() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(x.names, x.loaded)
}

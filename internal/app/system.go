package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/accounting"
	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/metrics"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/traces"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/secret"
)

// drainTime is how long a server whose definition changed may take to finish
// the calls that it has.
const drainTime = 30 * time.Second

// Core is what runs code for any number of clients.
type Core struct {
	Gate   *authz.Gate
	Rules  *toolpolicy.Rules
	Engine sandbox.Engine
	Batch  map[string]batch.Service // by name
	Runs   *runs.Store
	Books  *accounting.Books // nil: the settings ask for no accounts
	Pins   *pins.Book
	// Journal has what happens in the Core.
	Journal *journal.Journal
	// Approvals has the questions that are open.
	Approvals *approval.Book

	app     *App
	results *results.Cache
	// artifacts are the files that code left.
	artifacts *artifact.Store
	// additions are packages that code adds; nil: there is no place for them.
	additions bridge.Packages
	pool      *upstream.Pool
	broker    *broker.Broker
	set       *session.Set // of broker, which closes it
	// environments are nil where there is no state directory.
	environments broker.Environments
	stores       *stores

	accounts *journal.Subscription // of Books; nil without
	counts   *metrics.Set
	traces   *traces.Exporter      // nil: spans are sent nowhere
	tracing  *journal.Subscription // of traces; nil without
	counting *journal.Subscription // of counts
	Audit    *audit.Log            // nil: none is kept

	leaving sync.WaitGroup // clients that were closed
}

// Client is what belongs to one client: its servers, as its working directory and
// its environment define them.
type Client struct {
	Library  *library.Library
	Servers  *upstream.Manager
	Catalog  *catalog.Catalog
	Bridge   *bridge.Bridge
	Broker   *broker.Client
	Problems []string // of the server definitions, for people

	app  *App
	core *Core
}

// System is everything that runs code for one client.
type System struct {
	*Core
	*Client
}

// Options are what a frontend decides about a Core.
type Options struct {
	// Unsaved is session.Options.Unsaved.
	Unsaved func(session string, err error)
	// Waits means that the frontend bounds the start of a server itself, whatever
	// settings and definitions say.
	Waits bool
	// Starting is upstream.Options.Starting.
	Starting func(d upstream.Definition) (ended func())
}

// NewSystem constructs a System, which the caller closes. It starts nothing. A
// file of serversConfig, which the user named, that cannot be read is an error.
func (a *App) NewSystem(options Options, serversConfig []string) (*System, error) {
	core, err := a.NewCore(options)
	if err != nil {
		return nil, err
	}
	client, err := core.NewClient(a, serversConfig)
	if err != nil {
		core.Close()
		return nil, err
	}
	return &System{core, client}, nil
}

// NewCore constructs a Core, which the caller closes. It starts nothing.
func (a *App) NewCore(options Options) (*Core, error) {
	c := &Core{app: a, stores: newStores(a), Journal: journal.New(a.Log), Rules: a.Rules()}
	if err := c.construct(options); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Core) construct(options Options) (err error) {
	a, set := c.app, c.app.Settings
	if err := a.CheckDirectories(); err != nil {
		return err
	}
	a.keepHadRules(c.Rules)
	if c.Audit, err = a.audit(c.Journal); err != nil {
		return err
	}
	c.Approvals = a.approvals(c.Journal, c.Audit, c.Rules)
	packages := &packagesPolicy{now: set}
	if c.Gate, err = gateOf(set, authz.Config{Packages: packages.allowed, PackagesBy: packages.by, Tools: c.Rules, Asker: c.Approvals, Journal: c.Journal}); err != nil {
		return err
	}
	if c.Engine, err = a.Engine(); err != nil {
		return err
	}
	if c.Batch, err = a.batchServices(); err != nil {
		return err
	}
	c.Engine.Name() // which chooses it, before anyone asks what it is
	if c.Books, err = a.books(c.EngineName); err != nil {
		return err
	}
	if c.Books != nil {
		c.accounts = c.Journal.Subscribe(journal.Options{Name: "accounting", Topics: journal.Usages, Handle: c.Books.Handle})
	}
	c.counts = metrics.New()
	c.counting = c.Journal.Subscribe(journal.Options{Name: "metrics", Topics: metrics.Topics, Every: time.Second, Handle: c.counts.Handle})
	if endpoint := set.Traces.Endpoint; endpoint != "" || traces.Wanted(func(name string) string { return a.Env[name] }) {
		if c.traces, err = traces.New(endpoint, a.Version, a.Log); err != nil {
			return err
		}
		c.tracing = c.Journal.Subscribe(journal.Options{Name: "traces", Topics: traces.Topics, Every: time.Second, Handle: c.traces.Handle})
	}
	c.Runs = a.runStore(c.Batch, c.Books)
	c.artifacts = a.Artifacts()
	c.results = a.results()
	c.pool = a.servers(c.Journal, c.results.Forget, options)
	c.Pins = a.Pins()
	c.additions = a.additions(packages)
	host := &session.Template{
		Engine: c.Engine, Program: python.Program(), Limits: limitsOf(set.Limits), Preload: set.Sessions.Preload,
	}
	if c.environments, err = a.environments(host); err != nil {
		return err
	}
	c.set = c.sessions(options.Unsaved)
	config := broker.Config{
		Gate:   c.Gate,
		Logger: a.Log, Journal: c.Journal, Traces: c.traces != nil,
		Template:     host,
		Environments: c.environments,
		Folders:      folders{a},
		ScriptHeader: scriptHeader,
		Sessions:     c.set, Artifacts: c.artifacts,
		Batch: broker.BatchConfig{
			Services: c.Batch, Runs: c.Runs, Limits: a.limitsAsked(),
			Timeout: set.Runs.Timeout, MaxTimeout: set.Runs.MaxTimeout, Queue: set.Runs.Queue,
		},
		DefaultTimeout: set.Timeouts.Default,
		MaxTimeout:     set.Timeouts.Max,
		Executions:     executionsOf(set),
	}
	if e, ok := c.environments.(*environments); ok {
		config.PackageFacts = e.packageFacts
	}
	if c.Audit != nil {
		config.Unrecorded = c.Audit.Failing
	}
	if c.Books != nil {
		config.Accountant = c.Books
	}
	c.broker, err = broker.New(config)
	return err
}

// EngineName returns the name of the engine that runs code now; empty: none is chosen. It
// probes nothing.
func (c *Core) EngineName() string {
	choice, ok := c.Engine.(*Choice)
	if !ok {
		return c.Engine.Name()
	}
	if b := choice.chosen.Load(); b != nil {
		return b.Name()
	}
	return ""
}

// NewClient constructs a Client, which the caller closes before the Core. It
// starts nothing. The App is the client's: its environment and working directory
// decide which servers there are. A file of serversConfig that cannot be read is
// an error.
func (c *Core) NewClient(a *App, serversConfig []string) (*Client, error) {
	out := &Client{app: a, core: c}
	if err := out.construct(serversConfig); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

func (c *Client) construct(serversConfig []string) (err error) {
	a, core := c.app, c.core
	if err := definitions.CheckDepth(a.Env.Lookup, a.Settings.Servers.AllowSelf); err != nil {
		return err
	}
	if c.Library, c.Problems, err = a.library(serversConfig, a.Log); err != nil {
		return err
	}
	secrets := &core.app.secrets
	learn(secrets, c.Library.Snapshot().Definitions)
	around := a.surroundings()
	around.Secrets = learning(secrets, around.Secrets)
	c.Servers = core.pool.NewManager(c.Library.Snapshot().Definitions, around)
	c.Library.OnChange(func(now *library.Snapshot) {
		learn(secrets, now.Definitions)
		c.Servers.Replace(now.Definitions, drainTime)
	})
	source := userServers{bridge.Upstream(c.Servers), c.Library}
	c.Catalog = a.catalog(source, core.Gate, core.Pins)
	c.Servers.OnToolsChanged(c.Catalog.Stale)
	config := bridge.Config{
		Source:   source,
		Gate:     core.Gate,
		Stores:   core.stores,
		MaxCalls: a.Settings.Servers.MaxCalls,
		Catalog:  c.Catalog,
		Pins:     core.Pins,
		Results:  core.results,
		Packages: core.additions,
		Sampling: bridge.Sampling(core.app.Settings.Servers.Sampling),
		Log:      a.Log,
	}
	if core.app.Settings.Approvals.Timeout > 0 { // else no one is asked anything
		config.Inquiries = core.Approvals
	}
	if c.Bridge, err = bridge.New(config); err != nil {
		return err
	}
	if c.Broker, err = core.broker.NewClient(strings.ToLower(rand.Text()[:12]), c.Bridge); err != nil {
		return err
	}
	c.Broker.ShowUsage = a.Settings.Output.Usage
	return nil
}

// results constructs what keeps results of tools.
func (a *App) results() *results.Cache {
	set := a.Settings.Cache
	config := results.Config{Entries: set.Entries, Bytes: set.Bytes, Log: a.Log}
	if set.Disk {
		config.Dir = a.state(store.Results)
	}
	return results.New(config)
}

// surroundings are what a client's servers are started in.
func (a *App) surroundings() upstream.Surroundings {
	bus := a.Env.userBus()
	return upstream.Surroundings{Environ: a.Env.List(), Dir: a.Dir, Secrets: secret.Reader{Bus: bus}.Read, Keyring: bus, Logins: secret.Keyring{Bus: bus}}
}

// servers constructs what runs the servers of all clients.
func (a *App) servers(events *journal.Journal, forget func(string), with Options) *upstream.Pool {
	set := a.Settings.Servers
	options := upstream.Options{
		Log:           a.Log,
		ClientName:    "sallyport",
		ClientVersion: a.Version,
		Inherit:       set.Inherit,
		StartTimeout:  set.StartTimeout,
		CallTimeout:   set.CallTimeout,
		IdleStop:      set.IdleStop,
		StopGrace:     set.StopGrace,
		MaxLine:       int(set.MaxMessage),
		SpoolDir:      a.statePath(store.Spool),
		Connections:   set.ConnectionsOf,
		Sharing:       a.sharing,
		May:           func(d upstream.Definition) inquiry.Takes { return mayAsk(a.Settings, d.Name) },
		PlainHTTP:     set.PlainHTTP,
		Logins:        a.logins(),
		Eras:          a.state(store.Eras),
		Journal:       events,
		Forget:        forget,
		Starting:      with.Starting,
	}
	if with.Waits {
		options.StartTimeout = -1
	}
	return upstream.NewPool(options)
}

// sessions constructs the sessions.
func (c *Core) sessions(unsaved func(string, error)) *session.Set {
	a, set := c.app, c.app.Settings
	options := session.Options{
		Logger:       a.Log,
		WholeRun:     set.Timeouts.WholeRun,
		Grace:        set.Timeouts.Grace,
		StartTimeout: set.Timeouts.Start,
		Background:   set.Sessions.BackgroundCPU,
		Restore:      set.Sessions.Snapshots == settings.SnapshotsAuto,
		Pool:         set.Sessions.Pool,
		Idle:         set.Sessions.Idle,
		Keep:         set.Sessions.Keep,
		MaxRunning:   set.Sessions.MaxRunning,
		MaxDisk:      set.Sessions.MaxDisk,
		MaxNamed:     set.Sessions.MaxNamed,
		Unpacked:     !set.Sessions.Pack,
		Unsaved:      unsaved,
		Forgotten: func(key session.Key) {
			c.pool.EndSession(key.String())
			c.Approvals.SessionEnded(key.String())
		},
		Snapshots: a.snapshots(),
		Records:   a.state(store.Sessions),
		Logs:      a.statePath(store.Logs),
		LogBytes:  set.Sessions.Logs,
		Journal:   c.Journal,
	}
	return session.NewSet(options)
}

// executionsOf returns how many executions may run and wait. More than there may be
// sandboxes cannot run.
func executionsOf(set *settings.Settings) places.Limits {
	e := set.Policy.Executions
	running := min(cmp.Or(e.Running, set.Sessions.MaxRunning), set.Sessions.MaxRunning)
	return places.Limits{
		Running: running, Queued: e.Queued,
		ClientRunning: cmp.Or(e.PerClient.Running, max(1, running*3/4)), ClientQueued: e.PerClient.Queued,
	}
}

// Close ends everything that was constructed, in the reverse order.
func (s *System) Close() {
	s.Client.Close()
	s.Core.Close()
}

// Close ends what belongs to the client, without waiting for it. The client's tasks
// go on, with its servers, until they have ended. Servers that no other client uses
// end soon after.
func (c *Client) Close() {
	if c.Broker != nil {
		c.Broker.End()
		select {
		case <-c.Broker.Ended():
		default:
			c.core.leaving.Go(func() {
				<-c.Broker.Ended()
				c.release()
			})
			return
		}
	}
	c.release()
}

// release frees what the client's code has used.
func (c *Client) release() {
	if c.Bridge != nil {
		c.Bridge.Close()
	}
	if c.Library != nil {
		c.Library.Close()
	}
	if c.Servers != nil {
		_ = c.Servers.Close(context.Background()) // the pool ends them
	}
	if c.Catalog != nil {
		c.core.leaving.Go(c.Catalog.Close) // it waits for a server that it lists
	}
}

// Close ends everything that was constructed, in the reverse order.
func (c *Core) Close() {
	if c.broker != nil {
		c.broker.Close()
	}
	var ended []error
	if c.pool != nil {
		// Not the command's context: it may be what ended the command.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ended = append(ended, c.pool.Close(ctx))
	}
	if c.Approvals != nil {
		c.Approvals.Close()
	}
	if c.results != nil {
		c.results.Close()
	}
	c.waitForClients() // after the pool: closing a catalog waits for a server that it lists
	if c.Engine != nil {
		ended = append(ended, c.Engine.Close())
	}
	for _, e := range c.Batch {
		ended = append(ended, e.Close())
	}
	if err := errors.Join(ended...); err != nil {
		c.app.Log.Warn("cleaning up", "error", err)
	}
	if c.tracing != nil {
		c.tracing.Close()
		c.traces.Close()
	}
	if c.counting != nil {
		c.counting.Close()
	}
	if c.Books != nil {
		c.accounts.Close()
		c.Books.Close() // when it is known what all that ran has used
	}
	if c.Audit != nil {
		c.Audit.Close() // when all has ended that it tells of
	}
}

// waitForClients waits until the clients that were closed have ended, but not
// forever.
func (c *Core) waitForClients() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		c.leaving.Wait()
	}()
	select {
	case <-left:
	case <-time.After(clientsEnd):
		c.app.Log.Warn("some clients did not end in time")
	}
}

// clientsEnd bounds the wait for clients at the end of a Core.
const clientsEnd = 10 * time.Second

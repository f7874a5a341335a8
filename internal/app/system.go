package app

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport/sallyport/internal/accounting"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/secret"
)

// drainTime is how long a server whose definition changed may take to finish
// the calls that it has.
const drainTime = 30 * time.Second

// System is everything that runs code.
type System struct {
	Gate     *authz.Gate
	Engine   sandbox.Engine
	Batch    map[string]batch.Service // by name
	Runs     *runs.Store
	Books    *accounting.Books // nil: the settings ask for no accounts
	Library  *library.Library
	Servers  *upstream.Manager
	Pins     *pins.Book
	Catalog  *catalog.Catalog
	Bridge   *bridge.Bridge // the Broker closes it
	Broker   *broker.Broker
	Problems []string // of the server definitions, for people

	app *App
}

// Options are what a frontend decides about a System.
type Options struct {
	// ServersConfig are the files of server definitions that the user named: a
	// file among them that cannot be read is an error.
	ServersConfig []string
	// Unsaved is session.Options.Unsaved.
	Unsaved func(session string, err error)
	// Waits means that the frontend bounds the start of a server itself, whatever
	// settings and definitions say.
	Waits bool
}

// NewSystem constructs a System, which the caller closes. It starts nothing.
func (a *App) NewSystem(options Options) (*System, error) {
	s := &System{app: a}
	if err := s.construct(options); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *System) construct(options Options) (err error) {
	a, set := s.app, s.app.Settings
	if err := a.CheckDirectories(); err != nil {
		return err
	}
	if err := definitions.CheckDepth(a.Env.Lookup, set.Servers.AllowSelf); err != nil {
		return err
	}
	if s.Gate, err = gateOf(set); err != nil {
		return err
	}
	if s.Engine, err = a.Engine(); err != nil {
		return err
	}
	if s.Batch, err = a.batchServices(); err != nil {
		return err
	}
	if s.Books, err = a.books(s.Engine.Name()); err != nil {
		return err
	}
	s.Runs = a.runStore(s.Batch, s.Books)

	if s.Library, s.Problems, err = a.library(options.ServersConfig, a.Log); err != nil {
		return err
	}
	s.Servers = a.servers(s.Library.Snapshot().Definitions, s.Books, options.Waits)
	s.Library.OnChange(func(now *library.Snapshot) { s.Servers.Replace(now.Definitions, drainTime) })
	source := userServers{bridge.Upstream(s.Servers), s.Library}
	s.Pins = a.Pins()
	s.Catalog = a.catalog(source, s.Gate, s.Pins)
	s.Servers.OnToolsChanged(s.Catalog.Stale)

	config := broker.Config{
		Gate:   s.Gate,
		Logger: a.Log,
		Template: &session.Template{
			Engine: s.Engine, Program: python.Program(), Limits: limitsOf(set.Limits), Preload: set.Sessions.Preload,
		},
		Batch: broker.BatchConfig{
			Services: s.Batch, Runs: s.Runs, Limits: a.limitsAsked(),
			Timeout: set.Runs.Timeout, MaxTimeout: set.Runs.MaxTimeout, Queue: set.Runs.Queue,
		},
		DefaultTimeout: set.Timeouts.Default,
		MaxTimeout:     set.Timeouts.Max,
		ShowUsage:      set.Output.Usage,
	}
	if s.Books != nil {
		config.Accountant = s.Books
	}
	if config.Bridge, err = s.bridge(source); err != nil {
		return err
	}
	s.Bridge = config.Bridge
	config.Sessions = s.sessions(options.Unsaved)
	s.Broker, err = broker.New(config)
	return err
}

// servers constructs what runs the servers of these definitions.
func (a *App) servers(defs []upstream.Definition, books *accounting.Books, waits bool) *upstream.Manager {
	set := a.Settings.Servers
	options := upstream.Options{
		Log:           a.Log,
		ClientName:    "sallyport",
		ClientVersion: a.Version,
		Environ:       a.Env.List(),
		Inherit:       set.Inherit,
		StartTimeout:  set.StartTimeout,
		CallTimeout:   set.CallTimeout,
		IdleStop:      set.IdleStop,
		StopGrace:     set.StopGrace,
		MaxLine:       int(set.MaxMessage),
		SpoolDir:      a.statePath(store.Spool),
		Connections:   set.ConnectionsOf,
		PlainHTTP:     set.PlainHTTP,
		Secrets:       secret.Reader{}.Read,
		Eras:          a.state(store.Eras),
	}
	if waits {
		options.StartTimeout = -1
	}
	if books != nil {
		options.Used = func(u upstream.Used) {
			books.Served(u.Server, usage.Usage{Began: u.Began, Wall: u.Wall, CPU: u.CPU, ByteSeconds: u.ByteSeconds, PeakBytes: -1, Open: u.Open})
		}
	}
	return upstream.NewManager(defs, options)
}

// bridge constructs the bridge from code to the servers.
func (s *System) bridge(source bridge.Source) (*bridge.Bridge, error) {
	set := s.app.Settings
	out := bridge.Config{
		Source:   source,
		Gate:     s.Gate,
		Stores:   newStores(s.app),
		MaxCalls: set.Servers.MaxCalls,
		Catalog:  s.Catalog,
		Pins:     s.Pins,
		Log:      s.app.Log,
	}
	return bridge.New(out)
}

// sessions constructs the sessions.
func (s *System) sessions(unsaved func(string, error)) *session.Set {
	a, set := s.app, s.app.Settings
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
		Snapshots:    a.snapshots(),
		Records:      a.state(store.Sessions),
		Logs:         a.statePath(store.Logs),
		LogBytes:     set.Sessions.Logs,
	}
	if s.Books != nil {
		options.OnIdleUsage = s.Books.IdleUsage
	}
	return session.NewSet(options)
}

// Close ends everything that was constructed, in the reverse order.
func (s *System) Close() {
	if s.Broker != nil {
		s.Broker.Close()
	}
	if s.Library != nil {
		s.Library.Close()
	}
	var ended []error
	if s.Servers != nil {
		ended = append(ended, s.closeServers())
	}
	if s.Engine != nil {
		ended = append(ended, s.Engine.Close())
	}
	for _, e := range s.Batch {
		ended = append(ended, e.Close())
	}
	if err := errors.Join(ended...); err != nil {
		s.app.Log.Warn("cleaning up", "error", err)
	}
	if s.Books != nil {
		s.Books.Close() // when it is known what all that ran has used
	}
}

// closeServers ends the servers, and the catalog, which may be listing one.
func (s *System) closeServers() error {
	// Not the command's context: it may be what ended the command.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		if s.Catalog != nil {
			s.Catalog.Close()
		}
	}()
	err := s.Servers.Close(ctx)
	<-listed
	return err
}

package cli

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"sallyport/internal/accounting"
	"sallyport/internal/bridge"
	"sallyport/internal/broker"
	"sallyport/internal/policy"
	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
	"sallyport/internal/session"
	"sallyport/internal/settings"
	"sallyport/internal/snapshot"
	"sallyport/internal/state"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/definitions"
	"sallyport/internal/upstream/library"
	"sallyport/internal/upstream/secret"
)

// composeFlags are those of every command that needs the whole system.
type composeFlags struct {
	ServersConfig []string `help:"File of MCP server definitions, before those in ~/MCPs. Can be repeated." placeholder:"FILE"`
	Backend       *string  `help:"Engine that runs the code: gvisor, podman or docker, or auto (${engine}); of run also kaggle and runpod, where the setting backends has them." placeholder:"ENGINE"`
	Python        *string  `help:"Interpreter that sandboxes run: a name in the search path or an absolute path (${python})." placeholder:"PYTHON"`
	DebugGvisor   *string  `help:"Directory for gVisor's own debug logs." hidden:""`

	unsaved func(session string, err error) // session.Config's
}

// drainTime is how long a server whose definition changed may work on the calls
// that it has.
const drainTime = 30 * time.Second

// system is everything that runs code, put together.
type system struct {
	backend  sandbox.Backend
	batch    map[string]sandbox.Backend
	runs     *runs.Store
	policy   *policy.Policy
	servers  *upstream.Manager
	library  *library.Library
	broker   *broker.Broker
	books    *accounting.Books // nil: no account is kept
	known    knowledge
	problems []string // of the definitions, for people
	close    func()
}

// compose constructs the system. It starts nothing.
func (a *app) compose(f *composeFlags) (*system, error) {
	if err := a.configure(f.flags()...); err != nil {
		return nil, err
	}
	if err := a.checkDirectories(); err != nil {
		return nil, err
	}
	set := a.settings
	if err := definitions.CheckDepth(a.env.lookup, set.Servers.AllowSelf); err != nil {
		return nil, err
	}
	rules, err := policyOf(set.Policy)
	if err != nil {
		return nil, err
	}
	backend, err := a.engine()
	if err != nil {
		return nil, err
	}
	batch, err := a.batchEngines()
	if err != nil {
		return nil, err
	}
	books, err := a.books(backend.Name())
	if err != nil {
		return nil, err
	}
	s := &system{backend: backend, batch: batch, runs: a.runsOf(batch), policy: rules, books: books}

	s.library, s.problems, err = a.library(f.ServersConfig, func(now *library.Snapshot) {
		s.servers.Replace(now.Definitions, drainTime)
	})
	if err != nil {
		if books != nil {
			books.Close()
		}
		return nil, err
	}
	var used func(upstream.Used)
	if books != nil {
		used = func(u upstream.Used) {
			books.Served(u.Server, session.Spent{Began: u.Began, Wall: u.Wall, CPU: u.CPU, ByteSeconds: u.ByteSeconds, PeakBytes: -1, Open: u.Open})
		}
	}
	s.servers = upstream.NewManager(s.library.Snapshot().Definitions, upstream.Options{
		Used:          used,
		Log:           a.log,
		ClientName:    "sallyport",
		ClientVersion: readVersion().Version,
		Environ:       a.env.list(),
		Inherit:       set.Servers.Inherit,
		StartTimeout:  set.Servers.StartTimeout,
		CallTimeout:   set.Servers.CallTimeout,
		IdleStop:      set.Servers.IdleStop,
		StopGrace:     set.Servers.StopGrace,
		MaxLine:       int(set.Servers.MaxMessage),
		SpoolDir:      messages(set.StateDir),
		ToolsChanged:  func(server string) { s.known.catalog.Stale(server) },
		Connections:   set.Servers.ConnectionsOf,
		PlainHTTP:     set.Servers.PlainHTTP,
		Secrets:       secret.Reader{}.Read,
		Eras:          state.At(set.StateDir).Sub("eras"),
	})

	source := userServers{bridge.Upstream(s.servers), s.library}
	s.known = a.remember(s, source)
	config := broker.Config{
		Backend:         backend,
		Batch:           batch,
		Runs:            s.runs,
		BatchLimits:     a.limitsAsked(),
		BatchTimeout:    set.Runs.Timeout,
		BatchMaxTimeout: set.Runs.MaxTimeout,
		Queue:           set.Runs.Queue,
		Policy:          s.policy,
		Servers:         source,
		Catalog:         s.known.catalog,
		Pins:            s.known.pins,
		RefuseChanged:   set.Servers.ChangedTools == settings.ChangedRefuse,
		Logger:          a.log,
		Spec:            sandbox.Spec{Limits: limitsOf(set.Limits)},
		DefaultTimeout:  set.Timeouts.Default,
		MaxTimeout:      set.Timeouts.Max,
		WholeRun:        set.Timeouts.WholeRun,
		Grace:           set.Timeouts.Grace,
		StartTimeout:    set.Timeouts.Start,
		Background:      set.Sessions.BackgroundCPU,
		Snapshots:       snapshots(set.StateDir),
		Restore:         set.Sessions.Snapshots == settings.SnapshotsAuto,
		Preload:         set.Sessions.Preload,
		Pool:            set.Sessions.Pool,
		Records:         state.At(set.StateDir).Sub("sessions"),
		Idle:            set.Sessions.Idle,
		Keep:            set.Sessions.Keep,
		MaxAwake:        set.Sessions.MaxAwake,
		MaxDisk:         set.Sessions.MaxDisk,
		MaxNamed:        set.Sessions.MaxNamed,
		Unpacked:        !set.Sessions.Pack,
		Unsaved:         f.unsaved,
		Logs:            logs(set.StateDir),
		LogBytes:        set.Sessions.Logs,
		MaxCalls:        set.Servers.MaxCalls,
		ShowUsage:       set.Output.Usage,
	}
	if books != nil {
		config.Accountant = books
		s.runs.OnEnd(func(r *runs.Record) { books.Ran(r) })
	}
	if set.Memory.Enabled {
		config.Memory = memoryOf(set)
	}
	if set.Saved.Enabled {
		config.Tools = savedToolsOf(set)
	}
	s.broker, err = broker.New(config)
	s.close = func() {
		if s.broker != nil {
			s.broker.Close()
		}
		s.library.Close()
		// Not the command's context: it may be what ended the command.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// A server that is being listed ends with the others.
		listed := make(chan struct{})
		go func() {
			defer close(listed)
			s.known.catalog.Close()
		}()
		ended := []error{s.servers.Close(ctx), backend.Close()}
		for _, e := range batch {
			ended = append(ended, e.Close())
		}
		if err := errors.Join(ended...); err != nil {
			a.log.Warn("cleaning up", "error", err)
		}
		<-listed
		if books != nil {
			books.Close() // when it is known what all that ran has used
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// snapshots is where snapshots of sandboxes are kept; nil where there is no
// place for them.
func snapshots(stateDir string) *snapshot.Store {
	if stateDir == "" {
		return nil
	}
	return snapshot.At(filepath.Join(stateDir, "snapshots"))
}

// messages is where messages of servers lie that find no room in memory.
func messages(stateDir string) string {
	if stateDir == "" {
		return ""
	}
	return filepath.Join(stateDir, "spool")
}

// logs is where the logs of sessions are kept.
func logs(stateDir string) string {
	if stateDir == "" {
		return ""
	}
	return filepath.Join(stateDir, "logs")
}

func sameFile(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/broker"
	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
	"sallyport/internal/settings"
	"sallyport/internal/snapshot"
	"sallyport/internal/state"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/definitions"
)

// composeFlags are those of every command that needs the whole system.
type composeFlags struct {
	ServersConfig []string `help:"File of MCP server definitions, before those in ~/MCPs. Can be repeated." placeholder:"FILE"`
	Python        *string  `help:"Interpreter that sandboxes run: a name in the search path or an absolute path (${python})." placeholder:"PYTHON"`
	DebugGvisor   *string  `help:"Directory for gVisor's own debug logs." hidden:""`
}

// system is everything that runs code, put together.
type system struct {
	backend     sandbox.Backend
	policy      *policy.Policy
	servers     *upstream.Manager
	broker      *broker.Broker
	definitions []upstream.Definition
	problems    []string // of the definitions, for people
	close       func()
}

// compose constructs the system. It starts nothing.
func (a *app) compose(f *composeFlags) (*system, error) {
	if err := a.configure(f.flags()...); err != nil {
		return nil, err
	}
	set := a.settings
	lookup := func(name string) (string, bool) {
		v, ok := a.env[name]
		return v, ok
	}
	if err := definitions.CheckDepth(lookup, set.Servers.AllowSelf); err != nil {
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
	s := &system{backend: backend, policy: rules}

	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	defs, problems := definitions.Load(a.env.definitionSources(set.Servers), definitions.Options{
		Env:       lookup,
		Home:      a.env.home(),
		Self:      definitions.Self{Executable: executable},
		AllowSelf: set.Servers.AllowSelf,
	})
	for _, p := range problems {
		if !p.Warning && p.Server == "" && slices.ContainsFunc(f.ServersConfig, func(name string) bool { return sameFile(name, p.File) }) {
			// The user named this file: going on without it is no answer.
			return nil, errors.New(p.String())
		}
		a.log.Warn("server definitions", "problem", p.String())
		s.problems = append(s.problems, p.String())
	}
	s.servers = upstream.NewManager(defs, upstream.Options{
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
	})
	s.definitions = s.servers.Definitions()

	config := broker.Config{
		Backend:        backend,
		Policy:         s.policy,
		Servers:        bridge.Upstream(s.servers),
		Logger:         a.log,
		Spec:           sandbox.Spec{Limits: limitsOf(set.Limits)},
		DefaultTimeout: set.Timeouts.Default,
		MaxTimeout:     set.Timeouts.Max,
		WholeRun:       set.Timeouts.WholeRun,
		Grace:          set.Timeouts.Grace,
		StartTimeout:   set.Timeouts.Start,
		Background:     set.Sessions.BackgroundCPU,
		Snapshots:      snapshots(set.StateDir),
		Restore:        set.Sessions.Snapshots == settings.SnapshotsAuto,
		Preload:        set.Sessions.Preload,
		Records:        state.At(set.StateDir).Sub("sessions"),
		Idle:           set.Sessions.Idle,
		Keep:           set.Sessions.Keep,
		MaxAwake:       set.Sessions.MaxAwake,
		MaxDisk:        set.Sessions.MaxDisk,
		MaxCalls:       set.Servers.MaxCalls,
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
		// Not the command's context: it may be what ended the command.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(s.servers.Close(ctx), backend.Close()); err != nil {
			a.log.Warn("cleaning up", "error", err)
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

func sameFile(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

func (s *system) serverLines() []serverLine {
	lines := []serverLine{}
	for _, d := range s.definitions {
		lines = append(lines, serverLine{
			Name:        d.Name,
			Module:      "mcp_" + d.Alias,
			Command:     d.Command,
			Args:        d.Args,
			Env:         d.EnvNames,
			Cwd:         d.Dir,
			Description: d.Description,
			Source:      d.File,
			Disabled:    d.Disabled,
		})
	}
	return lines
}

// testServer starts a server and lists its tools.
func (s *system) testServer(ctx context.Context, name string) (*serverTest, error) {
	start := time.Now()
	server, err := s.servers.Server(ctx, name)
	if err != nil {
		return nil, err
	}
	t := &serverTest{Name: name, StartMs: time.Since(start).Milliseconds(), Tools: []toolLine{}}
	info := server.Info()
	t.Protocol = info.ProtocolVersion
	t.Server = fmt.Sprintf("%s %s", info.Server.Name, info.Server.Version)
	start = time.Now()
	tools, err := server.Tools(ctx)
	if err != nil {
		return nil, err
	}
	t.ListMs = time.Since(start).Milliseconds()
	for _, tool := range tools {
		t.Tools = append(t.Tools, toolLine{Name: tool.Name, Function: tool.Alias, Description: tool.Description})
	}
	return t, nil
}

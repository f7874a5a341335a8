package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/broker"
	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/gvisor"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/definitions"
)

// composeFlags are those of every command that needs the whole system.
type composeFlags struct {
	ServersConfig []string `help:"File of MCP server definitions, before those in ~/MCPs. Can be repeated." type:"existingfile" placeholder:"FILE" env:"SALLYPORT_SERVERS_CONFIG"`
	Python        string   `help:"Interpreter that sandboxes run: a name in the search path or an absolute path." default:"python3" env:"SALLYPORT_PYTHON"`
	DebugGvisor   string   `help:"Directory for gVisor's own debug logs." hidden:"" type:"path" env:"SALLYPORT_DEBUG_GVISOR"`
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
	lookup := func(name string) (string, bool) {
		v, ok := a.env[name]
		return v, ok
	}
	allowSelf := a.env.yes("MCP_BRIDGE_ALLOW_SELF_SERVER")
	if err := definitions.CheckDepth(lookup, allowSelf); err != nil {
		return nil, err
	}
	backend, err := gvisor.New(gvisor.Options{
		RuntimeDir: filepath.Join(a.env.runtimeDir(), "gvisor"),
		CacheDir:   a.env.cacheDir(),
		Python:     f.Python,
		Path:       a.env["PATH"],
		Home:       a.env.home(),
		UserBus:    a.env.userBus(),
		DebugDir:   f.DebugGvisor,
		Log:        a.log,
	})
	if err != nil {
		return nil, err
	}
	s := &system{backend: backend, policy: policy.Default()}

	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	defs, problems := definitions.Load(a.env.definitionSources(f.ServersConfig), definitions.Options{
		Env:       lookup,
		Home:      a.env.home(),
		Self:      definitions.Self{Executable: executable},
		AllowSelf: allowSelf,
	})
	for _, p := range problems {
		a.log.Warn("server definitions", "problem", p.String())
		s.problems = append(s.problems, p.String())
	}
	s.servers = upstream.NewManager(defs, upstream.Options{
		Log:           a.log,
		ClientName:    "sallyport",
		ClientVersion: readVersion().Version,
		Environ:       a.env.list(),
	})
	s.definitions = s.servers.Definitions()

	s.broker, err = broker.New(broker.Config{
		Backend: backend,
		Policy:  s.policy,
		Servers: bridge.Upstream(s.servers),
		Logger:  a.log,
	})
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

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/hub"
	"github.com/sallyport/sallyport/internal/mcpserver"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/terminal"
)

type serveCmd struct {
	composeFlags
	Standalone bool `help:"Run everything in this process, and share no servers and sessions with other clients."`
	SDKOnly    bool `help:"Answer every request through the MCP SDK (slower; to compare). Implies --standalone." name:"sdk-only" hidden:""`
}

// Help implements kong's HelpProvider.
func (*serveCmd) Help() string {
	return `An MCP client starts this command. The server is ready at once; the first call of run_python starts a sandbox. Standard output carries the protocol; log lines go to standard error.

All clients share one process, the hub, which this command starts where it does not run: each server starts once, and a named session is there for all clients. 'sallyport hub status' shows it.

Example, for a client's configuration file:
  {"mcpServers": {"sallyport": {"command": "sallyport", "args": ["serve"]}}}`
}

// serveNote is for a person who starts what a client is to start.
const serveNote = `sallyport: this is an MCP server, which waits for an MCP client on standard input. Clients start it themselves: 'sallyport install' connects them.
sallyport: Ctrl-C ends it; 'sallyport run' runs code without a client.
`

// Run implements the command.
func (c *serveCmd) Run(u *ui) error {
	if err := u.loadSettings(c.flags()...); err != nil {
		return err
	}
	if terminal.Real(u.stdio.In) {
		fmt.Fprint(u.stdio.Err, serveNote)
	}
	var err error
	var none *hub.NoneError
	if c.Standalone || c.SDKOnly || !u.Settings.Hub.Enabled {
		err = c.alone(u)
	} else if err = c.shared(u); errors.As(err, &none) {
		u.Log.Warn("this client has a process of its own, because no hub can be used", "reason", none.Err)
		err = c.alone(u)
	}
	signalled := u.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(u.ctx)))
	if signalled || closedPipe(err) {
		return nil // the client is gone or a signal arrived: a regular end
	}
	return err
}

// shared serves the client through the hub.
func (c *serveCmd) shared(u *ui) error {
	origin := u.origin(&c.composeFlags)
	about, err := json.Marshal(origin)
	if err != nil {
		return err
	}
	again := false
	front := &hub.Frontend{
		Connect: func(ctx context.Context, h hub.Hello) (*hub.Conn, error) {
			if again { // the settings may have changed since the last hub began
				if err := u.loadSettings(c.flags()...); err != nil {
					return nil, err
				}
			}
			again = true
			place, err := u.hubPlace()
			if err != nil {
				return nil, err
			}
			return place.Connect(ctx, h, func(ctx context.Context) error { return u.startHub(ctx, place, origin) })
		},
		Log: u.Log, Aside: u.stdio.Err, About: about, Process: os.Getpid(),
	}
	executable.Collect(25) // so small a process has little else than garbage
	return front.Serve(u.ctx, u.stdio.In, u.stdio.Out)
}

// alone serves the client in this process.
func (c *serveCmd) alone(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	client := &clientName{}
	calls := taskSet(u.App)
	defer calls.Close(broker.ErrStop) // before its code ends
	one := &served{App: u.App, Core: sys.Core, Client: sys.Client, tasks: calls, name: client, sdkOnly: c.SDKOnly}
	defer sys.Answer(func(p *control.Process) { p.Client = client.get() }, nil)()
	defer sys.Sweep()()
	if sys.Books != nil {
		sys.Books.Start()
	}
	sys.CompileAhead()
	return one.Serve(u.ctx, u.stdio.In, u.stdio.Out)
}

// taskSet returns the tasks of a process.
func taskSet(a *app.App) *tasks.Set {
	return tasks.New(tasks.Options{Log: a.Log, Dir: store.At(a.Settings.StateDir).Area(store.Tasks)})
}

// served serves one client. It is a hub.Client.
type served struct {
	*app.App
	*app.Core
	*app.Client
	tasks    *tasks.Set
	name     *clientName
	id       string             // that the client has when it connects again; empty: none
	executor mcpserver.Executor // nil: the client's
	sdkOnly  bool
}

// Serve implements hub.Client.
func (s *served) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	for _, problem := range s.Problems {
		s.Log.Warn("server definitions", "problem", problem)
	}
	if s.executor == nil {
		s.executor = s.Broker
	}
	set := s.Settings
	environments, environment := s.Broker.Environments()
	server, err := mcpserver.New(mcpserver.Config{
		Executor:     s.executor,
		Tasks:        s.tasks,
		AnswerWithin: set.Answer.Within,
		AnswerTokens: set.Answer.Tokens,
		Structured:   mcpserver.Structured(set.Output.Structured),
		Unfolded:     !set.Output.Fold,
		Logger:       s.Log,
		Version:      s.Version,
		SDKOnly:      s.sdkOnly,
		Backends:     s.Choices(),
		Environments: environments,
		Environment:  environment,
		RunPod:       s.RunPodTools(),
		Root:         s.RootRule(),
		Resources:    []mcpserver.Resources{artifacts{s.Artifacts(), s.Broker.Owns}, runFiles{s.Runs, s.Broker.Owns}},
		Output:       mcpserver.Output(set.Output.Mode),
		ClientID:     s.id,
		Approvals:    s.Approvals,
		Connection:   s.Broker.ID(),
		Client: func(name string) {
			s.name.set(name)
			s.Broker.Named(s.name.get())
		},
	})
	if err != nil {
		return err
	}
	s.Catalog.Start()
	return server.Serve(ctx, in, out)
}

// Close implements hub.Client.
func (s *served) Close() { s.Client.Close() }

// origin returns how this process was started.
func (u *ui) origin(f *composeFlags) app.Origin {
	flags, _ := u.flags() // which loadSettings has read
	return app.Origin{
		Environ: u.Env.List(), Dir: u.Dir, ConfigFile: u.grammar.ConfigFile,
		Flags: slices.Concat(flags, f.flags()), ServersConfig: f.ServersConfig,
	}
}

// clientName is the name that the client of a serving process gives itself.
type clientName struct {
	mu   sync.Mutex
	name string
}

func (c *clientName) set(name string) {
	const most = 100
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name[:min(most, len(name))]
}

func (c *clientName) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

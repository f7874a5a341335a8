package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
)

type serveCmd struct {
	composeFlags
	SDKOnly bool `help:"Answer every request through the MCP SDK (slower; to compare)." name:"sdk-only" hidden:""`
}

// Help implements kong's HelpProvider.
func (*serveCmd) Help() string {
	return `An MCP client starts this command. The server is ready at once; the first call of run_python starts a sandbox. Standard output carries the protocol; log lines go to standard error.

Example, for a client's configuration file:
  {"mcpServers": {"sallyport": {"command": "sallyport", "args": ["serve"]}}}`
}

// Run implements the command.
func (c *serveCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	for _, problem := range sys.Problems {
		u.Log.Warn("server definitions", "problem", problem)
	}
	client := &clientName{}
	calls := tasks.New(tasks.Options{Log: u.Log, Dir: store.At(u.Settings.StateDir).Area(store.Tasks)})
	defer calls.Close(broker.ErrStop) // before its code ends
	server, err := mcpserver.New(mcpserver.Config{
		Executor:         sys.Broker,
		Tasks:            calls,
		AnswerWithin:     u.Settings.Answer.Within,
		AnswerCharacters: u.Settings.Answer.Characters,
		Structured:       mcpserver.Structured(u.Settings.Output.Structured),
		Logger:           u.Log,
		Version:          u.Version,
		SDKOnly:          c.SDKOnly,
		Backends:         sys.Choices(),
		RunPod:           sys.RunPodTools(),
		Resources:        []mcpserver.Resources{runFiles{sys.Runs}},
		Output:           mcpserver.Output(u.Settings.Output.Mode),
		Client:           client.set,
	})
	if err != nil {
		return err
	}
	defer sys.Answer(client.get)()
	defer sys.Sweep()()
	sys.Catalog.Start()
	if sys.Books != nil {
		sys.Books.Start()
	}
	err = server.Serve(u.ctx, u.stdio.In, u.stdio.Out)
	signalled := u.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(u.ctx)))
	if signalled || closedPipe(err) {
		return nil // the client is gone or a signal arrived: a regular end
	}
	return err
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

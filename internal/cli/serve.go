package cli

import (
	"context"
	"errors"
	"fmt"

	"sallyport/internal/mcpserver"
)

type serveCmd struct {
	composeFlags
	SDKOnly bool `help:"Answer every request through the MCP SDK (slower; to compare)." name:"sdk-only" hidden:""`
}

// Help implements kong's HelpProvider.
func (*serveCmd) Help() string {
	return `This is the command for an MCP client's configuration. It starts at once; the first code starts a sandbox. Standard output belongs to the protocol, log lines go to standard error.

Example, for a client's configuration file:
  {"mcpServers": {"sallyport": {"command": "sallyport", "args": ["serve"]}}}`
}

// Run implements the command.
func (c *serveCmd) Run(a *app) error {
	if b := c.Backend; b != nil && isBatch(*b) {
		return fmt.Errorf("--backend %s: it has no sessions; agents can choose it where the setting `backends` names it", *b)
	}
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	for _, problem := range sys.problems {
		a.log.Warn("server definitions", "problem", problem)
	}
	client := &clientName{}
	server, err := mcpserver.New(mcpserver.Config{
		Executor:  sys.broker,
		Logger:    a.log,
		Version:   readVersion().Version,
		SDKOnly:   c.SDKOnly,
		Backends:  sys.choices(),
		RunPod:    a.runpodTools(sys),
		Resources: []mcpserver.Resources{runFiles{sys.runs}},
		Output:    mcpserver.Output(a.settings.Output.Mode),
		Client:    client.set,
	})
	if err != nil {
		return err
	}
	defer a.answer(sys, client)()
	defer a.sweep(sys)()
	sys.known.catalog.Start()
	if sys.books != nil {
		sys.books.Start()
	}
	err = server.Serve(a.ctx, a.stdio.In, a.stdio.Out)
	signalled := a.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(a.ctx)))
	if signalled || closedPipe(err) {
		return nil // the client is gone, or a signal came: a regular end
	}
	return err
}

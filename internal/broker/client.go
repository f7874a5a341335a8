package broker

import (
	"context"

	"github.com/sallyport/sallyport/internal/bridge"
)

// Client is a Broker for the requests of one client, whose code reaches that
// client's servers. Several clients share the Broker's sessions.
type Client struct {
	*Broker
	bridge *bridge.Bridge
}

// Client returns the Broker for a client with these servers, which remain the
// caller's.
func (b *Broker) Client(servers *bridge.Bridge) *Client { return &Client{b, servers} }

// Execute is Broker.Execute.
func (c *Client) Execute(ctx context.Context, req Request) *Result { return c.Submit(req)(ctx) }

// Submit is Broker.Submit.
func (c *Client) Submit(req Request) func(context.Context) *Result {
	req.Bridge = c.bridge
	return c.Broker.Submit(req)
}

package mcpserver

import (
	"context"
	"encoding/json"
	"errors"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// firstRequest is the ID of the first request of ours: those of the SDK count from 1.
const firstRequest = 1 << 30

// errGone is the answer of a client that has gone.
var errGone = errors.New("the client has gone")

// ask sends a request to a client with a handshake and returns its result, in the
// client's own bytes. The SDK's requests would not do: it decodes a result, which
// loses parts, and compares it with a schema that it may not understand. A request
// that ctx ends is withdrawn.
func (c *conn) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	answer := make(chan *sdkrpc.Response, 1)
	c.mu.Lock()
	id := firstRequest + c.requests
	c.requests++
	if c.asked == nil {
		c.asked = map[int64]chan<- *sdkrpc.Response{}
	}
	c.asked[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asked, id)
	}()
	data, err := marshal(struct {
		Version string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", id, method, params})
	if err != nil {
		return nil, err
	}
	if err := c.write(data); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			return nil, r.Error
		}
		return r.Result, nil
	case <-ctx.Done():
		c.notify("notifications/cancelled", map[string]int64{"requestId": id})
		return nil, context.Cause(ctx)
	case <-c.input.Done():
		return nil, errGone
	}
}

// answered passes on the answer to a request of ours, and reports whether it was one.
func (c *conn) answered(resp *sdkrpc.Response) bool {
	id, ok := resp.ID.Raw().(int64)
	if !ok || id < firstRequest {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.asked[id]; answer != nil { // otherwise it was withdrawn, or answered before
		delete(c.asked, id)
		answer <- resp
	}
	return true
}

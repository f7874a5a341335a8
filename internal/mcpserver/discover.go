package mcpserver

import (
	"context"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// discovery is the transport of an SDK session that only answers server/discover.
// A client may send initialize after it, because it prefers a handshake or has not
// waited for the answer. The SDK refuses that in a session that has answered
// server/discover.
type discovery struct {
	*conn
	requests chan sdkrpc.Message
}

// Connect implements mcp.Transport.
func (d discovery) Connect(context.Context) (mcp.Connection, error) { return d, nil }

// Read implements mcp.Connection.
func (d discovery) Read(ctx context.Context) (sdkrpc.Message, error) { return d.next(ctx, d.requests) }

// Close implements mcp.Connection. The connection goes on for the other session.
func (d discovery) Close() error { return nil }

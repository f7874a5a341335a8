package registry

import (
	"context"
	"net"
)

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dialTo leads every connection to one address.
func dialTo(dial dialer, to string) dialer {
	return func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, to) }
}

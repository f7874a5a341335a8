package upstream

import (
	"context"
	"errors"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// errStalled means that a server answered neither a call nor a ping.
var errStalled = errors.New("it stopped answering")

// Ping checks whether a server is alive: with ping, or with server/discover if
// the protocol no longer has ping. Any answer counts.
func (s *Server) Ping(ctx context.Context) error {
	method := "ping"
	if s.session.era == eraStateless {
		method = "server/discover"
	}
	_, err := s.conn.Call(ctx, method, s.session.params(nil))
	var answered *jsonrpc.Error
	if err == nil || errors.As(err, &answered) {
		return nil
	}
	return s.failure(method, err)
}

// suspect is called after a call timed out. A program that works on nothing
// else and does not answer a ping either hangs: suspect ends it, so that the
// next use starts it again.
func (s *Server) suspect() {
	if _, ok := s.conn.(*program); !ok || s.inFlight.Load() > 0 || !s.suspected.CompareAndSwap(false, true) {
		return
	}
	s.background(func(ctx context.Context) {
		defer s.suspected.Store(false)
		ping, cancel := context.WithTimeout(ctx, s.pingTimeout)
		defer cancel()
		err := s.Ping(ping)
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || s.inFlight.Load() > 0 || !s.Alive() {
			return
		}
		s.log.Warn("MCP server ended: " + errStalled.Error())
		if err := s.conn.Stop(ctx); err != nil {
			s.log.Error("MCP server cannot be ended", "err", err)
		}
	})
}

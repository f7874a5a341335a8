package upstream

import (
	"context"
	"errors"

	"sallyport/internal/upstream/jsonrpc"
)

// errStalled: a server answered neither a call nor a ping.
var errStalled = errors.New("it answered nothing any more")

// Ping asks a server whether it lives: with ping, or, where the protocol has
// none any more, with server/discover. That it answers at all is what counts.
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

// suspect is called when a call took longer than a call may. A program that
// works on nothing else and does not answer a ping either hangs: it is ended,
// so that the next use starts it anew.
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

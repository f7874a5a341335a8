package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// start starts a server, or connects to it, and agrees on a session. While a
// program starts, it is in underway.
func (m *Manager) start(ctx context.Context, def Definition, known era, underway *atomic.Pointer[Server]) (*Server, error) {
	failed := &Error{Server: def.Name, Op: "start", Kind: ErrStart, Command: def.CommandLine()}
	def, err := def.Resolve(ctx, m.opts.Secrets)
	if err != nil {
		failed.Err = err // it names what could not be read, without its contents
		return nil, failed
	}
	if def.Remote() != nil {
		return m.reach(ctx, def, known, failed)
	}
	s, err := m.launch(ctx, def, known, underway)
	// The second attempt is for servers that exit on initialize.
	if errors.Is(err, errFreshProcess) && ctx.Err() == nil {
		if second, secondErr := m.launch(ctx, def, eraStateless, underway); secondErr == nil {
			return second, nil
		}
	}
	return s, err
}

// newServer returns a Server without its transport.
func (m *Manager) newServer(def Definition) *Server {
	s := &Server{
		def: def, log: m.opts.Log.With("server", def.Name),
		tools: newToolCache(), changed: m.toolsChanged, callTimeout: m.opts.CallTimeout, pingTimeout: m.opts.Ping, background: m.background,
	}
	if def.CallTimeout > 0 {
		s.callTimeout = def.CallTimeout
	}
	return s
}

// noTimeout is longer than any caller waits for a start.
const noTimeout = 24 * time.Hour

func (m *Manager) startTimeout(def Definition) time.Duration {
	if m.opts.StartTimeout < 0 {
		return noTimeout
	}
	if def.StartTimeout > 0 {
		return def.StartTimeout
	}
	return m.opts.StartTimeout
}

// launch acquires a process, a connection and a session, or nothing.
func (m *Manager) launch(ctx context.Context, def Definition, known era, underway *atomic.Pointer[Server]) (*Server, error) {
	began := time.Now()
	failed := &Error{Server: def.Name, Op: "start", Kind: ErrStart, Command: def.CommandLine()}
	spec := def.Launch()
	env := childEnvironment(m.opts.Environ, m.opts.Inherit, spec.Env)
	path, err := child.Find(spec.Command, spec.Dir, env)
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	proc, err := m.keeper.Start(child.Spec{Path: path, Args: spec.Args, Env: env, Dir: spec.Dir, Grace: m.opts.StopGrace})
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	if m.opts.Used != nil {
		m.running.Go(func() { m.meter(def.Name, proc) })
	}
	s := m.newServer(def)
	// Notifications may arrive before the session is agreed on; they do not need
	// it.
	p := &program{proc: proc, Conn: jsonrpc.NewConn(proc.Stdout, proc.Stdin, jsonrpc.Options{
		Log: s.log, MaxLine: m.opts.MaxLine, OnRequest: answer, OnNotify: s.notified,
		Redact: def.Redact, SpoolDir: m.opts.SpoolDir,
	})}
	s.conn = p
	underway.Store(s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.watch(); err != nil {
			s.log.Error("MCP server cannot be ended", "err", err)
		}
	}()

	patience := m.startTimeout(def)
	s.session, err = negotiate(ctx, s.conn, m.client, known, patience)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("no answer to initialize within %s", patience)
		}
		if ctx.Err() == nil {
			explain(failed, def, s, err)
		} else {
			failed.Err = context.Cause(ctx)
		}
		if err := s.stop(m.patience); err != nil {
			s.log.Error("a server that did not start cannot be ended", "err", err)
		} else {
			<-ended
		}
		return nil, failed
	}
	m.up(s, began)
	m.running.Go(func() {
		<-ended
		if !s.stopping.Load() {
			e := &Error{Server: def.Name, Kind: ErrGone}
			diagnose(e, def, s.conn)
			s.log.Warn("MCP server ended", "exit", e.Exit, "after", time.Since(s.started).Round(time.Millisecond), "output", e.LastText)
		}
	})
	return s, nil
}

// up puts a server into service.
func (m *Manager) up(s *Server, began time.Time) {
	s.started, s.took = time.Now(), time.Since(began)
	s.touch()
	m.running.Go(func() { s.listen(m.base) })
	info := s.Info()
	s.log.Info("MCP server started", "transport", info.Transport, "pid", info.PID, "protocol", s.session.version, "took", s.took.Round(time.Millisecond))
}

// explain adds to a failed start why it failed: what the server answered or, if
// it ended, its exit status and last output.
func explain(failed *Error, def Definition, s *Server, err error) {
	var answered *jsonrpc.Error
	isAnswer := errors.As(err, &answered)
	if !isAnswer || !s.Alive() {
		diagnose(failed, def, s.conn)
	}
	switch {
	case isAnswer:
		failed.Err = fmt.Errorf("initialize: %w", s.redactAnswer(answered))
	case failed.Exit != "" && errors.Is(err, jsonrpc.ErrClosed):
		// The exit status explains it.
	default:
		failed.Err = err
	}
	if errors.Is(err, errFreshProcess) {
		failed.Err = fmt.Errorf("%w: %w", errFreshProcess, failed.Err)
	}
}

// stop ends the server; when ctx ends, at once. It returns when it is gone.
func (s *Server) stop(ctx context.Context) error {
	s.stopping.Store(true)
	if err := s.conn.Stop(ctx); err != nil {
		return &Error{Server: s.def.Name, Op: "stop", Err: err}
	}
	return nil
}

// redactedError hides secrets in an error's message and keeps what errors.Is
// finds.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

func redactError(def Definition, err error) error {
	text := def.Redact(err.Error())
	if text == err.Error() {
		return err
	}
	return &redactedError{text: text, err: err}
}

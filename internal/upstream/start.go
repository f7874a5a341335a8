package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport/internal/upstream/child"
	"sallyport/internal/upstream/jsonrpc"
)

// start starts a server and agrees on a session. The second attempt is for
// servers that end themselves when they hear initialize.
func (m *Manager) start(ctx context.Context, def Definition, known era) (*Server, error) {
	s, err := m.attempt(ctx, def, known)
	if errors.Is(err, errFreshProcess) && ctx.Err() == nil {
		if second, secondErr := m.attempt(ctx, def, eraStateless); secondErr == nil {
			return second, nil
		}
	}
	return s, err
}

// attempt acquires a process, a connection and a session, or nothing.
func (m *Manager) attempt(ctx context.Context, def Definition, known era) (*Server, error) {
	began := time.Now()
	log := m.opts.Log.With("server", def.Name)
	failed := &Error{Server: def.Name, Op: "start", Kind: ErrStart, Command: def.CommandLine()}
	launch := def.Launch()
	env := childEnvironment(m.opts.Environ, m.opts.Inherit, launch.Env)
	path, err := child.Find(launch.Command, launch.Dir, env)
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	proc, err := m.keeper.Start(child.Spec{Path: path, Args: launch.Args, Env: env, Dir: launch.Dir, Grace: m.opts.StopGrace})
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	s := &Server{def: def, log: log, proc: proc, tools: newToolCache(), callTimeout: m.opts.CallTimeout}
	// Notifications may come before the session is agreed on; they do not
	// need it.
	s.conn = jsonrpc.NewConn(proc.Stdout, proc.Stdin, jsonrpc.Options{
		Log: log, MaxLine: m.opts.MaxLine, OnRequest: answer, OnNotify: s.notified,
		Redact: def.Redact,
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch()
	}()

	s.session, err = negotiate(ctx, s.conn, m.client, known, m.opts.StartTimeout)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("no answer to initialize within %s", m.opts.StartTimeout)
		}
		if ctx.Err() == nil {
			explain(failed, def, s, err)
		} else {
			failed.Err = context.Cause(ctx)
		}
		if err := s.stop(m.patience); err != nil {
			log.Error("a server that did not start cannot be ended", "err", err)
		} else {
			<-ended
		}
		return nil, failed
	}
	s.started, s.took = time.Now(), time.Since(began)
	s.touch()
	m.running.Go(func() {
		s.listen(m.base)
	})
	m.running.Go(func() {
		<-ended
		if !s.stopping.Load() {
			e := &Error{Server: def.Name, Kind: ErrGone}
			fillDiagnosis(e, def, s.proc, s.conn)
			log.Warn("MCP server ended", "exit", e.Exit, "after", time.Since(s.started).Round(time.Millisecond), "output", e.LastText)
		}
	})
	log.Info("MCP server started", "pid", proc.PID(), "protocol", s.session.version, "took", s.took.Round(time.Millisecond))
	return s, nil
}

// explain says why a start failed. What the server answered is said; of a
// server that ended, how and with what last words.
func explain(failed *Error, def Definition, s *Server, err error) {
	var answered *jsonrpc.Error
	isAnswer := errors.As(err, &answered)
	if !isAnswer || !s.Alive() {
		fillDiagnosis(failed, def, s.proc, s.conn)
	}
	switch {
	case isAnswer:
		failed.Err = fmt.Errorf("initialize: %w", s.redactAnswer(answered))
	case failed.Exit != "" && errors.Is(err, jsonrpc.ErrClosed):
		// The exit status says it.
	default:
		failed.Err = err
	}
	if errors.Is(err, errFreshProcess) {
		failed.Err = fmt.Errorf("%w: %w", errFreshProcess, failed.Err)
	}
}

// watch ends what is left when either the connection or the process ends, and
// returns when nothing is.
func (s *Server) watch() {
	select {
	case <-s.conn.Done():
	case <-s.proc.Exited():
	}
	// What it wrote last may still have to be read, also when a message to it
	// could not be written any more; but something that it started may hold
	// its output open.
	select {
	case <-s.conn.Drained():
	case <-time.After(200 * time.Millisecond):
	}
	s.conn.CloseWrite()
	if err := s.proc.Stop(context.Background()); err != nil {
		s.log.Error("MCP server cannot be ended", "err", err)
		return
	}
	s.conn.Wait()
}

// stop ends the server; when ctx ends, at once. It returns when it is gone.
func (s *Server) stop(ctx context.Context) error {
	s.stopping.Store(true)
	s.conn.CloseWrite()
	if err := s.proc.Stop(ctx); err != nil {
		return &Error{Server: s.def.Name, Op: "stop", Err: err}
	}
	s.conn.Wait()
	return nil
}

// redactedError keeps what errors.Is finds and hides secrets from the text.
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

package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// start starts a server, or connects to it, and agrees on a session. While a
// program starts, it is in underway.
func (p *Pool) start(ctx context.Context, e *entry, known era, underway *atomic.Pointer[Server]) (*Server, error) {
	def := e.def
	if p.opts.Starting != nil {
		defer p.opts.Starting(def)()
	}
	failed := &Error{Server: def.Name, Op: "start", Kind: ErrStart, Command: def.CommandLine()}
	def, err := def.Resolve(ctx, e.from.secrets)
	if err != nil {
		failed.Err = err // it names what could not be read, without its contents
		return nil, failed
	}
	if def.Remote() != nil {
		return p.reach(ctx, e, def, known, failed)
	}
	s, err := p.launch(ctx, e, def, known, underway)
	// The second attempt is for servers that exit on initialize.
	if errors.Is(err, errFreshProcess) && ctx.Err() == nil {
		if second, secondErr := p.launch(ctx, e, def, eraStateless, underway); secondErr == nil {
			return second, nil
		}
	}
	return s, err
}

// newServer returns a Server of an entry without its transport.
func (p *Pool) newServer(e *entry, def Definition) *Server {
	return &Server{def: def, callTimeout: p.callTimeout(def), may: p.opts.May(def), live: &live{
		log: p.opts.Log.With("server", def.Name), tools: newToolCache(), changed: func() { p.toolsChanged(e) },
		pingTimeout: p.opts.Ping, background: p.background,
	}}
}

// introduces returns what a server hears about us when it starts.
func (p *Pool) introduces(s *Server) introduction { return introduction{p.client, s.may} }

// callTimeout bounds the calls of a definition's server.
func (p *Pool) callTimeout(def Definition) time.Duration {
	if def.CallTimeout > 0 {
		return def.CallTimeout
	}
	return p.opts.CallTimeout
}

// noTimeout is longer than any caller waits for a start.
const noTimeout = 24 * time.Hour

func (p *Pool) startTimeout(def Definition) time.Duration {
	if p.opts.StartTimeout < 0 {
		return noTimeout
	}
	if def.StartTimeout > 0 {
		return def.StartTimeout
	}
	return p.opts.StartTimeout
}

// startLimit returns how long the start of an entry may take: as long as the
// definition allows that allows most.
func (p *Pool) startLimit(e *entry) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := time.Duration(0)
	for s := range e.first.users {
		limit = max(limit, p.startTimeout(s.def))
	}
	if limit == 0 { // no caller waits any more
		limit = p.startTimeout(e.def)
	}
	return limit
}

// launch acquires a process, a connection and a session, or nothing.
func (p *Pool) launch(ctx context.Context, e *entry, def Definition, known era, underway *atomic.Pointer[Server]) (*Server, error) {
	began := time.Now()
	failed := &Error{Server: def.Name, Op: "start", Kind: ErrStart, Command: def.CommandLine()}
	plan := p.plan(def, e.from)
	path, err := child.Find(plan.command, plan.dir, plan.env)
	if err == nil && plan.dir != "" {
		if _, gone := os.Stat(plan.dir); gone != nil { // the error of the start would name the program
			err = fmt.Errorf("the directory to start in: %w", gone)
		}
	}
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	proc, err := p.keeper.Start(child.Spec{Path: path, Args: plan.args, Env: plan.env, Dir: plan.dir, Grace: p.opts.StopGrace})
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	if p.opts.Journal.Wants(journal.Usages) {
		p.running.Go(func() { p.meter(def.Name, proc) })
	}
	s := p.newServer(e, def)
	// Notifications may arrive before the session is agreed on; they do not need
	// it.
	pr := &program{proc: proc, Conn: jsonrpc.NewConn(proc.Stdout, proc.Stdin, jsonrpc.Options{
		Log: s.log, MaxLine: p.opts.MaxLine, OnRequest: s.requested, OnNotify: s.notified,
		Redact: def.Redact, SpoolDir: p.opts.SpoolDir,
	})}
	s.conn = pr
	underway.Store(s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := pr.watch(); err != nil {
			s.log.Error("MCP server cannot be ended", "err", err)
		}
	}()

	patience := p.startLimit(e)
	s.session, err = negotiate(ctx, s.conn, p.introduces(s), known, patience)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = silence(patience, s.stray(s.conn.Stats().Junk, def.Redact))
		}
		if ctx.Err() == nil {
			explain(failed, def, s, err)
		} else {
			failed.Err = context.Cause(ctx)
		}
		if err := s.stop(p.patience); err != nil {
			s.log.Error("a server that did not start cannot be ended", "err", err)
		} else {
			<-ended
		}
		return nil, failed
	}
	p.up(s, began)
	p.running.Go(func() {
		<-ended
		if !s.stopping.Load() {
			e := &Error{Server: def.Name, Kind: ErrGone}
			diagnose(e, s)
			p.changed(def.Name, journal.ServerDied, e.Exit, s.started)
			s.log.Warn("MCP server ended", "exit", e.Exit, "after", time.Since(s.started).Round(time.Millisecond), "output", e.LastText)
		}
	})
	return s, nil
}

// silence is the error of a server that does not answer initialize; stray says
// what it wrote instead.
func silence(patience time.Duration, stray string) error {
	return &redactedError{fmt.Sprintf("no answer to initialize within %s%s", patience, stray), timeoutError{patience}}
}

// up puts a server into service.
func (p *Pool) up(s *Server, began time.Time) {
	s.started, s.took = time.Now(), time.Since(began)
	s.touch()
	p.running.Go(func() { s.listen(p.base) })
	p.running.Go(func() { s.wantLogs(p.base) })
	info := s.Info()
	p.changed(s.def.Name, journal.ServerStarted, "", began)
	s.log.Info("MCP server started", "transport", info.Transport, "pid", info.PID, "protocol", s.session.version, "took", s.took.Round(time.Millisecond))
}

// changed publishes a change of a server, and how long it took: of one that ended,
// how long it ran.
func (p *Pool) changed(server string, to journal.ServerState, cause string, since time.Time) {
	now := time.Now()
	p.opts.Journal.Publish(&journal.ServerChanged{Origin: journal.Origin{Time: now}, Server: server, To: to, Cause: cause, Took: now.Sub(since)})
}

// explain adds to a failed start why it failed: what the server answered or, if
// it ended, its exit status and last output.
func explain(failed *Error, def Definition, s *Server, err error) {
	var answered *jsonrpc.Error
	isAnswer := errors.As(err, &answered)
	if !isAnswer || !s.Alive() {
		diagnose(failed, s)
	}
	switch {
	case isAnswer:
		failed.Err = fmt.Errorf("initialize: %w", s.redactAnswer(answered))
	case failed.Exit != "" && errors.Is(err, jsonrpc.ErrClosed):
		// The exit status explains it.
	default:
		failed.Err = redactError(def, err)
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

package hub

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	// maxClients bounds the connections of a hub.
	maxClients = 1024
	// idleRetry is when a hub that could not end although it is idle tries again.
	idleRetry = time.Second
)

// ErrIdle is the error of Serve where the hub was not needed any more.
var ErrIdle = errors.New("idle")

// A Client is what serves one client, for its connection.
type Client interface {
	// Serve talks to the client until in ends or ctx is done.
	Serve(ctx context.Context, in io.Reader, out io.Writer) error
	// Close frees what belongs to the client.
	Close()
}

// Config is what a Server needs.
type Config struct {
	Place Place
	// Listeners are the sockets on which frontends connect.
	Listeners []net.Listener
	// Open constructs what serves a client. The frontend gets its error.
	Open func(context.Context, Hello) (Client, error)
	// Idle is how long the hub stays without a client; 0 is forever.
	Idle time.Duration
	// Busy reports whether it must stay without a client.
	Busy func() bool
	// Outdated reports whether no further clients are expected, because there is
	// a newer program.
	Outdated func() bool
	// Close ends everything after the last client.
	Close func()
	Log   *slog.Logger
}

// Attached describes a connected client.
type Attached struct {
	ID      string    `json:"id"`
	Process int       `json:"process"`
	Since   time.Time `json:"since"`
}

// A Server is a running hub.
type Server struct {
	config Config
	work   sync.WaitGroup
	left   chan struct{} // has a token when the last client has left

	mu      sync.Mutex
	ending  bool
	conns   map[net.Conn]*Attached // nil values have said nothing yet
	stopped chan struct{}          // closed by Stop
	stop    sync.Once
}

// NewServer returns a server. Serve runs it.
func NewServer(c Config) *Server {
	return &Server{config: c, left: make(chan struct{}, 1), conns: map[net.Conn]*Attached{}, stopped: make(chan struct{})}
}

// Clients lists the clients that are connected, by the time of their arrival.
func (s *Server) Clients() []Attached {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Attached{}
	for _, a := range s.conns {
		if a != nil {
			out = append(out, *a)
		}
	}
	slices.SortFunc(out, func(a, b Attached) int { return a.Since.Compare(b.Since) })
	return out
}

// Stop ends Serve. Clients connect to another hub, which they start when this one
// has ended.
func (s *Server) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// Serve serves clients until ctx is done, Stop is called or no client needs the hub;
// the error is ErrIdle then. It ends everything that it has opened. The place
// stays locked until the process ends: another hub does not begin before that.
func (s *Server) Serve(ctx context.Context) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	for _, l := range s.config.Listeners {
		s.work.Go(func() { s.accept(life, l) })
	}
	err := s.wait(life)
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for _, l := range s.config.Listeners {
		_ = l.Close()
	}
	end(err)
	s.work.Wait()
	s.config.Close()
	return err
}

// wait returns when the hub is to end, with its place locked.
func (s *Server) wait(ctx context.Context) error {
	idle := time.NewTimer(s.config.Idle)
	defer idle.Stop()
	if s.config.Idle == 0 {
		idle.Stop()
	}
	for {
		var why error
		select {
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-s.stopped:
			why = context.Canceled
		case <-s.left:
			if s.config.Outdated() {
				idle.Reset(0)
			} else if s.config.Idle > 0 {
				idle.Reset(s.config.Idle)
			}
			continue
		case <-idle.C:
			if !s.unused() {
				continue // until the last client has left
			}
			if !s.config.Busy() && s.leave() {
				return ErrIdle
			}
			idle.Reset(idleRetry)
			continue
		}
		// Whoever connects from now on waits for the end of this process. Without the
		// lock it finds sessions that are awake here.
		locking, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
		defer cancel()
		unlock, err := s.config.Place.lock(locking)
		if err != nil {
			s.config.Log.Warn("the hub's place could not be locked", "error", err)
		}
		keep(unlock)
		return why
	}
}

// keep keeps a lock until this process ends.
func keep(unlock func()) {
	if unlock != nil {
		kept.Store(new(byte), unlock)
	}
}

// kept has what must not be collected: that would close the files of locks.
var kept sync.Map

// unused reports whether no client is there, and none has left just now.
func (s *Server) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) == 0 && len(s.left) == 0
}

// leave reports whether the hub can end because no client is there, and locks its
// place. It does not wait for the lock.
func (s *Server) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) > 0 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := s.config.Place.lock(ctx)
	if err != nil || unlock == nil {
		return false
	}
	keep(unlock)
	s.ending = true
	return true
}

// accept serves the connections of one listener.
func (s *Server) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			ending := s.ending
			s.mu.Unlock()
			if ending || errors.Is(err, net.ErrClosed) {
				return
			}
			s.config.Log.Warn("a client could not be accepted", "error", err)
			select { // out of descriptors, it may be
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			continue
		}
		s.mu.Lock()
		refused := s.ending || len(s.conns) >= maxClients
		if !refused {
			s.conns[conn] = nil
			s.work.Add(1)
		}
		s.mu.Unlock()
		if refused {
			_ = conn.Close()
			continue
		}
		go func() {
			defer s.work.Done()
			s.serve(ctx, conn)
		}()
	}
}

// gone forgets a connection.
func (s *Server) gone(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	if len(s.conns) == 0 {
		select {
		case s.left <- struct{}{}:
		default:
		}
	}
}

// serve serves one connection.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer s.gone(conn)
	log := s.config.Log
	defer func() {
		if r := recover(); r != nil {
			log.Error("serving a client failed", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	hello, talk, err := s.hello(conn)
	if err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errElsewhere) { // it only looked
			log.Debug("a frontend was sent away", "error", err)
		}
		return
	}
	defer talk.Close()
	log = log.With("client", hello.Client, "process", hello.Process)
	client, err := s.config.Open(ctx, *hello)
	w := welcome{Process: os.Getpid()}
	if err != nil {
		w.Error = err.Error()
	}
	// A client that neither reads nor leaves does not hold up the hub's end.
	defer context.AfterFunc(ctx, func() {
		_ = talk.SetReadDeadline(time.Unix(1, 0))
		_ = talk.SetWriteDeadline(time.Now().Add(helloTimeout))
	})()
	if err := answer(conn, w); err != nil || client == nil {
		if client != nil {
			client.Close()
		}
		return
	}
	defer client.Close()
	s.mu.Lock()
	s.conns[conn] = &Attached{ID: hello.Client, Process: hello.Process, Since: time.Now().UTC()}
	s.mu.Unlock()
	log.Debug("a client has come")
	err = client.Serve(ctx, bufio.NewReaderSize(talk, 64<<10), talk)
	log.Debug("a client has gone", "error", err)
}

// hello reads what a frontend says of itself, and returns the connection on which it
// says the rest.
func (s *Server) hello(conn net.Conn) (*Hello, net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, nil, err
	}
	in, pipes := receive(conn)
	defer pipes.close()
	line, err := readLine(bufio.NewReader(in))
	if err != nil {
		return nil, nil, err
	}
	var h Hello
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, nil, err
	}
	switch {
	case h.Key != s.config.Place.Key:
		return nil, nil, errors.Join(errElsewhere, answer(conn, welcome{Elsewhere: true}))
	case h.Protocol != protocol:
		return nil, nil, refuse(conn, fmt.Sprintf("the hub speaks version %d of its protocol, and not %d", protocol, h.Protocol))
	case !validClient().MatchString(h.Client):
		return nil, nil, refuse(conn, "the client's name must be letters and digits")
	}
	talk, err := pipes.join(conn)
	if err != nil {
		return nil, nil, err
	}
	return &h, talk, conn.SetDeadline(time.Time{})
}

// validClient matches the names of clients.
var validClient = lazyregexp.New(`\A[0-9a-z]{1,32}\z`)

// refuse tells a frontend why it is not served, which is the error.
func refuse(conn net.Conn, why string) error {
	return errors.Join(&Refused{why}, answer(conn, welcome{Error: why}))
}

// answer sends the welcome.
func answer(conn net.Conn, w welcome) error {
	line, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

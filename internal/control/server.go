package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/metrics"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/socket"
)

const (
	// maxConnections bounds who is served at a time.
	maxConnections = 16
	maxRequest     = 256 << 10 // an answer to a server has what a person wrote
	readTimeout    = 5 * time.Second
	// actTimeout bounds what is done for one request.
	actTimeout = 5 * time.Minute
	// closeTimeout is how long the end of a server waits for what it does.
	closeTimeout = 2 * time.Second
)

// A Server answers on the socket of a process.
type Server struct {
	sessions  Sessions
	approvals Approvals
	about     func() Process
	stop      func(context.Context, time.Duration) error
	metrics   func(context.Context) metrics.Snapshot
	log       *slog.Logger
	listener  *socket.Listener
	http      *http.Server
	life      context.Context
	end       context.CancelFunc
	working   sync.WaitGroup // requests and the server's own

	mu     sync.Mutex
	closed bool
}

// Config is what a Server answers with.
type Config struct {
	Sessions Sessions
	// Approvals has the open questions; nil: no one is asked here.
	Approvals Approvals
	// About says what the process is; its sessions are asked for.
	About func() Process
	// Stop ends the process once nothing runs, or after a time. Nil: its client
	// does.
	Stop func(context.Context, time.Duration) error
	// Metrics is what was counted; nil: nothing was.
	Metrics func(context.Context) metrics.Snapshot
	Log     *slog.Logger
}

// Listen serves on a new socket in dir, which is made if it is not there.
func Listen(dir string, c Config) (*Server, error) {
	log := c.Log
	name := fmt.Sprintf("%d-%s%s", os.Getpid(), strings.ToLower(rand.Text()[:8]), suffix)
	listener, err := socket.Listen(dir, name, log)
	if err != nil {
		return nil, err
	}
	s := &Server{sessions: c.Sessions, approvals: c.Approvals, about: c.About, stop: c.Stop, metrics: c.Metrics, log: log, listener: listener}
	s.life, s.end = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: s.routes(), BaseContext: func(net.Listener) context.Context { return s.life },
		ReadHeaderTimeout: readTimeout, IdleTimeout: time.Second, MaxHeaderBytes: maxRequest,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.working.Go(func() {
		guarded := &guard{Listener: listener, places: make(chan struct{}, maxConnections)}
		if err := s.http.Serve(guarded); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("the control socket ended", "error", err)
		}
	})
	return s, nil
}

// Close ends the answering. It waits a moment for what is being done, whose
// contexts are done, so that the answer to it arrives. It is idempotent.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	soon, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.http.Shutdown(soon) != nil {
		s.log.Debug("requests on the control socket are not waited for")
		_ = s.http.Close()
		return
	}
	_ = s.listener.Close() // where it is not served yet
	s.working.Wait()
}

// guard accepts not too many connections.
type guard struct {
	net.Listener
	places chan struct{}
}

func (g *guard) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.places <- struct{}{}:
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-g.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}

// begin counts a request, unless the server ends.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.working.Add(1)
	return true
}

// request is what a session is asked for.
type request struct {
	Key  session.Key   `json:"key"`
	File string        `json:"file,omitempty"`
	Wait time.Duration `json:"waitNanoseconds,omitempty"`
	// Paths are of files in the workspace.
	Paths []string `json:"paths,omitempty"`
	// Answer answers a question, or names one by its ID.
	Answer *approval.Answer `json:"answer,omitempty"`
}

// failure is an answer that says why not.
type failure struct {
	Error string `json:"error"`
	Kind  string `json:"kind,omitempty"`
}

// Kinds of failures that a client tells apart.
const (
	kindUnknown   = "unknown"
	kindElsewhere = "elsewhere"
	kindQuestion  = "question"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /process", s.handle(func(_ context.Context, _ request, w http.ResponseWriter) error {
		p := s.about()
		p.Sessions = s.sessions.Sessions()
		for i := range p.Sessions {
			p.Sessions[i].Client = cmp.Or(p.Sessions[i].Client, p.Client)
		}
		return reply(w, http.StatusOK, p)
	}))
	mux.HandleFunc("GET /stats", s.handle(func(ctx context.Context, _ request, w http.ResponseWriter) error {
		p := s.about()
		out := Stats{PID: p.PID, Started: p.Started}
		if s.metrics != nil {
			out.Metrics = s.metrics(ctx)
		}
		return reply(w, http.StatusOK, out)
	}))
	for path, do := range map[string]func(context.Context, session.Key) error{
		"/suspend": s.sessions.Suspend, "/resume": s.sessions.Resume, "/reset": s.sessions.Reset, "/remove": s.sessions.Remove,
	} {
		mux.HandleFunc("POST "+path, s.handle(func(ctx context.Context, r request, w http.ResponseWriter) error {
			if err := do(ctx, r.Key); err != nil {
				return err
			}
			return reply(w, http.StatusOK, struct{}{})
		}))
	}
	mux.HandleFunc("POST /stop", s.handle(func(ctx context.Context, r request, w http.ResponseWriter) error {
		if s.stop == nil {
			return errors.New("this process ends with its client")
		}
		if err := s.stop(ctx, r.Wait); err != nil {
			return err
		}
		return reply(w, http.StatusOK, struct{}{})
	}))
	if s.approvals != nil {
		s.answers(mux)
	}
	s.transfers(mux)
	mux.HandleFunc("POST /export", s.handle(s.export))
	mux.HandleFunc("POST /import", s.handle(func(ctx context.Context, r request, w http.ResponseWriter) error {
		f, err := os.Open(filepath.Clean(r.File))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := s.sessions.Import(ctx, r.Key, f); err != nil {
			return err
		}
		return reply(w, http.StatusOK, struct{}{})
	}))
	return mux
}

// answers adds what a person does with open questions.
func (s *Server) answers(mux *http.ServeMux) {
	mux.HandleFunc("GET /approvals", s.handle(func(_ context.Context, _ request, w http.ResponseWriter) error {
		return reply(w, http.StatusOK, Questions{s.approvals.List(), s.approvals.Lost()})
	}))
	on := func(path string, do func(a approval.Answer) (any, error)) {
		mux.HandleFunc("POST "+path, s.handle(func(_ context.Context, r request, w http.ResponseWriter) error {
			if r.Answer == nil {
				return errors.New("no question is named")
			}
			out, err := do(*r.Answer)
			if err != nil {
				return err
			}
			return reply(w, http.StatusOK, out)
		}))
	}
	on("/approval", func(a approval.Answer) (any, error) { return s.approvals.Get(a.ID) })
	on("/answer", func(a approval.Answer) (any, error) { return s.approvals.Answer(a) })
}

// export writes an archive to a file that it is given, because a failure in
// the middle is then told as any other.
func (s *Server) export(ctx context.Context, r request, w http.ResponseWriter) (err error) {
	f, err := os.OpenFile(filepath.Clean(r.File), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = s.sessions.Export(ctx, r.Key, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return reply(w, http.StatusOK, struct{}{})
}

// handle decodes a request and says how it failed.
func (s *Server) handle(do func(context.Context, request, http.ResponseWriter) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler) // as if the process had ended
		}
		defer s.working.Done()
		ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
		defer cancel()
		var asked request
		if r.Method == http.MethodPost {
			patience := http.NewResponseController(w)
			_ = patience.SetReadDeadline(time.Now().Add(readTimeout))
			data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
			if err == nil {
				err = json.Unmarshal(data, &asked)
			}
			_ = patience.SetReadDeadline(time.Time{})
			if err != nil {
				_ = reply(w, http.StatusBadRequest, failure{Error: err.Error()})
				return
			}
		}
		if err := do(ctx, asked, w); err != nil {
			_ = reply(w, http.StatusConflict, failureOf(err)) // the client has gone, or gets it
		}
	}
}

func failureOf(err error) failure {
	f := failure{Error: err.Error()}
	switch {
	case errors.Is(err, session.ErrUnknown):
		f.Kind = kindUnknown
	case errors.Is(err, approval.ErrUnknown):
		f.Kind = kindQuestion
	case errors.Is(err, hibernate.ErrElsewhere):
		f.Kind = kindElsewhere
	}
	return f
}

func reply(w http.ResponseWriter, status int, v any) error {
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false) // the client bounds an answer
	if err := e.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data.Bytes()) // the client may have gone
	return nil
}

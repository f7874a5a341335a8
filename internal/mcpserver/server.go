// Package mcpserver is what an agent's client talks to: an MCP server on
// standard input and output with one tool, run_python.
//
// The official Go SDK speaks the protocol, in all its revisions. Two things
// stand in front of it. A line reader of our own keeps a blank or broken line
// from ending the conversation. And a call of run_python from a client whose
// session or metadata the SDK has accepted takes a short way past it, because
// the SDK's own costs more than the sandbox does; a test compares the two ways
// answer by answer.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport/internal/broker"
	"sallyport/internal/runpodtools"
)

// An Executor runs code. [*broker.Broker] is one.
type Executor interface {
	// Submit takes the request's place in its session's queue, without
	// blocking, and returns the function that runs it and blocks until it
	// has ended. That function must be called exactly once.
	Submit(broker.Request) func(context.Context) *broker.Result
}

// Config is what a Server needs.
type Config struct {
	Executor Executor     // required
	Logger   *slog.Logger // required
	Version  string       // of the program
	// Output is the form of results; empty is Compact.
	Output Output
	// Backends are the engines that an agent may choose from, the one that runs
	// code otherwise first. Fewer than two are no choice.
	Backends []string
	// RunPod is the tools of the first RunPod server; nil: not offered.
	RunPod *runpodtools.Tools
	// Resources are sources of resources beside the manual. The first that
	// has one is read.
	Resources []Resources
	// Client is told what the client calls itself, in its own words. Nil: nobody
	// asks.
	Client func(name string)
	// SDKOnly sends every request through the SDK.
	SDKOnly bool
	// MaxLine bounds one incoming message; 0 is 16 MiB.
	MaxLine int
	// Drain is how long requests may take to finish after the client has
	// closed its end; 0 is one second. Clients kill a server that lingers.
	Drain time.Duration
}

// A Server serves MCP clients, one per call of Serve.
type Server struct {
	config     Config
	impl       *mcp.Implementation
	resultMeta json.RawMessage // what the stateless revisions add to a result
}

// New returns a server, which is safe for concurrent use.
func New(config Config) (*Server, error) {
	if config.Executor == nil || config.Logger == nil {
		return nil, errors.New("mcpserver: an executor and a logger are required")
	}
	if !config.Output.valid() {
		return nil, fmt.Errorf("mcpserver: there is no form of output named %q", config.Output)
	}
	if config.MaxLine == 0 {
		config.MaxLine = 16 << 20
	}
	if config.Drain == 0 {
		config.Drain = time.Second
	}
	if config.Version == "" {
		config.Version = "dev"
	}
	impl := &mcp.Implementation{Name: "sallyport", Version: config.Version}
	meta, err := json.Marshal(map[string]any{mcp.MetaKeyServerInfo: impl})
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	return &Server{config: config, impl: impl, resultMeta: meta}, nil
}

// linger is how long the end of a conversation may take.
const linger = 3 * time.Second

// Serve talks to one client until it closes stdin, which is the normal end and
// no error, or ctx is done. Code that still runs is then stopped. When Serve
// returns because of ctx, a read of stdin may still be in progress; only
// closing stdin ends it.
func (s *Server) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(broker.ErrStop)
	sdk := mcp.NewServer(s.impl, &mcp.ServerOptions{
		InitializedHandler: func(_ context.Context, r *mcp.InitializedRequest) {
			if p := r.Session.InitializeParams(); s.config.Client != nil && p != nil && p.ClientInfo != nil {
				s.config.Client(p.ClientInfo.Name)
			}
		},
		Logger: slog.New(quiet{s.config.Logger.Handler()}),
		// What is listed is the same as long as this process lives.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs = int(time.Hour / time.Millisecond)
		},
		// No logging, no change notifications: there is nothing to log to a
		// client, and the one tool never changes.
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{},
			Resources: &mcp.ResourceCapabilities{},
		},
	})
	s.addTool(sdk, stop)
	s.addRunPodTools(sdk, stop)
	s.addResources(sdk)

	c := newConn(s, stdin, stdout, stop, cancel)
	session, err := sdk.Connect(ctx, c, nil)
	if err != nil {
		return fmt.Errorf("mcpserver: %w", err)
	}
	go c.readLoop()
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case <-c.eof:
		// The client has gone, and readLoop has let its requests finish.
	case <-ctx.Done():
		c.hangUp()
	}
	cancel(broker.ErrStop)
	// A client that neither reads nor goes can hold up a write for ever.
	lingering, end := context.WithTimeout(context.Background(), linger)
	defer end()
	select {
	case err = <-ended:
	case <-lingering.Done():
		s.config.Logger.Warn("the conversation did not end in time")
	}
	c.finish(lingering)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("mcpserver: %w", err)
	}
	return nil
}

// quiet lets through what the SDK reports as a warning or worse: its notes on
// each connection say nothing that our own do not.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

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
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/pipe"
	"github.com/sallyport/sallyport/internal/runpodtools"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// An Executor runs the code of one client. [*broker.Client] is one.
type Executor interface {
	// Submit takes the request's place in its session's queue, without
	// blocking, and returns the function that runs it and blocks until it
	// has ended. That function must be called exactly once.
	Submit(broker.Request) func(context.Context) *broker.Result
	// End ends what the client leaves when it has gone, except its tasks.
	End()
	// Written returns what code wrote in an execution of a session, as
	// Result.Cell numbers it.
	Written(ctx context.Context, session string, cell uint64) (string, error)
}

// Config is what a Server needs.
type Config struct {
	Executor Executor     // required
	Logger   *slog.Logger // required
	Version  string       // of the program
	// Output is the form of results; empty is Compact.
	Output Output
	// Backends are the engines that an agent may choose from, the default first.
	// Fewer than two are no choice.
	Backends []string
	// Environments are the user's that an agent may choose from, besides
	// broker.HostEnvironment. Environment is the default; empty: the host's.
	Environments []string
	Environment  string
	// RunPod has the tools of the first RunPod server; nil: not offered.
	RunPod *runpodtools.Tools
	// Resources are sources of resources besides the manual. A resource is read
	// from the first source that has it.
	Resources []Resources
	// Unfolded has answers show output as the code wrote it.
	Unfolded bool
	// AnswerTokens bounds one answer without its pictures; 0 is no limit.
	AnswerTokens int
	// Structured says who gets structured content; empty is StructuredAuto.
	Structured Structured
	// AnswerWithin is how long a call waits for its code: after that it is answered
	// with the output so far, and the code goes on. 0 waits for the end. Clients that
	// are known to wait longer get longer.
	AnswerWithin time.Duration
	// Tasks, if not nil, has clients that declare the Tasks extension get a task for
	// a call that takes longer than a moment.
	Tasks *tasks.Set
	// Root completes and checks a folder that the client names as a root, and that
	// sandboxes will see; nil: clients are asked for no roots.
	Root func(sandbox.Mount) (sandbox.Mount, error)
	// ClientID identifies the client in the same way when it connects again, perhaps
	// to another process; empty: it is never known again. While a client is
	// connected, no other one sees its tasks.
	ClientID string
	// Approvals has the questions of code; nil: clients are asked none. Connection
	// is how its questions name this connection.
	Approvals  Approvals
	Connection string
	// Client receives the name that the client gives itself. It may be nil.
	Client func(name string)
	// SDKOnly sends every request through the SDK.
	SDKOnly bool
	// MaxLine bounds one incoming message; 0 is 16 MiB.
	MaxLine int
}

// environmentChoice returns the names of the environments that an agent may choose
// from, the default first. It is empty where there is nothing worth choosing: the
// host's packages alone, or one environment that sessions get anyway.
func (c *Config) environmentChoice() []string {
	all := append(slices.Clone(c.Environments), broker.HostEnvironment)
	if len(all) == 1 || len(all) == 2 && c.Environment == all[0] {
		return nil
	}
	if i := slices.Index(all, cmp.Or(c.Environment, broker.HostEnvironment)); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, cmp.Or(c.Environment, broker.HostEnvironment))
	}
	return all
}

// refuse returns the answer to a call for an environment that the user has not
// configured, or nil: those of scripts have IDs, which are not for agents.
func (c *Config) refuse(environment string) *broker.Result {
	if environment == "" || environment == broker.HostEnvironment || slices.Contains(c.Environments, environment) {
		return nil
	}
	return broker.NoEnvironment(environment, c.Environments)
}

// patience is how long a client is known to wait for the answer to a call, less
// some time for the answer's way.
type patience struct {
	wait  time.Duration
	fixed bool // its user cannot raise it
}

// patiences are those of clients, by the name that they give themselves. Others get
// Config.AnswerWithin.
var patiences = map[string]patience{
	// Moves a call to its background after 2 minutes: CHANGELOG of claude-code, MCP_TOOL_TIMEOUT.
	"claude-code": {110 * time.Second, false},
	// Claude Desktop and claude.ai stop near 60 s: anthropics/claude-ai-mcp #115, claude-code #22542.
	"claude-ai": {50 * time.Second, true},
	// 60 s unless its user raises tool_timeout_sec: documentation of Codex.
	"codex-mcp-client": {50 * time.Second, false},
	// Shows no result that comes after 5 minutes, and has no limit before: microsoft/vscode #274094.
	"Visual Studio Code": {4 * time.Minute, false},
}

// within returns how long a call of the client waits for its code.
func (c *Config) within(client string) time.Duration {
	known, ok := patiences[client]
	switch {
	case !ok || c.AnswerWithin == 0:
		return c.AnswerWithin
	case known.fixed:
		return min(c.AnswerWithin, known.wait)
	}
	return max(c.AnswerWithin, known.wait)
}

// A Server serves one MCP client.
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
	if !config.Structured.valid() {
		return nil, fmt.Errorf("mcpserver: structured content cannot be sent %q", config.Structured)
	}
	if config.MaxLine == 0 {
		config.MaxLine = 16 << 20
	}
	if config.Version == "" {
		config.Version = "dev"
	}
	if config.ClientID == "" {
		config.ClientID = rand.Text()
	}
	impl := &mcp.Implementation{Name: "sallyport", Version: shortVersion(config.Version)}
	meta, err := json.Marshal(map[string]any{mcp.MetaKeyServerInfo: impl})
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	return &Server{config: config, impl: impl, resultMeta: meta}, nil
}

// shortVersion returns a version without the time of its commit, which is in the
// pseudo-version of a build between releases: each answer of the newest revision has it.
func shortVersion(version string) string {
	// 0.0.0-20260102030405-abcdefabcdef+dirty
	return pseudoTime().ReplaceAllString(version, "$1$2")
}

var pseudoTime = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([-.])[0-9]{14}-([0-9a-f]{7})[0-9a-f]{5}`)
})

// linger is how long the end of a conversation may take.
const linger = 3 * time.Second

// Serve talks to one client until it closes stdin, which is the normal end and
// not an error, or until ctx is done. After the end of stdin it answers the requests
// that it has, unless stdout is closed too. It stops code that runs after that. When
// Serve returns because of ctx, a read of stdin may still be in progress; only
// closing stdin ends it.
func (s *Server) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(broker.ErrStop)
	capabilities := &mcp.ServerCapabilities{
		Tools:     &mcp.ToolCapabilities{},
		Resources: &mcp.ResourceCapabilities{},
		Prompts:   &mcp.PromptCapabilities{},
	}
	if s.config.Tasks != nil {
		capabilities.AddExtension(tasks.Extension, nil)
	}
	sdk := mcp.NewServer(s.impl, &mcp.ServerOptions{
		Logger: slog.New(quiet{s.config.Logger.Handler()}),
		// All lists stay the same as long as this process lives.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs = int(time.Hour / time.Millisecond)
		},
		// No logging, no change notifications: there is nothing to log to a
		// client, and the one tool never changes.
		Capabilities: capabilities,
	})
	c := newConn(s, pipe.Polled(stdin), stdout, stop, cancel)
	if s.config.Tasks != nil {
		defer s.config.Tasks.Connect(s.config.ClientID)()
	}
	defer s.config.Executor.End()
	s.addTool(sdk, c)
	sdk.AddReceivingMiddleware(allowAsks)
	s.addRunPodTools(sdk)
	addApp(sdk)
	s.addResources(sdk, c) // it fills the list that has the page
	addPrompt(sdk)
	if err := s.addTasks(sdk, c); err != nil {
		return fmt.Errorf("mcpserver: %w", err)
	}
	// Outermost, because it is added last: all requests end with the connection.
	sdk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
			defer func() {
				if defect := recover(); defect != nil {
					err = s.defect(defect)
				}
			}()
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(stop, func() { cancel(context.Cause(stop)) })()
			return next(ctx, method, req)
		}
	})

	session, err := sdk.Connect(ctx, c, nil)
	if err != nil {
		return fmt.Errorf("mcpserver: %w", err)
	}
	c.sdk = session
	probes, err := sdk.Connect(ctx, c.probes, nil)
	if err != nil {
		return fmt.Errorf("mcpserver: %w", err)
	}
	go c.readLoop()
	ended := make(chan error, 1)
	go func() {
		_ = probes.Wait() // ends as the session does
		ended <- session.Wait()
	}()
	select {
	case <-c.eof:
		// The client has gone, and readLoop has let its requests finish.
	case <-ctx.Done():
		c.hangUp()
	}
	cancel(broker.ErrStop)
	s.config.Executor.End() // before the end of a connection that a stuck client delays
	// A client that neither reads nor disconnects can block a write forever.
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

// defect logs a defect that showed while a request was served, and returns its
// answer: it ends no other request and no other client.
func (s *Server) defect(what any) *sdkrpc.Error {
	s.config.Logger.Error("a request ended because of a defect", "defect", fmt.Sprint(what), "stack", string(debug.Stack()))
	return &sdkrpc.Error{Code: sdkrpc.CodeInternalError, Message: "a defect of Sallyport ended the request; its log has the details"}
}

// quiet passes on only the SDK's warnings and errors: its notes on each
// connection add nothing to our own.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

package journal

import (
	"encoding/json"
	"time"

	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// An Event is something that happened. The types of this package are all there
// are; a subscriber ignores those that it does not know.
type Event interface {
	Topic() Topic
	size() int // about how many bytes it keeps in memory
}

// eventSize is about what an event takes besides its strings.
const eventSize = 512

// folderSize is about what one of Decided.Folders takes.
const folderSize = 128

// Origin says for whom something happened. What does not apply is empty.
type Origin struct {
	Time time.Time
	// Owner is the user; Client is what the client calls itself, a label.
	Owner, Client string
	Session       string
	Execution     string               // the ID of the request that log lines have, too
	Trace         tracecontext.Context // the span that the event is about
}

// ExecutionBegan is published when code is about to be handed to its sandbox.
type ExecutionBegan struct {
	Origin
	Code    string
	File    string // the script, where it is one
	Engine  string // or the batch service
	Servers []string
	Waited  time.Duration // since it was submitted
}

// ExecutionEnded is published with each answer to a request to run code. One that
// was refused had no ExecutionBegan.
type ExecutionEnded struct {
	Origin
	Status         string // as in the result: success, error, timeout, validation_error
	ExitCode       *int
	Error          string
	StateLost      string // why the session's earlier state is gone
	OutOfMemory    bool
	Took           time.Duration // since it was submitted
	Stdout, Stderr int           // bytes that the answer has
	Engine         string        // or the batch service; empty: it was not chosen yet
}

// Used tells what an execution, the idle sandbox of a session, or a server has
// used.
type Used struct {
	Origin
	Kind  UsedBy
	Name  string // of the session or server
	Usage usage.Usage
	// Code, File, Servers and Failed are those of an execution.
	Code    string
	File    string
	Servers []string
	Failed  bool
}

// UsedBy is what has used something.
type UsedBy int

// What Used tells of.
const (
	ByExecution UsedBy = iota
	BySession
	ByServer
)

// Decided is a decision of the gate.
type Decided struct {
	Origin
	// Call tells the actions of a process apart; their Finished has the same.
	Call uint64
	// Action is what is to be done: "call_tool". Server and Item are what it
	// uses: a tool, a prompt, an engine, a service.
	Action, Server, Item string
	// Arguments are those of a call, unchanged. They may hold secrets.
	Arguments json.RawMessage
	Folders   []string // of the host, that code sees: DIR:PATH:MODE
	Effect    string   // of the rules: allow, ask, deny
	Rule      string   // that decided; empty: none objected
	Reason    string
	Allowed   bool // in the end
	// AnsweredBy, Words and Scope are those of a person's answer.
	AnsweredBy, Words, Scope string
	Asked                    time.Duration // how long the answer took; 0: no one was asked
	// Audit says how the rule wants arguments recorded: complete, hash or omit;
	// empty: as is set.
	Audit string
}

// Finished tells how an allowed action ended.
type Finished struct {
	Origin
	Call                 uint64
	Action, Server, Item string
	Took                 time.Duration // since the decision
	Bytes                int           // of the answer
	Failure              string        // what kind of failure; empty on success
	Cached               bool          // the answer is that of an earlier call, and none went out
	Listed               bool          // its server lists the tool: code can invent names
}

// Asked is published when a question is put to people, and before an answer to it
// where that person saw more or fewer calls.
type Asked struct {
	Origin
	Question             string // its ID
	Revision             int    // how many calls have joined it, with those that are shown
	Action, Server, Item string
	Rule                 string // that asks
	Calls                int    // that wait, and are shown
	// Shown is the text that people see, without the secrets that are known. It has
	// the arguments of the calls.
	Shown string
	// Audit is that of Decided, for Shown.
	Audit string
}

// Answered tells how a question ended that was put to people.
type Answered struct {
	Origin
	Question string
	// Revision is the one that was answered: an Asked with it comes before. 0: the
	// question ended without an answer of its own, and Reason says how.
	Revision             int
	Action, Server, Item string
	Allowed              bool
	// By, Words and Scope are those of the answer; By is empty where none came
	// before the calls ended or had waited long enough.
	By, Words, Scope string
	Reason           string
	Calls            int           // that it answered; without an answer, that ended
	Took             time.Duration // since the question was opened
	// Killed is the process that had the question and was killed, as another has
	// found, and Since is when it was opened; 0: it was not.
	Killed int
	Since  time.Time
}

// SessionState is what became of a session's sandbox.
type SessionState string

// The states of sessions.
const (
	SessionStarted   SessionState = "started"   // a new sandbox; Cause: cold, prepared or pool
	SessionResumed   SessionState = "resumed"   // from its suspended state
	SessionSuspended SessionState = "suspended" // saved to disk
	SessionLost      SessionState = "lost"      // its sandbox was killed or died; Cause says why
	SessionForgotten SessionState = "forgotten" // its state was given up on purpose
)

// SessionChanged is published when the sandbox of a session begins or ends.
type SessionChanged struct {
	Origin
	To    SessionState
	Cause string
	Took  time.Duration
}

// ServerState is what became of an MCP server.
type ServerState string

// The states of servers.
const (
	ServerStarted ServerState = "started"
	ServerFailed  ServerState = "failed"  // to start
	ServerStopped ServerState = "stopped" // on purpose: it was not used, or its definition changed
	ServerDied    ServerState = "died"    // by itself
)

// ServerChanged is published when an MCP server starts or ends.
type ServerChanged struct {
	Origin
	Server string
	To     ServerState
	Cause  string // without secrets
	Took   time.Duration
}

func (*ExecutionBegan) Topic() Topic { return Executions }
func (*ExecutionEnded) Topic() Topic { return Executions }
func (*Used) Topic() Topic           { return Usages }
func (*Decided) Topic() Topic        { return Actions }
func (*Finished) Topic() Topic       { return Actions }
func (*Asked) Topic() Topic          { return Questions }
func (*Answered) Topic() Topic       { return Questions }
func (*SessionChanged) Topic() Topic { return Sessions }
func (*ServerChanged) Topic() Topic  { return Servers }

func (e *ExecutionBegan) size() int { return eventSize + len(e.Code) }
func (e *ExecutionEnded) size() int { return eventSize + len(e.Error) }
func (e *Used) size() int           { return eventSize + len(e.Code) }
func (e *Decided) size() int {
	return eventSize + len(e.Arguments) + len(e.Reason) + folderSize*len(e.Folders)
}
func (e *Finished) size() int       { return eventSize }
func (e *Asked) size() int          { return eventSize + len(e.Shown) }
func (e *Answered) size() int       { return eventSize + len(e.Words) + len(e.Reason) }
func (e *SessionChanged) size() int { return eventSize + len(e.Cause) }
func (e *ServerChanged) size() int  { return eventSize + len(e.Cause) }

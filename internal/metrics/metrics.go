// Package metrics counts what happens, and how long it takes, from the events of the
// journal. The names follow OpenTelemetry's conventions for MCP and generative AI
// where there are any.
package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/journal"
)

// maxSeries bounds the series of a family: servers choose the names of their tools.
// What would exceed it is counted in a series whose labels are all other.
const (
	maxSeries = 1000
	other     = "other"
)

// family describes one metric.
type family struct {
	name, kind, help string // kind: histogram, counter or gauge
	labels           []string
}

// The metrics, in the order in which they are published.
var (
	serverOperations = &family{"mcp_server_operation_duration_seconds", "histogram", "Calls of run_python, from their arrival to their answer, by how they ended.", []string{"mcp_method_name", "gen_ai_tool_name", "error_type"}}
	clientOperations = &family{"mcp_client_operation_duration_seconds", "histogram", "Requests of code to MCP servers. A tool that its server does not list is called other.", []string{"mcp_method_name", "gen_ai_tool_name", "error_type", "sallyport_server"}}
	executions       = &family{"sallyport_executions_total", "counter", "Executions by status and by the engine or batch service.", []string{"status", "engine"}}
	waits            = &family{"sallyport_execution_wait_seconds", "histogram", "How long executions waited until their code was about to run.", nil}
	running          = &family{"sallyport_executions_running", "gauge", "Executions that run code now.", nil}
	waiting          = &family{"sallyport_executions_waiting", "gauge", "Executions that wait for their turn now.", nil}
	reused           = &family{"sallyport_reused_results_total", "counter", "Calls that were answered with the result of an earlier one.", []string{"sallyport_server"}}
	decisions        = &family{"sallyport_decisions_total", "counter", "Decisions of the gate by action, by what the rules said, and by the outcome.", []string{"action", "effect", "outcome"}}
	questions        = &family{"sallyport_questions_total", "counter", "Questions that were put to people, by outcome: allowed, refused, or unanswered.", []string{"outcome"}}
	resultBytes      = &family{"sallyport_result_bytes_total", "counter", "Bytes of the results that code got from tools.", nil}
	answerBytes      = &family{"sallyport_answer_bytes_total", "counter", "Bytes of output in the answers to run_python.", nil}
	sessionStarts    = &family{"sallyport_session_start_duration_seconds", "histogram", "Starts of sandboxes for sessions: cold, from the prepared snapshot, or from the pool.", []string{"cause"}}
	sessionResumes   = &family{"sallyport_session_resume_duration_seconds", "histogram", "Resumptions of suspended sessions.", nil}
	sessionSuspends  = &family{"sallyport_session_suspend_duration_seconds", "histogram", "Suspensions of sessions.", nil}
	sessionsEnded    = &family{"sallyport_sessions_ended_total", "counter", "Sandboxes of sessions that were lost or forgotten, and why.", []string{"how", "cause"}}
	servers          = &family{"sallyport_server_changes_total", "counter", "Starts, failed starts, stops and deaths of MCP servers.", []string{"sallyport_server", "change"}}
	serverStarts     = &family{"sallyport_server_start_duration_seconds", "histogram", "Starts of MCP servers.", []string{"sallyport_server"}}
	journalLost      = &family{"sallyport_journal_lost_total", "counter", "Events that a subscriber of the journal was too slow to take.", []string{"subscriber"}}

	families = []*family{
		serverOperations, clientOperations, executions, waits, running, waiting, reused, decisions, questions, resultBytes, answerBytes, sessionStarts, sessionResumes, sessionSuspends,
		sessionsEnded, servers, serverStarts, journalLost,
	}
)

// Topics are those whose events a Set counts.
const Topics = journal.Executions | journal.Actions | journal.Questions | journal.Sessions | journal.Servers

// methods are the MCP methods of the gate's actions.
var methods = map[string]string{"call_tool": "tools/call", "list_server": "tools/list", "read_resource": "resources/read", "get_prompt": "prompts/get"}

// MethodOf returns the MCP method of an action that asks a server; empty of another.
func MethodOf(action string) string { return methods[action] }

// A Set counts. It is safe for concurrent use.
type Set struct {
	mu   sync.Mutex
	made map[*family]map[string]*Series
}

// New returns a Set that has counted nothing.
func New() *Set { return &Set{made: map[*family]map[string]*Series{}} }

// Series is the part of a metric that has these labels.
type Series struct {
	Labels []string   `json:"labels,omitempty"` // values, in the order of the metric's labels
	Value  float64    `json:"value,omitempty"`
	Times  *Histogram `json:"times,omitempty"` // of a histogram
}

// A Snapshot has series by the name of their metric.
type Snapshot map[string][]Series

// series returns the one with these labels. s.mu is held.
func (s *Set) series(f *family, labels []string) *Series {
	of := s.made[f]
	if of == nil {
		of = map[string]*Series{}
		s.made[f] = of
	}
	key := strings.Join(labels, "\x00")
	if one := of[key]; one != nil {
		return one
	}
	if len(of) >= maxSeries {
		labels = slices.Repeat([]string{other}, len(f.labels))
		if key = strings.Join(labels, "\x00"); of[key] != nil {
			return of[key]
		}
	}
	one := &Series{Labels: slices.Clone(labels)}
	if f.kind == "histogram" {
		one.Times = &Histogram{}
	}
	of[key] = one
	return one
}

// Handle counts events: see [journal.Options].
func (s *Set) Handle(events []journal.Event, _ int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range events {
		switch e := event.(type) {
		case *journal.ExecutionBegan:
			s.series(waits, nil).Times.observe(e.Waited)
		case *journal.ExecutionEnded:
			failure, engine := "", e.Engine
			if e.Status != "success" {
				failure = e.Status
			}
			if e.Status == "validation_error" {
				engine = "" // the request may have invented it
			}
			s.series(serverOperations, []string{"tools/call", "run_python", failure}).Times.observe(e.Took)
			s.series(executions, []string{e.Status, engine}).Value++
			s.series(answerBytes, nil).Value += float64(e.Stdout + e.Stderr)
		case *journal.Decided:
			outcome := "denied"
			if e.Allowed {
				outcome = "allowed"
			}
			s.series(decisions, []string{e.Action, e.Effect, outcome}).Value++
		case *journal.Answered:
			if e.Killed != 0 {
				break // it was another process's
			}
			outcome := "refused"
			switch {
			case e.Allowed:
				outcome = "allowed"
			case e.By == "":
				outcome = "unanswered"
			}
			s.series(questions, []string{outcome}).Value++
		case *journal.Finished:
			if e.Action == "call_tool" && e.Failure == "" {
				s.series(resultBytes, nil).Value += float64(e.Bytes)
			}
			if e.Cached {
				s.series(reused, []string{e.Server}).Value++
			} else if method := methods[e.Action]; method != "" {
				s.series(clientOperations, []string{method, itemOf(e), e.Failure, e.Server}).Times.observe(e.Took)
			}
		case *journal.SessionChanged:
			s.session(e)
		case *journal.ServerChanged:
			s.series(servers, []string{e.Server, string(e.To)}).Value++
			if e.To == journal.ServerStarted {
				s.series(serverStarts, []string{e.Server}).Times.observe(e.Took)
			}
		}
	}
	return nil
}

// itemOf returns the tool of a call, if the server lists it: code can invent names.
func itemOf(e *journal.Finished) string {
	switch {
	case e.Action != "call_tool":
		return ""
	case !e.Listed:
		return other
	}
	return e.Item
}

func (s *Set) session(e *journal.SessionChanged) {
	switch e.To {
	case journal.SessionStarted:
		s.series(sessionStarts, []string{e.Cause}).Times.observe(e.Took)
	case journal.SessionResumed:
		s.series(sessionResumes, nil).Times.observe(e.Took)
	case journal.SessionSuspended:
		s.series(sessionSuspends, nil).Times.observe(e.Took)
	default:
		cause, _, _ := strings.Cut(e.Cause, ":") // what follows differs each time
		s.series(sessionsEnded, []string{string(e.To), cause}).Value++
	}
}

// Now is what is so at the moment, besides what was counted.
type Now struct {
	Running, Waiting int               // executions
	Lost             map[string]uint64 // events, by subscriber
}

// Snapshot returns what was counted so far.
func (s *Set) Snapshot(now Now) Snapshot {
	out := Snapshot{
		running.name: {{Value: float64(now.Running)}},
		waiting.name: {{Value: float64(now.Waiting)}},
	}
	for _, name := range slices.Sorted(maps.Keys(now.Lost)) {
		out[journalLost.name] = append(out[journalLost.name], Series{Labels: []string{name}, Value: float64(now.Lost[name])})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, of := range s.made {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			one := *of[key]
			if one.Times != nil {
				copied := *one.Times
				copied.Buckets = slices.Clone(copied.Buckets)
				one.Times = &copied
			}
			out[f.name] = append(out[f.name], one)
		}
	}
	return out
}

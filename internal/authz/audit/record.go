package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
)

// Types of records.
const (
	Began    = "execution.began"
	Ended    = "execution.ended"
	Decision = "decision" // of the gate, before anything is done
	Outcome  = "outcome"  // of what was allowed
	Question = "question" // that people were asked, as they saw it
	Answer   = "answer"   // to it, or its end without one: then it has no revision
	Session  = "session"
	Server   = "server"
	// Lost stands for events that could not be written.
	Lost = "lost"
	// Repaired follows a line that a process did not finish when it died: it was
	// removed.
	Repaired = "repaired"
	// Broken follows what was changed or removed by something other than this
	// program, as the next writer has noticed.
	Broken = "broken"
)

// How much of code and arguments is recorded.
const (
	Complete = "complete"
	Hash     = "hash"
	Omit     = "omit"
)

// A Record is one line of the log. What does not apply is empty.
type Record struct {
	Seq  uint64    `json:"seq,omitempty"`
	Prev string    `json:"prev,omitempty"` // the hash of the record before
	Time time.Time `json:"time"`
	Type string    `json:"type"`

	Owner     string `json:"owner,omitempty"`
	Client    string `json:"client,omitempty"` // what it calls itself
	Session   string `json:"session,omitempty"`
	Execution string `json:"execution,omitempty"`
	Call      string `json:"call,omitempty"` // what decision and outcome have in common

	// Of decisions and outcomes.
	Action     string          `json:"action,omitempty"` // such as call_tool
	Server     string          `json:"server,omitempty"`
	Item       string          `json:"item,omitempty"` // the tool, prompt or engine
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Folders    []string        `json:"folders,omitempty"` // of the host, that code sees: DIR:PATH:MODE
	Digest     string          `json:"digest,omitempty"`  // of the arguments, of the code, or of what was shown
	Size       int             `json:"size,omitempty"`    // of the same, in bytes
	Effect     string          `json:"effect,omitempty"`  // of the rules: allow, ask, deny
	Allowed    *bool           `json:"allowed,omitempty"`
	Rule       string          `json:"rule,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	AnsweredBy string          `json:"answeredBy,omitempty"`
	Words      string          `json:"words,omitempty"`
	Scope      string          `json:"scope,omitempty"`
	Failure    string          `json:"failure,omitempty"` // the kind; empty on success

	// Of questions and answers; decisions of the calls follow. A person who answers a
	// revision has seen what the last question before that has for this revision:
	// the text, its digest and size, or its size.
	Question string    `json:"question,omitempty"`
	Revision int       `json:"revision,omitempty"`
	Calls    int       `json:"calls,omitempty"` // that are in it, were answered, or ended without an answer
	Shown    string    `json:"shown,omitempty"`
	Killed   int       `json:"killed,omitempty"` // the process that had the question and was killed
	Since    time.Time `json:"since,omitzero"`   // when that was opened

	// Of executions.
	Code     string   `json:"code,omitempty"`
	File     string   `json:"file,omitempty"`
	Engine   string   `json:"engine,omitempty"`
	Servers  []string `json:"servers,omitempty"`
	Status   string   `json:"status,omitempty"`
	ExitCode *int     `json:"exitCode,omitempty"`
	Error    string   `json:"error,omitempty"`
	WaitedMs float64  `json:"waitedMs,omitempty"`

	// Of sessions and servers: what became of them.
	To    string `json:"to,omitempty"`
	Cause string `json:"cause,omitempty"`

	TookMs float64 `json:"tookMs,omitempty"`
	Bytes  int     `json:"bytes,omitempty"` // of the answer or the output
	Lost   int     `json:"lost,omitempty"`  // events, or bytes of a line

	Hash string `json:"hash,omitempty"` // of everything before it on its line
}

// recordOf returns the record of an event, or nil for one that is not recorded.
func (l *Log) recordOf(event journal.Event) *Record {
	text := l.config.Secrets.Text
	of := func(kind string, o *journal.Origin) *Record {
		return &Record{
			Time: o.Time.UTC().Round(time.Microsecond), Type: kind, Owner: o.Owner, Client: text(o.Client), Session: text(o.Session), Execution: text(o.Execution),
		}
	}
	switch e := event.(type) {
	case *journal.ExecutionBegan:
		r := of(Began, &e.Origin)
		r.File, r.Engine, r.Servers, r.WaitedMs = text(e.File), e.Engine, e.Servers, ms(e.Waited)
		r.Size = len(e.Code)
		if l.config.Code == Complete {
			r.Code = text(e.Code)
		} else {
			r.Digest = digest([]byte(e.Code))
		}
		return r
	case *journal.ExecutionEnded:
		r := of(Ended, &e.Origin)
		r.Status, r.ExitCode, r.Error, r.Engine = e.Status, e.ExitCode, text(e.Error), e.Engine
		r.TookMs, r.Bytes, r.Cause = ms(e.Took), e.Stdout+e.Stderr, text(e.StateLost)
		return r
	case *journal.Decided:
		r := of(Decision, &e.Origin)
		r.Call, r.Action, r.Server, r.Item = l.call(e.Call), e.Action, text(e.Server), text(e.Item)
		r.Effect, r.Rule, r.Reason, r.Allowed = e.Effect, e.Rule, text(e.Reason), &e.Allowed
		r.AnsweredBy, r.Words, r.Scope = text(e.AnsweredBy), text(e.Words), text(e.Scope)
		l.arguments(r, e)
		for _, f := range e.Folders {
			r.Folders = append(r.Folders, text(f))
		}
		return r
	case *journal.Finished:
		r := of(Outcome, &e.Origin)
		r.Call, r.Action, r.Server, r.Item = l.call(e.Call), e.Action, text(e.Server), text(e.Item)
		r.TookMs, r.Bytes, r.Failure = ms(e.Took), e.Bytes, e.Failure
		return r
	case *journal.Asked:
		r := of(Question, &e.Origin)
		r.Question, r.Revision, r.Action, r.Server, r.Item, r.Rule, r.Calls = e.Question, e.Revision, e.Action, text(e.Server), text(e.Item), text(e.Rule), e.Calls
		shown := text(e.Shown)
		r.Size = len(shown)
		switch l.howMuch(e.Audit) {
		case Omit:
		case Complete:
			r.Shown = shown
		default:
			r.Digest = digest([]byte(shown))
		}
		return r
	case *journal.Answered:
		r := of(Answer, &e.Origin)
		r.Question, r.Revision, r.Action, r.Server, r.Item, r.Calls, r.TookMs = e.Question, e.Revision, e.Action, text(e.Server), text(e.Item), e.Calls, ms(e.Took)
		r.Allowed, r.AnsweredBy, r.Words, r.Scope, r.Reason = &e.Allowed, text(e.By), text(e.Words), text(e.Scope), text(e.Reason)
		r.Killed, r.Since = e.Killed, e.Since.UTC().Round(time.Microsecond)
		return r
	case *journal.SessionChanged:
		r := of(Session, &e.Origin)
		r.To, r.Cause, r.TookMs = string(e.To), text(e.Cause), ms(e.Took)
		return r
	case *journal.ServerChanged:
		r := of(Server, &e.Origin)
		r.Server, r.To, r.Cause, r.TookMs = text(e.Server), string(e.To), text(e.Cause), ms(e.Took)
		return r
	}
	return nil
}

// arguments records the arguments of a call as far as the rule or, if it says
// nothing, the setting wants that.
func (l *Log) arguments(r *Record, e *journal.Decided) {
	if len(e.Arguments) == 0 {
		return
	}
	r.Size = len(e.Arguments)
	switch how := l.howMuch(e.Audit); {
	case how == Omit:
	case how != Complete:
		r.Digest = digest(e.Arguments)
	case json.Valid(e.Arguments):
		r.Arguments = l.config.Secrets.JSON(e.Arguments)
	default:
		r.Arguments, _ = json.Marshal(l.config.Secrets.Text(string(e.Arguments)))
	}
}

// howMuch returns how arguments are recorded: as the rule or, if it says nothing, the
// setting wants that.
func (l *Log) howMuch(rule string) string { return cmp.Or(rule, l.config.Arguments) }

// call names an action of this process among those of all.
func (l *Log) call(n uint64) string { return fmt.Sprintf("%s-%d", l.writer, n) }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ms returns milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// address names a question, and its revision where that is known, as people do.
func (r *Record) address() string {
	if r.Revision == 0 {
		return r.Question
	}
	return fmt.Sprintf("%s.%d", r.Question, r.Revision)
}

// Answered says in a few words how a question ended: who answered, and for what, or
// why no one did.
func (r *Record) Answered() string {
	took := time.Duration(r.TookMs * 1e6).Round(100 * time.Millisecond)
	switch {
	case r.Killed != 0:
		return fmt.Sprintf("%s (since %s)", r.Reason, r.Since.Local().Format(time.DateTime))
	case r.AnsweredBy == "" && r.Revision == 0:
		return fmt.Sprintf("%s (after %s)", r.Reason, took)
	}
	text := fmt.Sprintf("%s, by %s after %s", r.Scope, r.AnsweredBy, took)
	for _, more := range []string{r.Words, r.Reason} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// Title says in a few words what a record is about.
func (r *Record) Title() string {
	target := r.Item
	if r.Server != "" {
		target = strings.TrimSuffix(r.Server+"."+r.Item, ".")
	}
	what := fmt.Sprintf("%d × %s", r.Calls, target)
	switch r.Action {
	case "install_packages":
		what = "installing " + target
	case "elicit":
		what = "what " + target + " asks"
	case "sample":
		what = "a model's answer to " + target
	case "list_roots":
		what = "the roots for " + target
	}
	switch r.Type {
	case Began:
		return strings.TrimSpace("code began " + r.File)
	case Ended:
		return "code ended: " + r.Status
	case Decision, Outcome:
		return strings.TrimSpace(strings.ReplaceAll(r.Action, "_", " ") + " " + target)
	case Question:
		return "asked " + r.address() + " about " + what
	case Answer:
		switch {
		case r.AnsweredBy == "" && r.Revision == 0:
			return "no answer to " + r.Question + " about " + what
		case r.Allowed != nil && *r.Allowed:
			return "yes to " + r.address() + ", " + what
		}
		return "no to " + r.address() + ", " + what
	case Session:
		return strings.TrimSpace("session " + r.To)
	case Server:
		return "server " + r.Server + " " + r.To
	case Lost:
		return fmt.Sprintf("%d events were lost", r.Lost)
	}
	return "the log was " + r.Type
}

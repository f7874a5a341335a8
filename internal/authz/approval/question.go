package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// A Choice is how far an answer goes.
type Choice string

// The choices.
const (
	ThisCall Choice = "call"    // the first of the calls that were shown
	Waiting  Choice = "waiting" // all calls that were shown
	Next     Choice = "next"    // so many calls with equal fixed arguments, in this execution
	ThisTool Choice = "tool"    // all calls of the tool in this execution
	Session  Choice = "session" // all calls of the tool in this session, as long as it lives
	Always   Choice = "always"  // all calls of the tool: a rule is written
	No       Choice = "no"      // none of the calls that were shown
	NoTool   Choice = "no-tool" // no call of the tool in this execution
	// Reply answers a server with a result.
	Reply Choice = "reply"
)

// A Question is what a person is asked, as it is at one revision. Everything in
// it is fit for a terminal: untrusted text has its hidden characters escaped, and
// known secrets are masked.
type Question struct {
	ID       string `json:"id"`
	Revision int    `json:"revision"` // how many calls have joined it
	Process  int    `json:"process"`

	Owner     string `json:"owner"`
	Client    string `json:"client,omitempty"`
	Session   string `json:"session,omitempty"`
	Execution string `json:"execution,omitempty"`

	Action      string   `json:"action"` // call_tool, read_resource, get_prompt, request_server, install_packages, elicit, sample, list_roots
	Server      string   `json:"server"`
	Started     string   `json:"started,omitempty"` // the server's command line or URL
	Item        string   `json:"item,omitempty"`    // the tool or prompt
	Description string   `json:"description,omitempty"`
	Annotations string   `json:"annotations,omitempty"` // what the server says of the tool
	Rule        string   `json:"rule"`
	Because     string   `json:"because,omitempty"`
	Choices     []Choice `json:"choices"`

	Waiting int `json:"waiting"` // calls that are shown
	// More is how many calls may follow that are not shown: they found no room, or
	// wait in the sandbox. An answer to all calls covers those of them that are
	// alike.
	More     int       `json:"more,omitempty"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"` // when the first call is refused
	// Fixed are the arguments that are equal in all calls, as "name = value".
	Fixed []string `json:"fixed,omitempty"`
	// Varies names the other arguments, and Calls has their values, a row for each
	// call that waits. A value that a call does not have is empty.
	Varies []string   `json:"varies,omitempty"`
	Calls  [][]string `json:"calls,omitempty"`
	// Always is what the choice of that name would write; nil where it cannot.
	Always *Rule `json:"always,omitempty"`

	// Asks is what a server asks; nil: it is about calls. Its text is the server's own,
	// for Text to escape. List leaves Params out.
	Asks *inquiry.Request `json:"asks,omitempty"`

	// Settled: no call has joined for a moment, or it has waited long enough.
	Settled bool `json:"settled"`

	connection string
	ended      chan struct{}
}

// A Rule is one that an answer would write.
type Rule struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// Address is what an answer names: the question, as it was at this revision.
func (q *Question) Address() string { return fmt.Sprintf("%s.%d", q.ID, q.Revision) }

// ParseAddress returns the ID and the revision in an address. The revision is 0
// where it has none.
func ParseAddress(text string) (id string, revision int, err error) {
	id, rest, revised := strings.Cut(strings.ToLower(text), ".")
	if revised {
		revision, err = strconv.Atoi(rest)
	}
	if id == "" || err != nil || revised && revision < 1 {
		return "", 0, fmt.Errorf("%q names no question: it is an ID and a revision, such as k3vq.40", label(text, 40))
	}
	return id, revision, nil
}

// Ended is closed when the question has been answered or withdrawn.
func (q *Question) Ended() <-chan struct{} { return q.ended }

// Name is what is asked for.
func (q *Question) Name() string {
	switch q.Action {
	case "request_server":
		return "adding server " + q.Server
	case "install_packages":
		return "installing " + q.Item
	case "read_resource":
		return "resources of " + q.Server
	case "get_prompt":
		return "prompt " + q.Server + "." + q.Item
	case "elicit":
		return "an answer to " + q.Server
	case "sample":
		return "a model's answer to " + q.Server
	case "list_roots":
		return "the roots for " + q.Server
	}
	return q.Server + "." + q.Item
}

// Calls returns how many calls wait, in words.
func calls(n int) string {
	if n == 1 {
		return "1 call"
	}
	return fmt.Sprintf("%d calls", n)
}

// target is what the calls of one question have in common. The identity is the
// server's.
type target struct{ action, server, item, identity string }

// subject is what a question is about: the facts of an action that a person sees.
type subject struct {
	target
	started                  string         // the server's command line or URL
	call                     authz.CallTool // that it is, without its arguments
	description, annotations string
	arguments                []argument
	size                     int
	single                   bool // each is asked about by itself
	asks                     *inquiry.Request
}

type argument struct {
	name  string
	value string // as JSON
}

// subjectOf returns what a person is asked about an action. What cannot be shown
// as it would be sent cannot be approved.
func subjectOf(ctx context.Context, a authz.Action) (subject, error) {
	var s subject
	var raw json.RawMessage
	var server *authz.Server
	switch a := a.(type) {
	case authz.CallTool:
		server, s = a.Server, subject{target: target{action: "call_tool", item: a.Tool}, description: a.Description, annotations: hints(a.Annotations), call: a}
		raw, s.call.Arguments = a.Arguments, nil
	case authz.ReadResource:
		server, s = a.Server, subject{target: target{action: "read_resource"}}
		raw, _ = json.Marshal(map[string]string{"uri": a.URI}) // a string can always be encoded
	case authz.GetPrompt:
		server, s = a.Server, subject{target: target{action: "get_prompt", item: a.Prompt}}
		raw = a.Arguments
	case authz.RequestServer:
		server, s = a.Server, subject{target: target{action: "request_server"}, single: true}
		if raw = a.Definition; raw == nil {
			return s, fmt.Errorf("the definition of the server cannot be shown")
		}
	case authz.Inquire: // its server is at work already
		s = subject{target: target{action: actions[a.Request.Method]}, single: true, asks: a.Request}
		s.server, s.started = a.Server.Name, a.Server.Started
	case authz.InstallPackages:
		if a.Adds == nil {
			return s, fmt.Errorf("which packages would be added is not known")
		}
		s = subject{target: target{action: "install_packages", item: a.Names()}, single: true}
		raw, _ = json.Marshal(map[string]string{"adds": strings.Join(a.Adds, ", ")})
	default:
		return s, fmt.Errorf("no one can be asked about %T", a)
	}
	if server != nil {
		s.server, s.started = server.Name, server.Started
		if server.Identify != nil {
			var err error
			if s.identity, err = server.Identify(ctx); err != nil {
				return s, err
			}
		}
	}
	s.size = len(raw)
	switch {
	case len(s.server)+len(s.item) > maxName:
		return s, fmt.Errorf("its name takes %d bytes, and a person can be shown %d", len(s.server)+len(s.item), maxName)
	case s.size > maxShown:
		return s, fmt.Errorf("its arguments take %d bytes, and a person can be shown %d", s.size, maxShown)
	case !utf8.Valid(raw):
		return s, fmt.Errorf("its arguments are not UTF-8 text, so they cannot be shown")
	case len(raw) == 0:
		return s, nil
	}
	twice := ""
	err := jsonscan.Members(raw, func(name string, value json.RawMessage) bool {
		if _, has := s.value(name); has {
			twice = name
		}
		s.arguments = append(s.arguments, argument{name, string(value)})
		return len(s.arguments) <= maxArguments
	})
	if err == nil && len(s.arguments) > maxArguments {
		err = fmt.Errorf("they are more than %d", maxArguments)
	}
	if err == nil && twice != "" {
		err = fmt.Errorf("the argument %q is given twice", invisible.Line(twice))
	}
	if err != nil {
		return s, fmt.Errorf("its arguments cannot be shown: %w", err)
	}
	return s, nil
}

// hints returns what a server says that its tool does.
func hints(a tool.Annotations) string {
	switch {
	case a.ReadOnly:
		return "only reads"
	case a.Destructive():
		return "writes, may destroy"
	default:
		return "writes, destroys nothing"
	}
}

// value returns an argument, or nothing.
func (s *subject) value(name string) (string, bool) {
	for _, a := range s.arguments {
		if a.name == name {
			return a.value, true
		}
	}
	return "", false
}

// compare returns the arguments that are equal in all calls, in the order of the
// first call, and the names of all others.
func compare(all []*call) (fixed []argument, varies []string) {
	for _, a := range all[0].arguments {
		same := true
		for _, c := range all[1:] {
			v, has := c.value(a.name)
			same = same && has && v == a.value
		}
		if same {
			fixed = append(fixed, a)
		} else {
			varies = append(varies, a.name)
		}
	}
	for _, c := range all[1:] {
		for _, a := range c.arguments {
			if _, has := all[0].value(a.name); !has && !slices.Contains(varies, a.name) {
				varies = append(varies, a.name)
			}
		}
	}
	return fixed, varies
}

// shown returns a JSON value as people see it: complete, on one line, with hidden
// characters escaped.
func shown(value string) string {
	var b strings.Builder
	for len(value) > 0 {
		if value[0] != '"' {
			end := strings.IndexByte(value, '"')
			if end < 0 {
				end = len(value)
			}
			b.WriteString(strings.Join(strings.Fields(value[:end]), " "))
			value = value[end:]
			continue
		}
		end := 1
		for end < len(value) && value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(value))
		b.WriteString(plain(value[:end]))
		value = value[end:]
	}
	return invisible.Mark(b.String())
}

// plain returns a JSON string with as few escapes as possible. One that does not
// survive decoding stays as it is.
func plain(quoted string) string {
	var text string
	if json.Unmarshal([]byte(quoted), &text) != nil || strings.ContainsRune(text, utf8.RuneError) {
		return quoted
	}
	return quote(text)
}

// quote returns text as a JSON string, with control characters escaped only.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(text) != nil { // cannot happen: a string
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// bare are names that cannot be taken for anything else.
var bare = lazyregexp.New(`\A[A-Za-z_][A-Za-z0-9_.@/-]*\z`)

// word returns an untrusted name, whole: in quotes where it could be taken for a
// value or for several words.
func word(name string) string {
	if bare().MatchString(name) && !slices.Contains([]string{"true", "false", "null"}, name) {
		return name
	}
	return invisible.Mark(quote(name))
}

// label returns an untrusted name or text on one line, of bounded length.
func label(text string, most int) string {
	text = invisible.Line(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

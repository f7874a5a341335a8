package upstream

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of failure that callers distinguish with errors.Is. An error that the
// server itself answered with is a *jsonrpc.Error inside an *Error without a
// kind.
var (
	// ErrUnknownServer means that no definition has this name.
	ErrUnknownServer = errors.New("unknown MCP server")
	// ErrDisabled means that the definition is disabled.
	ErrDisabled = errors.New("the server is disabled in its definition")
	// ErrOffered means that the definition is from a project that is not trusted.
	ErrOffered = errors.New("the server is of a project that you have not trusted: see sallyport servers trust")
	// ErrClosed means that the Manager is closed.
	ErrClosed = errors.New("servers are shut down")
	// ErrStart means that the server did not start.
	ErrStart = errors.New("did not start")
	// ErrGone means that the server ended during the call, or had ended before.
	ErrGone = errors.New("has ended")
	// ErrTimeout means that the call exceeded its time limit.
	ErrTimeout = errors.New("timed out")
	// ErrInvalidArguments means that the arguments are not one JSON object.
	ErrInvalidArguments = errors.New("arguments must be a JSON object")
	// ErrInputRequired means that the server needs an answer of the user, or of the
	// agent's client, which could not be had.
	ErrInputRequired = errors.New("the server needs input that it did not get")
	// ErrUnauthorized means that the server wants credentials, or does not accept
	// ours.
	ErrUnauthorized = errors.New("the server wants authorization")
	// ErrBadAnswer means that the server's answer violates the protocol.
	ErrBadAnswer = errors.New("the server's answer is not valid")
)

// Error is a failure of a server. Its message is for people and contains no
// secret of the definition.
type Error struct {
	Server string
	Op     string // "start", "tools/list", "tools/call read_file"
	Kind   error  // one of the Err values above, or nil
	Err    error  // the cause
	// What is known if a server did not start or has ended:
	Command  string // as it may be shown
	Exit     string // "exit status 1", or empty while it runs
	LastText string // the end of its standard error, else of the lines that were not messages
	// Withheld means that LastText is empty because another client has called the
	// server, too.
	Withheld bool

	of uint64 // who called the server that wrote LastText, as caller has it
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MCP server %q", e.Server)
	switch {
	case e.Kind == ErrStart:
		fmt.Fprintf(&b, " did not start (%s)", e.Command)
	case e.Op != "":
		fmt.Fprintf(&b, ", %s", e.Op)
	}
	if e.Kind != nil && e.Kind != ErrStart {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	if e.Exit != "" {
		fmt.Fprintf(&b, ": %s", e.Exit)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.LastText != "" {
		b.WriteString("; its last output:\n")
		for _, line := range strings.Split(e.LastText, "\n") {
			b.WriteString("  " + line + "\n")
		}
	}
	if e.Withheld {
		b.WriteString("; its last output is not shown, because other clients call it, too")
	}
	return strings.TrimRight(b.String(), "\n")
}

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// lastLines returns the end of a program's output, fit for an error.
func lastLines(output []byte, lines, bytes int) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(output), "\uFFFD"))
	if len(text) > bytes {
		text = text[len(text)-bytes:]
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
		text = strings.ToValidUTF8(text, "")
	}
	all := strings.Split(text, "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = printable(line)
	}
	return strings.Join(all, "\n")
}

// printable removes colours and other control sequences, which would reach a
// terminal or a model.
func printable(line string) string {
	var b strings.Builder
	escape := false
	for _, r := range strings.TrimRight(line, "\r") {
		switch {
		case r == 0x1b:
			escape = true
		case escape:
			// A sequence ends with its first letter; the bracket is not one.
			escape = r < '@' || r == '['
		case r == '\t', r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0):
			b.WriteRune(r)
		}
	}
	return b.String()
}

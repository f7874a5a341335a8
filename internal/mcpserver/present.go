package mcpserver

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/toon"
)

// Output is the form in which results reach an agent.
type Output string

// The forms of results.
const (
	// Compact is plain text; structured content is without what is self-evident.
	Compact Output = "compact"
	// TOON is a block with the whole result, as TOON, or as JSON if that is
	// shorter.
	TOON Output = "toon"
)

// Structured says which clients get structured content besides text content.
type Structured string

const (
	// StructuredAuto sends text content, and clients in readsText also what
	// programs may want and the text does not say in a sentence.
	StructuredAuto Structured = "auto"
	// StructuredAlways sends both, each complete and each within the limit.
	StructuredAlways Structured = "always"
	// StructuredNever sends text content alone.
	StructuredNever Structured = "never"
)

// valid reports whether the choice exists; the zero value is StructuredAuto.
func (s Structured) valid() bool {
	return s == "" || s == StructuredAuto || s == StructuredAlways || s == StructuredNever
}

// readsText are the clients that give text content to their model and structured
// content, if at all, to a program or a person. Others may give their model
// structured content in place of the text, so they get none: Claude Code does;
// pydantic-ai does, and names itself "fastmcp" or "mcp", as every program with
// FastMCP or the Python SDK that has no name of its own; Mastra does, under any name.
var readsText = map[string]bool{
	"ai-sdk-mcp-client": true,
	"inspector-cli":     true,
	"mcp-inspector":     true,
	"mcp-inspector-tui": true,
	"mcp-use":           true,
}

// answerOf returns what a client gets of a result: text content, and structured
// content unless that is nil. Output is folded. What does not fit is left out, and
// the answer says where to read it.
func (c *conn) answerOf(client string, r *broker.Result) (text string, structured *broker.Result) {
	config := &c.server.config
	folded, lost := r, ""
	if !config.Unfolded {
		folded, lost = r.Folded()
	}
	limit := config.AnswerTokens
	// Marks and the note take tokens, and so do escapes, so that a result that was
	// shortened to the limit may exceed it.
	room := limit
	for try := 0; ; try++ {
		short, cut := folded, leftOut{}
		if try > 0 {
			short, cut = shorten(folded, room)
		}
		if lost != "" || cut != (leftOut{}) {
			noted := *short
			noted.Notes = append(slices.Clip(short.Notes), c.whole(r, lost, cut))
			short = &noted
		}
		text, structured = config.present(client, short)
		const most = 10 // each gets nearer by a sixteenth at least
		n := cost(text, structured, config.Structured == StructuredAlways, limit)
		if n <= limit || limit <= 0 || try == most {
			return text, structured
		}
		if try == 0 {
			room = limit - limit/64 - markTokens
		} else {
			room = int(int64(room) * int64(limit) / int64(n) * 15 / 16)
		}
	}
}

// markTokens is about what the marks and the note of a shortened answer take.
const markTokens = 150

// cost returns how many tokens an answer has; apart is for a client of which the
// model gets one of the two. It may count fewer than limit roughly.
func cost(text string, structured *broker.Result, apart bool, limit int) int {
	var encoded []byte
	if structured != nil {
		encoded, _ = marshal(structured) // strings, numbers and lists of them can be encoded
	}
	switch {
	case len(text)+len(encoded) <= limit: // a token has a byte at least
		return 0
	case apart:
		return max(tokens(text), tokens(string(encoded)))
	}
	return tokens(text) + tokens(string(encoded))
}

// whole tells what folding lost and shortening cut of a result, and where the
// whole output is.
func (c *conn) whole(r *broker.Result, lost string, cut leftOut) string {
	note := ""
	if lost != "" {
		note = "folded: " + lost + " left out. "
	}
	what := "all of it"
	if r.Truncated != nil { // the log may have lost its beginning, too
		what = "what the log has of it"
	}
	if cut == (leftOut{}) && r.Run == "" && r.Cell != 0 {
		return note + "In the next call, runtime.output(-1) returns " + what
	}
	if cut != (leftOut{}) {
		note += "shortened: " + cut.String() + " left out. "
	}
	switch {
	case r.Run != "":
		return note + "`sallyport runs wait " + r.Run + "` prints all of it"
	case r.Cell == 0:
		return note + "`sallyport sessions logs` prints all of it"
	}
	name := cmp.Or(r.Session, broker.DefaultSession)
	return note + fmt.Sprintf("In the next call, runtime.output(-1) returns "+what+". So do the resource %s and `sallyport sessions logs %s`", c.outputs.add(name, r.Cell), name)
}

// present formats a result for a client.
func (c *Config) present(client string, r *broker.Result) (text string, structured *broker.Result) {
	text, structured = c.Output.present(r)
	switch {
	case c.Structured == StructuredAlways:
		return text, structured
	case c.Structured == StructuredNever, c.Output == TOON, !readsText[client]:
		return text, nil
	}
	return text, r.Facts()
}

// present returns both forms of a result, each complete.
func (o Output) present(r *broker.Result) (text string, structured *broker.Result) {
	if o != TOON {
		return r.Text(), r.Compact()
	}
	encoded, err := marshal(r)
	if err != nil { // cannot happen: strings, numbers and lists of them
		return r.Text(), r
	}
	language, body := "json", encoded
	if short, err := toon.Marshal(r, toon.Options{}); err == nil && len(short) <= len(encoded) {
		language, body = "toon", short
	}
	return fmt.Sprintf("```%s\n%s\n```", language, body), r
}

// valid reports whether the format exists; the zero value is Compact.
func (o Output) valid() bool { return o == "" || o == Compact || o == TOON }

package mcpserver

import (
	"cmp"
	"fmt"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/toon"
)

// Output is the form in which results reach an agent.
type Output string

// The forms of results.
const (
	// Compact is plain text, and structured content without what is self-evident.
	Compact Output = "compact"
	// TOON is a block with the whole result, as TOON, or as JSON if that is
	// shorter; structured content is complete, too.
	TOON Output = "toon"
)

// Structured says which clients get structured content besides text content.
type Structured string

const (
	// StructuredAuto sends a client that is known to pass only one of the two to
	// its model that one complete, and other clients both, within one limit.
	StructuredAuto Structured = "auto"
	// StructuredAlways sends both, each within the limit.
	StructuredAlways Structured = "always"
	// StructuredNever sends text content alone.
	StructuredNever Structured = "never"
)

// valid reports whether the choice exists; the zero value is StructuredAuto.
func (s Structured) valid() bool {
	return s == "" || s == StructuredAuto || s == StructuredAlways || s == StructuredNever
}

// structuredOnly are the clients that pass structured content to their model in
// place of text content.
var structuredOnly = map[string]bool{"claude-code": true}

// answer returns what a client gets of a result: text content, and structured
// content unless that is nil. Output is folded. What does not fit is left out, and
// the answer says where to read it.
func (c *conn) answerOf(client string, r *broker.Result) (text string, structured *broker.Result) {
	config := &c.server.config
	limit := config.AnswerCharacters
	auto := config.Structured == "" || config.Structured == StructuredAuto
	only := auto && structuredOnly[client]
	if auto && !only {
		limit /= 2
	}
	folded, lost := r, ""
	if !config.Unfolded {
		folded, lost = r.Folded()
	}
	short, cut := shorten(folded, limit)
	if lost != "" || cut != (leftOut{}) {
		short.Notes = append(short.Notes, c.whole(r, lost, cut))
	}
	text, structured = config.Output.present(short)
	switch {
	case config.Structured == StructuredNever:
		structured = nil
	case only && len(text) > maxBrief:
		text = first(text, maxBrief) + "\n[… structuredContent has all of it …]"
	}
	return text, structured
}

// maxBrief bounds text content for a client whose model does not read it.
const maxBrief = 2000

// whole tells what folding lost and shortening cut of a result, and where the
// whole output is.
func (c *conn) whole(r *broker.Result, lost string, cut leftOut) string {
	note := ""
	if lost != "" {
		note = "folded: " + lost + " left out. "
	}
	if cut == (leftOut{}) && r.Run == "" && r.Cell != 0 {
		return note + "In the next call, runtime.output(-1) returns all of it"
	}
	if cut != (leftOut{}) {
		note += fmt.Sprintf("shortened: %s lines and %s characters left out. ", thousands(cut.lines), thousands(cut.characters))
	}
	switch {
	case r.Run != "":
		return note + "`sallyport runs wait " + r.Run + "` prints all of it"
	case r.Cell == 0:
		return note + "`sallyport sessions logs` prints all of it"
	}
	name, what := cmp.Or(r.Session, broker.DefaultSession), "all of it"
	if r.Truncated != nil { // the log may have lost its beginning, too
		what = "what the log has of it"
	}
	return note + fmt.Sprintf("In the next call, runtime.output(-1) returns "+what+". So do the resource %s and `sallyport sessions logs %s`", c.outputs.add(name, r.Cell), name)
}

// present formats a result.
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

package mcpserver

import (
	"fmt"

	"sallyport/internal/broker"
	"sallyport/internal/toon"
)

// Output is the form in which results reach an agent.
type Output string

// The forms of results.
const (
	// Compact is plain text, and structured content with what is not
	// self-evident left out.
	Compact Output = "compact"
	// TOON is a block with the whole result, as TOON, or as JSON where that is
	// shorter; structured content is whole too.
	TOON Output = "toon"
)

// present gives a result its form.
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

// valid says whether there is such a form; the zero value is Compact.
func (o Output) valid() bool { return o == "" || o == Compact || o == TOON }

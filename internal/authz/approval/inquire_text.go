package approval

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
)

const (
	// maxMessage bounds the text of a server that is shown, and maxHint what it says of
	// a field, or each message of a conversation, in bytes.
	maxMessage, maxHint = 8 << 10, 500
	// maxTurns bounds the messages of a conversation that are shown.
	maxTurns = 10
	// quoteWidth is how wide the lines of a server's text are: a terminal that breaks a
	// longer one would show its end as a line of this program.
	quoteWidth = 64
)

// inquiry writes what a server asks. Nothing that the server wrote begins a line.
func (q *Question) inquiry(b *strings.Builder, line func(what, text string), left string) {
	r := q.Asks
	quote := func(what, text string, most int) {
		for _, l := range quoted(text, most) {
			line(what, "| "+l)
			what = ""
		}
	}
	// wrapped is line for a name or a value, which may be long.
	wrapped := func(what, prefix, text string) {
		if len([]rune(text)) <= quoteWidth {
			line(what, prefix+text)
			return
		}
		for _, l := range quoted(text, maxMessage) {
			line(what, prefix+l)
			what, prefix = "", "| "
		}
	}
	fmt.Fprintf(b, "%s: %s%s\n", q.Address(), q.Name(), left)
	line("server", q.Started)
	line("asked by", q.askedBy())
	switch r.Method {
	case inquiry.Roots:
		line("asks", "which folders the client works in")
		line("answer", "The client answers. You can refuse.")
		return
	case inquiry.Sampling:
		line("asks", fmt.Sprintf("the client's model to write at most %d tokens", r.MaxTokens))
		conversation(r.Params, quote)
		line("answer", "The client answers. You can refuse.")
		return
	}
	if r.Ours {
		line("asks", "Sallyport, about this server")
		quote("", r.Message, maxMessage)
	} else {
		quote("asks", r.Message, maxMessage)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		wrapped("field", "", FieldText(f))
		quote("", f.Title, maxHint)
		quote("", f.Description, maxHint)
		for _, o := range f.Options {
			wrapped("", "- ", OptionText(o))
		}
		if len(f.Default) > 0 {
			wrapped("", "default: ", ValueText(f.Default))
		}
	}
	if r.URL != "" {
		line("opens", invisible.Mark(invisible.Line(r.URL)))
		if u, err := url.Parse(r.URL); err == nil {
			line("", "on host "+invisible.Mark(invisible.Line(u.Hostname())))
		}
		to := "It goes to server " + q.Server + " alone. "
		if r.Ours {
			to = ""
		}
		line("answer", to+"If you accept, open the address yourself.")
		return
	}
	line("answer", "It goes to server "+q.Server+" alone.")
}

// ValueText returns a JSON value as people see it.
func ValueText(value json.RawMessage) string { return shown(string(value)) }

// FieldText names a field and says what it takes, on one line.
func FieldText(f *inquiry.Field) string {
	text := f.Type
	switch {
	case f.Type == "array":
		text = "any of the options"
	case f.Type == "boolean":
		text = "true or false"
	case len(f.Options) > 0:
		text = "one of the options"
	case f.Format != "":
		text += ", " + label(f.Format, 40)
	}
	if f.Required {
		text += ", required"
	}
	return word(f.Name) + ": " + text
}

// OptionText returns a value of a field and what the server calls it, on one line.
func OptionText(o inquiry.Option) string {
	text := word(o.Value)
	if o.Title != "" && o.Title != o.Value {
		text += " (" + invisible.Mark(label(o.Title, maxHint)) + ")"
	}
	return text
}

// conversation quotes the messages of sampling.
func conversation(params json.RawMessage, quote func(what, text string, most int)) {
	var p struct {
		SystemPrompt string
		Messages     []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if json.Unmarshal(params, &p) != nil { // List has none
		return
	}
	quote("system", p.SystemPrompt, maxHint)
	for i, m := range p.Messages {
		if i == maxTurns {
			quote("more", fmt.Sprintf("%d messages", len(p.Messages)-i), maxHint)
			return
		}
		role := "user"
		if m.Role == "assistant" {
			role = "model"
		}
		quote(role, said(m.Content), maxHint)
	}
}

// said returns the text of a message's content: a block, or several.
func said(content json.RawMessage) string {
	type block struct{ Type, Text string }
	var all []block
	if json.Unmarshal(content, &all) != nil {
		all = make([]block, 1)
		if json.Unmarshal(content, &all[0]) != nil {
			return "?"
		}
	}
	var texts []string
	for _, one := range all {
		if one.Type != "text" {
			one.Text = "[" + one.Type + "]"
		}
		texts = append(texts, one.Text)
	}
	return strings.Join(texts, "\n")
}

// quoted returns the lines of a server's text, fit for a terminal and not wide. What
// is longer is cut.
func quoted(text string, most int) []string {
	cut := len(text) > most
	if cut {
		text = strings.ToValidUTF8(text[:most], "")
	}
	var out []string
	for l := range strings.Lines(strings.TrimSpace(text)) {
		runes := []rune(invisible.Mark(invisible.Line(l)))
		for len(runes) > quoteWidth {
			at := quoteWidth
			for i := quoteWidth; i > quoteWidth/2; i-- {
				if runes[i] == ' ' {
					at = i
					break
				}
			}
			out = append(out, string(runes[:at]))
			runes = []rune(strings.TrimPrefix(string(runes[at:]), " "))
		}
		out = append(out, string(runes))
	}
	if cut {
		out = append(out, fmt.Sprintf("… (cut after %d bytes)", most))
	}
	return out
}

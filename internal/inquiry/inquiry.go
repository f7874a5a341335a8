// Package inquiry checks what an MCP server asks of the user, or of the agent's
// client, while it works on a call: elicitation, sampling and roots. Servers are
// hostile: a request that is too large, or that cannot be shown to a person as it
// is, is refused.
package inquiry

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Methods of the Model Context Protocol that a server may ask with.
const (
	Elicitation = "elicitation/create"
	Sampling    = "sampling/createMessage"
	Roots       = "roots/list"
)

// Bounds of requests and results, in bytes.
const (
	maxElicitation = 64 << 10
	maxSampling    = 1 << 20
	maxResult      = 4 << 20
)

// Takes says what can be asked.
type Takes struct {
	Forms    bool `json:"forms,omitempty"`    // elicitation, in form mode
	URLs     bool `json:"urls,omitempty"`     // elicitation, in URL mode
	Sampling bool `json:"sampling,omitempty"` // sampling without tools
	Roots    bool `json:"roots,omitempty"`
}

// Request is what a server asks, checked and bounded. Its text is the server's own:
// whoever shows it escapes it. [Request.For] does so for a client.
type Request struct {
	Method        string          `json:"method"`
	Message       string          `json:"message,omitempty"`       // of an elicitation
	Fields        []Field         `json:"fields,omitempty"`        // of a form
	URL           string          `json:"url,omitempty"`           // in URL mode
	ElicitationID string          `json:"elicitationId,omitempty"` // in URL mode; may be empty
	MaxTokens     int             `json:"maxTokens,omitempty"`     // of sampling
	Params        json.RawMessage `json:"params,omitempty"`        // as checked; a client gets those of For
	// Ours: this program asks, about the server.
	Ours bool `json:"ours,omitempty"`
}

// Field is one property of a form.
type Field struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Type        string          `json:"type"`                // string, number, integer, boolean or array (of Options)
	Format      string          `json:"format,omitempty"`    // of a string: email, uri, date, date-time
	MinLength   int             `json:"minLength,omitempty"` // of a string, in characters
	MaxLength   int             `json:"maxLength,omitempty"` // 0: no limit
	Minimum     json.Number     `json:"minimum,omitempty"`   // of a number or integer
	Maximum     json.Number     `json:"maximum,omitempty"`
	Options     []Option        `json:"options,omitempty"`  // the only values; nil: any
	MinItems    int             `json:"minItems,omitempty"` // of an array
	MaxItems    int             `json:"maxItems,omitempty"` // 0: no limit
	Required    bool            `json:"required,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"` // a value that the field takes

	// named: the titles of the options came as enumNames. Clients of the revision
	// that has them know no other form.
	named bool
}

// Option is one value of a field.
type Option struct {
	Value string `json:"value"`
	Title string `json:"title,omitempty"` // never the value of another option
}

// Declined and Cancelled are results of an elicitation.
var (
	Declined  = json.RawMessage(`{"action":"decline"}`)
	Cancelled = json.RawMessage(`{"action":"cancel"}`)
)

// Of reports whether what can be asked includes a request.
func (t Takes) Of(r *Request) bool {
	switch {
	case r == nil:
		return false
	case r.Method == Elicitation && r.URL != "":
		return t.URLs
	case r.Method == Elicitation:
		return t.Forms
	case r.Method == Sampling:
		return t.Sampling
	case r.Method == Roots:
		return t.Roots
	}
	return false
}

// And returns what both include.
func (t Takes) And(other Takes) Takes {
	return Takes{
		Forms:    t.Forms && other.Forms,
		URLs:     t.URLs && other.URLs,
		Sampling: t.Sampling && other.Sampling,
		Roots:    t.Roots && other.Roots,
	}
}

// Any reports whether anything can be asked.
func (t Takes) Any() bool { return t != Takes{} }

// Capabilities returns the client capabilities that say so, as JSON. Servers of
// revisions that know no modes of elicitation ignore the members of its object.
func (t Takes) Capabilities() json.RawMessage {
	type modes struct {
		Form *struct{} `json:"form,omitempty"`
		URL  *struct{} `json:"url,omitempty"`
	}
	var capabilities struct {
		Elicitation *modes    `json:"elicitation,omitempty"`
		Sampling    *struct{} `json:"sampling,omitempty"`
		Roots       *struct{} `json:"roots,omitempty"`
	}
	if t.Forms || t.URLs {
		capabilities.Elicitation = &modes{Form: present(t.Forms), URL: present(t.URLs)}
	}
	capabilities.Sampling, capabilities.Roots = present(t.Sampling), present(t.Roots)
	return encode(capabilities)
}

func present(yes bool) *struct{} {
	if yes {
		return &struct{}{}
	}
	return nil
}

// Parse reads the parameters of a request. The error is for the server.
func Parse(method string, params json.RawMessage) (*Request, error) {
	switch method {
	case Elicitation:
		return parse(params, maxElicitation, parseElicitation)
	case Sampling:
		return parse(params, maxSampling, parseSampling)
	case Roots:
		// Its parameters have nothing but _meta.
		return &Request{Method: Roots, Params: json.RawMessage("{}")}, nil
	}
	return nil, errors.New("a client knows no such request")
}

// parse bounds the parameters, as they came and as they become.
func parse(params json.RawMessage, most int, read func(json.RawMessage) (*Request, error)) (*Request, error) {
	if err := sound(params, most); err != nil {
		return nil, fmt.Errorf("the parameters are %w", err)
	}
	r, err := read(params)
	if err != nil {
		return nil, err
	}
	if len(r.Params) > most {
		return nil, fmt.Errorf("the parameters are larger than %d KiB", most>>10)
	}
	return r, nil
}

// sound reports why data is not JSON within a bound.
func sound(data []byte, most int) error {
	switch {
	case len(data) > most:
		return fmt.Errorf("larger than %d KiB", most>>10)
	case !utf8.Valid(data):
		return errors.New("not valid UTF-8")
	case !jsonscan.Valid(data):
		return errors.New("not valid JSON")
	}
	return nil
}

// WithMaxTokens returns a request of sampling that asks for at most n tokens.
func (r *Request) WithMaxTokens(n int) *Request {
	capped := *r
	if r.Method != Sampling || n >= r.MaxTokens {
		return &capped
	}
	p, err := readSampling(r.Params)
	if err != nil {
		return &capped // not of Parse
	}
	p.MaxTokens = max(n, 1)
	capped.MaxTokens, capped.Params = p.MaxTokens, encode(p)
	return &capped
}

// For returns the parameters with which a client is asked: they name the server,
// and what a person or a model reads has no hidden characters. A client of a revision
// before 2025-11-25 knows no constants with titles: see legacy.
func (r *Request) For(server string, legacy bool) json.RawMessage {
	server = fmt.Sprintf("%q", invisible.Line(server))
	switch r.Method {
	case Elicitation:
		if asked, err := parseElicitation(r.Params); err == nil {
			asked.Ours = r.Ours
			return asked.forClient(server, legacy)
		}
	case Sampling:
		if p, err := readSampling(r.Params); err == nil {
			return p.forClient(server)
		}
	}
	return json.RawMessage("{}")
}

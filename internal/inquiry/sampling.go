package inquiry

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

const (
	maxMessages = 100
	maxBlocks   = 100
	maxTokens   = 1 << 20
	maxStops    = 16
	maxHints    = 16
	maxLabel    = 256 // a model, a reason, a MIME type
	maxMetadata = 16 << 10
	maxRoots    = 256
	maxRootURI  = 4 << 10
	maxRootName = 1 << 10
)

// sampling are the parameters of sampling.
type sampling struct {
	Messages         []message       `json:"messages"`
	ModelPreferences *preferences    `json:"modelPreferences,omitempty"`
	SystemPrompt     string          `json:"systemPrompt,omitempty"`
	IncludeContext   string          `json:"includeContext"`
	Temperature      json.Number     `json:"temperature,omitempty"`
	MaxTokens        int             `json:"maxTokens"`
	StopSequences    []string        `json:"stopSequences,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
}

type preferences struct {
	Hints                []hint      `json:"hints,omitempty"`
	CostPriority         json.Number `json:"costPriority,omitempty"`
	SpeedPriority        json.Number `json:"speedPriority,omitempty"`
	IntelligencePriority json.Number `json:"intelligencePriority,omitempty"`
}

type hint struct {
	Name string `json:"name,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content blocks `json:"content"`
}

// blocks is the content of a message. One alone stands without an array: revisions
// before 2025-11-25 know no arrays.
type blocks []block

func (b blocks) MarshalJSON() ([]byte, error) {
	if len(b) == 1 {
		return encode(b[0]), nil
	}
	return encode([]block(b)), nil
}

type block struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	Data     string  `json:"data,omitempty"`
	MIMEType string  `json:"mimeType,omitempty"`
}

func parseSampling(params json.RawMessage) (*Request, error) {
	p, err := readSampling(params)
	if err != nil {
		return nil, err
	}
	return &Request{Method: Sampling, MaxTokens: p.MaxTokens, Params: encode(p)}, nil
}

func readSampling(params json.RawMessage) (*sampling, error) {
	p := read("", params)
	for _, name := range []string{"tools", "toolChoice"} {
		if p.has(name) {
			p.fail("sampling with %s is not supported", name)
		}
	}
	s := &sampling{
		// Anything else would let one server read what others have said to the model.
		IncludeContext: "none",
		SystemPrompt:   p.text("systemPrompt", maxSampling),
		Temperature:    p.number("temperature"),
		StopSequences:  p.textList("stopSequences", maxStops, maxLabel),
		Metadata:       p.take("metadata"),
	}
	if s.Metadata != nil && (jsonscan.Kind(s.Metadata) != '{' || len(s.Metadata) > maxMetadata) {
		p.fail("metadata is not an object of at most %d KiB", maxMetadata>>10)
	}
	var ok bool
	if s.MaxTokens, ok = whole(p.take("maxTokens"), maxTokens); !ok || s.MaxTokens < 1 {
		p.fail("maxTokens is not a whole number from 1")
	}
	if raw := p.take("modelPreferences"); raw != nil && p.err == nil {
		s.ModelPreferences, p.err = readPreferences(raw)
	}
	list := p.list("messages", maxMessages)
	if len(list) == 0 {
		p.fail("messages are missing")
	}
	if p.err != nil {
		return nil, p.err
	}
	for i, raw := range list {
		m, err := readMessage(read(fmt.Sprintf("message %d", i+1), raw))
		if err != nil {
			return nil, err
		}
		s.Messages = append(s.Messages, m)
	}
	return s, nil
}

func readPreferences(raw json.RawMessage) (*preferences, error) {
	p := read("modelPreferences", raw)
	priority := func(name string) json.Number {
		n := p.number(name)
		if f := float(n); f < 0 || f > 1 {
			p.fail("%s is not a number from 0 to 1", name)
		}
		return n
	}
	m := &preferences{
		CostPriority:         priority("costPriority"),
		SpeedPriority:        priority("speedPriority"),
		IntelligencePriority: priority("intelligencePriority"),
	}
	for _, raw := range p.list("hints", maxHints) {
		h := read("modelPreferences: hints", raw)
		m.Hints = append(m.Hints, hint{h.text("name", maxLabel)})
		if h.err != nil {
			return nil, h.err
		}
	}
	return m, p.err
}

// readMessage reads the role and the content of a message, or of a result.
func readMessage(p *reader) (message, error) {
	m := message{Role: p.text("role", 32)}
	if m.Role != "user" && m.Role != "assistant" {
		p.fail("role is neither user nor assistant")
	}
	var list []json.RawMessage
	if raw := p.members["content"]; jsonscan.Kind(raw) == '[' {
		list = p.list("content", maxBlocks)
	} else if raw != nil {
		list = []json.RawMessage{raw}
	}
	if len(list) == 0 {
		p.fail("content is missing")
	}
	if p.err != nil {
		return message{}, p.err
	}
	for _, raw := range list {
		b, err := readBlock(read(strings.TrimPrefix(p.what+": content", ": "), raw))
		if err != nil {
			return message{}, err
		}
		m.Content = append(m.Content, b)
	}
	return m, nil
}

func readBlock(p *reader) (block, error) {
	b := block{Type: p.text("type", 32)}
	switch b.Type {
	case "text":
		if !p.has("text") {
			p.fail("text is missing")
		}
		s := p.text("text", maxResult)
		b.Text = &s
	case "image", "audio":
		b.Data, b.MIMEType = p.text("data", maxResult), p.text("mimeType", maxLabel)
		if _, err := base64.StdEncoding.DecodeString(b.Data); err != nil || b.Data == "" {
			p.fail("data is not Base64")
		}
		if kind, rest, _ := strings.Cut(b.MIMEType, "/"); kind != b.Type || rest == "" || !plain(rest) {
			p.fail("mimeType is not of the type %s", b.Type)
		}
	default:
		p.fail("type is not text, image or audio")
	}
	return b, p.err
}

// forClient names the server in the first line of the system prompt. A person who
// reviews the prompt sees all that the model reads.
func (s *sampling) forClient(server string) json.RawMessage {
	c := *s
	c.SystemPrompt = "The MCP server " + server + " asks for this message through Sallyport."
	if s.SystemPrompt != "" {
		c.SystemPrompt += "\n\n" + invisible.Escape(s.SystemPrompt)
	}
	c.Metadata = nil // no one sees what is in it
	if s.ModelPreferences != nil {
		preferences := *s.ModelPreferences
		preferences.Hints = slices.Clone(preferences.Hints)
		for i := range preferences.Hints {
			preferences.Hints[i].Name = invisible.Escape(preferences.Hints[i].Name)
		}
		c.ModelPreferences = &preferences
	}
	c.Messages = nil
	for _, m := range s.Messages {
		m.Content = append(blocks(nil), m.Content...)
		for i := range m.Content {
			if t := m.Content[i].Text; t != nil {
				shown := invisible.Escape(*t)
				m.Content[i].Text = &shown
			}
		}
		c.Messages = append(c.Messages, m)
	}
	return encode(c)
}

func checkSampling(p *reader) (json.RawMessage, error) {
	var result struct {
		message
		Model      string `json:"model"`
		StopReason string `json:"stopReason,omitempty"`
	}
	if !p.has("model") {
		p.fail("model is missing")
	}
	result.Model, result.StopReason = p.text("model", maxLabel), p.text("stopReason", maxLabel)
	var err error
	if result.message, err = readMessage(p); err != nil {
		return nil, err
	}
	return encode(result), nil
}

func checkRoots(p *reader) (json.RawMessage, error) {
	type root struct {
		URI  string `json:"uri"`
		Name string `json:"name,omitempty"`
	}
	if !p.has("roots") {
		p.fail("roots are missing")
	}
	roots := []root{}
	for _, raw := range p.list("roots", maxRoots) {
		r := read("a root", raw)
		one := root{r.text("uri", maxRootURI), r.text("name", maxRootName)}
		if u, err := url.Parse(one.URI); r.err != nil || err != nil || !strings.HasPrefix(one.URI, "file://") || u.Scheme != "file" {
			continue // such as the folder of a virtual workspace; the others are of use
		}
		roots = append(roots, one)
	}
	if p.err != nil {
		return nil, p.err
	}
	return encode(map[string]any{"roots": roots}), nil
}

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/upstream"
)

// maxAsked bounds what servers ask during one call: one that is refused could ask
// again without end.
const maxAsked = 100

// maxDeclined bounds the questions of one server that people decline, or do not
// decide, in one execution: then it has its answer.
const maxDeclined = 3

// Inquiries puts what servers ask to those who can answer. [approval.Book]
// implements it.
type Inquiries interface {
	// Inquire returns a checked result for the server.
	Inquire(ctx context.Context, p authz.Principal, server *authz.Server, r *inquiry.Request) (json.RawMessage, error)
}

// Sampling bounds what servers may ask of the agent's model in one execution, all
// together.
type Sampling struct {
	Calls  int
	Tokens int // that the model may write
}

// host is whom a call of an execution is made for. It implements [upstream.Host].
type host struct {
	x      *Execution
	server *authz.Server   // nil: the call has no server, and is not sent
	tool   string          // empty: it is another call
	time   *upstream.Limit // that a rule allows; nil before the call

	mu        sync.Mutex
	questions int    // of this call
	asked     bool   // during the call, perhaps for another one
	told      string // the text of the last progress
}

var _ upstream.Host = (*host)(nil)

// host returns the host of a call that is to be sent.
func (x *Execution) host(permit *authz.Permit) *host {
	h := &host{x: x}
	switch a := permit.Action().(type) {
	case authz.CallTool:
		h.server, h.tool = a.Server, a.Tool
	case authz.ReadResource:
		h.server = a.Server
	case authz.GetPrompt:
		h.server = a.Server
	}
	return h
}

// begin returns the context of the call, which ends when the time is up that a rule
// allows; 0: none does. The function that it returns must be called when the call
// has ended.
func (h *host) begin(ctx context.Context, limit time.Duration) (_ context.Context, ended func()) {
	b := h.x.bridge
	ctx, time, end := upstream.WithLimit(upstream.WithHost(ctx, h), limit)
	h.mu.Lock()
	h.time = time
	h.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hosts[h] = true
	return ctx, func() {
		b.mu.Lock()
		delete(b.hosts, h)
		b.mu.Unlock()
		end()
	}
}

// asks notes that a server asks something, until answered is called. Of several
// calls at once it does not say which one it asks for, so that this is noted for
// each. The host itself is always among them.
func (b *Bridge) asks(h *host) (answered func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	resume := []func(){h.pause()}
	for other := range b.hosts {
		if other != h && other.server != nil && other.server.Name == h.server.Name {
			resume = append(resume, other.pause())
		}
	}
	return func() {
		for _, f := range resume {
			f()
		}
	}
}

func (h *host) pause() (resume func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = true
	return h.time.Pause()
}

// wasAsked reports whether the result may depend on what someone was asked.
func (h *host) wasAsked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// Origin implements upstream.Host.
func (h *host) Origin() string {
	if c := h.x.principal.Connection; c != "" {
		return "connection " + c
	}
	return "bridge " + h.x.bridge.id
}

// Takes implements upstream.Host. Whoever answers approvals answers questions, too;
// a model and roots only the client has.
func (h *host) Takes() inquiry.Takes {
	if h.x.bridge.config.Inquiries == nil {
		return inquiry.Takes{}
	}
	client := h.x.principal.Takes
	return inquiry.Takes{Forms: true, URLs: true, Sampling: client.Sampling, Roots: client.Roots}
}

// Ask implements upstream.Host. What is asked and answered is for no one else: it is
// in no log.
func (h *host) Ask(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
	b := h.x.bridge
	defer b.asks(h)()
	h.mu.Lock()
	h.questions++
	many := h.questions > maxAsked
	h.mu.Unlock()
	if many {
		return nil, fmt.Errorf("a server may ask %d times during a call", maxAsked)
	}
	b.log.Debug("a server asks", "server", h.server.Name, "method", r.Method)
	permit, err := h.x.admit(ctx, authz.Inquire{Server: h.server, Request: r})
	if err != nil {
		return nil, err
	}
	result, err := h.ask(ctx, r)
	finish(&permit, len(result), err)
	return result, err
}

func (h *host) ask(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
	if h.x.bridge.config.Inquiries == nil {
		return nil, errors.New("no one can be asked")
	}
	if r.Method == inquiry.Sampling {
		var err error
		if r, err = h.x.sample(r); err != nil {
			return nil, err
		}
	}
	if r.Method == inquiry.Elicitation && h.x.declinedBy(h.server.Name, 0) >= maxDeclined {
		return nil, fmt.Errorf("the user has declined %d questions of this server in this execution and is asked no more", maxDeclined)
	}
	result, err := h.x.bridge.config.Inquiries.Inquire(ctx, h.x.principal, h.server, r)
	var answer struct{ Action string }
	if err == nil && r.Method == inquiry.Elicitation && json.Unmarshal(result, &answer) == nil && answer.Action != "accept" {
		h.x.declinedBy(h.server.Name, 1)
	}
	return result, err
}

// declinedBy adds to the questions of a server that were declined, and returns how
// many there are.
func (x *Execution) declinedBy(server string, more int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refused == nil {
		x.refused = map[string]int{}
	}
	x.refused[server] += more
	return x.refused[server]
}

// sample takes from what servers may ask of the model in this execution, and
// returns the request with the tokens that it may have. They are taken whether or
// not the model is asked in the end.
func (x *Execution) sample(r *inquiry.Request) (*inquiry.Request, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	most := x.bridge.config.Sampling
	if x.sampled.Calls >= most.Calls {
		return nil, fmt.Errorf("servers may ask the model %d times per execution (the user's setting servers.sampling.calls)", most.Calls)
	}
	tokens := min(r.MaxTokens, most.Tokens-x.sampled.Tokens)
	if tokens <= 0 {
		return nil, fmt.Errorf("servers may ask the model for %d tokens per execution, and have (the user's setting servers.sampling.tokens)", most.Tokens)
	}
	x.sampled.Calls++
	x.sampled.Tokens += tokens
	return r.WithMaxTokens(tokens), nil
}

// Hear gives what servers tell about the calls of the execution to tell: each time a
// line fit to be shown. tell must not block. Hear is called before the code runs.
func (x *Execution) Hear(tell func(server, line string)) { x.tell = tell }

// maxTold bounds a line that a server tells.
const maxTold = 2 << 10

// say passes a line on.
func (h *host) say(text string) {
	if h.x.tell != nil && h.server != nil {
		h.x.tell(invisible.Line(clip(h.server.Name, 100)), invisible.Line(clip(text, maxTold)))
	}
}

// Log implements upstream.Host.
func (h *host) Log(m upstream.Message) {
	text := m.Level + ": "
	if m.Logger != "" {
		text += m.Logger + ": "
	}
	h.say(text + m.Text)
}

// Progress implements upstream.Host. The number alone is worth no line.
func (h *host) Progress(p upstream.Progress) {
	text := done(p)
	if p.Message != "" {
		text += ", " + p.Message
	}
	h.x.progress(h.server.Name, h.tool, invisible.Line(clip(text, 100)))
	h.mu.Lock()
	changed := p.Message != "" && p.Message != h.told
	h.told = p.Message
	h.mu.Unlock()
	if changed {
		h.say("progress: " + text)
	}
}

// done says how much is done: "3 of 10".
func done(p upstream.Progress) string {
	if p.Total > 0 {
		return number(p.Progress) + " of " + number(p.Total)
	}
	return number(p.Progress)
}

func number(f float64) string {
	if a := math.Abs(f); a >= 1e15 || a > 0 && a < 1e-3 {
		return strconv.FormatFloat(f, 'g', 3, 64)
	}
	return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64)
}

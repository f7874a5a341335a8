//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/sallyport/sallyport/internal/inquiry"
)

// everything is all that a server can ask.
var everything = inquiry.Takes{Forms: true, URLs: true, Sampling: true, Roots: true}

// lets are settings that let every server ask these.
func lets(t inquiry.Takes) func(Definition) inquiry.Takes {
	return func(Definition) inquiry.Takes { return t }
}

// fakeHost is a Host that remembers what it hears.
type fakeHost struct {
	origin string
	takes  inquiry.Takes
	// ask answers; nil: it accepts with what is filled in.
	ask func(ctx context.Context, r *inquiry.Request) (json.RawMessage, error)

	mu       sync.Mutex
	asked    []*inquiry.Request
	progress []Progress
	logs     []Message
}

func (h *fakeHost) Origin() string       { return h.origin }
func (h *fakeHost) Takes() inquiry.Takes { return h.takes }

func (h *fakeHost) Ask(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
	h.mu.Lock()
	h.asked = append(h.asked, r)
	h.mu.Unlock()
	if h.ask != nil {
		return h.ask(ctx, r)
	}
	switch r.Method {
	case inquiry.Sampling:
		return r.Check(json.RawMessage(`{"role":"assistant","content":{"type":"text","text":"four"},"model":"m"}`))
	case inquiry.Roots:
		return r.Check(json.RawMessage(`{"roots":[{"uri":"file:///work"}]}`))
	}
	if r.URL != "" {
		return r.Check(json.RawMessage(`{"action":"accept"}`))
	}
	return r.Check(json.RawMessage(`{"action":"accept","content":{}}`))
}

func (h *fakeHost) Progress(p Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = append(h.progress, p)
}

func (h *fakeHost) Log(m Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logs = append(h.logs, m)
}

// heard returns what the host has heard so far.
func (h *fakeHost) heard() (asked []*inquiry.Request, progress []Progress, logs []Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked, h.progress, h.logs
}

// refusing is a fakeHost's ask that fails.
func refusing(why string) func(context.Context, *inquiry.Request) (json.RawMessage, error) {
	return func(context.Context, *inquiry.Request) (json.RawMessage, error) { return nil, errors.New(why) }
}

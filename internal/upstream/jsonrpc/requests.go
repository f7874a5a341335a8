package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

const (
	// requestsAtOnce bounds the requests of a peer that are in progress.
	requestsAtOnce = 16
	// answersAtOnce bounds the answers that are being sent.
	answersAtOnce = 8
	// maxParams bounds the parameters of a request, which are kept meanwhile.
	maxParams = 2 << 20
	// maxID bounds the id of a request, which its answer repeats.
	maxID = 1 << 10
)

// CancelMethod is the notification that ends a request in progress.
const CancelMethod = "notifications/cancelled"

// A Handler answers a request of a peer. It runs in a goroutine of its own, owns
// params, and may take long. It must return soon after ctx has ended, as it does
// when the peer cancels the request and when the connection ends.
type Handler func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error)

// Requests are the requests of a peer that are in progress. Its methods are safe
// for concurrent use.
type Requests struct {
	handle  Handler
	send    func(answer []byte)
	sending chan struct{} // a token for each answer that is being sent
	over    chan struct{} // closed by End
	work    sync.WaitGroup

	mu      sync.Mutex
	end     error               // why over is closed
	running map[string]*request // by the id as the peer wrote it
}

type request struct {
	stop      context.CancelCauseFunc
	cancelled bool // by the peer, which wants no answer
}

// NewRequests returns what answers with handle, or with "method not found" if that
// is nil. send sends an answer, and may wait until End.
func NewRequests(handle Handler, send func(answer []byte)) *Requests {
	return &Requests{
		handle: handle, send: send, sending: make(chan struct{}, answersAtOnce), over: make(chan struct{}),
		running: map[string]*request{},
	}
}

// Take begins a request, or returns the answer that it gets at once: a ping is
// answered, however many requests are in progress, and what cannot begin is refused.
// The request ends with ctx, too, and its handler sees the values of ctx. Take never
// waits, and keeps none of the bytes.
func (r *Requests) Take(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) (answer []byte) {
	if kind := jsonscan.Kind(id); len(id) > maxID || kind == '{' || kind == '[' {
		return nil // no answer can have such an id
	}
	if method == "ping" {
		return answerTo(id, json.RawMessage(`{}`), nil)
	}
	if failure := r.begin(ctx, id, method, params); failure != nil {
		return answerTo(id, nil, failure)
	}
	return nil
}

func (r *Requests) begin(ctx context.Context, id json.RawMessage, method string, params json.RawMessage) *Error {
	switch {
	case r.handle == nil:
		return &Error{Code: CodeMethodNotFound, Message: "Method not found: " + clip(method, 128)}
	case len(params) > maxParams:
		return &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("the parameters have more than %d bytes", maxParams)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.end != nil:
		return nil
	case r.running[string(id)] != nil:
		return &Error{Code: CodeInvalidRequest, Message: "a request with the same id is in progress"}
	case len(r.running) >= requestsAtOnce:
		return &Error{Code: CodeBusy, Message: "too many requests at once"}
	}
	ctx, stop := context.WithCancelCause(ctx)
	q := &request{stop: stop}
	id, params = bytes.Clone(id), bytes.Clone(params)
	r.running[string(id)] = q
	r.work.Go(func() {
		result, failure := r.handle(ctx, method, params)
		stop(context.Canceled)
		r.finish(q, id, answerTo(id, result, failure))
	})
	return nil
}

// finish sends the answer to a request, unless it is not wanted any more. The request
// counts until its answer can be sent, so that a peer that does not read cannot have
// ever more; and not longer, so that a peer that has the answer can ask again.
func (r *Requests) finish(q *request, id, answer []byte) {
	select {
	case r.sending <- struct{}{}:
		defer func() { <-r.sending }()
	case <-r.over:
	}
	r.mu.Lock()
	delete(r.running, string(id))
	unwanted := q.cancelled || r.end != nil
	r.mu.Unlock()
	if !unwanted {
		r.send(answer)
	}
}

// answerTo encodes an answer. A peer waits for one, so what cannot be encoded
// becomes an error.
func answerTo(id, result json.RawMessage, failure *Error) []byte {
	answer, err := appendAnswer(nil, id, result, failure)
	if err != nil {
		answer, _ = appendAnswer(nil, id, nil, &Error{Code: CodeInternal, Message: "the answer cannot be encoded"})
	}
	return answer
}

// Post sends an answer that Take returned, in a goroutine of its own. It reports
// false if it does not because too many answers are being sent.
func (r *Requests) Post(answer []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return false
	}
	select {
	case r.sending <- struct{}{}:
	default:
		return false
	}
	r.work.Go(func() {
		defer func() { <-r.sending }()
		r.send(answer)
	})
	return true
}

// Cancel ends the request that the parameters of a CancelMethod name. It gets no
// answer.
func (r *Requests) Cancel(params json.RawMessage) {
	var id json.RawMessage
	_ = jsonscan.Members(params, func(key string, value json.RawMessage) bool { // what has no members names no request
		if key == "requestId" {
			id = value
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.running[string(id)]; q != nil {
		q.cancelled = true
		q.stop(errCancelled)
	}
}

var errCancelled = fmt.Errorf("the server no longer wants an answer: %w", context.Canceled)

// Waiting reports whether the peer waits for an answer.
func (r *Requests) Waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) > 0
}

// End ends all requests, and lets none begin any more.
func (r *Requests) End(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return
	}
	r.end = why
	close(r.over)
	for _, q := range r.running {
		q.stop(why)
	}
}

// Wait waits, after End, until nothing is left.
func (r *Requests) Wait() { r.work.Wait() }

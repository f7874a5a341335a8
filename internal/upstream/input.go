package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// Bounds of what a server may ask instead of answering a call.
const (
	maxRounds       = 10
	maxInputs       = 16
	maxInputKey     = 256
	maxRequestState = 64 << 10
	maxAddresses    = 4
)

// askAgain is the pause before a call is repeated that waits for no one.
const askAgain = 250 * time.Millisecond

// codeURLElicitation is the error of a server that wants the user to open addresses
// before a call is made again.
const codeURLElicitation = -32042

// maxCompletion is how long the user may take at the addresses of such an error.
const maxCompletion = 5 * time.Minute

// unanswered is an ErrInputRequired: what the server wants, and why it cannot be
// had.
type unanswered struct {
	what string // "elicitation/create", or empty
	err  error
}

func (e *unanswered) Error() string {
	if e.what == "" {
		return e.err.Error()
	}
	return e.what + ": " + e.err.Error()
}

// Unwrap hides the host's error, whose kind is not one of the server.
func (e *unanswered) Unwrap() error { return ErrInputRequired }

var (
	errNotAllowed = errors.New("the user does not let this server ask for it (the setting servers.may)")
	errNotTaken   = errors.New("the agent's client does not take it, and there is no one else to ask")
)

// converse sends a call. While the server answers that it needs something from the
// user or the client, converse asks for that and sends the call again.
func (d *doing) converse(members []byte, send func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	s := d.server
	members = slices.Clip(members)
	lease := budget.From(d.ctx)
	held := lease.Held()
	more := members
	visited := false
	for round := 0; ; round++ {
		result, err := send(d.ctx, s.session.paramsWith(more, d.aside()))
		if err != nil {
			pages := pagesOf(err)
			if pages == nil {
				return nil, err
			}
			if visited {
				return nil, &unanswered{inquiry.Elicitation, errors.New("the server asks again for what has been done")}
			}
			visited = true
			if err := d.visit(pages); err != nil {
				return nil, err
			}
			continue
		}
		wants, err := s.wanted(result)
		switch {
		case err != nil:
			return nil, err
		case wants == nil:
			return result, nil
		case round >= maxRounds:
			return nil, &unanswered{"", fmt.Errorf("it asked in each of %d rounds", maxRounds)}
		}
		more = members
		if len(wants.asks) > 0 {
			results, err := d.fulfil(wants.asks)
			if err != nil {
				return nil, err
			}
			more = append(more, `,"inputResponses":{`...)
			for i, a := range wants.asks {
				if i > 0 {
					more = append(more, ',')
				}
				more = append(append(append(more, a.key...), ':'), results[i]...)
			}
			more = append(more, '}')
		}
		if wants.state != nil {
			more = append(append(more, `,"requestState":`...), wants.state...)
		}
		if len(wants.asks) == 0 { // the server needs a while
			select {
			case <-time.After(askAgain):
			case <-d.ctx.Done():
				return nil, context.Cause(d.ctx)
			}
		}
		lease.Reduce(held) // nothing of the result is kept
		d.limit.again()
	}
}

// wants are what a server needs before it answers a call.
type wants struct {
	asks  []asks
	state json.RawMessage // goes back as it is; nil: there is none
}

type asks struct {
	key    []byte // JSON
	method string
	params json.RawMessage
}

// wanted returns what a result says that the server needs; nil if it is the answer.
// It refuses what is not an answer either.
func (s *Server) wanted(result json.RawMessage) (*wants, error) {
	if jsonscan.Kind(result) != '{' {
		return nil, fmt.Errorf("%w: the result is not an object", ErrBadAnswer)
	}
	if s.session.era != eraStateless {
		return nil, nil
	}
	var kind, requests, state json.RawMessage
	_ = jsonscan.Members(result, func(key string, value json.RawMessage) bool { // validated on arrival
		switch key {
		case "resultType":
			kind = value
		case "inputRequests":
			requests = value
		case "requestState":
			state = value
		}
		return true
	})
	if string(kind) != `"input_required"` {
		return nil, nil
	}
	w := &wants{}
	if state != nil && jsonscan.Kind(state) != 'n' {
		if jsonscan.Kind(state) != '"' || len(state) > maxRequestState {
			return nil, fmt.Errorf("%w: its requestState is not a string of at most %d bytes", ErrBadAnswer, maxRequestState)
		}
		w.state = state
	}
	var err error
	if requests != nil && jsonscan.Kind(requests) != 'n' {
		if w.asks, err = inputsOf(requests); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadAnswer, err)
		}
	}
	if len(w.asks) == 0 && w.state == nil {
		return nil, &unanswered{"", errors.New("it does not say for what")}
	}
	return w, nil
}

// inputsOf reads the inputRequests of a result.
func inputsOf(requests json.RawMessage) ([]asks, error) {
	if jsonscan.Kind(requests) != '{' {
		return nil, errors.New("its inputRequests are not an object")
	}
	var list []asks
	var err error
	seen := map[string]bool{}
	_ = jsonscan.Members(requests, func(key string, value json.RawMessage) bool {
		var r struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		switch {
		case len(list) == maxInputs:
			err = fmt.Errorf("it asks for more than %d things at once", maxInputs)
		case len(key) > maxInputKey || seen[key]:
			err = fmt.Errorf("its inputRequests have a key that is too long, or twice: %.40q", key)
		case jsonscan.Kind(value) != '{' || json.Unmarshal(value, &r) != nil:
			err = fmt.Errorf("its input request %.40q is not valid", key)
		}
		if err != nil {
			return false
		}
		seen[key] = true
		quoted, quoteErr := json.Marshal(key)
		err = quoteErr
		list = append(list, asks{quoted, r.Method, r.Params})
		return err == nil
	})
	return list, err
}

// fulfil asks the host for all at once, and returns the results in the same order.
// What may not be asked is not asked in part.
func (d *doing) fulfil(list []asks) ([]json.RawMessage, error) {
	takes := d.takes()
	requests := make([]*inquiry.Request, len(list))
	for i, a := range list {
		method := fmt.Sprintf("%.40q", a.method)
		if offered[a.method] != "" {
			method = a.method
		}
		if !allows(d.server.may, a.method) || offered[a.method] == "" {
			return nil, &unanswered{method, errNotAllowed}
		}
		if d.host == nil {
			return nil, &unanswered{method, errNotTaken}
		}
		r, err := inquiry.Parse(a.method, a.params)
		switch {
		case err != nil:
			return nil, &unanswered{method, err}
		case !d.server.may.Of(r):
			return nil, &unanswered{method, errNotAllowed}
		case !takes.Of(r):
			return nil, &unanswered{method, errNotTaken}
		}
		requests[i] = r
	}
	defer d.limit.Pause()()
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	go func() { // a server that has ended needs no answer
		select {
		case <-d.server.conn.Done():
			cancel(d.server.conn.Err())
		case <-ctx.Done():
		}
	}()
	results := make([]json.RawMessage, len(list))
	var wait sync.WaitGroup
	for i, r := range requests {
		wait.Go(func() {
			var err error
			if results[i], err = d.ask(ctx, r); err != nil {
				cancel(&unanswered{r.Method, err}) // the first one counts
			}
		})
	}
	wait.Wait()
	return results, context.Cause(ctx)
}

// pagesOf returns the elicitations of an error that wants some; nil: it does not.
func pagesOf(err error) []asks {
	var answered *jsonrpc.Error
	if !errors.As(err, &answered) || answered.Code != codeURLElicitation {
		return nil
	}
	var data struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if json.Unmarshal(answered.Data, &data) != nil || len(data.Elicitations) > maxAddresses {
		return nil
	}
	var pages []asks
	for _, params := range data.Elicitations {
		pages = append(pages, asks{nil, inquiry.Elicitation, params})
	}
	return pages
}

// visit has the user open the addresses that a call wants, and waits for the server
// to say that they are done with, which it need not say.
func (d *doing) visit(pages []asks) error {
	var said []chan struct{}
	for _, page := range pages {
		var p struct {
			Mode string `json:"mode"`
			ID   string `json:"elicitationId"`
		}
		if json.Unmarshal(page.params, &p) != nil || p.Mode != "url" {
			return &unanswered{page.method, errors.New("it names no address to open")}
		}
		done, forget := d.server.completions.wait(p.ID)
		defer forget()
		said = append(said, done)
	}
	results, err := d.fulfil(pages)
	if err != nil {
		return err
	}
	for _, result := range results {
		var r struct {
			Action string `json:"action"`
		}
		if json.Unmarshal(result, &r) != nil || r.Action != "accept" {
			return &unanswered{inquiry.Elicitation, errors.New("the user does not open the address that the server asks for")}
		}
	}
	defer d.limit.Pause()()
	patience := maxCompletion
	if d.limit.whole > 0 {
		patience = min(patience, d.limit.whole)
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for _, done := range said {
		select {
		case <-done:
		case <-enough.C:
			return nil
		case <-d.server.conn.Done():
			return d.server.conn.Err()
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		}
	}
	return nil
}

// completions are the elicitations that calls wait for.
type completions struct {
	mu   sync.Mutex
	list []completion
}

type completion struct {
	id   string
	done chan struct{}
}

// wait returns a channel that is closed when the server says that an elicitation is
// complete, and a function that ends the wait.
func (c *completions) wait(id string) (done chan struct{}, forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done = make(chan struct{})
	c.list = append(c.list, completion{id, done})
	return done, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = slices.DeleteFunc(c.list, func(each completion) bool { return each.done == done })
	}
}

// tell hears of a notification.
func (c *completions) tell(params json.RawMessage) {
	var p struct {
		ID string `json:"elicitationId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(each completion) bool {
		if each.id == p.ID {
			close(each.done)
		}
		return each.id == p.ID
	})
}

package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// codeRefused is the error of a request that the user, or the client, refuses.
const codeRefused = -1

// offered are the methods that a server may call at clients, with what they offer
// then.
var offered = map[string]string{inquiry.Elicitation: "elicitation", inquiry.Sampling: "sampling", inquiry.Roots: "roots"}

// requested answers a request of the server during a call. ctx has the values of the
// call on whose stream it came, if it came on one.
func (s *Server) requested(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	what, known := offered[method]
	switch {
	case !known:
		return nil, refusal(jsonrpc.CodeMethodNotFound, "Method not found")
	case !allows(s.may, method):
		return nil, refusal(jsonrpc.CodeMethodNotFound, "This client does not offer "+what)
	}
	r, err := inquiry.Parse(method, params)
	switch {
	case err != nil:
		return nil, refusal(jsonrpc.CodeInvalidParams, err.Error())
	case !s.may.Of(r): // the other mode of an elicitation
		return nil, refusal(jsonrpc.CodeInvalidParams, "This client does not offer "+what+" of this kind")
	}
	about, err := s.doing.meant(ctx)
	if err != nil {
		return nil, refusal(codeRefused, err.Error())
	}
	d := about[len(about)-1]
	if !d.takes().Of(r) {
		return nil, refusal(codeRefused, "The client that makes the call does not take "+what+" of this kind")
	}
	ctx, end := during(ctx, about)
	defer end()
	result, err := d.ask(ctx, r)
	switch {
	case err == nil:
		return result, nil
	case context.Cause(ctx) != nil:
		return nil, refusal(codeRefused, errCallOver.Error())
	case method == inquiry.Sampling:
		return nil, refusal(codeRefused, err.Error())
	}
	return nil, refusal(jsonrpc.CodeInternal, err.Error())
}

func refusal(code int64, message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: message}
}

// allows reports whether there are requests of a method that can be asked.
func allows(t inquiry.Takes, method string) bool {
	switch method {
	case inquiry.Elicitation:
		return t.Forms || t.URLs
	case inquiry.Sampling:
		return t.Sampling
	}
	return t.Roots
}

// during returns a context that ends with the last of some calls, whose time does
// not run until end is called: any of them may be the one that waits for the answer.
func during(ctx context.Context, about []*doing) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	undo := []func(){func() { cancel(nil) }}
	var left atomic.Int64
	left.Store(int64(len(about)))
	for _, d := range about {
		stop := context.AfterFunc(d.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(errCallOver)
			}
		})
		undo = append(undo, func() { stop() }, d.limit.Pause())
	}
	return ctx, func() {
		for _, f := range undo {
			f()
		}
	}
}

// ask asks the host what it takes.
func (d *doing) ask(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
	result, err := d.host.Ask(ctx, r)
	if err == nil && (jsonscan.Kind(result) != '{' || !jsonscan.Valid(result)) {
		err = fmt.Errorf("the answer to %s is not an object", r.Method)
	}
	return result, err
}

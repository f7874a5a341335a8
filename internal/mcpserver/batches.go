package mcpserver

import (
	"encoding/json"
	"fmt"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// batch collects the answers to a JSON array of requests.
type batch struct {
	missing int
	answers []json.RawMessage
}

// batch handles an array of messages, which revisions before 2025-06-18 allow.
func (c *conn) batch(line []byte) {
	c.mu.Lock()
	refused := c.protocol >= firstWithoutBatches
	c.mu.Unlock()
	if refused {
		c.writeError(nil, sdkrpc.CodeInvalidRequest, "invalid request: this protocol revision has no batches")
		return
	}
	var messages []sdkrpc.Message
	var ids []json.RawMessage
	b := &batch{}
	var failed error
	_ = jsonscan.Elements(line, func(item json.RawMessage) bool {
		msg, err := sdkrpc.DecodeMessage(item)
		if err != nil {
			failed = err
			return false
		}
		if req, ok := msg.(*sdkrpc.Request); ok && req.IsCall() {
			b.missing++
		}
		messages, ids = append(messages, msg), append(ids, idOf(item))
		return len(messages) <= maxInFlight
	})
	if failed == nil && (len(messages) == 0 || len(messages) > maxInFlight) {
		failed = fmt.Errorf("a batch has 1 to %d messages", maxInFlight)
	}
	if failed != nil {
		c.writeError(nil, sdkrpc.CodeInvalidRequest, "invalid request: "+failed.Error())
		return
	}
	for i, msg := range messages {
		c.forward(msg, ids[i], b)
	}
}

// refuse answers a request that was not registered.
func (c *conn) refuse(r *request, err *sdkrpc.Error) {
	if r.batch == nil {
		c.writeError(r.raw, err.Code, err.Message)
		return
	}
	data, encodeErr := encodeFor(r.raw, &sdkrpc.Response{Error: err})
	if encodeErr != nil {
		data = nil
	}
	c.mu.Lock()
	whole := r.batch.add(data)
	c.mu.Unlock()
	c.write(whole)
}

// add adds one answer (nil: none), and returns the whole array if it was the
// last.
func (b *batch) add(data []byte) []byte {
	b.missing--
	if data != nil {
		b.answers = append(b.answers, data)
	}
	if b.missing > 0 || len(b.answers) == 0 {
		return nil
	}
	whole, err := marshal(b.answers)
	if err != nil {
		return nil
	}
	return whole
}

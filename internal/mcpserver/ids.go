package mcpserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// The SDK converts numbers to floats. A client's id stays the bytes that the
// client sent: it is in the answer as it was in the request. Inside, an ID
// stands for it that is the same for equal ids.

// stands begins an ID that stands for something that the SDK would change.
const stands = "\x00"

// requestID returns the ID that stands for a client's id, which must be a string
// or a number.
func requestID(raw json.RawMessage) (sdkrpc.ID, bool) {
	var value any
	switch kind := jsonscan.Kind(raw); {
	case kind == '"':
		text, ok := jsonscan.Unquote(raw)
		if !ok {
			return sdkrpc.ID{}, false
		}
		if strings.HasPrefix(text, stands) {
			text = stands + text
		}
		value = text
	case kind == '-' || kind >= '0' && kind <= '9':
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && len(raw) <= 15 {
			value = float64(n)
			break
		}
		key := jsonscan.NumberKey(raw)
		if n, err := strconv.ParseInt(key, 10, 64); err == nil && n > -1<<53 && n < 1<<53 {
			value = float64(n)
		} else {
			value = stands + "n" + key
		}
	default:
		return sdkrpc.ID{}, false
	}
	id, err := sdkrpc.MakeID(value)
	return id, err == nil && id.IsValid()
}

// idOf returns the id of a message, or nil if there is none.
func idOf(message []byte) (id json.RawMessage) {
	_ = jsonscan.Members(message, func(key string, value json.RawMessage) bool { // decoded before
		if key == "id" {
			id = value
		}
		return true
	})
	return id
}

// encode encodes a message to the client.
func (c *conn) encode(msg sdkrpc.Message) ([]byte, error) {
	resp, ok := msg.(*sdkrpc.Response)
	if !ok {
		return sdkrpc.EncodeMessage(msg)
	}
	c.mu.Lock()
	r := c.inFlight[resp.ID]
	c.mu.Unlock()
	if r == nil || r.raw == nil {
		return sdkrpc.EncodeMessage(resp)
	}
	return encodeFor(r.raw, resp)
}

// encodeFor encodes an answer to the request with this id.
func encodeFor(raw json.RawMessage, resp *sdkrpc.Response) ([]byte, error) {
	const begin, placeholder = `{"jsonrpc":"2.0","id":`, `0,`
	zero, err := sdkrpc.MakeID(0.0)
	if err != nil {
		return nil, err
	}
	data, err := sdkrpc.EncodeMessage(&sdkrpc.Response{ID: zero, Result: resp.Result, Error: resp.Error})
	if rest, ok := bytes.CutPrefix(data, []byte(begin+placeholder)); ok && err == nil {
		out := append(make([]byte, 0, len(data)+len(raw)), begin...)
		return append(append(append(out, raw...), ','), rest...), nil
	}
	return data, err
}

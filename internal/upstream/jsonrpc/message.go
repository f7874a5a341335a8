package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Codes of errors that this package sends or that callers look for.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeBusy           = -32000
)

// maxErrorText bounds how much of a peer's error message is kept.
const maxErrorText = 64 << 10

// Error is an error that the peer answered with.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string {
	switch {
	case e.Message == "":
		return fmt.Sprintf("error %d", e.Code)
	case e.Code == 0: // it named none
		return e.Message
	}
	return fmt.Sprintf("%s (error %d)", e.Message, e.Code)
}

// message is one message split into its members. The slices are parts of the
// line; a nil slice means that the member is missing.
type message struct {
	version, id, method, params, result, err []byte

	depth int
}

// answers reports whether the message is an answer.
func (m message) answers() bool {
	return m.method == nil && m.id != nil && (m.result != nil || m.err != nil)
}

// fails reports whether an answer is an error. Some servers write an empty error
// next to a result.
func (m message) fails() bool {
	switch string(m.err) {
	case "", "null":
		return false
	case "false", `""`:
		return m.result == nil
	}
	return true
}

// parseMessage validates the object in line and splits it into its members. If
// a member occurs twice, the last one counts, as with encoding/json.
func parseMessage(line []byte) (message, error) {
	var m message
	depth, err := jsonscan.RawMembers(line, func(key, value []byte) bool {
		name := key[1 : len(key)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			// An escaped key is legal, though it never occurs; decode it.
			decoded, ok := jsonscan.Unquote(key)
			if !ok {
				return true
			}
			name = []byte(decoded)
		}
		switch string(name) {
		case "jsonrpc":
			m.version = value
		case "id":
			m.id = value
		case "method":
			m.method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
		return true
	})
	m.depth = depth
	// Some peers write all members into all messages.
	if m.method != nil && m.version != nil && (m.fails() || m.result != nil && string(m.result) != "null" || string(m.method) == "null") {
		m.method = nil
	}
	return m, err
}

// callID parses an id as one of ours: an integer. Some peers return our integer
// as 7.0 or as "7". We never send a string, so that one can mean nothing else.
func callID(raw []byte) (int64, bool) {
	if len(raw) > 2 && len(raw) <= 32 && raw[0] == '"' {
		if raw = raw[1 : len(raw)-1]; !jsonscan.Valid(raw) || raw[0] == '"' {
			return 0, false
		}
	}
	if id, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return id, true
	}
	if len(raw) > 32 {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// decodeError decodes the error member of an answer. It never returns nil: a
// member that is not an error object is still a failure.
func decodeError(raw []byte) *Error {
	e := new(Error)
	var wire struct {
		Code    json.RawMessage
		Message json.RawMessage
		Data    json.RawMessage
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		if json.Unmarshal(raw, &e.Message) != nil {
			e.Message = string(raw)
		}
		e.Message = clip(e.Message, maxErrorText)
		return e
	}
	if code, ok := callID(wire.Code); ok {
		e.Code = code
	}
	if json.Unmarshal(wire.Message, &e.Message) != nil {
		e.Message = string(wire.Message)
	}
	e.Message = clip(e.Message, maxErrorText)
	if len(wire.Data) <= maxErrorText {
		e.Data = wire.Data
	}
	return e
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// appendRequest appends a request or, with no id, a notification.
func appendRequest(dst []byte, id int64, method string, params json.RawMessage) ([]byte, error) {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != 0 {
		dst = append(dst, `,"id":`...)
		dst = strconv.AppendInt(dst, id, 10)
	}
	dst = append(dst, `,"method":`...)
	name, err := json.Marshal(method)
	if err != nil {
		return nil, err
	}
	dst = append(dst, name...)
	if params != nil {
		dst = append(dst, `,"params":`...)
		if dst, err = appendOneLine(dst, params); err != nil {
			return nil, err
		}
	}
	return append(dst, "}\n"...), nil
}

// appendAnswer appends the answer to a request of the peer.
func appendAnswer(dst, id []byte, result json.RawMessage, failure *Error) ([]byte, error) {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	var err error
	if dst, err = appendOneLine(dst, id); err != nil {
		return nil, err
	}
	member, value := `,"result":`, result
	if failure != nil {
		member = `,"error":`
		if value, err = json.Marshal(failure); err != nil {
			return nil, err
		}
	}
	dst = append(dst, member...)
	if dst, err = appendOneLine(dst, value); err != nil {
		return nil, err
	}
	return append(dst, "}\n"...), nil
}

var errNotOneValue = errors.New("not valid JSON")

// appendOneLine appends a JSON value unchanged, except for line breaks between
// its tokens and bytes that are not UTF-8: neither may reach the stream.
func appendOneLine(dst []byte, value json.RawMessage) ([]byte, error) {
	if !jsonscan.Valid(value) {
		return nil, errNotOneValue
	}
	value = validUTF8(value)
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
		return append(dst, value...), nil
	}
	buf := bytes.NewBuffer(dst)
	if err := json.Compact(buf, value); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

package jsonrpc

import (
	"encoding/json"
	"strings"
)

// Message is one message cut into its members, for peers that do not speak over
// one stream. The members are parts of what was parsed; nil is one that is not
// there.
type Message struct {
	ID, Method, Params, Result, Failure json.RawMessage
	// Depth is how deep the message nests.
	Depth int
}

// Parse validates the one object in data and cuts it. Bytes that are no UTF-8
// are the caller's to replace first, with ValidUTF8.
func Parse(data []byte) (Message, error) {
	m, err := parseMessage(data)
	return Message{ID: m.id, Method: m.method, Params: m.params, Result: m.result, Failure: m.err, Depth: m.depth}, err
}

// CallID is the message's id as one of ours.
func (m Message) CallID() (int64, bool) { return callID(m.ID) }

// MethodName is the method's name, empty where it is none.
func (m Message) MethodName() string {
	var name string
	if json.Unmarshal(m.Method, &name) != nil {
		return ""
	}
	return name
}

// DecodeError reads the error member of an answer. It never returns nil: a
// member that is not an error object still is a failure.
func DecodeError(raw json.RawMessage) *Error { return decodeError(raw) }

// AppendRequest appends a request, or with id 0 a notification, and a line's
// end. Parameters that are no JSON are an error.
func AppendRequest(dst []byte, id int64, method string, params json.RawMessage) ([]byte, error) {
	return appendRequest(dst, id, method, params)
}

// AppendAnswer appends the answer to a request of the peer, and a line's end.
func AppendAnswer(dst []byte, id, result json.RawMessage, failure *Error) ([]byte, error) {
	return appendAnswer(dst, id, result, failure)
}

// ValidUTF8 returns data with every byte that is not part of a UTF-8 sequence
// replaced by U+FFFD: data itself where there is none.
func ValidUTF8(data []byte) []byte { return validUTF8(data) }

// Fault says in a few words where data stops to be JSON, and shows nothing of
// it that redact would change.
func Fault(data []byte, redact func(string) string) string {
	return strings.TrimLeft(place(data, redact), ":, ")
}

// AnsweredID guesses which call a text was to answer that is no JSON.
func AnsweredID(data []byte) (int64, bool) {
	raw, ok := guessID(data)
	if !ok {
		return 0, false
	}
	return callID(raw)
}

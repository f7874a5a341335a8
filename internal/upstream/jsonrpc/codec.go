package jsonrpc

import (
	"encoding/json"
	"strings"
)

// Message is one message split into its members, for peers that do not speak
// over one stream. The members are parts of the parsed data; nil means that a
// member is missing.
type Message struct {
	Version, ID, Method, Params, Result, Failure json.RawMessage
	// Depth is the nesting depth of the message.
	Depth int
}

// Parse validates the one object in data and splits it. The caller must first
// replace bytes that are not UTF-8, with ValidUTF8.
func Parse(data []byte) (Message, error) {
	m, err := parseMessage(data)
	return m.public(), err
}

func (m message) public() Message {
	return Message{Version: m.version, ID: m.id, Method: m.method, Params: m.params, Result: m.result, Failure: m.err, Depth: m.depth}
}

// Fails reports whether an answer is an error.
func (m Message) Fails() bool { return message{result: m.Result, err: m.Failure}.fails() }

// AnswersIn calls take for the answers in data, which has other text, too. It
// reports whether take took any.
func AnswersIn(data []byte, take func(Message) bool) bool {
	return messagesIn(data, func(_ []byte, m message, own, ends bool) bool {
		return (own && m.answers() || m.copied(ends)) && take(m.public())
	})
}

// CallID returns the message's id if it is one of ours.
func (m Message) CallID() (int64, bool) { return callID(m.ID) }

// MethodName returns the name of the method, or "".
func (m Message) MethodName() string {
	var name string
	if json.Unmarshal(m.Method, &name) != nil {
		return ""
	}
	return name
}

// DecodeError decodes the error member of an answer. It never returns nil: a
// member that is not an error object is still a failure.
func DecodeError(raw json.RawMessage) *Error { return decodeError(raw) }

// AppendRequest appends a request, or with id 0 a notification, and a line end.
// It returns an error if the parameters are not JSON.
func AppendRequest(dst []byte, id int64, method string, params json.RawMessage) ([]byte, error) {
	return appendRequest(dst, id, method, params)
}

// AppendAnswer appends the answer to a request of the peer, and a line end.
func AppendAnswer(dst []byte, id, result json.RawMessage, failure *Error) ([]byte, error) {
	return appendAnswer(dst, id, result, failure)
}

// ValidUTF8 replaces every byte of data that is not part of a UTF-8 sequence by
// U+FFFD. It returns data itself if there is none.
func ValidUTF8(data []byte) []byte { return validUTF8(data) }

// Fault says briefly where data stops being JSON, and shows nothing of it that
// redact would change.
func Fault(data []byte, redact func(string) string) string {
	return strings.TrimLeft(place(data, redact), ":, ")
}

// AnsweredID guesses which call data that is not JSON was meant to answer.
func AnsweredID(data []byte) (int64, bool) {
	raw, ok := guessID(data)
	if !ok {
		return 0, false
	}
	return callID(raw)
}

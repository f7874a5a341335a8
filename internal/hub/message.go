package hub

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// The methods of the Model Context Protocol that a frontend knows.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodCall        = "tools/call"
)

// message is what a frontend needs to know of a message of JSON-RPC.
type message struct {
	id     json.RawMessage // nil: none
	method string          // empty: a response
	item   json.RawMessage // the message itself
}

// call reports whether the message wants an answer.
func (m *message) call() bool { return m.method != "" && m.id != nil }

// parse reads the messages of a line: several of an array, none where it is not
// valid. What it returns aliases the line.
func parse(line []byte) []message {
	line = jsonscan.TrimMark(line)
	switch jsonscan.Kind(line) {
	case '{':
		if m, ok := parseOne(line); ok {
			return []message{m}
		}
	case '[':
		var all []message
		err := jsonscan.Elements(line, func(item json.RawMessage) bool {
			if m, ok := parseOne(item); ok {
				all = append(all, m)
			}
			return true
		})
		if err == nil {
			return all
		}
	}
	return nil
}

func parseOne(data []byte) (m message, ok bool) {
	err := jsonscan.Members(data, func(key string, value json.RawMessage) bool {
		switch key {
		case "id":
			if value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9' {
				m.id = value
			}
		case "method":
			m.method, _ = jsonscan.Unquote(value)
		}
		return true
	})
	m.item = data
	return m, err == nil
}

// responseID returns the ID of a line that is a response in the form in which
// hubs write it, with the ID before the result. rest reports that the line may be
// anything else that has an ID.
func responseID(line []byte) (id []byte, rest bool) {
	const begin = `{"jsonrpc":"2.0","id":`
	if !bytes.HasPrefix(line, []byte(begin)) {
		return nil, true
	}
	value := line[len(begin):]
	for i, c := range value {
		if c == '\\' || i > 256 {
			break
		}
		if c == ',' {
			if after := value[i:]; bytes.HasPrefix(after, []byte(`,"result":`)) || bytes.HasPrefix(after, []byte(`,"error":`)) {
				return value[:i], false
			}
			if value[0] != '"' {
				break
			}
		}
	}
	return nil, true
}

// key is the same for IDs that are equal, however they are written.
func key(id []byte) string {
	if len(id) > 0 && id[0] == '"' {
		text, _ := jsonscan.Unquote(id)
		return `"` + text
	}
	if len(id) > 0 && jsonscan.Kind(id) != 'n' {
		return jsonscan.NumberKey(id)
	}
	return string(id)
}

// cancels returns the ID of the request that a notification cancels.
func (m *message) cancels() (id []byte) {
	var n struct {
		Params struct {
			ID json.RawMessage `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(m.item, &n) != nil {
		return nil
	}
	return n.Params.ID
}

// callParams are the parts of a call's parameters that say what is lost with it.
type callParams struct {
	Arguments struct {
		Session any `json:"session"`
	} `json:"arguments"`
	Meta map[string]json.RawMessage `json:"_meta"`
}

// params reads the parameters of a request.
func (r *request) params() (p callParams) {
	var one struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(r.item, &one) == nil {
		_ = json.Unmarshal(one.Params, &p) // empty where it is not valid
	}
	return p
}

// session returns the session that a call names.
func (r *request) session() string {
	name, _ := r.params().Arguments.Session.(string)
	return name
}

// stateless reports whether a request is of a revision without sessions, which
// began on 2026-07-28.
func (r *request) stateless() bool {
	_, ok := r.params().Meta["io.modelcontextprotocol/protocolVersion"]
	return ok
}

// errTooLong is the error of clientLine for a line that exceeds the bound, which
// was skipped.
var errTooLong = errors.New("the line is too long")

// clientLine reads a line of a client, in memory of its own with room for a line
// feed.
func clientLine(r *bufio.Reader) ([]byte, error) {
	line, err := lineOf(r, maxLine)
	if errors.Is(err, errTooLong) {
		for {
			_, err := r.ReadSlice('\n')
			if err == nil || errors.Is(err, io.EOF) {
				return nil, errTooLong
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		return line, nil // the last line need not end
	}
	return line, err
}

// hubLine reads a line of a hub. A line that does not end is an error.
func hubLine(r *bufio.Reader) ([]byte, error) {
	return lineOf(r, 1<<30)
}

// lineOf reads a line of at most limit bytes, without its line feed.
func lineOf(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line == nil {
			line = make([]byte, 0, len(part)+1)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case len(line) > limit:
			return nil, errTooLong
		}
	}
}

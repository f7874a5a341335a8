package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Where servers put the id of an answer: before or after the result.
var (
	idInFront = lazyregexp.New(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("?-?[0-9]{1,18}"?)\s*,`)
	idBehind  = lazyregexp.New(`"id"\s*:\s*("?-?[0-9]{1,18}"?)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// notInMemory gives a line in a file to the call that it answers, if its
// beginning or its end shows which one, and fails that call if the line was
// discarded. A wrong guess can only hurt a call to the server that sent the
// line.
func (c *Conn) notInMemory(l line) {
	if l.overlong {
		c.overlong.Add(1)
		c.opts.Log.Warn("line over the limit discarded", "bytes", l.length, "limit", c.opts.MaxLine)
	}
	id := idInFront().FindSubmatch(l.data)
	if id == nil {
		id = idBehind().FindSubmatch(l.tail)
	}
	if id == nil {
		id = [][]byte{nil, nil}
	}
	waiting, ok := c.waiting(meant(id[1], l.data))
	if !ok {
		l.spooled.Close()
		if l.spooled != nil {
			c.unknown.Add(1)
		}
		return
	}
	r := reply{spooled: l.spooled}
	switch {
	case l.overlong && l.length <= int64(c.opts.MaxLine):
		r.err = errBacklog
	case l.overlong:
		r.err = fmt.Errorf("%w: %s bytes in one line, %d are allowed",
			ErrTooLarge, strconv.FormatInt(l.length, 10), c.opts.MaxLine)
	case !waiting.lease.TryDisk(l.length):
		l.spooled.Close()
		r = reply{err: errBacklog}
	}
	waiting.answer <- r
}

// notJSON fails the call that a line was meant to answer but that is not JSON,
// such as one with the NaN that some libraries write. Otherwise the call would
// wait for an answer that has already arrived.
func (c *Conn) notJSON(data []byte, cause error) {
	if id, ok := guessID(data); ok {
		if waiting, ok := c.waiting(meant(id, data)); ok {
			if errors.Is(cause, jsonscan.ErrNesting) {
				waiting.answer <- reply{err: fmt.Errorf("%w: %w", ErrTooLarge, cause)}
				return
			}
			waiting.answer <- reply{err: fmt.Errorf("%w%s", ErrNotJSON, place(data, c.opts.Redact))}
			return
		}
	}
	c.keepJunk(data)
	level := slog.LevelDebug
	if !c.warned {
		c.warned, level = true, slog.LevelWarn
	}
	c.opts.Log.Log(context.Background(), level, "line that is not valid JSON skipped", "bytes", len(data))
}

// meant returns the answer that data, which cannot be parsed, was meant to be.
func meant(id, data []byte) message {
	m := message{id: id}
	if bytes.Contains(data, []byte("jsonrpc")) {
		m.version = data
	}
	return m
}

// guessID returns the id of an answer that is not JSON, or nil if the answer shows
// none. It reports false if the data does not look like an answer: a request that
// a server logs must not fail its own call.
func guessID(data []byte) ([]byte, bool) {
	if bytes.HasPrefix(data, []byte("{'")) { // as Python shows a dictionary
		data = bytes.ReplaceAll(data, []byte("'"), []byte(`"`))
	}
	id, answers := looseMembers(data)
	if !answers {
		return nil, false
	}
	if m := idInFront().FindSubmatch(data[:min(len(data), keptHead)]); m != nil {
		return m[1], true
	}
	if id != nil {
		return id, true
	}
	if m := idBehind().FindSubmatch(data[max(0, len(data)-keptTail):]); m != nil {
		return m[1], true
	}
	return nil, true
}

// looseMembers looks at the keys of the object in data, regarding only strings
// and brackets. It returns the value of the one "id", or nil if there is none
// or more than one, and whether the first other member is one of an answer.
func looseMembers(data []byte) (id []byte, answers bool) {
	ids, level := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			level++
		case '}', ']':
			level--
		case '"':
			start := i + 1
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			if level != 1 || i >= len(data) {
				continue
			}
			colon := afterSpace(data, i+1)
			if colon >= len(data) || data[colon] != ':' {
				continue
			}
			switch string(data[start:i]) {
			case "method":
				if !answers {
					return nil, false
				}
			case "result", "error":
				answers = true
			case "id":
				ids++
				from := afterSpace(data, colon+1)
				id = data[from:min(len(data), from+32)]
				if end := bytes.IndexAny(id, ",} \t\r"); end >= 0 {
					id = id[:end]
				}
			}
		}
	}
	if ids != 1 {
		id = nil
	}
	return id, answers
}

// afterSpace returns the index of the first byte from i on that is not white space.
func afterSpace(data []byte, i int) int {
	return len(data) - len(bytes.TrimLeft(data[i:], " \t\r\n"))
}

const (
	// shownFault bounds how much is shown of the place where an answer is
	// wrong.
	shownFault = 40
	// searchedForSecrets is how much around that place is searched for a secret
	// of which the place might show a part.
	searchedForSecrets = 64 << 10
)

// place says where data stops being JSON.
func place(data []byte, redact func(string) string) string {
	var fault *json.SyntaxError
	if !errors.As(json.Unmarshal(data, new(struct{})), &fault) || fault.Offset < 1 || fault.Offset > int64(len(data)) {
		return ""
	}
	if strings.HasPrefix(fault.Error(), "unexpected end") {
		return ": it ends too early, after " + strconv.Itoa(len(data)) + " bytes"
	}
	at := int(fault.Offset) - 1
	where := " (byte " + strconv.FormatInt(fault.Offset, 10) + ")"
	if redact != nil {
		around := string(data[max(0, at-searchedForSecrets):min(len(data), at+searchedForSecrets)])
		if redact(around) != around {
			return where
		}
	}
	shown := data[at:min(len(data), at+shownFault)]
	if end := bytes.IndexAny(shown[1:], ",]}\" \t\r"); end >= 0 {
		shown = shown[:end+1]
	}
	return fmt.Sprintf(", near %q%s", strings.ToValidUTF8(string(shown), ""), where)
}

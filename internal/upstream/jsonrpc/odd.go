package jsonrpc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Peers write messages that are not one line of JSON, or not quite JSON-RPC. What
// can mean only one thing is taken, and noted once, so that the peer's author can
// repair it. Everything here costs nothing for a line that is a message.

const (
	// maxTries bounds how often a line is parsed from another place.
	maxTries = 32
	// maxSpread bounds a message that is spread over lines.
	maxSpread = 1 << 20
	// shownLine bounds how much is shown of a line.
	shownLine = 200
	// knownOddities bounds what is noted.
	knownOddities = 20
)

// odd is what is known of a peer that does not keep to the protocol.
type odd struct {
	// lines is the beginning of a message that is spread over several lines, and
	// level how many of its brackets are open.
	lines []byte
	level int
	// inside is the call that was last answered by a message behind other text.
	// echoes means that such messages are copies in a log.
	inside int64
	echoes bool
	// What follows is guarded by Conn.mu. answered counts calls, settled is how many
	// notifications were sent before the last of these, and names means that the
	// peer has answered with a call's own id.
	answered, settled int64
	names             bool
	noted             []string
}

// note notes how the peer breaks the protocol. Conn.mu is held.
func (c *Conn) note(how string) {
	if len(c.odd.noted) < knownOddities && !slices.Contains(c.odd.noted, how) {
		c.odd.noted = append(c.odd.noted, how)
		c.opts.Log.Warn("the server breaks the protocol, but its answers can be read", "with", how)
	}
}

// Odd returns how the peer broke the protocol in messages that were taken.
func (c *Conn) Odd() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.odd.noted)
}

// noteForm notes what is wrong in an answer that is taken.
func (c *Conn) noteForm(m message) {
	if string(m.version) == `"2.0"` && len(m.id) > 0 && m.id[0] != '"' {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(m.version) != `"2.0"` {
		c.note(`messages without "jsonrpc":"2.0"`)
	}
	if len(m.id) > 0 && m.id[0] == '"' {
		c.note("an id that is a string, though the request's id is a number")
	}
}

// noteText is note for the text around messages.
func (c *Conn) noteText(how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(how)
}

// waiting removes and returns the call that the message answers.
func (c *Conn) waiting(m message) (pending, bool) {
	id, ok := callID(m.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	p, found := c.pending[id]
	if !ok || !found {
		if id, found = c.theOnly(m); !found {
			return pending{}, false
		}
		p = c.pending[id]
		c.note("an id that is not that of the request")
	} else {
		c.odd.names = true
	}
	c.odd.answered++
	c.odd.settled = max(c.odd.settled, p.notes)
	delete(c.pending, id)
	return p, true
}

// theOnly returns the call that an answer belongs to though its id does not say so:
// the only one that was not answered, because no other was given up. The id must be
// missing or null, or the peer must not have used the right one before. An error may
// concern a notification, unless a call was answered since that was sent. Conn.mu is
// held.
func (c *Conn) theOnly(m message) (int64, bool) {
	last := c.nextID.Load()
	id, ok := callID(m.id)
	switch null := m.id == nil || jsonscan.Kind(m.id) == 'n'; {
	case m.version == nil, len(c.pending) != 1, c.odd.answered != last-1:
		return 0, false
	case !null && (c.odd.names || ok && id >= 1 && id <= last):
		return 0, false
	case m.fails() && c.odd.settled != c.notes.Load():
		return 0, false
	}
	for id := range c.pending {
		return id, true
	}
	return 0, false
}

// unexpected counts an answer that no call waits for. It is kept if it cannot
// be late or repeated, because it may then be the answer that a call misses.
func (c *Conn) unexpected(m message, data []byte) {
	c.unknown.Add(1)
	id, ok := callID(m.id)
	if ok && id == c.odd.inside {
		c.odd.echoes = true
	}
	if !ok || id < 1 || id > c.nextID.Load() {
		c.keepJunk(data)
	}
	if m.err != nil && jsonscan.Kind(m.id) == 'n' {
		c.opts.Log.Debug("server reports an error for no request", "err", decodeError(m.err).Error())
	}
}

// unparsed handles a line that is not JSON. raw is the line, and data the same
// as UTF-8.
func (c *Conn) unparsed(raw, data []byte, cause error, unended bool) {
	if bytes.IndexByte(raw, 0) >= 0 {
		if text := withoutZeros(raw); len(text) > 0 {
			c.noteText("bytes that are zero, as in UTF-16")
			c.handleMessage(text, true, unended)
			return
		}
	}
	switch {
	case c.inText(data):
	case spreads(data) && !unended:
		c.odd.lines, c.odd.level = []byte{}, 0
		c.goesOn(data)
	case data[0] == '{' && !unended:
		c.notJSON(data, cause)
	default: // the end of the stream already explains a message that it cut off
		c.keepJunk(data)
	}
}

// withoutZeros removes bytes that are zero around a line, or those between the
// characters of UTF-16 text that is all ASCII. It returns a copy, or nil for anything
// else.
func withoutZeros(line []byte) []byte {
	if trimmed := bytes.Trim(line, "\x00"); bytes.IndexByte(trimmed, 0) < 0 {
		return bytes.Clone(bytes.TrimSpace(trimmed))
	}
	line = bytes.TrimPrefix(bytes.TrimPrefix(line, []byte{0xff, 0xfe}), []byte{0xfe, 0xff})
	if zeros := bytes.Count(line, []byte{0}); zeros < len(line)/2 || zeros > len(line)/2+1 {
		return nil
	}
	return bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, nil))
}

// inText takes the messages of a line that also has other text, and reports
// whether there were any.
//
// At the beginning of the line a message counts as on a line of its own; behind
// another message, too. Behind other text it may be a copy in a log: of a request
// that the peer got, or of an answer that it got or sent elsewhere. There only an
// answer to a pending call counts that names the protocol's version and ends the
// line. If the peer then answers that call again, it was a copy, and from then on
// such messages do not count. Inside a string or another value nothing counts.
func (c *Conn) inText(data []byte) bool {
	return messagesIn(data, func(part []byte, m message, own, ends bool) bool {
		switch {
		case own && (m.answers() || ends && m.method != nil):
			c.noteText("other text, or a second message, in the line of a message")
		case m.copied(ends) && !c.odd.echoes && c.awaits(m.id):
			c.odd.inside, _ = callID(m.id)
			c.noteText("other text in front of a message in its line: a program must write only messages to standard output")
		default:
			return false
		}
		c.handleMessage(part, false, false)
		return true
	})
}

// copied reports whether a message behind other text may count.
func (m message) copied(ends bool) bool {
	return ends && m.answers() && string(m.version) == `"2.0"`
}

// messagesIn calls take for each object in data, which is not JSON as a whole, that
// is not inside another one, and reports whether it took any. own means that the
// object begins data or follows one that was taken, ends that it ends data or is
// followed by an object.
func messagesIn(data []byte, take func(part []byte, m message, own, ends bool) bool) (taken bool) {
	own := 0
	for tries, at := 0, 0; tries < maxTries; {
		next := bytes.IndexByte(data[at:], '{')
		if next < 0 {
			break
		}
		at += next
		if key := afterSpace(data, at+1); key >= len(data) || data[key] != '"' {
			at++
			continue
		}
		tries++
		size, ok := jsonscan.End(data[at:])
		if !ok {
			at++
			continue
		}
		end := at + size
		part, rest := data[at:end:end], data[end:]
		m, _ := parseMessage(part) // valid: it has an end
		if take(part, m, at == own, blank(rest) || rest[afterSpace(rest, 0)] == '{') {
			taken, own = true, afterSpace(data, end)
		}
		at = end
	}
	return taken
}

// awaits reports whether a call waits for an answer with this id.
func (c *Conn) awaits(rawID []byte) bool {
	id, ok := callID(rawID)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.pending[id]
	return ok && waits
}

// blank reports whether data shows nothing on a terminal.
func blank(data []byte) bool {
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == 0x1b && i+1 < len(data) && data[i+1] == '[': // a sequence ends with a letter
			for i += 2; i < len(data) && (data[i] < '@' || data[i] > '~'); i++ {
			}
		case c > ' ' && c != 0x7f:
			return false
		}
	}
	return true
}

// spreads reports whether a line may be the first of a message that is spread over
// several lines for people to read.
func spreads(line []byte) bool {
	return line[0] == '{' && bytes.IndexByte([]byte("{[,"), line[len(line)-1]) >= 0 && len(line) <= maxSpread
}

// goesOn adds a line to a message that is spread over several lines, and handles
// the message once its brackets are closed. It reports false if the line cannot
// be a part of it. The lines are kept like other text, too: only at the end it is
// clear what they are.
func (c *Conn) goesOn(line []byte) bool {
	level, ok := brackets(line, c.odd.level)
	if !ok || len(c.odd.lines)+len(line) >= maxSpread {
		c.odd.lines = nil
		return false
	}
	c.keepJunk(line)
	c.odd.lines, c.odd.level = append(append(c.odd.lines, line...), '\n'), level
	if level > 0 {
		return true
	}
	whole := c.odd.lines
	c.odd.lines = nil
	if m, err := parseMessage(whole); err == nil && (m.method != nil || m.version != nil || m.answers()) {
		c.noteText("a message that is spread over several lines")
		c.handleMessage(bytes.TrimSpace(whole), true, false)
	} else if err != nil {
		c.notJSON(whole, err)
	}
	return true
}

// brackets returns how many brackets are open behind a line, of which level were
// open before it. It reports false if a string is open: no string spans lines.
func brackets(line []byte, level int) (int, bool) {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			level++
		case '}', ']':
			level--
		case '"':
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
			if i >= len(line) {
				return 0, false
			}
		}
	}
	return level, level >= 0
}

// Shown returns the beginning of a line for an error, or only its size if it
// contains a secret.
func Shown(line []byte, redact func(string) string) string {
	if redact != nil {
		if head := string(line[:min(len(line), searchedForSecrets)]); redact(head) != head {
			return fmt.Sprintf("(%d bytes)", len(line))
		}
	}
	head := strings.ToValidUTF8(string(line[:min(len(line), shownLine)]), "")
	if len(line) > shownLine {
		return fmt.Sprintf("%q… (%d bytes)", head, len(line))
	}
	return fmt.Sprintf("%q", head)
}

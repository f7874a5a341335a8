package toon

import (
	"errors"
	"fmt"
	"strings"
)

// line is a line that is neither blank nor a comment.
type line struct {
	number int
	depth  int
	text   string // without indentation and trailing spaces
	blank  int    // number of the last blank line between this line and the one before; 0 if none
}

// scanner splits a document into lines.
type scanner struct {
	rest   string
	number int
	indent int
	strict bool
}

// next returns false at the end. Errors concern the indentation of the line that
// is returned with them.
func (s *scanner) next() (line, bool, error) {
	var l line
	for s.rest != "" {
		var raw string
		raw, s.rest, _ = strings.Cut(s.rest, "\n")
		s.number++
		raw = strings.TrimSuffix(raw, "\r")
		text := strings.TrimLeft(raw, " ")
		spaces := len(raw) - len(text)
		if strings.HasPrefix(text, "#") {
			continue
		}
		text = strings.TrimRight(text, " ")
		if text == "" {
			l.blank = s.number
			continue
		}
		l.number, l.depth, l.text = s.number, spaces/s.indent, text
		switch {
		case text[0] == '\t':
			return l, false, errors.New("a tab in the indentation")
		case s.strict && spaces%s.indent != 0:
			return l, false, fmt.Errorf("an indentation of %d spaces is no multiple of %d", spaces, s.indent)
		}
		return l, true, nil
	}
	return l, false, nil
}

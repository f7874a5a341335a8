package fold

import "strings"

// escape obeys the control sequence that begins before rest, with ESC, and returns
// what follows it. If the sequence is not complete, only ESC is removed.
func (s *screen) escape(rest string) string {
	if rest == "" {
		return rest
	}
	switch c := rest[0]; {
	case c == '[':
		return s.csi(rest[1:])
	case strings.IndexByte("]PX^_", c) >= 0:
		return skipString(rest[1:])
	case c >= ' ' && c <= '/': // a character set
		for i := range min(len(rest), 4) {
			if rest[i] >= '0' && rest[i] <= '~' {
				return rest[i+1:]
			}
		}
		return rest
	case c == '7':
		s.saved.at, s.saved.col = s.at, s.column()
	case c == '8':
		s.restore()
	case c == 'M':
		s.move(s.at-1, s.column())
	case c == '\\': // the end of a string that a cut has split
	case strings.IndexByte("=>cDEHNOZno|}~", c) < 0:
		return rest
	}
	return rest[1:]
}

// control handles a character from U+0080 to U+009F. They are common in text of a
// wrong encoding, which stays: only complete sequences are taken for one.
func (s *screen) control(line string) string {
	c, rest := line[1], line[2:]
	switch c {
	case 0x9b:
		if rest != "" && (rest[0] >= '0' && rest[0] <= '?' || rest[0] == 'K' || rest[0] == 'm') {
			return s.csi(rest)
		}
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f:
		if after := skipString(rest); len(after) < len(rest) {
			return after
		}
	}
	s.write(line[:2])
	return rest
}

// longestString bounds a string for a terminal, such as a title or a picture: what
// is longer, or has no end in its line, is text.
const longestString = 1 << 20

// skipString returns what follows the end of a string for a terminal, or s itself
// if that does not end.
func skipString(s string) string {
	for i := 0; i < min(len(s), longestString); i++ {
		switch c := s[i]; {
		case c == '\a':
			return s[i+1:]
		case c == 0x1b && i+1 < len(s) && s[i+1] == '\\':
			return s[i+2:]
		case c == 0xc2 && i+1 < len(s) && s[i+1] == 0x9c:
			return s[i+2:]
		case c < ' ' && c != '\t', c == 0xc2 && i+1 < len(s) && s[i+1]&0xe0 == 0x80:
			return s
		}
	}
	return s
}

// longestSequence bounds the parameters of a control sequence.
const longestSequence = 64

// csi obeys a control sequence whose parameters begin with rest, and returns what
// follows it.
func (s *screen) csi(rest string) string {
	var n [2]int
	field, i := 0, 0
	for ; i < min(len(rest), longestSequence); i++ {
		switch c := rest[i]; {
		case c >= '0' && c <= '9':
			if field < len(n) {
				n[field] = min(n[field]*10+int(c-'0'), 9999)
			}
		case c == ';':
			field++
		case c >= '@' && c <= '~':
			if rest[0] < '<' || rest[0] > '?' { // else it is private
				s.obey(c, n[0], n[1])
			}
			return rest[i+1:]
		case c < ' ' || c > '?':
			return rest[i:]
		}
	}
	if i == len(rest) { // a cut has split it
		return ""
	}
	return rest
}

// obey moves the cursor, or erases. Other sequences change only how text looks.
func (s *screen) obey(what byte, a, b int) {
	by := max(1, a)
	switch what {
	case 'A':
		s.move(s.at-by, s.column())
	case 'B':
		s.move(s.at+by, s.column())
	case 'C':
		s.col = s.column() + by
	case 'D':
		s.move(s.at, s.column()-by)
	case 'E':
		s.below(s.at+by, 0)
	case 'F':
		s.move(s.at-by, 0)
	case 'G', '`':
		s.move(s.at, by-1)
	case 'H', 'f':
		s.home(by, max(1, b))
	case 'J':
		s.clear(a)
	case 'K':
		s.eraseLine(a)
	case 's':
		s.saved.at, s.saved.col = s.at, s.column()
	case 'u':
		s.restore()
	}
}

func (s *screen) restore() {
	if s.saved.at >= 0 {
		s.move(s.saved.at, s.saved.col)
	}
}

// eraseLine erases a row after the cursor, before it, or all of it.
func (s *screen) eraseLine(what int) {
	r, col := &s.rows[s.at], s.column()
	r.load()
	switch {
	case what == 0:
		s.erase(r, col)
	case what == 2 || what == 1 && col+1 >= len(r.cells):
		s.erase(r, 0)
	case what == 1 && col < s.blanks:
		s.blanks -= col + 1
		if visible(r.cells[:col+1]) {
			s.lose()
		}
		for i := range r.cells[:col+1] {
			r.cells[i] = ' '
		}
		r.edited = true
	}
}

// home moves the cursor within the screen, which begins where it was first cleared
// or gone home to: what was printed before stays.
func (s *screen) home(line, col int) {
	if s.top < 0 {
		s.newScreen()
	}
	s.below(s.top+line-1, col-1)
}

// below moves the cursor to a row that may not be there yet. Where it is far away,
// the next one is taken for it.
func (s *screen) below(at, col int) {
	n := at - len(s.rows) + 1
	if n > reach/2 || n > s.blanks {
		n = 1
	}
	if n > 0 {
		s.blanks = max(0, s.blanks-n)
		for s.at = len(s.rows) - 1; n > 0; n-- {
			s.down()
		}
		at = s.at
	}
	s.move(at, col)
}

// clear erases what is below the cursor. Clearing the whole screen keeps what was
// printed on it, as a terminal that can be scrolled does.
func (s *screen) clear(what int) {
	switch what {
	case 0:
		s.erase(&s.rows[s.at], s.column())
		for i := s.at + 1; i < len(s.rows); i++ {
			s.moved = true
			s.erase(&s.rows[i], 0)
		}
		s.rows = s.rows[:s.at+1]
	case 2, 3:
		s.newScreen()
	}
}

// newScreen begins a screen below everything printed.
func (s *screen) newScreen() {
	last := &s.rows[len(s.rows)-1]
	s.move(len(s.rows)-1, 0)
	if last.text != "" || len(last.cells) > 0 {
		s.down()
	}
	s.top = s.at
}

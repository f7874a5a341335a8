package fold

import (
	"strings"

	"golang.org/x/text/width"
)

const (
	// reach is how many rows up a program may write over, at least.
	reach = 100
	// blanks bounds the blanks that moves of the cursor may add, all together.
	blanks = 16 << 10
)

// screen is what a terminal without borders shows. The rows that the cursor cannot
// reach any more are strings.
type screen struct {
	above   []string
	rows    []row
	at, col int                   // the cursor; col < 0: after the row's end
	top     int                   // the row that the cursor goes home to; -1: none yet
	saved   struct{ at, col int } // at is -1 where there is none
	moved   bool                  // the cursor may have gone back since text was last written over
	states  int
	blanks  int // that may still be added
}

// row is one row of a screen: a string until something in it is changed, and then
// its cells. A wide character has two, the second of which is 0.
type row struct {
	text   string
	cells  []rune
	loaded bool
	edited bool // something in it was written over
}

func (r *row) load() {
	if !r.loaded {
		r.loaded = true
		for _, c := range r.text {
			if r.cells = append(r.cells, c); wide(c) {
				r.cells = append(r.cells, 0)
			}
		}
		r.text = ""
	}
}

func (r *row) String() string {
	if !r.loaded {
		return r.text
	}
	var b strings.Builder
	for _, c := range r.cells {
		if c != 0 {
			b.WriteRune(c)
		}
	}
	if r.edited {
		return strings.TrimRight(b.String(), " ")
	}
	return b.String()
}

// final returns what a terminal shows of lines in the end, and how many earlier
// states of its rows it does not show.
func final(lines []string) ([]string, int) {
	s := screen{rows: make([]row, 1, 2*reach), top: -1, blanks: blanks}
	s.saved.at = -1
	for i, line := range lines {
		if i > 0 {
			s.down()
			s.col = 0
		}
		s.print(line)
	}
	n := len(s.rows)
	for n > 1 && s.rows[n-1].edited && s.rows[n-1].String() == "" {
		n-- // what was erased at the end
	}
	s.scroll(n)
	return s.above, s.states
}

// scroll puts the first n rows out of reach.
func (s *screen) scroll(n int) {
	for i := range n {
		s.above = append(s.above, s.rows[i].String())
	}
	s.rows = s.rows[:copy(s.rows, s.rows[n:])]
	s.at, s.top, s.saved.at = max(0, s.at-n), max(-1, s.top-n), max(-1, s.saved.at-n)
}

// down moves the cursor to the next row.
func (s *screen) down() {
	s.moved = true
	if s.at++; s.at < len(s.rows) {
		return
	}
	if len(s.rows) == 2*reach {
		s.scroll(reach)
	}
	s.rows = append(s.rows, row{})
}

// print shows one line.
func (s *screen) print(line string) {
	for len(line) > 0 {
		if n := plain(line); n > 0 {
			s.write(line[:n])
			line = line[n:]
			continue
		}
		switch c := line[0]; c {
		case '\r':
			s.move(s.at, 0)
		case '\b':
			s.move(s.at, s.column()-1)
		case 0x1b:
			line = s.escape(line[1:])
			continue
		case 0xc2: // in UTF-8
			line = s.control(line)
			continue
		case '\a', 0x0e, 0x0f: // sound, and other character sets
		case 0x7f:
			s.write("␡")
		default:
			s.write(string('␀' + rune(c))) // the picture of the character
		}
		line = line[1:]
	}
}

// move moves the cursor, but not past the last row.
func (s *screen) move(at, col int) {
	s.at, s.col, s.moved = min(max(at, 0), len(s.rows)-1), max(col, 0), true
}

// column returns the column of the cursor.
func (s *screen) column() int {
	if s.col < 0 {
		r := &s.rows[s.at]
		r.load()
		s.col = len(r.cells)
	}
	return s.col
}

// write writes text without control characters at the cursor.
func (s *screen) write(text string) {
	r := &s.rows[s.at]
	if !r.loaded && r.text == "" && s.col == 0 && s.at == len(s.rows)-1 && !r.edited {
		r.text = text
		s.col = -1
		return
	}
	s.place()
	for _, c := range text {
		s.put(r, c)
		if wide(c) {
			s.put(r, 0)
		}
	}
}

// place finds the column of the cursor, which may be after the end of the row.
func (s *screen) place() {
	r := &s.rows[s.at]
	r.load()
	switch n := s.column() - len(r.cells); {
	case n > s.blanks:
		s.col = len(r.cells)
	case n > 0:
		s.blanks -= n
		for range n {
			r.cells = append(r.cells, ' ')
		}
	}
}

// put puts c into the cell of the cursor, which moves on.
func (s *screen) put(r *row, c rune) {
	col := s.col
	s.col++
	if col == len(r.cells) {
		r.cells = append(r.cells, c)
		return
	}
	r.edited = true
	if old := r.cells[col]; s.moved && old != c && old > ' ' && old != '_' { // "_\bx" is x, underlined
		s.lose()
	}
	// Half a wide character is none.
	if r.cells[col] == 0 && c != 0 && col > 0 {
		r.cells[col-1] = ' '
	}
	if col+1 < len(r.cells) && r.cells[col+1] == 0 {
		r.cells[col+1] = ' '
	}
	r.cells[col] = c
}

// lose counts a state of which text is written over or erased. The rest of it goes
// before the cursor moves again.
func (s *screen) lose() {
	s.states++
	s.moved = false
}

// erase erases the cells of a row from one on.
func (s *screen) erase(r *row, from int) {
	r.load()
	if from >= len(r.cells) {
		return
	}
	if (s.moved || from == 0) && visible(r.cells[from:]) {
		s.lose()
	}
	r.cells, r.edited = r.cells[:from], true
}

func visible(cells []rune) bool {
	for _, c := range cells {
		if c > ' ' {
			return true
		}
	}
	return false
}

func wide(c rune) bool {
	if c < 0x1100 {
		return false
	}
	k := width.LookupRune(c).Kind()
	return k == width.EastAsianWide || k == width.EastAsianFullwidth
}

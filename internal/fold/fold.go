// Package fold shortens what a program printed for a reader that is not a terminal:
// a line that was written over, as progress is, becomes what a terminal shows in
// the end, control sequences go, and repetition is counted. It knows text only;
// the output itself stays with whoever keeps it.
package fold

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Stream says what lines are.
type Stream bool

// The streams. Warnings on standard error are folded where they differ in numbers
// alone, or stand between other lines; on standard output, numbers are data.
const (
	Stdout Stream = false
	Stderr Stream = true
)

// Left counts what folded lines do not have. Repetition that they state is not
// counted: nothing is lost with it.
type Left struct {
	States int // earlier states of lines that were written over
	Lines  int // of warnings like one that is there
}

// Lines folds the lines of a stream. It returns lines itself if there is nothing
// to fold, and takes time and memory in proportion to them.
func Lines(lines []string, stream Stream) ([]string, Left) {
	var left Left
	if !plainAll(lines) {
		lines, left.States = final(lines)
	}
	lines = repeats(lines)
	if stream == Stderr {
		lines, left.Lines = warnings(lines)
	}
	return lines, left
}

// Line returns the last state of one line, without control sequences.
func Line(s string) string {
	if plain(s) == len(s) {
		return s
	}
	rows, _ := final([]string{s})
	return strings.Join(rows, " ")
}

func plainAll(lines []string) bool {
	for _, line := range lines {
		if plain(line) != len(line) {
			return false
		}
	}
	return true
}

// plain returns how many bytes at the beginning of s have neither control
// characters, besides tabs, nor line feeds.
func plain(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' && c != '\t', c == 0x7f:
			return i
		case c == 0xc2 && i+1 < len(s) && s[i+1]&0xe0 == 0x80: // U+0080 to U+009F
			return i
		}
	}
	return len(s)
}

const (
	// longestBlock bounds how many lines a block has whose repetition is counted:
	// more than those of a logged exception.
	longestBlock = 20
	// leastRepeats is how often something is there before it is counted.
	leastRepeats = 3
)

// repeats counts lines, and blocks of a few lines, that follow themselves.
func repeats(lines []string) []string {
	var out []string
	done := 0 // lines that are in out
	for i := 0; i+leastRepeats <= len(lines); {
		size, times := repeated(lines[i:])
		if times == 0 {
			i++
			continue
		}
		out = append(out, lines[done:i+size]...)
		out = append(out, repeatMark(size, times))
		i += size * times
		done = i
	}
	if done == 0 {
		return lines
	}
	return append(out, lines[done:]...)
}

// repeated returns the block at the beginning of lines whose repetition takes most
// room, and how often it is there, or zeros where none is worth a mark.
func repeated(lines []string) (size, times int) {
	most := 0
	for k := 1; k <= longestBlock && k*leastRepeats <= len(lines); k++ {
		if size > 0 && k%size == 0 {
			continue // the same repetition, in larger blocks
		}
		same := k
		for same < len(lines) && lines[same] == lines[same-k] {
			same++
		}
		n := same / k
		if n < leastRepeats {
			continue
		}
		saved := (n - 1) * characters(lines[:k])
		if saved > most && saved >= 2*utf8.RuneCountInString(repeatMark(k, n)) {
			most, size, times = saved, k, n
		}
	}
	return size, times
}

func repeatMark(size, times int) string {
	if size == 1 {
		return fmt.Sprintf("%s%d times in all …]", mark, times)
	}
	return fmt.Sprintf("%sthese %d lines, %d times in all …]", mark, size, times)
}

// mark begins the lines that fold adds.
const mark = "[… "

// characters counts those of lines, their ends included.
func characters(lines []string) int {
	n := len(lines)
	for _, line := range lines {
		n += utf8.RuneCountInString(line)
	}
	return n
}

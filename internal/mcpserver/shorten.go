package mcpserver

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/broker"
)

// maxNote bounds one note of a shortened result, and maxNotes all of them, in
// characters.
const maxNote, maxNotes = 2000, 6000

// artifactSize is what a file takes in an answer besides its path, about.
const artifactSize = 30

// leftOut counts what an answer does not show of a result.
type leftOut struct{ lines, characters int }

// shorten returns a result whose output has at most limit characters, the
// beginning and the end of it, and what was left out. It returns r itself if
// that fits. Standard error, which tells why code failed, gets what standard
// output does not need, and a quarter of the room at least. Another quarter is for
// the names of files.
func shorten(r *broker.Result, limit int) (*broker.Result, leftOut) {
	if limit <= 0 || r.Size() <= limit { // bytes: at least as many as characters
		return r, leftOut{}
	}
	out, err := measure(r.Stdout), measure(r.Stderr)
	longest, notes := 0, 0
	for _, n := range r.Notes {
		long := utf8.RuneCountInString(n)
		longest, notes = max(longest, long), notes+long
	}
	named := 0
	for room := limit / 4; named < len(r.Artifacts); named++ {
		a := &r.Artifacts[named]
		if room -= utf8.RuneCountInString(a.Path) + len(a.URI) + artifactSize; room < 0 {
			break
		}
	}
	unnamed := len(r.Artifacts) - named
	if out+err <= limit && longest <= maxNote && notes <= maxNotes && unnamed == 0 {
		return r, leftOut{}
	}
	c := *r
	var cut leftOut
	errRoom := min(err, max(limit/4, limit-out))
	var sum broker.Truncated
	c.Stdout, sum.Stdout = middle(r.Stdout, out, limit-errRoom, r.Dropped[0], &cut)
	c.Stderr, sum.Stderr = middle(r.Stderr, err, errRoom, r.Dropped[1], &cut)
	if sum != (broker.Truncated{}) {
		if r.Truncated != nil {
			sum.Stdout += r.Truncated.Stdout
			sum.Stderr += r.Truncated.Stderr
		}
		c.Truncated = &sum
	}
	c.Notes = shortenNotes(r.Notes, &cut)
	if unnamed > 0 {
		c.Artifacts = r.Artifacts[:named]
		c.Notes = append(c.Notes, fmt.Sprintf("more new files that are not named here: %s", thousands(unnamed)))
	}
	return &c, cut
}

// shortenNotes leaves out the ends of long notes, and those notes that come after
// as many as fit.
func shortenNotes(notes []string, cut *leftOut) []string {
	short := make([]string, 0, len(notes)+3)
	room := maxNotes
	for i, n := range notes {
		if long := utf8.RuneCountInString(n) - maxNote; long > 0 {
			n = first(n, maxNote) + fmt.Sprintf(" [… %s characters left out …]", thousands(long))
			cut.characters += long
		}
		if room -= utf8.RuneCountInString(n); room < 0 {
			for _, n := range notes[i:] {
				cut.characters += utf8.RuneCountInString(n)
			}
			return append(short, fmt.Sprintf("more notes that are left out: %s", thousands(len(notes)-i)))
		}
		short = append(short, n)
	}
	return short
}

// measure counts the characters of lines, their ends included.
func measure(lines []string) int {
	n := len(lines)
	for _, line := range lines {
		n += utf8.RuneCountInString(line)
	}
	return n
}

// middle leaves out the middle of lines with size characters, so that about room
// of them stay: three fifths from the beginning, the rest from the end. A line
// that is cut in two counts as left out where none of it stays. It returns the
// lines, with a mark where some are missing, and how many bytes are missing. lost is
// what the lines themselves have a mark for.
func middle(lines []string, size, room int, lost broker.Dropped, cut *leftOut) ([]string, int64) {
	if size <= room {
		return lines, 0
	}
	head, tail := room*3/5, room-room*3/5
	var begin, end []string
	i, j := 0, len(lines)
	for ; i < j; i++ {
		n := utf8.RuneCountInString(lines[i]) + 1
		if n > head {
			break
		}
		begin, head = append(begin, lines[i]), head-n
	}
	for ; j > i; j-- {
		n := utf8.RuneCountInString(lines[j-1]) + 1
		if n > tail {
			break
		}
		end, tail = append(end, lines[j-1]), tail-n
	}
	missing := lines[i:j]
	// What is left of the room goes to parts of long lines.
	const part = 200 // characters that are worth a line of their own
	var from, to string
	if len(missing) > 0 && head >= part {
		from = first(missing[0], head)
		begin = append(begin, from+"…")
	}
	if k := len(missing); k > 0 && tail >= part {
		to = last(missing[k-1], tail)
		end = append(end, "…"+to)
	}
	characters, bytes := -utf8.RuneCountInString(from)-utf8.RuneCountInString(to), int64(-len(from)-len(to))
	for _, line := range missing {
		characters += utf8.RuneCountInString(line) + 1
		bytes += int64(len(line)) + 1
	}
	left, all := len(missing), len(lines)
	if i := slices.IndexFunc(missing, broker.IsMarker); i >= 0 {
		left, all = left+int(lost.Lines)-1, all+int(lost.Lines)-1
		characters += int(lost.Characters) - utf8.RuneCountInString(missing[i]) - 1
	}
	cut.lines += left
	cut.characters += characters
	mark := fmt.Sprintf("[… %s of %s lines, %s characters left out …]", thousands(left), thousands(all), thousands(characters))
	out := append(begin, mark)
	for k := len(end) - 1; k >= 0; k-- {
		out = append(out, end[k])
	}
	return out, bytes
}

// first returns the first n characters of s, and last the last n.
func first(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func last(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

package mcpserver

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/broker"
)

// artifactTokens is what a file takes in an answer besides its path and address,
// about.
const artifactTokens = 12

// leftOut counts what an answer does not show of a result.
type leftOut struct{ lines, characters int }

func (l leftOut) String() string {
	characters := thousands(l.characters) + " characters"
	switch l.lines {
	case 0:
		return characters
	case 1:
		return "1 line and " + characters
	}
	return thousands(l.lines) + " lines and " + characters
}

func (l *leftOut) add(lost broker.Dropped) {
	l.lines += max(int(lost.Lines), 0) // -1 for a part of a line
	l.characters += int(lost.Characters)
}

// shorten returns a result that has at most limit tokens, about, and what was left
// out. Notes have a quarter of them at most; the error, the summary and the names of
// files an eighth each. Output has the rest, with its beginning and its end. Standard
// error, which tells why code failed, gets what standard output does not need, and a
// quarter of the room at least.
func shorten(r *broker.Result, limit int) (*broker.Result, leftOut) {
	c := *r
	var cut leftOut
	c.Error = shortenText(r.Error, limit/8, &cut)
	c.Summary = shortenText(r.Summary, limit/8, &leftOut{}) // the error, or less
	c.Notes = shortenNotes(r.Notes, limit/4, &cut)
	named := 0
	for room := limit / 8; named < len(r.Artifacts); named++ {
		a := &r.Artifacts[named]
		if room -= tokens(a.Path) + tokens(a.URI) + artifactTokens; room < 0 {
			break
		}
	}
	if unnamed := len(r.Artifacts) - named; unnamed > 0 {
		c.Artifacts = r.Artifacts[:named]
		c.Notes = append(c.Notes, fmt.Sprintf("more new files that are not named here: %s", thousands(unnamed)))
	}
	room := limit - tokens(c.Error)
	for _, n := range c.Notes {
		room -= tokens(n) + 1
	}
	for _, a := range c.Artifacts {
		room -= tokens(a.Path) + artifactTokens
	}
	var sum broker.Truncated
	out, err := measure(r.Stdout, room), measure(r.Stderr, room)
	errRoom := min(err, max(room/4, room-out))
	c.Stdout, sum.Stdout = middle(r.Stdout, out, room-errRoom, r.Dropped[0], &cut)
	c.Stderr, sum.Stderr = middle(r.Stderr, err, errRoom, r.Dropped[1], &cut)
	if sum != (broker.Truncated{}) {
		if r.Truncated != nil {
			sum.Stdout += r.Truncated.Stdout
			sum.Stderr += r.Truncated.Stderr
		}
		c.Truncated = &sum
	}
	return &c, cut
}

// shortenText leaves out the end of s if that has more than limit tokens.
func shortenText(s string, limit int, cut *leftOut) string {
	part := first(s, limit)
	if len(part) == len(s) {
		return s
	}
	left := utf8.RuneCountInString(s[len(part):])
	cut.characters += left
	return part + fmt.Sprintf(" [… %s characters left out …]", thousands(left))
}

// shortenNotes leaves out the ends of long notes, and those notes that come after
// as many as fit.
func shortenNotes(notes []string, limit int, cut *leftOut) []string {
	short := make([]string, 0, len(notes)+3)
	room := limit
	for i, n := range notes {
		var left leftOut
		n = shortenText(n, limit/3, &left)
		if room -= tokens(n); room < 0 {
			for _, n := range notes[i:] {
				cut.characters += utf8.RuneCountInString(n)
			}
			return append(short, fmt.Sprintf("more notes that are left out: %s", thousands(len(notes)-i)))
		}
		cut.characters += left.characters
		short = append(short, n)
	}
	return short
}

// measure counts the tokens of lines, their ends included, until there are more
// than limit.
func measure(lines []string, limit int) int {
	n := 0
	for _, line := range lines {
		if n += lineTokens(line, limit-n); n > limit {
			break
		}
	}
	return n
}

// lineTokens counts the tokens of a line and of its end, or returns more than limit.
func lineTokens(line string, limit int) int {
	if c := count(line, limit); c.end == len(line) {
		return c.tokens + 1
	}
	return max(limit, 0) + 1
}

// middle leaves out the middle of lines with size tokens, so that about room of
// them stay: three fifths from the beginning, the rest from the end. A line of which
// a part stays does not count as left out. It returns the
// lines, with a mark where some are missing, and how many bytes are missing. lost is
// what the lines themselves have a mark for.
func middle(lines []string, size, room int, lost broker.Dropped, cut *leftOut) ([]string, int64) {
	if size <= room {
		cut.add(lost)
		return lines, 0
	}
	head, tail := room*3/5, room-room*3/5
	var begin, end []string
	i, j := 0, len(lines)
	for ; i < j; i++ {
		n := lineTokens(lines[i], head)
		if n > head {
			break
		}
		begin, head = append(begin, lines[i]), head-n
	}
	for ; j > i; j-- {
		n := lineTokens(lines[j-1], tail)
		if n > tail {
			break
		}
		end, tail = append(end, lines[j-1]), tail-n
	}
	missing := lines[i:j]
	// What is left of the room goes to parts of long lines.
	const part = 50 // tokens that are worth a line of their own
	var from, to string
	if len(missing) > 0 && head >= part {
		from = first(missing[0], head)
		begin = append(begin, from+"…")
	}
	if k := len(missing); k > 0 && tail >= part {
		to = missing[k-1]
		if k == 1 {
			to = to[len(from):]
		}
		to = last(to, tail)
		end = append(end, "…"+to)
	}
	characters, bytes := -utf8.RuneCountInString(from)-utf8.RuneCountInString(to), int64(-len(from)-len(to))
	for _, line := range missing {
		characters += utf8.RuneCountInString(line) + 1
		bytes += int64(len(line)) + 1
	}
	parts := 0 // lines of which a part stays, with their end
	if from != "" || to != "" {
		parts = 1
	}
	if from != "" && to != "" && len(missing) > 1 {
		parts = 2
	}
	characters, bytes = characters-parts, bytes-int64(parts)
	left, all := len(missing)-parts, len(lines)
	if lost != (broker.Dropped{}) {
		all += int(lost.Lines) - 1
		if i := slices.IndexFunc(missing, broker.IsMarker); i >= 0 {
			left += int(lost.Lines) - 1
			characters += int(lost.Characters) - utf8.RuneCountInString(missing[i]) - 1
		} else {
			cut.add(lost)
		}
	}
	left = max(left, 0)
	cut.lines += left
	cut.characters += characters
	mark := fmt.Sprintf("[… %s characters left out …]", thousands(characters))
	if left > 0 {
		mark = fmt.Sprintf("[… %s of %s lines, %s characters left out …]", thousands(left), thousands(all), thousands(characters))
	}
	out := append(begin, mark)
	for k := len(end) - 1; k >= 0; k-- {
		out = append(out, end[k])
	}
	return out, bytes
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

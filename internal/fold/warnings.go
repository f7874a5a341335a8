package fold

import (
	"fmt"
	"hash/maphash"
	"strings"
)

const (
	// leastWarnings is how many characters a stream has before warnings in it are
	// folded.
	leastWarnings = 1000
	// manyAlike and manySame are how many warnings that differ in numbers alone, and
	// how many messages that do not differ, are folded.
	manyAlike, manySame = 5, 10
	// shortest is how long a message is at least.
	shortest = 20
)

// message is a line that is not indented, with the indented ones after it.
type message struct {
	from, to int
	kind     uint64 // equal for those that are folded together; 0: it is kept
	warning  bool
}

// warnings leaves out messages like an earlier one, and says so after that one.
// Tracebacks are kept. It returns how many lines it left out.
func warnings(lines []string) (folded []string, left int) {
	if characters(lines) < leastWarnings {
		return lines, 0
	}
	seed := maphash.MakeSeed()
	messages := parse(lines)
	count := map[uint64]int{}
	for i := range messages {
		m := &messages[i]
		if i > 0 && traceback(lines[messages[i-1].from]) || !m.foldable(lines) {
			continue
		}
		m.kind = m.digest(lines, seed)
		count[m.kind]++
	}
	var out []string
	for _, m := range messages {
		n := count[m.kind]
		switch {
		case m.kind == 0 || n > 0 && n < manyAlike || n > 0 && n < manySame && !m.warning:
			out = append(out, lines[m.from:m.to]...)
		case n > 0: // the first one
			out = append(out, lines[m.from:m.to]...)
			what := "more such messages, between other lines"
			if m.warning {
				what = "more such warnings; they may differ in numbers"
			}
			out = append(out, fmt.Sprintf("%s%d %s, left out …]", mark, n-1, what))
			count[m.kind] = -1
		default:
			left += m.to - m.from
		}
	}
	if left == 0 {
		return lines, 0
	}
	return out, left
}

func parse(lines []string) []message {
	var messages []message
	for i, line := range lines {
		more := line == "" || line[0] == ' ' || line[0] == '\t' || strings.HasPrefix(line, mark)
		if n := len(messages); n > 0 && more {
			messages[n-1].to = i + 1
			continue
		}
		messages = append(messages, message{from: i, to: i + 1})
	}
	return messages
}

func traceback(line string) bool { return strings.HasPrefix(line, "Traceback (") }

// foldable reports whether a message may be left out where an earlier one is like
// it.
func (m *message) foldable(lines []string) bool {
	first := lines[m.from]
	m.warning = strings.Contains(first, "arning") || strings.Contains(first, "WARN") || strings.Contains(first, "warn")
	return len(first) >= shortest && !traceback(first) && !strings.HasSuffix(first, "exception occurred:") &&
		!strings.HasSuffix(first, "the following exception:")
}

// digest tells messages from others. Those of warnings have numbers, names that have
// digits, and names of characters replaced by one sign.
func (m *message) digest(lines []string, seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, line := range lines[m.from:m.to] {
		if m.warning {
			form(&h, line)
		} else {
			_, _ = h.WriteString(line)
		}
		_ = h.WriteByte('\n')
	}
	return max(1, h.Sum64())
}

// form writes a line without what differs between warnings of one form.
func form(h *maphash.Hash, line string) {
	const name = `\N{` // matplotlib names the characters that a font does not have
	for i := 0; i < len(line); {
		if rest, ok := strings.CutPrefix(line[i:], name); ok {
			if end := strings.IndexByte(rest[:min(len(rest), 100)], '}'); end >= 0 {
				_ = h.WriteByte('#')
				i += len(name) + end + 1
				continue
			}
		}
		j, digits := i, false
		for ; j < len(line); j++ {
			c := line[j]
			if c >= '0' && c <= '9' {
				digits = true
			} else if c|0x20 < 'a' || c|0x20 > 'z' {
				break
			}
		}
		switch {
		case j == i:
			_ = h.WriteByte(line[i])
			j++
		case digits:
			_ = h.WriteByte('#')
		default:
			_, _ = h.WriteString(line[i:j])
		}
		i = j
	}
}

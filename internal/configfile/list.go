package configfile

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/sallyport/sallyport/internal/settings"
)

// Insert returns the content with an item more in the list that key has, before the
// one at an index. The item is a section, a line for each of its keys. A list that
// is not there is added.
func Insert(content []byte, key string, index int, item []string) ([]byte, error) {
	return asWritten(content, func(content []byte) ([]byte, error) { return insert(content, key, index, item) })
}

func insert(content []byte, key string, index int, item []string) ([]byte, error) {
	l, err := readList(content, key)
	if err != nil {
		return nil, err
	}
	flow := "[{" + strings.Join(item, ", ") + "}]"
	switch {
	case l.body == nil:
		return l.verified(withLines(content, block(key, item, 0)))
	case l.at.pair != nil && len(l.starts) > 0:
		line := l.ends[len(l.ends)-1] + 1
		if index < len(l.starts) {
			line = l.above(index)
		}
		return l.verified(afterLine(content, line-1, block("", item, l.column-1)))
	case l.at.pair != nil && l.null():
		pos := l.at.pair.Key.GetToken().Position
		return l.verified(afterLine(content, pos.Line, block("", item, pos.Column+1)))
	case l.at.pair != nil:
		return nil, ErrByHand // on one line
	case l.at.empty != nil:
		pos := l.at.empty.Key.GetToken().Position
		return l.verified(afterLine(content, pos.Line, block(l.at.under, item, pos.Column+1)))
	case l.body.IsFlowStyle || l.at.section.IsFlowStyle:
		return set(content, key, flow)
	case l.at.section == l.body:
		return l.verified(withLines(content, block(key, item, 0)))
	}
	first, last := l.at.section.Values[0].Key.GetToken().Position, l.at.section.Values[len(l.at.section.Values)-1]
	line := l.at.holder.Key.GetToken().Position.Line + 1
	if scalar, ok := last.Value.(ast.ScalarNode); ok && scalar.Type() != ast.LiteralType {
		line = scalar.GetToken().Position.Line + 1
	}
	return l.verified(afterLine(content, line-1, block(l.at.under, item, first.Column-1)))
}

// Move returns the content with the item at an index of a list before the one at
// another index, which is lower. The comments above it go with it.
func Move(content []byte, key string, from, to int) ([]byte, error) {
	return asWritten(content, func(content []byte) ([]byte, error) { return move(content, key, from, to) })
}

func move(content []byte, key string, from, to int) ([]byte, error) {
	l, err := readList(content, key)
	if err != nil {
		return nil, err
	}
	if max(from, to) >= len(l.starts) {
		return nil, ErrByHand
	}
	lines := strings.SplitAfter(string(content), "\n")
	if last := &lines[len(lines)-1]; *last != "" {
		*last += "\n"
	}
	first, last, before := l.above(from)-1, l.ends[from], l.above(to)-1
	moved := slices.Concat(lines[:before], lines[first:last], lines[before:first], lines[last:])
	return l.verified([]byte(strings.Join(moved, "")))
}

// ReplaceWord returns the content with another value of a key of an item.
func ReplaceWord(content []byte, key string, index int, name, word string) ([]byte, error) {
	return asWritten(content, func(content []byte) ([]byte, error) { return replaceWord(content, key, index, name, word) })
}

func replaceWord(content []byte, key string, index int, name, word string) ([]byte, error) {
	l, err := readList(content, key)
	if err != nil {
		return nil, err
	}
	if index >= len(l.items) {
		return nil, ErrByHand
	}
	for _, p := range settings.PairsOf(l.items[index]) {
		value := p.Value.GetToken()
		if p.Key.GetToken().Value != name {
			continue
		}
		lines := strings.SplitAfter(string(content), "\n")
		at := p.Key.GetToken().Position
		if value.Position.Line != at.Line || at.Line > len(lines) {
			return nil, ErrByHand
		}
		runes := []rune(lines[at.Line-1])
		head, tail := string(runes[:at.Column-1]), string(runes[at.Column-1:])
		old := regexp.MustCompile(`^(["']?` + regexp.QuoteMeta(name) + `["']?\s*:\s*["']?)` + regexp.QuoteMeta(value.Value) + `\b`)
		if !old.MatchString(tail) {
			return nil, ErrByHand
		}
		lines[at.Line-1] = head + old.ReplaceAllString(tail, "${1}"+word)
		return l.verified([]byte(strings.Join(lines, "")))
	}
	return nil, ErrByHand
}

// list is where the list of a key is in content. Lines are counted from 1.
type list struct {
	content []byte
	key     string
	body    *ast.MappingNode // nil: there are no settings
	at      spot
	items   []ast.Node
	// starts and ends are the first and the last line of each item, of a list that
	// has a line for each.
	starts, ends []int
	column       int // of the dashes
}

func readList(content []byte, key string) (*list, error) {
	_, body, err := parse(content)
	if err != nil {
		return nil, err
	}
	l := &list{content: content, key: key, body: body}
	if body == nil {
		return l, nil
	}
	l.at = find(body, key)
	if l.at.pair == nil {
		return l, nil
	}
	seq, ok := l.at.pair.Value.(*ast.SequenceNode)
	if !ok {
		return l, nil
	}
	if l.items = seq.Values; seq.IsFlowStyle || len(seq.Values) == 0 {
		return l, nil
	}
	l.column = seq.Start.Position.Column
	for _, t := range lexer.Tokenize(string(content)) {
		if t.Type == token.SequenceEntryType && t.Position.Column == l.column && t.Position.Line >= seq.Start.Position.Line && len(l.starts) < len(l.items) {
			l.starts = append(l.starts, t.Position.Line)
		}
	}
	if len(l.starts) != len(l.items) {
		return nil, ErrByHand
	}
	lines := strings.Split(string(content), "\n")
	for i, start := range l.starts {
		stop := len(lines) + 1
		if i+1 < len(l.starts) {
			stop = l.starts[i+1]
		}
		end := start
		for n := start + 1; n < stop; n++ {
			text := strings.TrimSpace(lines[n-1])
			indent := len(lines[n-1]) - len(strings.TrimLeft(lines[n-1], " "))
			switch deeper := indent >= l.column; {
			case text != "" && deeper:
				end = n
			case text != "" && !strings.HasPrefix(text, "#"):
				stop = n
			}
		}
		l.ends = append(l.ends, end)
	}
	return l, nil
}

// null reports whether the key has no value.
func (l *list) null() bool {
	_, null := l.at.pair.Value.(*ast.NullNode)
	return null || l.at.pair.Value == nil
}

// above returns the first line of an item, with the comments right above it.
func (l *list) above(index int) int {
	lines := strings.Split(string(l.content), "\n")
	n := l.starts[index]
	for n > 1 && strings.HasPrefix(strings.TrimSpace(lines[n-2]), "#") && n-1 > l.at.pair.Key.GetToken().Position.Line {
		n--
	}
	if index > 0 {
		n = max(n, l.ends[index-1]+1)
	}
	return n
}

// verified returns the content after a change of the list, if nothing else changed.
func (l *list) verified(after []byte) ([]byte, error) { return verify(l.content, after, l.key, false) }

// block returns lines for a key with a list of one item, indented, or for the item
// alone.
func block(key string, item []string, indent int) string {
	var b strings.Builder
	if key != "" {
		b.WriteString(strings.TrimSuffix(snippet(key, "", indent), " \n") + "\n")
		indent += 2 * (strings.Count(key, ".") + 1)
	}
	for i, line := range item {
		dash := "  "
		if i == 0 {
			dash = "- "
		}
		b.WriteString(strings.Repeat(" ", indent) + dash + line + "\n")
	}
	return b.String()
}

package settings

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An Entry is one setting as it is in force.
type Entry struct {
	Key string `json:"key"`
	// Value is a text, a number, true or false, or a list of texts. An empty
	// text or list: nothing is set.
	Value     any      `json:"value"`
	Origin    Origin   `json:"origin"`
	Variables []string `json:"variables"` // that set it, the one that wins last
	text      string   // Value as a configuration file has it
}

// File says which configuration file was looked for, and whether it was there.
func (s *Settings) File() File { return s.file }

// Origin says where the value of a setting came from. The key must exist.
func (s *Settings) Origin(key string) Origin {
	i := slices.IndexFunc(s.entries, func(e *setting) bool { return e.key == key })
	return s.entries[i].origin
}

// Entries lists all settings in the order of the documentation. Secrets are not
// shown.
func (s *Settings) Entries() []Entry {
	out := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		out = append(out, Entry{
			Key: e.key, Value: e.value.data(), Origin: e.origin, Variables: e.variables(), text: fileText(e.value),
		})
	}
	return out
}

// YAML prints the settings in force as a configuration file that would give
// the same, with a comment that says where each came from.
func (s *Settings) YAML() string {
	type row struct{ text, comment string }
	var rows []row
	var open []string // sections that the last key stands in
	for _, e := range s.Entries() {
		parts := strings.Split(e.Key, ".")
		sections, name := parts[:len(parts)-1], parts[len(parts)-1]
		same := 0
		for same < len(sections) && same < len(open) && sections[same] == open[same] {
			same++
		}
		for depth := same; depth < len(sections); depth++ {
			rows = append(rows, row{text: strings.Repeat("  ", depth) + sections[depth] + ":"})
		}
		open = sections
		line := strings.Repeat("  ", len(sections)) + name + ": " + e.text
		if e.text == "" {
			line = strings.Repeat("  ", len(sections)) + "# " + name + ":"
		}
		rows = append(rows, row{line, e.Origin.String()})
	}
	width := 0
	for _, r := range rows {
		if len(r.text) <= 40 {
			width = max(width, len(r.text))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r.text)
		if r.comment != "" {
			b.WriteString(strings.Repeat(" ", max(0, width-len(r.text))) + "  # " + oneLine(r.comment))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fileText is a value as a configuration file has it; empty: nothing is set.
func fileText(v value) string {
	switch d := v.data().(type) {
	case []string:
		parts := make([]string, len(d))
		for i, p := range d {
			parts[i] = quoteYAML(p)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if d == shown && v.kind() == "secret" {
			return "" // a comment: the file would not give the same
		}
		switch v.kind() {
		case "size", "duration", "word", "number", "whole number":
			return d // of our own making, and never special in YAML
		}
		if d == "" {
			return ""
		}
		return quoteYAML(d)
	default:
		return fmt.Sprint(d)
	}
}

// plain matches texts that are the same without quotes.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// special are words that some version of YAML reads as something else.
var special = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}

func quoteYAML(s string) string {
	if plain.MatchString(s) && !slices.Contains(special, strings.ToLower(s)) {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // cannot happen: a text
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// oneLine keeps a comment in its line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, s)
}

package settings

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// An Entry describes one setting in force.
type Entry struct {
	Key string `json:"key"`
	// Value is a string, a number, a boolean or a list of strings. An empty string
	// or list means that nothing is set.
	Value     any      `json:"value"`
	Origin    Origin   `json:"origin"`
	Variables []string `json:"variables"` // all variables that set it; the last one wins
	// Ignored has variables and flags that would have made the setting weaker.
	Ignored []Ignored `json:"ignored,omitempty"`
	text    string    // Value as a configuration file would have it
}

// File returns which configuration file was looked for, and whether it was
// read.
func (s *Settings) File() File { return s.file }

// Origin returns where the value of a setting came from. The key must exist.
func (s *Settings) Origin(key string) Origin { return s.setting(key).origin }

// setting returns a setting, also one of an environment that does not have it.
func (s *Settings) setting(key string) *setting {
	if i := slices.IndexFunc(s.entries, func(e *setting) bool { return e.key == key }); i >= 0 {
		return s.entries[i]
	}
	l := newLoader(&Settings{}, "", "")
	l.declareFor(key)
	return l.settings[key]
}

// Entries lists all settings in the order of the documentation. It does not
// show secrets.
func (s *Settings) Entries() []Entry {
	out := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		out = append(out, e.entry())
	}
	return out
}

// Fingerprint returns what tells these settings from others: their values as text
// by key, without the keys that skip reports. A secret is a digest of it.
func (s *Settings) Fingerprint(skip func(key string) bool) map[string]string {
	out := map[string]string{}
	for _, e := range s.entries {
		if skip(e.key) {
			continue
		}
		out[e.key] = fileText(e.value)
		if v, ok := e.value.(*secretValue); ok && *v.field != "" {
			out[e.key] = fmt.Sprintf("a secret (%.8x)", sha256.Sum256([]byte(*v.field)))
		}
	}
	return out
}

// Entry returns a setting. The key must exist.
func (s *Settings) Entry(key string) Entry { return s.setting(key).entry() }

func (s *setting) entry() Entry {
	return Entry{
		Key: s.key, Value: s.value.data(), Origin: s.origin, Variables: s.variables(), Ignored: s.ignored, text: fileText(s.value),
	}
}

// A Description is what a setting's declaration says.
type Description struct {
	Key, Help string
	Kind      string   // "size", "list", …
	Choices   []string // the values that are words, if there are few
	FileOnly  bool     // no variable or flag sets it
}

// Describe describes all settings, in the order of the documentation.
func Describe() []Description {
	var s Settings
	newLoader(&s, "", "")
	out := make([]Description, 0, len(s.entries))
	for _, e := range s.entries {
		d := Description{Key: e.key, Help: e.help, Kind: e.value.kind(), FileOnly: e.fileOnly}
		if few, ok := e.value.(interface{ all() []string }); ok {
			d.Choices = few.all()
		}
		out = append(out, d)
	}
	return out
}

// YAML formats the settings in force as a configuration file that would give
// the same result, with a comment on where each came from.
func (s *Settings) YAML() string {
	type row struct{ text, comment string }
	var rows []row
	var open []string // sections that the last key is in
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
		comment := e.Origin.String()
		for _, i := range e.Ignored {
			comment += "; " + i.Origin.String() + " says " + i.Value + ", which is weaker and ignored"
		}
		rows = append(rows, row{line, comment})
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

// fileText formats a value as in a configuration file. It is empty if nothing
// is set.
func fileText(v value) string {
	switch d := v.data().(type) {
	case []string:
		parts := make([]string, len(d))
		for i, p := range d {
			parts[i] = QuoteYAML(p)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if d == shown && v.kind() == "secret" {
			return "" // a comment: the file would not give the same value
		}
		switch v.kind() {
		case "size", "duration", "word", "number", "whole number":
			return d // our own output, never special in YAML
		}
		if d == "" {
			return ""
		}
		return QuoteYAML(d)
	default:
		return fmt.Sprint(d)
	}
}

// plain matches strings that mean the same without quotes.
var plain = lazyregexp.New(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// special lists words that some version of YAML reads as something else.
var special = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}

// QuoteYAML returns a string as YAML on one line, in quotes where it needs them.
func QuoteYAML(s string) string {
	if plain().MatchString(s) && !slices.Contains(special, strings.ToLower(s)) {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // cannot happen with a string
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// oneLine keeps a comment on its line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, s)
}

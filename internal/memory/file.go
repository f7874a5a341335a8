package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// file is an entry as it is read: what a person leaves out shows.
type file struct {
	Key       *string         `json:"key"`
	Metadata  json.RawMessage `json:"metadata"`
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
	Value     json.RawMessage `json:"value"`
}

// decode reads a file. The value's bytes are the file's own: whole numbers
// beyond 2^53 and the order of members stay.
func decode(data []byte) (Entry, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Entry{}, fmt.Errorf("%w: it is not the JSON of a memory", ErrBroken)
	}
	if f.Key == nil || f.Value == nil || !utf8.Valid(data) {
		return Entry{}, fmt.Errorf("%w: key or value is missing", ErrBroken)
	}
	if len(f.Metadata) == 0 || string(f.Metadata) == "null" {
		f.Metadata = json.RawMessage("{}")
	}
	if !isObject(f.Metadata) {
		return Entry{}, fmt.Errorf("%w: its metadata are no object", ErrBroken)
	}
	return Entry{
		Key: *f.Key, Metadata: f.Metadata, CreatedAt: f.CreatedAt, UpdatedAt: f.UpdatedAt, Value: f.Value,
		Version: versionOf(data),
	}, nil
}

// encode writes a file for people: over several lines, and letters as they are.
func encode(e Entry) ([]byte, error) {
	e.Value, e.Metadata = Plain(e.Value), Plain(e.Metadata)
	var b bytes.Buffer
	b.WriteString("{")
	for i, m := range []struct {
		name string
		text any
	}{{"key", e.Key}, {"metadata", e.Metadata}, {"created_at", e.CreatedAt}, {"updated_at", e.UpdatedAt}, {"value", e.Value}} {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n  %q: ", m.name)
		switch v := m.text.(type) {
		case string:
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(v); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1) // its line end
		case json.RawMessage:
			var err error
			if len(v)*(2*depth(v)+3) <= maxIndented {
				err = json.Indent(&b, v, "  ", "  ")
			} else {
				err = json.Compact(&b, v)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %s is not JSON", ErrInvalid, m.name)
			}
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}

// depth is how deep the arrays and objects of a JSON text are nested.
func depth(raw json.RawMessage) int {
	deepest, d, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == '[', c == '{':
			d++
			deepest = max(deepest, d)
		case c == ']', c == '}':
			d--
		}
	}
	return deepest
}

// Plain turns the escapes of letters in a JSON text into these letters. A half
// of a surrogate pair stays as it is: Python has such texts, and UTF-8 has not.
func Plain(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			i++
			continue
		}
		r, n := escaped(raw[i:])
		if n > 0 && r >= 0xA0 && r != 0x2028 && r != 0x2029 && r != 0xFEFF {
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		out = append(out, raw[i], raw[i+1]) // \" and \\ stay whole
		i += 2
	}
	return out
}

// escaped is the character that a text beginning with \u stands for, and the
// length of its escape; 0 where it is none, or half of one.
func escaped(raw []byte) (rune, int) {
	first, ok := unit(raw)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(first) {
		return first, 6
	}
	if second, ok := unit(raw[6:]); ok {
		if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
			return r, 12
		}
	}
	return 0, 0
}

// unit reads \uXXXX.
func unit(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

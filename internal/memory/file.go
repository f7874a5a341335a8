package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/store/keyed"
)

// file is an entry as it is read; fields that the user has left out are visible
// as such.
type file struct {
	Key       *string         `json:"key"`
	Metadata  json.RawMessage `json:"metadata"`
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
	Value     json.RawMessage `json:"value"`
}

// decode reads a file. The bytes of the value are kept: integers beyond 2^53
// and the order of members are preserved.
func decode(data []byte) (Entry, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Entry{}, fmt.Errorf("%w: it is not the JSON of a memory", keyed.ErrBroken)
	}
	if f.Key == nil || f.Value == nil || !utf8.Valid(data) {
		return Entry{}, fmt.Errorf("%w: key or value is missing", keyed.ErrBroken)
	}
	if len(f.Metadata) == 0 || string(f.Metadata) == "null" {
		f.Metadata = json.RawMessage("{}")
	}
	if !isObject(f.Metadata) {
		return Entry{}, fmt.Errorf("%w: its metadata is not an object", keyed.ErrBroken)
	}
	return Entry{Key: *f.Key, Metadata: f.Metadata, CreatedAt: f.CreatedAt, UpdatedAt: f.UpdatedAt, Value: f.Value}, nil
}

// listed leaves out the value.
func listed(e Entry) (Entry, int64) {
	const more = 500
	e.Value = nil
	return e, int64(len(e.Key) + len(e.Metadata) + more)
}

// encode writes a readable file: on several lines, and with letters unescaped.
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

// depth returns how deeply the arrays and objects of a JSON document are
// nested.
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

// Plain replaces the escapes of letters in JSON by the letters. Half of a
// surrogate pair stays escaped: Python strings may have one, and UTF-8 may not.
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

// escaped decodes the escape at the beginning of raw, which starts with \u. It
// returns the character and the length of the escape; 0 if it is invalid, or
// half of a pair.
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

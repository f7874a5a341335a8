// Package jsonscan validates JSON and cuts it into its parts without decoding
// it. Values stay the bytes that arrived, so that the order of members and
// integers beyond 2^53 survive.
//
// The scanner accepts the grammar that encoding/json accepts, does not recurse,
// and looks at each byte once.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"strings"
)

// maxNesting is the deepest nesting that the scanner accepts; encoding/json
// has the same bound.
const maxNesting = 10000

// ErrNesting reports a value that nests deeper than any honest one.
var ErrNesting = errors.New("nested too deeply")

var errSyntax = errors.New("not valid JSON")

// Valid reports whether data is exactly one JSON value. Like encoding/json it
// does not check the UTF-8 inside strings.
func Valid(data []byte) bool {
	end, _, err := skipValue(data, skipSpace(data, 0), maxNesting)
	return err == nil && onlySpace(data, end) == nil
}

// TrimMark removes a byte order mark, with which some programs begin text.
func TrimMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// End returns where the JSON value ends that data begins with. What follows it
// does not matter.
func End(data []byte) (int, bool) {
	end, _, err := skipValue(data, skipSpace(data, 0), maxNesting)
	return end, err == nil
}

// Kind returns the first byte of the JSON value in data: '{', '[', '"', 't', 'f',
// 'n', '-' or a digit, and 0 when data is empty.
func Kind(data []byte) byte {
	if i := skipSpace(data, 0); i < len(data) {
		return data[i]
	}
	return 0
}

// Members calls yield for each member of the object in data, in the order in
// which they stand there, with the decoded key and the raw value, until yield
// returns false. It fails when data is not exactly one JSON object; yield has
// then been called for the members before the fault.
func Members(data []byte, yield func(key string, value json.RawMessage) bool) error {
	_, err := RawMembers(data, func(key, value []byte) bool {
		name, ok := Unquote(key)
		return ok && yield(name, json.RawMessage(value))
	})
	return err
}

// Elements does for an array what Members does for an object.
func Elements(data []byte, yield func(value json.RawMessage) bool) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '[' {
		return errSyntax
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == ']' {
		return onlySpace(data, i+1)
	}
	for {
		i = skipSpace(data, i)
		start := i
		var err error
		if i, _, err = skipValue(data, i, maxNesting-1); err != nil {
			return err
		}
		if !yield(json.RawMessage(data[start:i:i])) {
			return nil
		}
		i = skipSpace(data, i)
		if i >= len(data) {
			return errSyntax
		}
		switch data[i] {
		case ',':
			i++
		case ']':
			return onlySpace(data, i+1)
		default:
			return errSyntax
		}
	}
}

// RawMembers is Members with keys as they stand in data, with their quotes and
// escapes ([Unquote] decodes one). It returns how deep the object nests, itself
// included.
func RawMembers(data []byte, yield func(key, value []byte) bool) (depth int, err error) {
	depth = 1
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return 0, errSyntax
	}
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		return depth, onlySpace(data, i+1)
	}
	for {
		i = skipSpace(data, i)
		if i >= len(data) || data[i] != '"' {
			return 0, errSyntax
		}
		key := i
		if i, err = skipString(data, i+1); err != nil {
			return 0, err
		}
		keyEnd := i
		i = skipSpace(data, i)
		if i >= len(data) || data[i] != ':' {
			return 0, errSyntax
		}
		i = skipSpace(data, i+1)
		value, inner := i, 0
		if i, inner, err = skipValue(data, i, maxNesting-1); err != nil {
			return 0, err
		}
		depth = max(depth, inner+1)
		if !yield(data[key:keyEnd:keyEnd], data[value:i:i]) {
			return depth, nil
		}
		i = skipSpace(data, i)
		if i >= len(data) {
			return 0, errSyntax
		}
		switch data[i] {
		case ',':
			i++
		case '}':
			return depth, onlySpace(data, i+1)
		default:
			return 0, errSyntax
		}
	}
}

// skipValue returns the end of the value that starts at i and how deep it
// nests (0 for a scalar). It does not recurse: a bit per level says what is open.
func skipValue(data []byte, i, limit int) (end, depth int, err error) {
	const object = 1
	var (
		first uint64 // the 64 outermost levels, enough for all honest input
		rest  []uint64
		level int
	)
	push := func(kind uint64) bool {
		if level >= limit {
			return false
		}
		if level < 64 {
			first = first&^(1<<level) | kind<<level
		} else {
			word, bit := (level-64)/64, (level-64)%64
			if word == len(rest) {
				rest = append(rest, 0)
			}
			rest[word] = rest[word]&^(1<<bit) | kind<<bit
		}
		level++
		depth = max(depth, level)
		return true
	}
	inObject := func() bool {
		top := level - 1
		if top < 64 {
			return first>>top&1 == object
		}
		return rest[(top-64)/64]>>((top-64)%64)&1 == object
	}

	for {
		// A value starts at i.
		if i >= len(data) {
			return 0, 0, errSyntax
		}
		closed := true
		switch c := data[i]; c {
		case '"':
			i, err = skipString(data, i+1)
		case '{', '[':
			kind := uint64(0)
			if c == '{' {
				kind = object
			}
			if !push(kind) {
				return 0, 0, ErrNesting
			}
			i = skipSpace(data, i+1)
			if i < len(data) && data[i] == c+2 { // '}' is '{'+2, ']' is '['+2
				level--
				i++
			} else {
				closed = false
			}
		case 't':
			i, err = skipLiteral(data, i, "true")
		case 'f':
			i, err = skipLiteral(data, i, "false")
		case 'n':
			i, err = skipLiteral(data, i, "null")
		default:
			i, err = skipNumber(data, i)
		}
		if err != nil {
			return 0, 0, err
		}
		// After a value: close what ends here, then find the next one.
		for closed {
			if level == 0 {
				return i, depth, nil
			}
			i = skipSpace(data, i)
			if i >= len(data) {
				return 0, 0, errSyntax
			}
			switch isObject := inObject(); {
			case data[i] == ',':
				i = skipSpace(data, i+1)
				closed = false
			case isObject && data[i] == '}', !isObject && data[i] == ']':
				level--
				i++
			default:
				return 0, 0, errSyntax
			}
		}
		if inObject() {
			if i >= len(data) || data[i] != '"' {
				return 0, 0, errSyntax
			}
			if i, err = skipString(data, i+1); err != nil {
				return 0, 0, err
			}
			i = skipSpace(data, i)
			if i >= len(data) || data[i] != ':' {
				return 0, 0, errSyntax
			}
			i = skipSpace(data, i+1)
		}
	}
}

// skipString returns the index after the closing quote of the string whose
// content starts at i. It looks at eight bytes in one step.
func skipString(data []byte, i int) (int, error) {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for {
		for i+8 <= len(data) {
			v := binary.LittleEndian.Uint64(data[i:])
			quote, slash := v^(ones*'"'), v^(ones*'\\')
			// The lowest set bit marks the first byte that is a quote, a
			// backslash or a control character. Bits above it may be false.
			stop := ((quote-ones)&^quote | (slash-ones)&^slash | (v-ones*0x20)&^v) & highs
			if stop != 0 {
				i += bits.TrailingZeros64(stop) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			return 0, errSyntax
		}
		switch c := data[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			if i+1 >= len(data) {
				return 0, errSyntax
			}
			switch data[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(data) || !isHex(data[i+2]) || !isHex(data[i+3]) || !isHex(data[i+4]) || !isHex(data[i+5]) {
					return 0, errSyntax
				}
				i += 6
			default:
				return 0, errSyntax
			}
		case c < 0x20:
			return 0, errSyntax
		default:
			i++
		}
	}
}

func skipNumber(data []byte, i int) (int, error) {
	if i < len(data) && data[i] == '-' {
		i++
	}
	switch {
	case i < len(data) && data[i] == '0':
		i++
	case i < len(data) && data[i] >= '1' && data[i] <= '9':
		i = skipDigits(data, i)
	default:
		return 0, errSyntax
	}
	if i < len(data) && data[i] == '.' {
		start := i + 1
		if i = skipDigits(data, start); i == start {
			return 0, errSyntax
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start := i
		if i = skipDigits(data, start); i == start {
			return 0, errSyntax
		}
	}
	return i, nil
}

func skipDigits(data []byte, i int) int {
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i
}

func skipLiteral(data []byte, i int, literal string) (int, error) {
	if len(data)-i < len(literal) || string(data[i:i+len(literal)]) != literal {
		return 0, errSyntax
	}
	return i + len(literal), nil
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

func onlySpace(data []byte, i int) error {
	if skipSpace(data, i) != len(data) {
		return errSyntax
	}
	return nil
}

// NumberKey returns the same for numbers that are equal, however they are written:
// an integer of at most 18 digits in its usual form. n is a valid JSON number.
func NumberKey(n []byte) string {
	text, exponent, _ := strings.Cut(strings.ToLower(string(n)), "e")
	shift := 0
	if exponent != "" {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil || shift > 1<<30 || shift < -1<<30 {
			return string(n) // no honest number
		}
	}
	text, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(text, ".")
	shift -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	shift += len(digits) - len(short)
	switch {
	case short == "":
		return "0"
	case shift >= 0 && len(short)+shift <= 18:
		short += strings.Repeat("0", shift)
	default:
		short += "e" + strconv.Itoa(shift)
	}
	if negative {
		return "-" + short
	}
	return short
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// Unquote decodes a string that the scanner has accepted.
func Unquote(quoted []byte) (string, bool) {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			var s string
			err := json.Unmarshal(quoted, &s)
			return s, err == nil
		}
	}
	return string(inner), true
}

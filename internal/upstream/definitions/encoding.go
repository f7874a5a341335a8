package definitions

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"unicode/utf16"
)

const byteOrderMark = "\xef\xbb\xbf"

// utf8Of returns the content of a file in UTF-8, without a byte order mark. Editors on
// Windows save UTF-16, which its mark shows beyond doubt; wide reports that.
func utf8Of(data []byte) (text []byte, wide bool) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(data, []byte(byteOrderMark)), false
	}
	units := make([]uint16, 0, len(data)/2)
	for pair := range slices.Chunk(data[2:], 2) {
		if len(pair) == 2 {
			units = append(units, order.Uint16(pair))
		}
	}
	return []byte(string(utf16.Decode(units))), true
}

// explained returns what is wrong with a file that is no JSON, in words for whoever
// wrote it, where the content shows it; otherwise what the parser says.
func explained(data []byte, err error) error {
	var bad *parseError
	if !errors.As(err, &bad) {
		return err
	}
	conflict := bytes.Index(append([]byte("\n"), data...), []byte("\n<<<<<<< "))
	trimmed := bytes.TrimSpace(data)
	lines := bytes.Split(data, []byte("\n"))
	line := lines[min(max(bad.line, 1), len(lines))-1]
	switch {
	case len(trimmed) == 0:
		return &parseError{1, "the file is empty"}
	case conflict >= 0:
		return &parseError{bytes.Count(data[:conflict], []byte("\n")) + 1, "a merge conflict that is not resolved"}
	case trimmed[0] == '<':
		return &parseError{1, "a page in HTML or XML, not JSON"}
	case bytes.IndexByte(data, 0) >= 0:
		return &parseError{1, "the file has NUL bytes, as UTF-16 has: save it as UTF-8"}
	case bad.reason == notUTF8:
		return &parseError{bad.line, notUTF8 + ": save the file as UTF-8"}
	case bytes.ContainsAny(line, "“”„‟″"):
		return &parseError{bad.line, `typographic quotes (“ ”): write " instead`}
	case bytes.ContainsAny(line, "'‘’") && bytes.IndexByte(line, '"') < 0:
		return &parseError{bad.line, `single quotes: write " instead`}
	case bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")):
		return &parseError{bad.line, "a comment begins with //, not with #"}
	case strings.HasSuffix(bad.reason, "in string escape code"):
		return &parseError{bad.line, `a backslash in a string: write \\ instead`}
	case strings.IndexByte(`{["/`, trimmed[0]) < 0:
		return &parseError{bad.line, "this is not JSON: " + bad.reason}
	}
	return err
}

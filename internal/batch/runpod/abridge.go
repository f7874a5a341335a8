package runpod

import (
	"bufio"
	"errors"
	"io"
)

// keptText is how much of a JSON string abridged keeps: more than any ID has.
const keptText = 256

// abridged reads JSON and cuts its long strings, so that a list of large jobs can
// be read without holding their files. It stops when more than limit is left.
func abridged(r io.Reader, limit int64) ([]byte, error) {
	from := bufio.NewReaderSize(r, 64<<10)
	var out []byte
	inText, size := false, 0
	for int64(len(out)) <= limit {
		c, err := from.ReadByte()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		unit := append(make([]byte, 0, 6), c)
		switch {
		case c == '"':
			inText, size = !inText, 0
			out = append(out, c)
			continue
		case inText && c == '\\': // an escape is kept whole or not at all
			more := 1
			if next, err := from.Peek(1); err == nil && next[0] == 'u' {
				more = len(`u1234`)
			}
			unit = unit[:1+more]
			if _, err := io.ReadFull(from, unit[1:]); err != nil {
				return nil, err
			}
		}
		if inText {
			if size += len(unit); size > keptText {
				continue
			}
		}
		out = append(out, unit...)
	}
	return out, nil
}

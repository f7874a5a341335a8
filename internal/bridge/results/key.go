package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Bounds of arguments whose results are kept. Each level is read once more.
const (
	maxArguments = 256 << 10 // bytes
	maxDepth     = 64
)

type digest [sha256.Size]byte

// digest reports false for arguments that are too large to compare.
func (k *Key) digest() (digest, bool) {
	if len(k.Arguments) > maxArguments {
		return digest{}, false
	}
	arguments := k.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	same, ok := canonical(nil, arguments, maxDepth)
	if !ok {
		return digest{}, false
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(k.Server), []byte(k.Owner), []byte(k.Tool), k.Form, same} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return digest(h.Sum(nil)), true
}

// canonical appends a value without spaces, and with the members of objects
// sorted. Strings and numbers stay as they are, down to the way they are written:
// what two programs may read differently is not the same here.
func canonical(to []byte, value json.RawMessage, depth int) ([]byte, bool) {
	if depth == 0 {
		return nil, false
	}
	ok, err := true, error(nil)
	switch jsonscan.Kind(value) {
	case '{':
		type member struct{ key, value []byte }
		var members []member
		_, err = jsonscan.RawMembers(value, func(key, value []byte) bool {
			members = append(members, member{key, value})
			return true
		})
		slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.key, b.key) })
		to = append(to, '{')
		for _, m := range members {
			to = append(append(to, m.key...), ':')
			if to, ok = canonical(to, m.value, depth-1); !ok {
				return nil, false
			}
			to = append(to, ',')
		}
		to = append(to, '}')
	case '[':
		to = append(to, '[')
		err = jsonscan.Elements(value, func(element json.RawMessage) bool {
			if to, ok = canonical(to, element, depth-1); ok {
				to = append(to, ',')
			}
			return ok
		})
		to = append(to, ']')
	default:
		to = append(to, bytes.TrimSpace(value)...)
	}
	return to, ok && err == nil
}

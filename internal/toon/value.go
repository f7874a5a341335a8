package toon

import "slices"

type kind uint8

const (
	nullKind kind = iota
	falseKind
	trueKind
	numberKind // text is the number in canonical form
	stringKind // text is the string itself
	arrayKind
	objectKind
)

// value is a JSON value that remembers the order of its members. It is small
// because a document may consist of millions of them.
type value struct {
	text string
	kids *children // of arrays and objects; nil means empty
	kind kind
}

// children holds an array's elements, or an object's members: keys[i] is the key
// of items[i], and no key occurs twice. Rows of a table share one keys slice, so
// neither slice is changed once the value is complete.
type children struct {
	keys  []string
	items []value
}

func (v value) isScalar() bool { return v.kind < arrayKind }

func (v value) items() []value {
	if v.kids == nil {
		return nil
	}
	return v.kids.items
}

func (v value) keys() []string {
	if v.kids == nil {
		return nil
	}
	return v.kids.keys
}

func newArray(items []value) value {
	if len(items) == 0 {
		return value{kind: arrayKind}
	}
	return value{kind: arrayKind, kids: &children{items: items}}
}

// newObject takes ownership of items and shares keys, which must be unique.
func newObject(keys []string, items []value) value {
	if len(items) == 0 {
		return value{kind: objectKind}
	}
	return value{kind: objectKind, kids: &children{keys: keys, items: items}}
}

// indexFrom is the size from which an objectBuilder finds keys by a map.
const indexFrom = 16

// objectBuilder collects an object's members.
type objectBuilder struct {
	keys  []string
	items []value
	index map[string]int
}

func (b *objectBuilder) find(key string) int {
	if b.index == nil {
		return slices.Index(b.keys, key)
	}
	if i, ok := b.index[key]; ok {
		return i
	}
	return -1
}

// set adds a member, or gives the one of that key a new value in its place.
func (b *objectBuilder) set(key string, v value) {
	if i := b.find(key); i >= 0 {
		b.items[i] = v
		return
	}
	b.keys = append(b.keys, key)
	b.items = append(b.items, v)
	switch n := len(b.keys); {
	case b.index != nil:
		b.index[key] = n - 1
	case n == indexFrom:
		b.index = make(map[string]int, 2*n)
		for i, k := range b.keys {
			b.index[k] = i
		}
	}
}

func (b *objectBuilder) object() value { return newObject(b.keys, b.items) }

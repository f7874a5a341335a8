package signature

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Bounds of the references that are followed.
const (
	maxReference = 500      // bytes of one
	maxSearched  = 40       // levels at which an $anchor or $id may stand
	maxPointed   = 64 << 20 // bytes that the pointers of one signature are looked up in
)

// resolve follows references until something else stands there.
func (w *writer) resolve(raw json.RawMessage) json.RawMessage {
	for range maxDepth {
		var ref json.RawMessage
		members(raw, func(key string, value json.RawMessage) {
			switch key {
			case "$ref":
				ref = value
			case "default":
				ref = nil // it overrides the reference's
			}
		})
		if ref == nil {
			return raw
		}
		raw = w.follow(ref)
	}
	return nil
}

// follow returns the schema that a reference within the document leads to, or
// nil. A reference is a JSON pointer or an $anchor, alone or behind the $id of a
// schema in the document. The sandbox's validate.py follows the same ones.
func (w *writer) follow(ref json.RawMessage) json.RawMessage {
	text, ok := str(ref)
	if !ok || len(text) > maxReference {
		return nil
	}
	if found, ok := w.followed[text]; ok {
		return found
	}
	if w.followed == nil {
		w.followed = map[string]json.RawMessage{}
	}
	found := w.find(text)
	w.followed[text] = found
	return found
}

func (w *writer) find(ref string) json.RawMessage {
	document, fragment, _ := strings.Cut(ref, "#")
	at := w.document
	if document != "" && document != identity(at) {
		at = w.search(at, func(s json.RawMessage) bool {
			id := identity(s)
			return id != "" && (id == document || id == ref)
		}, 0)
	}
	switch {
	case at == nil || fragment == "":
		return at
	case fragment[0] != '/':
		return w.search(w.document, func(s json.RawMessage) bool { return isAnchor(s, fragment) }, 0)
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	for part := range strings.SplitSeq(fragment[1:], "/") {
		if w.pointed += len(at); w.pointed > maxPointed {
			return nil
		}
		at = step(at, strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"))
		w.nodes++
	}
	return at
}

// search returns the first object in a document that is wanted, or nil. What it
// reads counts against the nodes of the signature.
func (w *writer) search(at json.RawMessage, wanted func(json.RawMessage) bool, depth int) (found json.RawMessage) {
	if w.nodes += 1 + len(at)>>12; w.nodes > maxNodes || depth > maxSearched {
		return nil
	}
	inner := func(value json.RawMessage) {
		if kind := jsonscan.Kind(value); found == nil && (kind == '{' || kind == '[') {
			found = w.search(value, wanted, depth+1)
		}
	}
	if jsonscan.Kind(at) == '[' {
		elements(at, inner)
		return found
	}
	if wanted(at) {
		return at
	}
	members(at, func(_ string, value json.RawMessage) { inner(value) })
	return found
}

// identity returns the $id of a schema, or "".
func identity(schema json.RawMessage) (id string) {
	members(schema, func(key string, value json.RawMessage) {
		if key == "$id" || key == "id" && id == "" {
			if text, ok := str(value); ok {
				id = text
			}
		}
	})
	return id
}

// isAnchor reports whether a fragment that is no pointer stands for a schema.
func isAnchor(schema json.RawMessage, fragment string) (is bool) {
	members(schema, func(key string, value json.RawMessage) {
		if key == "$anchor" || key == "$dynamicAnchor" {
			text, _ := str(value)
			is = is || text == fragment
		}
	})
	return is || identity(schema) == "#"+fragment
}

// step returns what one part of a JSON pointer leads to, or nil.
func step(at json.RawMessage, part string) (found json.RawMessage) {
	if jsonscan.Kind(at) != '[' {
		members(at, func(key string, value json.RawMessage) {
			if key == part {
				found = value
			}
		})
		return found
	}
	want, err := strconv.Atoi(part)
	if err != nil {
		return nil
	}
	i := 0
	elements(at, func(value json.RawMessage) {
		if i == want {
			found = value
		}
		i++
	})
	return found
}

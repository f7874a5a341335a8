package edit

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// ErrConflict reports that a value which a change made has changed again.
var ErrConflict = errors.New("has changed again")

// Revert takes a change back in a file that has changed elsewhere since: where
// before and after differ, the result has what before has. If now has neither of
// the two there, the error is an ErrConflict.
func Revert(f Format, now, before, after []byte) ([]byte, error) {
	r := reversal{format: f, text: now, before: before}
	var roots [3]map[string]any
	for i, text := range [][]byte{now, before, after} {
		_, body := splitMark(text)
		root, err := decode(f, body)
		if err != nil {
			return nil, err
		}
		roots[i] = root
	}
	if err := r.at(Place{}, roots[0], roots[1], roots[2]); err != nil {
		return nil, err
	}
	return r.text, nil
}

type reversal struct {
	format       Format
	text, before []byte
}

// at reverts what lies at a place: now there, before and after the change.
func (r *reversal) at(place Place, now, before, after any) (err error) {
	switch {
	case reflect.DeepEqual(before, after), reflect.DeepEqual(now, before):
		return nil
	case now == nil && after == nil && r.format == TOML && tables(before):
		// Each table is written as one.
	case reflect.DeepEqual(now, after) && !(r.hasParts(place, before) && r.hasParts(place, after)):
		if before == nil {
			r.text, err = Remove(r.format, r.text, place)
		} else {
			r.text, err = Set(r.format, r.text, place, r.ordered(place, before))
		}
		return err
	}
	var parts [3]map[string]any
	named := false
	for i, v := range []any{now, before, after} {
		if v != nil && !r.hasParts(place, v) {
			return fmt.Errorf("%s %w", strings.Join(place.Path, "."), ErrConflict)
		}
		if list, ok := v.([]any); ok {
			parts[i], _ = byName(list)
			named = true
		} else {
			parts[i], _ = v.(map[string]any)
		}
	}
	keys := map[string]bool{}
	for _, part := range parts[1:] {
		for key := range part {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		below := Place{Path: append(slices.Clone(place.Path), key), Named: place.Named || named}
		if err := r.at(below, parts[0][key], parts[1][key], parts[2][key]); err != nil {
			return err
		}
	}
	return nil
}

// tables reports whether a value is an object of objects.
func tables(v any) bool {
	members, ok := v.(map[string]any)
	for _, member := range members {
		if _, ok := member.(map[string]any); !ok {
			return false
		}
	}
	return ok
}

// hasParts reports whether a value has parts that are reverted one by one.
func (r *reversal) hasParts(at Place, v any) bool {
	list, ok := v.([]any)
	if !ok || r.format != YAML || len(at.Path) != 1 {
		_, ok = v.(map[string]any)
		return ok
	}
	_, ok = byName(list)
	return ok
}

// byName returns the elements of a list by their names, if each has one.
func byName(list []any) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, named := m["name"].(string)
		if _, twice := out[name]; !named || twice {
			return nil, false
		}
		out[name] = item
	}
	return out, true
}

// ordered returns a value of the content before with its members in order, as far
// as the format tells it.
func (r *reversal) ordered(at Place, value any) any {
	if r.format == JSON || r.format == JSONC {
		_, body := splitMark(r.before)
		if root, err := hujson.Parse(body); err == nil {
			v := &root
			for _, key := range at.Path {
				object, ok := v.Value.(*hujson.Object)
				if !ok {
					break
				}
				if v = memberOf(object, key); v == nil {
					return sorted(value)
				}
			}
			return inOrder(v, value)
		}
	}
	return sorted(value)
}

// inOrder returns value with its members in the order of v.
func inOrder(v *hujson.Value, value any) any {
	object, ok := v.Value.(*hujson.Object)
	members, isMap := value.(map[string]any)
	if !ok || !isMap {
		return value
	}
	out := Object{}
	for _, m := range object.Members {
		name, _ := m.Name.Value.(hujson.Literal)
		key := name.String()
		out = append(out, Member{key, inOrder(&m.Value, members[key])})
	}
	return out
}

// sorted returns a value with the members of its objects sorted, in the types
// that Set writes in every format.
func sorted(value any) any {
	if list, ok := value.([]any); ok {
		texts := make([]string, 0, len(list))
		for _, item := range list {
			text, ok := item.(string)
			if !ok {
				return value
			}
			texts = append(texts, text)
		}
		return texts
	}
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := Object{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		out = append(out, Member{key, sorted(members[key])})
	}
	return out
}

package toon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// valueOf converts what Marshal is given (§3). Values of unnamed map and slice
// types are walked here, because encoding/json refuses the NaN and infinities in
// them that TOON writes as null.
func valueOf(v any, depth int, opt Options) (value, error) {
	switch v := v.(type) {
	case nil:
		return value{kind: nullKind}, nil
	case string:
		return stringValue(v)
	case float64:
		return floatValue(v, 64)
	case float32:
		return floatValue(float64(v), 32)
	case json.RawMessage:
		return parseJSON(v, depth, opt)
	case []any:
		return sliceValue(v, depth+1, opt)
	case map[string]any:
		return mapValue(v, depth+1, opt)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return value{}, fmt.Errorf("toon: %w", err)
	}
	return parseJSON(data, depth, opt)
}

func stringValue(s string) (value, error) {
	if !utf8.ValidString(s) {
		return value{}, &Error{Err: errors.New("a string is not UTF-8")}
	}
	return value{kind: stringKind, text: s}, nil
}

func floatValue(f float64, bits int) (value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{kind: nullKind}, nil
	}
	text, err := canonicalNumber(strconv.FormatFloat(f, 'g', -1, bits))
	return value{kind: numberKind, text: text}, err
}

func checkDepth(depth int, opt Options) error {
	if depth > opt.MaxDepth {
		return &Error{Err: fmt.Errorf("%w: the limit is %d", ErrTooDeep, opt.MaxDepth)}
	}
	return nil
}

func sliceValue(list []any, depth int, opt Options) (value, error) {
	if err := checkDepth(depth, opt); err != nil {
		return value{}, err
	}
	items := make([]value, len(list))
	for i, item := range list {
		var err error
		if items[i], err = valueOf(item, depth, opt); err != nil {
			return value{}, err
		}
	}
	return newArray(items), nil
}

// mapValue sorts the keys, so that equal maps have equal encodings.
func mapValue(m map[string]any, depth int, opt Options) (value, error) {
	if err := checkDepth(depth, opt); err != nil {
		return value{}, err
	}
	keys := slices.Sorted(maps.Keys(m))
	items := make([]value, len(keys))
	for i, key := range keys {
		if !utf8.ValidString(key) {
			return value{}, &Error{Err: errors.New("a key is not UTF-8")}
		}
		var err error
		if items[i], err = valueOf(m[key], depth, opt); err != nil {
			return value{}, err
		}
	}
	return newObject(keys, items), nil
}

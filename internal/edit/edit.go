// Package edit changes one value in a JSON, TOML or YAML file and leaves
// every other byte as it was: comments, order, indentation and line ends.
//
// Each change is made in the text and then proven: both contents are decoded, and
// their values must differ by that change and nothing else. A file in which the
// change cannot be made that way is refused, never rewritten.
package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/goccy/go-yaml"
	"github.com/tailscale/hujson"
)

// Format is the syntax of a file.
type Format int

// The formats.
const (
	JSON  Format = iota // strict
	JSONC               // with comments and trailing commas
	TOML
	YAML
)

// Limits of what is edited: the parsers recurse.
const (
	maxText  = 128 << 20
	maxOther = 2 << 20 // of TOML and YAML
	maxDepth = 200
)

// Member is a member of an Object.
type Member struct {
	Key   string
	Value any // string, bool, int, []string, []any, Object, or whatever Get returned
}

// Object is a value with an order.
type Object []Member

// Place is where a value is in a file.
type Place struct {
	// Path leads to the value, key by key.
	Path []string
	// Named means that the second element of Path is not a key but the name of an
	// element of a list: its member "name". Only YAML has such lists.
	Named bool
}

// At is the place that a path of keys leads to.
func At(path ...string) Place { return Place{Path: path} }

// errOther reports content whose form the change cannot be made in.
var errOther = errors.New("the file is written in a form that cannot be changed without rewriting it")

var errNotUTF8 = errors.New("the file is not UTF-8: save it as UTF-8")

// Set returns the text with the value at a place. Objects on the way are
// created. If the text has that value already, it is returned as it is.
func Set(f Format, text []byte, at Place, value any) ([]byte, error) {
	return change(f, text, at, plain(value), func(t *source) ([]byte, error) {
		switch f {
		case TOML:
			return t.setTOML(at.Path, value)
		case YAML:
			return t.setYAML(at, value)
		}
		return t.setJSON(at.Path, value)
	})
}

// Remove returns the text without the value at a place. If there is none, the
// text is returned as it is.
func Remove(f Format, text []byte, at Place) ([]byte, error) {
	return change(f, text, at, nil, func(t *source) ([]byte, error) {
		switch f {
		case TOML:
			return t.removeTOML(at.Path)
		case YAML:
			return t.removeYAML(at)
		}
		return t.removeJSON(at.Path)
	})
}

// Get returns the value at a place, which the caller does not change: nil, bool,
// string, a number, []any or map[string]any. Nor does the text change afterwards.
func Get(f Format, text []byte, at Place) (any, error) {
	_, body := splitMark(text)
	root, err := decode(f, body)
	if err != nil {
		return nil, err
	}
	return lookUp(root, at), nil
}

// source is the content that is changed.
type source struct {
	text    []byte // without a byte order mark, with "\n" at the end of lines
	newline string
}

// change makes a change and proves it. want is the value afterwards, or nil for
// none.
func change(f Format, text []byte, at Place, want any, make func(*source) ([]byte, error)) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // of a parser: another program's file must not end this one
			out, err = nil, errOther
		}
	}()
	most := maxText
	if f == TOML || f == YAML {
		most = maxOther
	}
	switch {
	case len(text) > most:
		return nil, fmt.Errorf("the file is larger than %d MB", most>>20)
	case !utf8.Valid(text):
		return nil, errNotUTF8
	}
	mark, body := splitMark(text)
	before, err := decode(f, body)
	if err != nil {
		return nil, err
	}
	if have := lookUp(before, at); reflect.DeepEqual(have, want) {
		return text, nil
	}
	t := &source{text: body, newline: "\n"}
	if i := bytes.IndexByte(body, '\n'); i > 0 && body[i-1] == '\r' {
		t.newline = "\r\n"
		t.text = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	}
	changed, err := make(t)
	if err != nil {
		return nil, err
	}
	if t.newline != "\n" {
		changed = bytes.ReplaceAll(changed, []byte("\n"), []byte(t.newline))
	}
	out = append(bytes.Clone(mark), changed...)
	after, err := decode(f, out[len(mark):])
	wanted := replaced(before, at, want)
	if f == TOML { // a table without members need not be written
		after, wanted = filled(after), filled(wanted)
	}
	if err != nil || !reflect.DeepEqual(after, wanted) {
		return nil, errOther
	}
	return out, nil
}

func splitMark(text []byte) (mark, body []byte) {
	const bom = "\xef\xbb\xbf"
	if rest, ok := bytes.CutPrefix(text, []byte(bom)); ok {
		return []byte(bom), rest
	}
	return nil, text
}

// recent are the last contents that were decoded: one command asks several times for
// the same content, which may be large.
var recent struct {
	sync.Mutex
	last [2]decoded // the latest first
}

type decoded struct {
	format Format
	text   []byte
	root   map[string]any
}

// decode returns the value of the content, which stays as it is, as does the value.
// An empty one is an empty object.
func decode(f Format, text []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return map[string]any{}, nil
	}
	recent.Lock()
	defer recent.Unlock()
	for _, d := range recent.last {
		if d.format == f && len(d.text) == len(text) && &d.text[0] == &text[0] {
			return d.root, nil
		}
	}
	root, err := decodeNew(f, text)
	if err == nil {
		recent.last = [2]decoded{{f, text, root}, recent.last[0]}
	}
	return root, err
}

func decodeNew(f Format, text []byte) (map[string]any, error) {
	if !utf8.Valid(text) {
		return nil, errNotUTF8
	}
	if nested(text) > maxDepth {
		return nil, errors.New("the file is nested too deeply")
	}
	root := map[string]any{}
	switch f {
	case TOML:
		if _, err := toml.Decode(string(text), &root); err != nil {
			return nil, fmt.Errorf("the file is not valid TOML: %w", err)
		}
	case YAML:
		var v any
		if err := yaml.UnmarshalWithOptions(text, &v, yaml.Strict()); err != nil {
			return nil, errors.New("the file is not valid YAML: " + firstLine(err))
		}
		switch v := v.(type) {
		case nil:
		case map[string]any:
			root = v
		default:
			return nil, errors.New("the file is not a mapping")
		}
	default:
		if f == JSONC {
			standard, err := hujson.Standardize(append(bytes.Clone(text), '\n'))
			if err != nil {
				return nil, fmt.Errorf("the file is not valid JSON: %w", err)
			}
			text = standard
		}
		v, err := parse(text)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("the file is not valid JSON: %w", err)
		}
		object, ok := v.(map[string]any)
		if !ok && v != nil {
			return nil, errors.New("the file is not a JSON object")
		}
		if object == nil { // "null"
			object = map[string]any{}
		}
		return object, nil // in the form that normal returns
	}
	return normal(root).(map[string]any), nil
}

// parse returns the value of JSON, or reports a key that occurs twice in an object:
// the change might be made in the one that does not count.
func parse(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value func() (any, error)
	value = func() (any, error) {
		t, err := d.Token()
		open, nested := t.(json.Delim)
		if err != nil || !nested {
			return t, err
		}
		object, list := map[string]any{}, []any{}
		for d.More() {
			name := ""
			if open == '{' {
				key, err := d.Token()
				if err != nil {
					return nil, err
				}
				name, _ = key.(string) // the decoder accepts nothing else
				if _, twice := object[name]; twice {
					return nil, fmt.Errorf("the key %.80q occurs twice", name)
				}
			}
			v, err := value()
			if err != nil {
				return nil, err
			}
			if open == '{' {
				object[name] = v
			} else {
				list = append(list, v)
			}
		}
		if _, err = d.Token(); open == '{' { // the end
			return object, err
		}
		return list, err
	}
	v, err := value()
	if err == nil && d.More() {
		err = errors.New("more after the end of the value")
	}
	return v, err
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// nested returns at least how deeply the content nests.
func nested(text []byte) int {
	n, most := 0, 0
	for _, c := range text {
		switch c {
		case '{', '[':
			n++
			most = max(most, n)
		case '}', ']':
			n--
		}
	}
	for line := range bytes.Lines(text) {
		n := 0
		for n < len(line) && (line[n] == ' ' || line[n] == '-' || line[n] == '?') {
			n++
		}
		key, _, _ := bytes.Cut(line, []byte("="))
		most = max(most, n/2, bytes.Count(key, []byte(".")))
	}
	return most
}

// normal makes values of all decoders comparable.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = normal(value)
		}
		return v
	case []map[string]any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal(v[i])
		}
		return out
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
		return v
	case uint64, int64, int, json.Number:
		return json.Number(fmt.Sprint(v))
	}
	return v
}

// plain returns a value as decode does.
func plain(v any) any {
	switch v := v.(type) {
	case Object:
		out := map[string]any{}
		for _, m := range v {
			out[m.Key] = plain(m.Value)
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = v[i]
		}
		return out
	case int:
		return json.Number(fmt.Sprint(v))
	}
	return v
}

func lookUp(root map[string]any, at Place) any {
	var v any = root
	for i, key := range at.Path {
		if list, ok := v.([]any); ok && at.Named && i == 1 {
			v = nil
			for _, item := range list {
				if m, ok := item.(map[string]any); ok && m["name"] == key {
					v = item
					break
				}
			}
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// replaced returns a copy of root with another value at a place.
func replaced(root map[string]any, at Place, want any) map[string]any {
	out, _ := put(root, at, 0, want).(map[string]any)
	return out
}

// filled returns a copy without empty tables.
func filled(root map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range root {
		if m, ok := value.(map[string]any); ok {
			if m = filled(m); len(m) == 0 {
				continue
			}
			value = m
		}
		out[key] = value
	}
	return out
}

func put(v any, at Place, i int, want any) any {
	if i == len(at.Path) {
		return want
	}
	key := at.Path[i]
	if at.Named && i == 1 {
		list, _ := v.([]any)
		out, found := []any{}, false
		for _, item := range list {
			if m, ok := item.(map[string]any); ok && m["name"] == key && !found {
				found = true
				if item = put(item, at, i+1, want); item == nil {
					continue
				}
			}
			out = append(out, item)
		}
		if !found && want != nil {
			out = append(out, put(nil, at, i+1, want))
		}
		if len(out) == 0 {
			return nil // a list whose last element is removed is removed
		}
		return out
	}
	out := map[string]any{}
	if m, ok := v.(map[string]any); ok {
		for k, value := range m {
			out[k] = value
		}
	}
	if value := put(out[key], at, i+1, want); value != nil {
		out[key] = value
	} else {
		delete(out, key)
	}
	return out
}

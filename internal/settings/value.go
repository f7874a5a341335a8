package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// form is how a value is written in a file. Types are not converted there.
type form int

const (
	asText form = 1 << iota
	asNumber
	asTruth
	asList
)

func (f form) String() string {
	switch f {
	case asNumber:
		return "a number"
	case asTruth:
		return "true or false"
	case asList:
		return "a list"
	}
	return "a string"
}

// place is where relative paths and ~ start.
type place struct {
	dir, home string
	needs     func(path string) // gets a file that must exist; nil: no one asks
}

// A value reads and formats the field of one setting.
type value interface {
	// set parses a string, which is not empty, and fills the field. Its errors say
	// what is wrong and what is right, without the setting's name.
	set(text string, at place) error
	// text formats the value as set parses it. It is empty if nothing is set.
	text() string
	// data returns the value for JSON.
	data() any
	// takes returns the forms that a file may use.
	takes() form
	// kind and bounds are for people: "duration", "1s to 24h".
	kind() string
	bounds() string
}

// A lister is a value with several parts.
type lister interface {
	setList(parts []string, at place) error
}

// A sectionLister is a lister whose parts may also be sections in a file.
type sectionLister interface {
	// section returns a part as setList takes it.
	section(pairs []*ast.MappingValueNode) (string, error)
}

// scalar is a value with one part, built from functions.
type scalar[T any] struct {
	field      *T
	read       func(string, place) (T, error)
	print      func(T) string
	asJSON     func(T) any // nil: use print
	forms      form
	name, span string
	word       string // another way to write wordValue
	wordValue  T
	choices    []string // all values, if there are few
}

// or adds a word for a value out of range.
func (v *scalar[T]) or(word string, meaning T) *scalar[T] {
	v.word, v.wordValue = word, meaning
	v.forms |= asText
	return v
}

func (v *scalar[T]) set(text string, at place) error {
	if v.word != "" && strings.EqualFold(text, v.word) {
		*v.field = v.wordValue
		return nil
	}
	got, err := v.read(text, at)
	if err != nil {
		if v.word != "" {
			return fmt.Errorf("%w, or %s", err, v.word)
		}
		return err
	}
	*v.field = got
	return nil
}

func (v *scalar[T]) text() string {
	if v.word != "" && any(*v.field) == any(v.wordValue) {
		return v.word
	}
	return v.print(*v.field)
}

func (v *scalar[T]) data() any {
	if v.asJSON == nil || v.word != "" && any(*v.field) == any(v.wordValue) {
		return v.text()
	}
	return v.asJSON(*v.field)
}

func (v *scalar[T]) all() []string {
	if v.word != "" {
		return append(slices.Clone(v.choices), v.word)
	}
	return v.choices
}

func (v *scalar[T]) takes() form  { return v.forms }
func (v *scalar[T]) kind() string { return v.name }
func (v *scalar[T]) bounds() string {
	if v.word != "" {
		return v.span + ", or `" + v.word + "`"
	}
	return v.span
}

// between returns a parser that refuses values out of range.
func between[T int | int64 | float64](parse func(string) (T, error), low, high T, print func(T) string) func(string, place) (T, error) {
	return func(text string, _ place) (T, error) {
		got, err := parse(text)
		if err != nil {
			return 0, err
		}
		if got < low || got > high {
			return 0, fmt.Errorf("out of range: %s to %s", print(low), print(high))
		}
		return got, nil
	}
}

func size(field *int64, low, high int64) *scalar[int64] {
	return &scalar[int64]{
		field: field, read: between(ParseSize, low, high, FormatSize), print: FormatSize,
		forms: asText | asNumber, name: "size", span: FormatSize(low) + " to " + FormatSize(high),
	}
}

func integer(field *int, low, high int) *scalar[int] {
	parse := func(text string) (int, error) {
		// Accept a sign, so that -1 is out of range and not "not a number".
		if !isPlainNumber(strings.TrimPrefix(text, "-")) || strings.Contains(text, ".") || len(text) > 9 {
			return 0, errors.New("not a whole number")
		}
		return strconv.Atoi(text)
	}
	return &scalar[int]{
		field: field, read: between(parse, low, high, strconv.Itoa), print: strconv.Itoa,
		asJSON: func(n int) any { return n }, forms: asNumber,
		name: "whole number", span: fmt.Sprintf("%d to %d", low, high),
	}
}

func number(field *float64, low, high float64) *scalar[float64] {
	print := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	parse := func(text string) (float64, error) {
		if !isPlainNumber(strings.TrimPrefix(text, "-")) {
			return 0, errors.New("not a number")
		}
		return strconv.ParseFloat(text, 64)
	}
	return &scalar[float64]{
		field: field, read: between(parse, low, high, print), print: print,
		asJSON: func(f float64) any { return f }, forms: asNumber,
		name: "number", span: print(low) + " to " + print(high),
	}
}

func boolean(field *bool) *scalar[bool] {
	return &scalar[bool]{
		field: field,
		read: func(text string, _ place) (bool, error) {
			switch strings.ToLower(text) {
			case "1", "true", "yes", "on":
				return true, nil
			case "0", "false", "no", "off":
				return false, nil
			}
			return false, errors.New("neither true nor false (1 and 0, yes and no work, too)")
		},
		print: strconv.FormatBool, asJSON: func(b bool) any { return b },
		forms: asTruth, name: "true or false", choices: []string{"true", "false"},
	}
}

func choice(field *string, words ...string) *scalar[string] {
	return &scalar[string]{
		field: field,
		read: func(text string, _ place) (string, error) {
			lower := strings.ToLower(text)
			if slices.Contains(words, lower) {
				return lower, nil
			}
			return "", fmt.Errorf("not one of %s", strings.Join(words, ", "))
		},
		print: func(s string) string { return s },
		forms: asText, name: "word", span: "`" + strings.Join(words, "`, `") + "`", choices: words,
	}
}

// level accepts the names of slog and those of Python's logging, which the
// first bridge used.
func level(field *slog.Level) *scalar[slog.Level] {
	names := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn,
		"error": slog.LevelError, "critical": slog.LevelError, "fatal": slog.LevelError,
	}
	return &scalar[slog.Level]{
		field: field,
		read: func(text string, _ place) (slog.Level, error) {
			if l, ok := names[strings.ToLower(text)]; ok {
				return l, nil
			}
			return 0, errors.New("not one of debug, info, warn, error")
		},
		print: func(l slog.Level) string { return strings.ToLower(l.String()) },
		forms: asText, name: "word", span: "`debug`, `info`, `warn`, `error`", choices: []string{"debug", "info", "warn", "error"},
	}
}

func matching(field *string, ok func(string) bool, what string) *scalar[string] {
	return &scalar[string]{
		field: field,
		read: func(text string, _ place) (string, error) {
			if !ok(text) {
				return "", errors.New("not " + what)
			}
			return text, nil
		},
		print: func(s string) string { return s },
		forms: asText | asNumber, name: "string", span: what,
	}
}

func text(field *string) *scalar[string] {
	return &scalar[string]{
		field: field,
		read: func(text string, _ place) (string, error) {
			return text, isPrintable(text)
		},
		print: func(s string) string { return s },
		forms: asText, name: "string",
	}
}

// ParseSize reads a number of bytes: "512m" is 512 MiB, as in container
// engines. "512mb" and "512MiB" mean the same, and no unit means bytes.
func ParseSize(text string) (int64, error) {
	wrong := errors.New("not a size such as 512m or 2g")
	digits := strings.TrimRight(text, "bBiIkKmMgGtT")
	unit := strings.ToLower(text[len(digits):])
	if !isPlainNumber(digits) {
		return 0, wrong
	}
	shift, ok := map[string]uint{
		"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40,
	}[unit]
	if !ok {
		return 0, wrong
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, wrong
	}
	f *= float64(int64(1) << shift)
	if f != math.Trunc(f) {
		return 0, errors.New("not a whole number of bytes")
	}
	if f >= 1<<62 {
		return 1 << 62, nil // greater than any limit
	}
	return int64(f), nil
}

// FormatSize returns the shortest string that ParseSize reads as n.
func FormatSize(n int64) string {
	for i, unit := range []string{"t", "g", "m", "k"} {
		if shift := 40 - 10*i; n != 0 && n%(1<<shift) == 0 {
			return strconv.FormatInt(n>>shift, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// isPlainNumber reports whether text is digits, possibly with a point and more
// digits. It accepts no leading zero, which YAML's versions read differently.
func isPlainNumber(text string) bool {
	whole, fraction, point := strings.Cut(text, ".")
	return isDigits(whole) && (whole == "0" || whole[0] != '0') && (!point || isDigits(fraction)) && len(text) <= 32
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

func isPrintable(text string) error {
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return errors.New("it has a control character")
		}
	}
	return nil
}

// isUser reports whether text is a uid, or uid:gid.
func isUser(text string) bool {
	uid, gid, both := strings.Cut(text, ":")
	ok := func(s string) bool {
		n, err := strconv.ParseUint(s, 10, 32)
		return err == nil && strconv.FormatUint(n, 10) == s
	}
	return ok(uid) && (!both || ok(gid))
}

// isRuntime reports whether text is a name that an engine may know, or an
// absolute path.
func isRuntime(text string) bool {
	if strings.HasPrefix(text, "-") || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	return strings.HasPrefix(text, "/") || !strings.ContainsAny(text, "/\\")
}

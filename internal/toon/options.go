package toon

import (
	"errors"
	"fmt"
)

// Delimiter separates the cells of a row and the elements of an inline array.
type Delimiter byte

// The delimiters of §11. The zero Delimiter means Comma.
const (
	Comma Delimiter = ','
	Tab   Delimiter = '\t'
	Pipe  Delimiter = '|'
)

// Defaults of Options.
const (
	DefaultIndentSize = 2
	DefaultMaxDepth   = 512
	DefaultMaxBytes   = 32 << 20
)

// maxIndentSize keeps a line's indentation in proportion to its content.
const maxIndentSize = 16

// Options adjusts Marshal. The zero value is the specification's default: commas
// and two spaces.
type Options struct {
	// Delimiter separates cells ("delimiter" in §13).
	Delimiter Delimiter

	// IndentSize is the number of spaces of a level ("indentSize" in §13), 1 to
	// 16; zero means DefaultIndentSize.
	IndentSize int

	// MaxDepth bounds how deep objects and arrays nest; zero means
	// DefaultMaxDepth. Exceeding it is ErrTooDeep.
	MaxDepth int

	// MaxBytes bounds the input and, separately, the output; zero means
	// DefaultMaxBytes. Exceeding it is ErrTooLarge.
	MaxBytes int
}

// The limits of Options, as they are reported.
var (
	ErrTooDeep  = errors.New("nested too deeply")
	ErrTooLarge = errors.New("too large")
)

// Error reports a value that Marshal cannot encode. Marshal returns no other
// error, except for wrong Options and those of the caller's json.Marshaler.
type Error struct {
	Err error // wraps ErrTooDeep or ErrTooLarge, or describes what is malformed
}

func (e *Error) Error() string { return "toon: " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// resolve replaces zero fields by their defaults and rejects impossible ones.
func (o Options) resolve() (Options, error) {
	if o.Delimiter == 0 {
		o.Delimiter = Comma
	}
	if o.IndentSize == 0 {
		o.IndentSize = DefaultIndentSize
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	switch {
	case o.Delimiter != Comma && o.Delimiter != Tab && o.Delimiter != Pipe:
		return o, fmt.Errorf("toon: %q is not a delimiter: use Comma, Tab or Pipe", rune(o.Delimiter))
	case o.IndentSize < 1 || o.IndentSize > maxIndentSize:
		return o, fmt.Errorf("toon: an indent size of %d is outside 1 to %d", o.IndentSize, maxIndentSize)
	case o.MaxDepth < 0 || o.MaxBytes < 0:
		return o, errors.New("toon: a limit is negative")
	}
	return o, nil
}

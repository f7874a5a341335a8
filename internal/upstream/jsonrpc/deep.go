package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxDeep bounds the result that a DeepError has, in bytes: it is charged to no one.
const maxDeep = 1 << 20

// DeepError is an ErrTooLarge of an answer that nests too deeply.
type DeepError struct {
	Depth, Limit int
	// Result is the answer's, for a caller that takes only parts of it, or nil if it is
	// large as well.
	Result json.RawMessage
}

// TooDeep returns a DeepError with a copy of the result.
func TooDeep(depth, limit int, result []byte) *DeepError {
	e := &DeepError{Depth: depth, Limit: limit}
	if len(result) <= maxDeep {
		e.Result = bytes.Clone(result)
	}
	return e
}

func (e *DeepError) Error() string {
	return fmt.Sprintf("%v: nested %d levels deep, %d are allowed", ErrTooLarge, e.Depth, e.Limit)
}

func (*DeepError) Unwrap() error { return ErrTooLarge }

//go:build !linux && !darwin

package cli

import (
	"context"
	"io"
)

// A keyboard does not exist here, where no process can be asked for its questions.
type keyboard struct{ io.Reader }

func newKeyboard(io.Reader) *keyboard { return nil }

func (*keyboard) begin(func()) bool                    { return false }
func (*keyboard) away() bool                           { return true }
func (*keyboard) end()                                 {}
func (*keyboard) line(context.Context) (string, error) { return "", io.EOF }

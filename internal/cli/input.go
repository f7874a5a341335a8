package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/sallyport/sallyport/internal/settings"
)

// input is standard input that has an end once the command ends: nothing
// interrupts a read from a terminal.
type input struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader. A read that outlives the command goes on until the
// program ends.
func (i input) Read(p []byte) (int, error) {
	own := make([]byte, min(len(p), 64<<10)) // p belongs to the caller once Read returns
	n, err := until(i.ctx, func() (int, error) { return i.in.Read(own) })
	return copy(p, own[:n]), err
}

// until returns what read returns, or the error of ctx if that ends before.
func until[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// input returns standard input for a command that reads it itself.
func (u *ui) input() io.Reader { return input{u.ctx, u.stdio.In} }

// line returns the next line that the user types. It fails if there is none, or
// if the command ends before.
func (u *ui) line() (string, error) {
	if u.typed == nil {
		u.typed = bufio.NewReader(u.input())
	}
	line, err := u.typed.ReadString('\n')
	if line != "" && errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

// secret reads a secret from standard input. A terminal does not show it.
func (u *ui) secret() (string, error) {
	f, ok := u.stdio.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		b, err := io.ReadAll(io.LimitReader(u.input(), settings.MaxFile))
		return strings.TrimRight(string(b), "\r\n"), err
	}
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	_, _ = io.WriteString(u.stdio.Err, "The value, which is not shown: ")
	b, err := until(u.ctx, func() ([]byte, error) { return term.ReadPassword(int(f.Fd())) })
	_, _ = io.WriteString(u.stdio.Err, "\n")
	return string(b), errors.Join(err, term.Restore(int(f.Fd()), state)) // if it was interrupted
}

//go:build linux || darwin

package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// keyboardTick is how often someone who waits for a line looks whether it still is
// their turn.
const keyboardTick = 100 * time.Millisecond

// maxTyped bounds a line that answers a question.
const maxTyped = 64 << 10

// A keyboard is a terminal whose lines belong to the question that is shown and,
// while there is none, to the program that runs. No one blocks in a read of it:
// a line is read by the one whose turn it is when the line is complete.
type keyboard struct {
	f *os.File

	mu     sync.Mutex // held while something is read, and while the turn changes
	asking bool       // a question has the turn
}

// newKeyboard returns nil where in is not a terminal.
func newKeyboard(in io.Reader) *keyboard {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &keyboard{f: f}
}

// Read implements io.Reader for the program.
func (k *keyboard) Read(p []byte) (int, error) { return k.read(context.Background(), p, false) }

// begin gives the turn to a question, which show writes. What was typed before is
// discarded. It reports false, and does nothing, where the terminal belongs to
// other programs: this one is in the background.
func (k *keyboard) begin(show func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.background() {
		return false
	}
	k.asking = true
	k.discard()
	show()
	return true
}

// end gives the turn to the program. What was typed for the question and not read is
// discarded.
func (k *keyboard) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking && !k.background() {
		k.discard()
	}
	k.asking = false
}

// line reads a line for the question. The error is io.EOF at the end of the input,
// also within a line, or that of ctx.
func (k *keyboard) line(ctx context.Context) (string, error) {
	var line []byte
	var part [4096]byte
	for {
		n, err := k.read(ctx, part[:], true)
		if err != nil {
			return "", err
		}
		text, _, whole := bytes.Cut(part[:n], []byte{'\n'})
		if line = append(line, text...); whole {
			return string(line), nil
		}
		line = line[:min(len(line), maxTyped)]
	}
}

// read reads for the question or for the program.
func (k *keyboard) read(ctx context.Context, p []byte, question bool) (int, error) {
	for ctx.Err() == nil {
		if n, err, done := k.try(ctx, p, question); done {
			return n, err
		}
	}
	return 0, ctx.Err()
}

// try reads if it is the reader's turn and there is something to read.
func (k *keyboard) try(ctx context.Context, p []byte, question bool) (n int, err error, done bool) {
	k.mu.Lock()
	turn, background := k.asking == question, k.background()
	k.mu.Unlock()
	switch {
	case turn && background && !question:
		_ = syscall.Kill(0, syscall.SIGTTIN) // as a read does: the shell can resume the program
		fallthrough
	case !turn, background:
		time.Sleep(keyboardTick)
		return 0, nil, false
	case !k.ready(keyboardTick):
		return 0, nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking != question || k.background() || ctx.Err() != nil || !k.ready(0) {
		return 0, nil, false
	}
	n, err = k.f.Read(p)
	return n, err, true
}

// ready waits until something can be read, or an error.
func (k *keyboard) ready(wait time.Duration) bool {
	poll := []unix.PollFd{{Fd: int32(k.f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(wait.Milliseconds()))
	return err == nil && n > 0
}

// away reports whether other programs have the terminal.
func (k *keyboard) away() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.background()
}

// background reports whether the terminal is that of this program, and other
// programs have it now.
func (k *keyboard) background() bool {
	group, err := unix.IoctlGetInt(int(k.f.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

package build

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

// run runs code in a fresh sandbox of an image, and gives what it writes to its
// standard output to out.
func (b *Builder) run(ctx context.Context, id, code string, out io.Writer) error {
	limits := sandbox.DefaultLimits
	limits.MemoryBytes = 2 << 30 // of a compiler, too
	started, err := b.Backend.Start(ctx, &sandbox.Spec{
		ID:     "build-" + strings.ToLower(rand.Text()[:12]),
		Owner:  "image build",
		Root:   sandbox.Root{Image: id},
		Limits: limits,
	})
	if err != nil {
		return err
	}
	defer func() { _ = started.Destroy(context.WithoutCancel(ctx)) }()
	duplex, ok := sandbox.As[sandbox.Duplexer](started)
	if !ok {
		return &sandbox.Error{Op: "start", Backend: b.Backend.Name(), Kind: sandbox.ErrUnsupported, Err: errors.New("no channel to running code")}
	}
	channel := duplex.Channel()
	conn := guest.Open(channel.Stdin, channel.Stdout, channel.Stderr, guest.Options{})
	defer conn.Close()
	if _, err := conn.Ready(ctx); err != nil {
		return err
	}
	h := &handler{out: out}
	running, err := conn.Start(guest.Exec{Code: code, Filename: "<build>"}, h)
	if err != nil {
		return err
	}
	select {
	case <-running.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	outcome, err := running.Result()
	switch {
	case h.err != nil:
		return h.err
	case err != nil:
		return err
	case outcome.Status != wire.StatusOK:
		return fmt.Errorf("code in the base's Python failed: %s", strings.TrimSpace(h.errors.String()))
	}
	return nil
}

// handler takes what the code writes, and answers no calls.
type handler struct {
	out    io.Writer
	errors bytes.Buffer
	err    error
}

func (h *handler) Output(s guest.Stream, p []byte) {
	if s == guest.Stdout {
		if h.err == nil {
			_, h.err = h.out.Write(p)
		}
		return
	}
	(&tail{b: &h.errors}).Write(p)
}

func (h *handler) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no calls while an image is built"}
}

// limitedBuffer takes so much and no more.
type limitedBuffer struct {
	b    bytes.Buffer
	left int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("the base's Python says too much")
	}
	return l.b.Write(p)
}

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// Once runs code in a sandbox of its own and writes the code's standard output
// to out. Calls of the code are refused.
func Once(ctx context.Context, engine sandbox.Engine, spec *sandbox.Spec, code wire.Exec, out io.Writer) error {
	started, err := engine.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { _ = started.Destroy(context.WithoutCancel(ctx)) }()
	duplex, ok := sandbox.As[sandbox.Duplexer](started)
	if !ok {
		return &sandbox.Error{Op: "start", Backend: engine.Name(), Kind: sandbox.ErrUnsupported, Err: errors.New("no channel to running code")}
	}
	channel := duplex.Channel()
	conn := Open(channel.Stdin, channel.Stdout, channel.Stderr, Options{})
	defer conn.Close()
	if _, err := conn.Ready(ctx); err != nil {
		return err
	}
	h := &onceHandler{out: out}
	running, err := conn.Start(code, h)
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
		return fmt.Errorf("the code failed: %s", strings.TrimSpace(h.errors.String()))
	}
	return nil
}

// onceHandler passes on what the code writes.
type onceHandler struct {
	out    io.Writer
	errors bytes.Buffer // the end of standard error
	err    error
}

// maxErrors bounds what is kept of standard error.
const maxErrors = 4 << 10

func (h *onceHandler) Output(s wire.Stream, p []byte) {
	if s == wire.Stdout {
		if h.err == nil {
			_, h.err = h.out.Write(p)
		}
		return
	}
	h.errors.Write(p)
	if n := h.errors.Len() - maxErrors; n > 0 {
		h.errors.Next(n)
	}
}

func (h *onceHandler) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "this code can make no calls"}
}

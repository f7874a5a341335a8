//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// launchChild starts a child with a file for compiled code.
func (e *Engine) launchChild(ctx context.Context, code *os.File) (*child, error) {
	var loose error
	// The last report comes before spawn returns.
	c, err := spawn(ctx, e.opts.Executable, control.Open{ScratchDir: e.opts.CacheDir}, code, func(p control.Progress) {
		if p.Unkept != "" {
			loose = fmt.Errorf("%s: %s", e.opts.CacheDir, printable(p.Unkept))
		}
		if e.opts.Progress != nil {
			e.opts.Progress(Progress{Done: p.Done, Elapsed: duration(p.Elapsed, time.Millisecond)})
		}
	})
	if err == nil {
		c.loose = loose
	}
	return c, err
}

// spawn starts a child. The child gets compiled code as a file that nothing can change any
// more, and no key. Where there is none it compiles the interpreter, and what it has written
// until it is ready is sealed: it has run nothing else by then.
func (e *Engine) spawn(ctx context.Context) (*child, error) {
	build, err := e.build()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "code\n%s\n%s\n", build, binding()))
	name := hex.EncodeToString(sum[:20])
	if _, err := e.code.sealFile(name); err != nil {
		return nil, err // there is no key
	}
	code, err := e.code.open(ctx, name)
	if err == nil {
		defer code.Close()
		return e.launchChild(ctx, code)
	}
	if _, rejected := errors.AsType[*private.Rejected](err); rejected {
		return nil, err
	}
	var c *child
	var failed error
	loose := e.code.create(ctx, name, func(f *os.File) error {
		if c, failed = e.launchChild(ctx, f); failed != nil {
			return failed
		}
		return c.loose
	})
	if _, rejected := errors.AsType[*private.Rejected](loose); rejected {
		failed = loose
	}
	if c == nil && failed == nil { // there is no file to write to
		c, failed = e.launchChild(ctx, nil)
	}
	if failed != nil {
		if c != nil {
			c.end()
		}
		return nil, failed
	}
	if loose != nil && ctx.Err() == nil { // and the caller has not given up meanwhile
		c.loose = loose
		e.warnUnkept(loose)
	}
	return c, nil
}

func (e *Engine) warnUnkept(err error) {
	e.unkept.Do(func() {
		e.log.Warn("the compiled Python cannot be kept: each start of this program compiles it again", "error", err)
	})
}

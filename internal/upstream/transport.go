package upstream

import (
	"context"
	"encoding/json"
	"time"

	"sallyport/internal/upstream/child"
	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/upstream/remote"
)

// transport is the way to a server: a program's standard input and output, or
// HTTP. Its methods are safe for concurrent use.
type transport interface {
	// Call sends a request and returns the bytes of its result. Ending ctx
	// tells the server. What the server answered with is a *jsonrpc.Error.
	Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
	Notify(ctx context.Context, method string, params json.RawMessage) error
	// Speaks says which revision everything is in from now on.
	Speaks(version string)
	// Done is closed when no further call can succeed; Err says why, and
	// wraps jsonrpc.ErrClosed.
	Done() <-chan struct{}
	Err() error
	Junk() []byte
	Stats() jsonrpc.Stats
	// Stop ends the server, or the connection to it: gently until ctx ends.
	// It returns when nothing is left.
	Stop(ctx context.Context) error
}

// withHeaders is a transport that has headers beside a request.
type withHeaders interface {
	CallWith(ctx context.Context, method string, params json.RawMessage, headers map[string]string) (json.RawMessage, error)
}

// program is a server that is a program on this machine.
type program struct {
	*jsonrpc.Conn
	proc *child.Process
}

func (*program) Speaks(string) {}

// Stop implements transport.
func (p *program) Stop(ctx context.Context) error {
	p.CloseWrite()
	if err := p.proc.Stop(ctx); err != nil {
		return err
	}
	p.Wait()
	return nil
}

// watch ends what is left when either the connection or the process ends, and
// returns when nothing is.
func (p *program) watch() error {
	select {
	case <-p.Done():
	case <-p.proc.Exited():
	}
	// What it wrote last may still have to be read, also when a message to it
	// could not be written any more; but something that it started may hold
	// its output open.
	select {
	case <-p.Drained():
	case <-time.After(200 * time.Millisecond):
	}
	return p.Stop(context.Background())
}

// diagnose adds how a program ended, if it did, and its last words. Of a server
// elsewhere nothing is known but what the error says.
func diagnose(e *Error, def Definition, t transport) {
	p, ok := t.(*program)
	if !ok {
		return
	}
	select {
	case <-p.Done():
		// The end of its output is often seen before the end of the process.
		soon, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		for _, event := range []<-chan struct{}{p.proc.Exited(), p.Drained()} {
			select {
			case <-event:
			case <-soon.Done():
			}
		}
	default:
	}
	e.Exit = p.proc.ExitStatus()
	e.LastText = lastLines([]byte(def.Redact(string(p.proc.Stderr()))), 20, 2<<10)
	if e.LastText == "" {
		e.LastText = lastLines([]byte(def.Redact(string(p.Junk()))), 20, 2<<10)
	}
}

var (
	_ transport   = (*program)(nil)
	_ transport   = (*remote.Streamable)(nil)
	_ transport   = (*remote.Legacy)(nil)
	_ withHeaders = (*remote.Streamable)(nil)
)

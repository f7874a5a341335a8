package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// transport is the connection to a server: a program's standard input and
// output, or HTTP. Its methods are safe for concurrent use.
type transport interface {
	// Call sends a request and returns the bytes of its result. Ending ctx cancels
	// the request at the server. An error answer is a *jsonrpc.Error.
	Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
	Notify(ctx context.Context, method string, params json.RawMessage) error
	// Speaks sets the protocol revision of everything from now on.
	Speaks(version string)
	// Done is closed when no further call can succeed. Err returns why, and wraps
	// jsonrpc.ErrClosed.
	Done() <-chan struct{}
	Err() error
	Junk() []byte
	Stats() jsonrpc.Stats
	// Stop ends the server, or the connection to it, gracefully until ctx ends. It
	// returns when nothing is left.
	Stop(ctx context.Context) error
}

// withHeaders is a transport whose requests can have headers.
type withHeaders interface {
	CallWith(ctx context.Context, method string, params json.RawMessage, headers map[string]string) (json.RawMessage, error)
}

// program is a server that runs as a program on this machine.
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
// returns when both have ended.
func (p *program) watch() error {
	select {
	case <-p.Done():
	case <-p.proc.Exited():
	}
	// Its last output may still have to be read, even if a message to it could not
	// be written any more; but a process that it started may hold its output open.
	select {
	case <-p.Drained():
	case <-time.After(200 * time.Millisecond):
	}
	return p.Stop(context.Background())
}

// stray says for a missing answer how many lines the server wrote that are not
// messages, and shows the last one, which may be meant as the answer.
func (l *live) stray(lines int64, redact func(string) string) string {
	if lines == 0 {
		return ""
	}
	last := lastLines([]byte(redact(string(l.conn.Junk()))), 1, 200)
	return fmt.Sprintf("; lines on its standard output that are not messages of the protocol: %d, the last %q", lines, last)
}

// diagnose adds how a program ended, if it did, and its last output. For a
// remote server nothing is known but the error.
func diagnose(e *Error, s *Server) {
	p, ok := s.conn.(*program)
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
	e.LastText = lastLines([]byte(s.def.Redact(string(p.proc.Stderr()))), 20, 2<<10)
	if e.LastText == "" {
		e.LastText = lastLines([]byte(s.def.Redact(string(p.Junk()))), 20, 2<<10)
	}
	e.of = s.caller.load() // after the output was read: a caller counts before it calls
}

var (
	_ transport   = (*program)(nil)
	_ transport   = (*remote.Streamable)(nil)
	_ transport   = (*remote.Legacy)(nil)
	_ withHeaders = (*remote.Streamable)(nil)
)

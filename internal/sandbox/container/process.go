package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// process is a client process that carries a container's streams.
type process struct {
	*supervise.Streams
	cmd    *exec.Cmd
	stderr *errorStream

	ended chan struct{} // closed when the client is gone
	code  int           // its exit status
}

// patience is how long a client whose start was cancelled may take to end by
// itself. Killing it may leave a half-made container.
const patience = 5 * time.Second

// launch starts a client, sends the payload and waits for the marker, which the
// container writes to its standard error when it has read everything. On error
// the client has ended; the container may still exist.
func (c *client) launch(ctx context.Context, args []string, p *payload, marker string) (*process, error) {
	// Not ctx: it bounds only the start.
	cmd, err := c.build(context.WithoutCancel(ctx), args...)
	if err != nil {
		return nil, err
	}
	streams, err := supervise.NewStreams()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.Child[0], streams.Child[1], streams.Child[2]
	err = cmd.Start()
	streams.CloseChild() // at once: the streams end with the client
	if err != nil {
		streams.Close()
		return nil, err
	}
	x := &process{Streams: streams, cmd: cmd, stderr: &errorStream{file: streams.Stderr}, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		x.code = cmd.ProcessState.ExitCode()
		close(x.ended)
	}()
	go func() { _, _ = streams.Stdin.Write(p.Bytes()) }() // an error shows on the other streams

	marked := make(chan error, 1)
	go func() { marked <- x.stderr.skipTo(marker) }()
	select {
	case err = <-marked:
	case <-ctx.Done():
		err = fmt.Errorf("%s run: %w", c.engine, ctx.Err())
	}
	if err == nil {
		return x, nil
	}
	x.abandon()
	if ctx.Err() == nil {
		err = &commandError{command: c.engine + " run", code: x.code, stderr: x.stderr.notes(), err: err}
	}
	return nil, err
}

// abandon ends the client, gently if possible.
func (x *process) abandon() {
	x.Stdin.Close() // a container that still reads its payload ends
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-x.ended:
	case <-timer.C:
		x.kill()
	}
	x.Close()
}

// kill kills the client. The container is not its child and stays.
func (x *process) kill() {
	_ = x.cmd.Process.Kill()
	<-x.ended
}

// maxNotes bounds what a client may print before the container starts.
const maxNotes = 64 << 10

// maxTail bounds what is kept of the end of a container's standard error, where
// a client prints its own last messages.
const maxTail = 2 << 10

// errorStream is a client's standard error: its own warnings, then a marker, then
// what the container writes, and possibly the client's last messages.
type errorStream struct {
	file *os.File

	mu     sync.Mutex
	before []byte // the client's output before the marker
	unread []byte // read with the marker
	tail   []byte
}

var errNoMarker = errors.New("the container ended before the guest began")

// skipTo reads up to the marker and beyond it.
func (s *errorStream) skipTo(marker string) error {
	var got []byte
	chunk := make([]byte, 4096)
	for {
		n, err := s.file.Read(chunk)
		got = append(got, chunk[:n]...)
		if i := bytes.Index(got, []byte(marker)); i >= 0 {
			s.mu.Lock()
			s.before, s.unread = bytes.Clone(got[:i]), bytes.Clone(got[i+len(marker):])
			s.mu.Unlock()
			return nil
		}
		if err != nil || len(got) > maxNotes {
			s.mu.Lock()
			s.before = got
			s.mu.Unlock()
			return errNoMarker
		}
	}
}

// notes returns what the client printed before the container started.
func (s *errorStream) notes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(string(s.before), "\ufffd")
}

// lastWords returns the client's last messages. They follow the last frame, and
// so begin anywhere in the tail.
func (s *errorStream) lastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	tail := s.tail
	for _, begin := range []string{"Error: ", "Error response from daemon", "error during connect", "time=\"", "Cannot connect to"} {
		if i := bytes.LastIndex(tail, []byte(begin)); i >= 0 {
			return firstLines(strings.ToValidUTF8(string(tail[i:]), "\ufffd"), 2)
		}
	}
	return ""
}

// Read implements io.Reader.
func (s *errorStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	if len(s.unread) > 0 {
		n := copy(p, s.unread)
		s.unread = s.unread[n:]
		s.mu.Unlock()
		return n, nil
	}
	s.mu.Unlock()
	n, err := s.file.Read(p)
	s.mu.Lock()
	kept := p[max(0, n-maxTail):n]
	s.tail = append(s.tail, kept...)
	if over := len(s.tail) - maxTail; over > 0 {
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	s.mu.Unlock()
	return n, err
}

// Close implements io.Closer.
func (s *errorStream) Close() error { return s.file.Close() }

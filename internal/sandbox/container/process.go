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
)

// process is a client that has a container's streams.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *errorStream

	ended chan struct{} // closed when the client is gone
	code  int           // its exit status
}

// patience is how long a client whose start was given up may take to end by
// itself. A client that is killed may leave half a container.
const patience = 5 * time.Second

// launch starts a client, sends the payload and waits for the marker, which
// the container writes to its standard error when it has read all. On error
// the client has ended; the container may be left.
func (c *client) launch(ctx context.Context, args []string, p *payload, marker string) (*process, error) {
	// Not ctx: it bounds the start only.
	cmd, err := c.build(context.WithoutCancel(ctx), args...)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	pipe := func() (rd, wr *os.File) {
		if err != nil {
			return nil, nil
		}
		if rd, wr, err = os.Pipe(); err == nil {
			files = append(files, rd, wr)
			growPipe(wr)
		}
		return rd, wr
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		closeAll()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	if err := cmd.Start(); err != nil {
		closeAll()
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	x := &process{cmd: cmd, stdin: inW, stdout: outR, stderr: &errorStream{file: errR}, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		x.code = cmd.ProcessState.ExitCode()
		close(x.ended)
	}()
	go func() { _, _ = inW.Write(p.Bytes()) }() // an error shows on the other streams

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

// abandon ends the client, by itself if it will.
func (x *process) abandon() {
	x.stdin.Close() // a container that reads its payload then ends
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-x.ended:
	case <-timer.C:
		x.kill()
	}
	x.close()
}

// kill ends the client. What it started is not its child and stays.
func (x *process) kill() {
	_ = x.cmd.Process.Kill()
	<-x.ended
}

func (x *process) close() {
	x.stdin.Close()
	x.stdout.Close()
	x.stderr.Close()
}

// maxNotes bounds what a client may say before the container begins.
const maxNotes = 64 << 10

// maxTail is how much is kept of the end of a container's standard error,
// where a client puts its own last words.
const maxTail = 2 << 10

// errorStream is a client's standard error: its own warnings, then a marker,
// then what the container writes, and perhaps last words of the client's.
type errorStream struct {
	file *os.File

	mu     sync.Mutex
	before []byte // the client's words before the marker
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

// notes is what the client said before the container began.
func (s *errorStream) notes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(string(s.before), "\ufffd")
}

// lastWords is the end of what was read, where it is text of the client's: it
// follows the last frame, and so begins anywhere in the tail.
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

package supervise

import (
	"os"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Streams are the pipes of a child process's standard streams.
type Streams struct {
	Stdin, Stdout, Stderr *os.File    // this program's ends
	Child                 [3]*os.File // the child's ends of descriptors 0 to 2
}

// NewStreams makes three pipes, large ones where the system allows it, so that
// a large result takes few switches between processes.
func NewStreams() (_ *Streams, err error) {
	s := &Streams{}
	defer func() {
		if err != nil {
			s.CloseChild()
			s.Close()
		}
	}()
	if s.Child[0], s.Stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.Stdout, s.Child[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.Stderr, s.Child[2], err = os.Pipe(); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{s.Stdin, s.Child[1], s.Child[2]} {
		growPipe(f)
	}
	return s, nil
}

// Channel returns this program's ends as a sandbox's channel.
func (s *Streams) Channel() sandbox.Channel {
	return sandbox.Channel{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr}
}

// CloseChild closes the child's ends, which the child has copies of once it is
// started.
func (s *Streams) CloseChild() {
	for _, f := range s.Child {
		f.Close() // a nil file refuses and does no harm
	}
}

// Close closes this program's ends.
func (s *Streams) Close() {
	s.Stdin.Close()
	s.Stdout.Close()
	s.Stderr.Close()
}

//go:build unix

package fake

import (
	"encoding/binary"
	"io"
	"os"
	"syscall"

	"github.com/sallyport/sallyport/internal/wire"
)

// Faults is what goes wrong with one run.
type Faults struct {
	// Start, if not nil, is why the run does not start.
	Start error
	// Control and Output, if not nil, stand between the guest and whoever
	// reads its standard output and its standard error.
	Control, Output Fault
}

// A Fault is called with each frame of a stream, counted from 0, and returns
// the bytes that arrive in its place: the frame itself, fewer, others, more, or
// none. It is called from one goroutine, and may wait. The frame has its length
// in front and is the fault's to keep.
type Fault func(n int, frame []byte, r *Run) []byte

// Kill ends the run's processes as an accident would: for the contract it is
// not Destroy.
func (r *Run) Kill() {
	_ = r.signal("kill", syscall.SIGKILL, true)
}

// faulty passes frames on as the fault says. The reader's Close ends it.
func faulty(from *os.File, r *Run, fault Fault) io.ReadCloser {
	to, w := io.Pipe()
	go func() {
		defer w.Close()
		for n := 0; ; n++ {
			head := make([]byte, 4)
			if _, err := io.ReadFull(from, head); err != nil {
				return
			}
			size := binary.BigEndian.Uint32(head)
			if size > wire.MaxFromGuest {
				return
			}
			frame := append(head, make([]byte, size)...)
			if _, err := io.ReadFull(from, frame[4:]); err != nil {
				return
			}
			if _, err := w.Write(fault(n, frame, r)); err != nil {
				return
			}
		}
	}()
	return &faultyStream{to, from}
}

type faultyStream struct {
	*io.PipeReader
	from *os.File
}

func (s *faultyStream) Close() error {
	_ = s.PipeReader.Close()
	return s.from.Close()
}

package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/sallyport/sallyport/internal/wire"
)

// input reads from a reader on demand. A read cannot be cancelled: one whose
// caller has left continues, and its data goes to the next caller.
type input struct {
	from io.Reader
	turn chan struct{} // holds a token while a caller reads
	came chan piece    // gets the result of a read

	// These belong to the holder of the turn.
	reading bool // a read is under way and uses buffer
	buffer  [wire.MaxStdin]byte
	rest    []byte // of buffer
	err     error  // sticky
}

type piece struct {
	n   int
	err error
}

// newInput returns nil for a nil reader.
func newInput(from io.Reader) *input {
	if from == nil {
		return nil
	}
	return &input{from: from, turn: make(chan struct{}, 1), came: make(chan piece, 1)}
}

// next returns at most that many bytes, and io.EOF at the end.
func (i *input) next(ctx context.Context, most int) ([]byte, error) {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(i.rest) == 0 {
		if i.err != nil {
			return nil, i.err
		}
		if !i.reading {
			i.reading = true
			go func() {
				n, err := i.from.Read(i.buffer[:most])
				i.came <- piece{n, err}
			}()
		}
		select {
		case p := <-i.came:
			i.reading, i.rest, i.err = false, i.buffer[:p.n], p.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n := min(most, len(i.rest))
	data := append([]byte(nil), i.rest[:n]...)
	i.rest = i.rest[n:]
	return data, nil
}

// read answers a call for standard input. As with a tool call, waiting for it
// does not count as the code's own time.
func (x *execution) read(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	var wants wire.StdinWants
	if err := json.Unmarshal(call.Params, &wants); err != nil || wants.Most < 1 || wants.Most > wire.MaxStdin {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "standard input is read in pieces of 1 to 65536 bytes"}
	}
	if !wants.Ahead {
		x.clock.callBegins()
		defer x.clock.callEnds()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.stop, cancel)()
	data, err := x.stdin.next(ctx, wants.Most)
	switch {
	case err == nil:
		return json.Marshal(wire.StdinData{Data: data})
	case errors.Is(err, io.EOF):
		return json.RawMessage("null"), nil
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, &wire.CallError{Kind: wire.KindUnavailable, Message: "standard input cannot be read: " + err.Error()}
}

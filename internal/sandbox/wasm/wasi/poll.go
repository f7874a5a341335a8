package wasi

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// The layout of subscriptions and events.
const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 4096

	eventClock   = 0
	eventRead    = 1
	eventWrite   = 2
	clockAbsTime = 1 << 0
)

// pollStep is how long one of several streams is waited for before the next one.
const pollStep = 10 * time.Millisecond

// A subscription is what a program waits for.
type subscription struct {
	userdata uint64
	kind     byte
	errno    Errno
	ready    bool
	stream   *stream       // nil: there is nothing to wait for
	timeout  time.Duration // of a clock
}

// A stream is a descriptor of this process to wait for.
type stream struct {
	fd    int
	write bool
}

func (c *call) pollOneoff() Errno {
	n := c.u32(2)
	if n == 0 || n > maxSubscriptions {
		return errInvalid
	}
	in, ok := c.bytes(c.u32(0), n*subscriptionSize)
	if !ok {
		return errFault
	}
	subs := make([]subscription, n)
	for i := range subs {
		subs[i] = c.subscription(in[i*subscriptionSize:][:subscriptionSize])
	}
	if _, ok := c.bytes(c.u32(1), n*eventSize); !ok {
		return errFault
	}
	if _, ok := c.bytes(c.u32(3), 4); !ok {
		return errFault
	}
	if c.await(subs) == Interrupted {
		return errInterrupted
	}
	out, ok := c.bytes(c.u32(1), n*eventSize)
	if !ok {
		return errFault
	}
	events := uint32(0)
	for _, s := range subs {
		if !s.ready {
			continue
		}
		p := out[events*eventSize:][:eventSize]
		clear(p)
		binary.LittleEndian.PutUint64(p, s.userdata)
		binary.LittleEndian.PutUint16(p[8:], uint16(s.errno))
		p[10] = s.kind
		if s.kind != eventClock && s.errno == success {
			binary.LittleEndian.PutUint64(p[16:], 1)
		}
		events++
	}
	return c.put32(c.u32(3), events)
}

// subscription reads what a program waits for. What is ready at once is marked.
func (c *call) subscription(p []byte) subscription {
	s := subscription{userdata: binary.LittleEndian.Uint64(p), kind: p[8]}
	switch s.kind {
	case eventClock:
		s.timeout, s.errno = c.timeout(p)
		s.ready = s.errno != success
	case eventRead, eventWrite:
		d, errno := c.get(binary.LittleEndian.Uint32(p[16:]))
		write := s.kind == eventWrite
		switch {
		case errno != success:
			s.errno, s.ready = errno, true
		case d.file != nil && d.file.Kind() == memfs.Dir || d.file == nil && write != (d.stream > 0):
			s.errno, s.ready = errBadFile, true
		case d.file != nil || c.fd(d.stream) < 0:
			s.ready = true
		default:
			s.stream = &stream{c.fd(d.stream), write}
		}
	default:
		s.errno, s.ready = errInvalid, true
	}
	return s
}

// timeout returns how long a subscription of a clock waits.
func (c *call) timeout(p []byte) (time.Duration, Errno) {
	at := time.Duration(min(binary.LittleEndian.Uint64(p[24:]), math.MaxInt64))
	var now time.Duration
	switch binary.LittleEndian.Uint32(p[16:]) {
	case clockRealtime:
		now = time.Duration(c.cfg.Now().UnixNano())
	case clockMonotonic:
		now = c.monotonic()
	default:
		return 0, errInvalid
	}
	if binary.LittleEndian.Uint16(p[40:])&clockAbsTime == 0 {
		now = 0
	}
	return max(at-now, 0), success
}

// await waits until a subscription is ready, and marks all that are.
func (c *call) await(subs []subscription) Outcome {
	var streams []stream
	timeout, ready := time.Duration(-1), false
	for _, s := range subs {
		ready = ready || s.ready
		if s.stream != nil && !slices.Contains(streams, *s.stream) {
			streams = append(streams, *s.stream)
		}
		if s.kind == eventClock && s.errno == success && (timeout < 0 || s.timeout < timeout) {
			timeout = s.timeout
		}
	}
	limit := timeout
	if ready {
		limit = 0
	}
	outcome, which := c.awaitStreams(streams, limit, ready)
	if outcome == Interrupted {
		return outcome
	}
	for i := range subs {
		switch s := &subs[i]; {
		case s.stream != nil:
			s.ready = slices.Contains(which, *s.stream)
		case s.kind == eventClock && s.errno == success:
			// Clocks that have run out meanwhile come with the next call.
			s.ready = outcome == TimedOut && s.timeout <= timeout && !ready || s.timeout == 0
		}
	}
	return outcome
}

// awaitStreams waits until one of the streams is ready, and returns all that are.
func (c *call) awaitStreams(streams []stream, limit time.Duration, looking bool) (Outcome, []stream) {
	wait := c.wait
	if len(streams) == 0 {
		if looking {
			return Ready, nil
		}
		return wait(-1, false, limit), nil
	}
	if len(streams) == 1 {
		outcome := wait(streams[0].fd, streams[0].write, limit)
		if outcome == Ready {
			return outcome, streams
		}
		return outcome, nil
	}
	end := c.monotonic() + limit
	for turn := 0; ; turn++ {
		var which []stream
		for _, s := range streams {
			switch wait(s.fd, s.write, 0) {
			case Ready:
				which = append(which, s)
			case Interrupted:
				return Interrupted, nil
			}
		}
		if len(which) > 0 {
			return Ready, which
		}
		step := pollStep
		if limit >= 0 {
			step = min(step, end-c.monotonic())
		}
		if step <= 0 {
			return TimedOut, nil
		}
		s := streams[turn%len(streams)]
		if wait(s.fd, s.write, step) == Interrupted {
			return Interrupted, nil
		}
	}
}

package wasi

import (
	"encoding/binary"
	"io"
	"time"
)

// put stores strings with their ends at buf, and their places at list.
func (c *call) putStrings(strings []string, list, buf uint32) Errno {
	places, ok := c.bytes(list, uint32(4*len(strings)))
	if !ok {
		return errFault
	}
	_, size := sizes(strings)
	data, ok := c.bytes(buf, size)
	if !ok {
		return errFault
	}
	at := 0
	for i, s := range strings {
		binary.LittleEndian.PutUint32(places[4*i:], buf+uint32(at))
		at += copy(data[at:], s)
		data[at] = 0
		at++
	}
	return success
}

func sizes(strings []string) (count, size uint32) {
	for _, s := range strings {
		size += uint32(len(s)) + 1
	}
	return uint32(len(strings)), size
}

func (c *call) putSizes(strings []string) Errno {
	count, size := sizes(strings)
	if errno := c.put32(c.u32(0), count); errno != success {
		return errno
	}
	return c.put32(c.u32(1), size)
}

func (c *call) argsGet() Errno         { return c.putStrings(c.cfg.Args, c.u32(0), c.u32(1)) }
func (c *call) argsSizesGet() Errno    { return c.putSizes(c.cfg.Args) }
func (c *call) environGet() Errno      { return c.putStrings(c.cfg.Env, c.u32(0), c.u32(1)) }
func (c *call) environSizesGet() Errno { return c.putSizes(c.cfg.Env) }

// The clocks.
const (
	clockRealtime  = 0
	clockMonotonic = 1
	clockProcess   = 2
	clockThread    = 3
)

func (c *call) clockTimeGet() Errno {
	var now int64
	switch c.u32(0) {
	case clockRealtime:
		now = c.cfg.Now().UnixNano()
	case clockMonotonic:
		now = int64(c.monotonic())
	case clockProcess, clockThread:
		now = int64(c.cpuTime())
	default:
		return errInvalid
	}
	return c.put64(c.u32(2), uint64(now))
}

// cpuTime is the CPU time of the instance, or the time since a point if nothing
// measures it.
func (h *Host) cpuTime() time.Duration {
	if timer, ok := h.cfg.Waiter.(CPUTimer); ok {
		return timer.CPUTime()
	}
	return h.monotonic()
}

func (c *call) clockResGet() Errno {
	if c.u32(0) > clockThread {
		return errInvalid
	}
	return c.put64(c.u32(1), 1)
}

// mostRandom bounds what one call asks of the machine.
const mostRandom = 1 << 20

func (c *call) randomGet() Errno {
	p, ok := c.bytes(c.u32(0), c.u32(1))
	switch {
	case !ok:
		return errFault
	case len(p) > mostRandom:
		return errTooLong
	}
	if _, err := io.ReadFull(c.cfg.Rand, p); err != nil {
		return errIO
	}
	return success
}

func (c *call) schedYield() Errno { return success }

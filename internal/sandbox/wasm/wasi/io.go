package wasi

import (
	"encoding/binary"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

const (
	maxVectors = 1024
	// maxTransfer bounds what one call copies, so that it ends after a few milliseconds.
	// Less than what was asked for is allowed.
	maxTransfer = 4 << 20
)

// A vector is a part of the instance's memory.
type vector struct{ ptr, len uint32 }

// vectors returns n vectors that the instance stored at ptr, cut to maxTransfer bytes in
// all. The memory that they name need not exist.
func (c *call) vectors(ptr, n uint32) ([]vector, Errno) {
	if n > maxVectors {
		return nil, errInvalid
	}
	p, ok := c.bytes(ptr, 8*n)
	if !ok {
		return nil, errFault
	}
	list := make([]vector, 0, n)
	for left := uint32(maxTransfer); len(p) > 0 && left > 0; p = p[8:] {
		v := vector{binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])}
		v.len = min(v.len, left)
		left -= v.len
		if v.len > 0 {
			list = append(list, v)
		}
	}
	return list, success
}

// transfer calls move with the memory of each vector in turn, until one is not used up.
// It fails if nothing was moved before the failure.
func (c *call) transfer(list []vector, result uint32, move func(p []byte) (int, Errno)) Errno {
	if _, ok := c.bytes(result, 4); !ok {
		return errFault
	}
	total := uint32(0)
	for _, v := range list {
		p, ok := c.bytes(v.ptr, v.len)
		n, errno := 0, errFault
		if ok {
			n, errno = move(p)
		}
		total += uint32(n)
		if errno != success && total == 0 {
			return errno
		}
		if errno != success || n < int(v.len) {
			break
		}
	}
	return c.put32(result, total)
}

func (c *call) fdRead() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	list, errno := c.vectors(c.u32(1), c.u32(2))
	if errno != success {
		return errno
	}
	if d.file == nil {
		return c.readStream(d, list, c.u32(3))
	}
	return c.transfer(list, c.u32(3), func(p []byte) (int, Errno) {
		n, err := d.file.ReadAt(p, d.off)
		d.advance(d.off + int64(n))
		return n, number(err)
	})
}

// advance moves the place where a file is read and written next. A device has none.
func (d *descriptor) advance(off int64) {
	if d.file.Kind() != memfs.Device {
		d.off = off
	}
}

func (c *call) fdWrite() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	list, errno := c.vectors(c.u32(1), c.u32(2))
	if errno != success {
		return errno
	}
	if d.file == nil {
		return c.writeStream(d, list, c.u32(3))
	}
	return c.transfer(list, c.u32(3), func(p []byte) (int, Errno) {
		n, end, err := d.file.WriteAt(p, d.off)
		if n > 0 {
			d.advance(end)
		}
		return n, number(err)
	})
}

func (c *call) fdPread() Errno {
	return c.positioned(func(f *memfs.File, p []byte, off int64) (int, error) { return f.ReadAt(p, off) })
}

func (c *call) fdPwrite() Errno {
	return c.positioned(func(f *memfs.File, p []byte, off int64) (int, error) {
		n, _, err := f.WriteAt(p, off)
		return n, err
	})
}

// positioned reads or writes at an offset of its own, which the descriptor's does not follow.
func (c *call) positioned(move func(f *memfs.File, p []byte, off int64) (int, error)) Errno {
	d, errno := c.file()
	if errno != success {
		return errno
	}
	list, errno := c.vectors(c.u32(1), c.u32(2))
	if errno != success {
		return errno
	}
	off := int64(c.args[3])
	return c.transfer(list, c.u32(4), func(p []byte) (int, Errno) {
		n, err := move(d.file, p, off)
		off += int64(n)
		return n, number(err)
	})
}

// fd returns the descriptor of this process behind a stream, or -1.
func (h *Host) fd(stream int) int {
	return [...]int{h.cfg.Stdin, h.cfg.Stdout, h.cfg.Stderr}[stream]
}

// readStream reads what has arrived, and waits if nothing has.
func (c *call) readStream(d *descriptor, list []vector, result uint32) Errno {
	if d.stream != 0 {
		return errBadFile
	}
	fd := c.fd(0)
	return c.transferStream(d, list, result, false, func(p []byte) (int, Errno) {
		if fd < 0 {
			return 0, success
		}
		return readFD(fd, p)
	})
}

// writeStream writes everything, and waits while there is no room.
func (c *call) writeStream(d *descriptor, list []vector, result uint32) Errno {
	if d.stream == 0 {
		return errBadFile
	}
	fd := c.fd(d.stream)
	return c.transferStream(d, list, result, true, func(p []byte) (int, Errno) {
		if fd < 0 {
			return len(p), success
		}
		return writeFD(fd, p)
	})
}

// transferStream moves bytes between a stream and vectors. It waits for the first bytes
// of a read, and for all bytes of a write, unless the descriptor must not block.
func (c *call) transferStream(d *descriptor, list []vector, result uint32, write bool, move func(p []byte) (int, Errno)) Errno {
	if _, ok := c.bytes(result, 4); !ok {
		return errFault
	}
	var total uint32
	var failed Errno
	for i := 0; i < len(list) && failed == success; {
		v := &list[i]
		if v.len == 0 {
			i++
			continue
		}
		p, ok := c.bytes(v.ptr, v.len)
		if !ok {
			failed = errFault
			break
		}
		n, errno := move(p)
		switch {
		case errno == errAgain && d.flags&flagNonblock == 0 && (write || total == 0):
			if c.wait(c.fd(d.stream), write, -1) == Interrupted {
				failed = errInterrupted
			}
		case errno != success:
			failed = errno
		case n == 0 && !write:
			return c.put32(result, total) // the end
		default:
			total += uint32(n)
			v.ptr, v.len = v.ptr+uint32(n), v.len-uint32(n)
			if !write && v.len > 0 {
				return c.put32(result, total)
			}
		}
	}
	if failed != success && total == 0 {
		return failed
	}
	return c.put32(result, total)
}

package main

import (
	"errors"
	"fmt"
)

// errShort reports a module that ends inside something.
var errShort = errors.New("the module ends too early")

// A reader reads the binary format. After the first error it reads nothing
// more: callers look at err once, at the end of what they read.
type reader struct {
	data []byte
	err  error
}

// fail keeps the first error.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.data = nil
}

// byte reads one byte.
func (r *reader) byte() byte {
	if len(r.data) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

// bytes reads n bytes.
func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.data)) {
		r.fail(errShort)
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}

// leb reads the bytes of a number of at most size bits.
func (r *reader) leb(size int) []byte {
	for i := range r.data {
		if i >= (size+6)/7 {
			break
		}
		if r.data[i] < 0x80 {
			return r.bytes(uint32(i + 1))
		}
	}
	if len(r.data) < (size+6)/7 {
		r.fail(errShort)
	} else {
		r.fail(errors.New("a number is too long"))
	}
	return nil
}

// u32 reads an unsigned number.
func (r *reader) u32() uint32 {
	var n uint64
	for i, b := range r.leb(32) {
		n |= uint64(b&0x7f) << (7 * i)
	}
	if n > 1<<32-1 {
		r.fail(errors.New("a number is too large"))
		return 0
	}
	return uint32(n)
}

// s32 reads a signed number.
func (r *reader) s32() int32 {
	raw := r.leb(32)
	var n int64
	for i, b := range raw {
		n |= int64(b&0x7f) << (7 * i)
	}
	if len(raw) > 0 && raw[len(raw)-1]&0x40 != 0 {
		n |= -1 << (7 * len(raw))
	}
	return int32(n)
}

// count reads the length of a vector, whose elements have a byte at least.
func (r *reader) count() uint32 {
	n := r.u32()
	if uint64(n) > uint64(len(r.data)) {
		r.fail(errShort)
		return 0
	}
	return n
}

// name reads a vector of bytes.
func (r *reader) name() []byte { return r.bytes(r.u32()) }

// limits reads the limits of a memory or of a table.
func (r *reader) limits() {
	switch kind := r.byte(); kind {
	case 0:
		r.u32()
	case 1:
		r.u32()
		r.u32()
	default:
		r.fail(fmt.Errorf("limits of kind %#x", kind))
	}
}

// end reports bytes that nothing read.
func (r *reader) end() error {
	if r.err == nil && len(r.data) > 0 {
		return fmt.Errorf("%d bytes too many", len(r.data))
	}
	return r.err
}

// appendU32 appends an unsigned number.
func appendU32(b []byte, n uint32) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

// appendS32 appends a signed number.
func appendS32(b []byte, n int32) []byte {
	for n < -0x40 || n >= 0x40 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}

// appendBytes appends a vector of bytes.
func appendBytes(b, content []byte) []byte {
	return append(appendU32(b, uint32(len(content))), content...)
}

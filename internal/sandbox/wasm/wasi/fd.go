package wasi

import (
	"encoding/binary"
	"math"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// Rights of preview 1. The C library derives the access mode of a descriptor from
// them, and takes a character device for a terminal unless it can seek.
const (
	rightRead  = 1 << 1
	rightSeek  = 1 << 2
	rightTell  = 1 << 5
	rightWrite = 1 << 6

	// rightsFile are datasync, seek, set flags, sync, tell, advise, allocate, stat, set
	// size, set times and poll.
	rightsFile = 1<<0 | rightSeek | 1<<3 | 1<<4 | rightTell | 1<<7 | 1<<8 | 1<<21 | 1<<22 | 1<<23 | 1<<27
	rightsDir  = 1<<3 | 1<<4 | 0x1f<<9 | 1<<14 | 0x3f<<15 | 1<<21 | 1<<23 | 7<<24
	rightsAll  = 1<<28 - 1
)

// Flags of a descriptor.
const (
	flagAppend   = 1 << 0
	flagNonblock = 1 << 2
	flagsAll     = 1<<5 - 1
)

func (c *call) fdFdstatGet() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	p, ok := c.bytes(c.u32(1), 24)
	if !ok {
		return errFault
	}
	kind, base, inheriting := memfs.Device, uint64(rightsFile), uint64(0)
	switch {
	case d.file == nil && d.stream == 0:
		base |= rightRead
	case d.file == nil:
		base |= rightWrite
	case d.file.Kind() == memfs.Dir:
		kind, base, inheriting = memfs.Dir, rightsDir, rightsAll
	default:
		kind = d.file.Kind()
		mode := d.file.Mode()
		if mode.Read {
			base |= rightRead
		}
		if mode.Write {
			base |= rightWrite
		}
	}
	clear(p)
	p[0] = byte(kind)
	binary.LittleEndian.PutUint16(p[2:], d.flags)
	binary.LittleEndian.PutUint64(p[8:], base)
	binary.LittleEndian.PutUint64(p[16:], inheriting)
	return success
}

func (c *call) fdFdstatSetFlags() Errno {
	d, errno := c.get(c.u32(0))
	flags := c.u32(1)
	switch {
	case errno != success:
		return errno
	case flags&^flagsAll != 0:
		return errInvalid
	}
	d.flags = uint16(flags)
	if d.file != nil {
		d.file.SetAppend(flags&flagAppend != 0)
	}
	return success
}

func (c *call) fdClose() Errno {
	fd := c.u32(0)
	d, errno := c.get(fd)
	if errno != success {
		return errno
	}
	c.table[fd] = nil
	if d.file != nil {
		d.file.Close()
	}
	return success
}

func (c *call) fdPrestatGet() Errno {
	d, errno := c.get(c.u32(0))
	switch {
	case errno != success:
		return errno
	case !d.preopen:
		return errBadFile
	}
	return c.put64(c.u32(1), 1<<32) // a directory, its name has one byte
}

func (c *call) fdPrestatDirName() Errno {
	d, errno := c.get(c.u32(0))
	switch {
	case errno != success:
		return errno
	case !d.preopen:
		return errBadFile
	case c.u32(2) < 1:
		return errNameTooLong
	}
	p, ok := c.bytes(c.u32(1), 1)
	if !ok {
		return errFault
	}
	p[0] = '/'
	return success
}

// file returns the open file of the first argument, which is not a stream.
func (c *call) file() (*descriptor, Errno) {
	d, errno := c.get(c.u32(0))
	if errno == success && d.file == nil {
		errno = errSeekPipe
	}
	return d, errno
}

// Where an offset counts from.
const (
	seekSet = 0
	seekCur = 1
	seekEnd = 2
)

func (c *call) fdSeek() Errno {
	d, errno := c.file()
	if errno != success {
		return errno
	}
	var from int64
	switch kind := d.file.Kind(); {
	case kind == memfs.Dir:
		return errBadFile
	case c.u32(2) > seekEnd:
		return errInvalid
	case kind == memfs.Device: // has no place
		return c.put64(c.u32(3), 0)
	}
	switch c.u32(2) {
	case seekCur:
		from = d.off
	case seekEnd:
		from = d.file.Stat().Size
	}
	delta := int64(c.args[1])
	if delta > 0 && from > math.MaxInt64-delta || from+delta < 0 {
		return errInvalid
	}
	if errno := c.put64(c.u32(3), uint64(from+delta)); errno != success {
		return errno
	}
	d.off = from + delta
	return success
}

func (c *call) fdTell() Errno {
	d, errno := c.file()
	if errno != success {
		return errno
	}
	return c.put64(c.u32(1), uint64(d.off))
}

func (c *call) fdSync() Errno {
	_, errno := c.get(c.u32(0))
	return errno
}

func (c *call) fdAdvise() Errno {
	_, errno := c.file()
	return errno
}

func (c *call) fdFilestatSetSize() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	size := int64(c.args[1])
	if d.file == nil || size < 0 {
		return errInvalid
	}
	return number(d.file.Truncate(size))
}

func (c *call) fdFilestatGet() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	if d.file == nil {
		return c.putStat(c.u32(1), memfs.Info{Kind: memfs.Device, Ino: uint64(d.stream) + 1, Nlink: 1})
	}
	return c.putStat(c.u32(1), d.file.Stat())
}

// putStat stores a filestat.
func (c *call) putStat(ptr uint32, i memfs.Info) Errno {
	p, ok := c.bytes(ptr, 64)
	if !ok {
		return errFault
	}
	for n, v := range [...]uint64{i.Dev, i.Ino, uint64(i.Kind), uint64(i.Nlink), uint64(i.Size), uint64(i.Atime), uint64(i.Mtime), uint64(i.Ctime)} {
		binary.LittleEndian.PutUint64(p[8*n:], v)
	}
	return success
}

// Which times to set, and to what.
const (
	setAtime    = 1 << 0
	setAtimeNow = 1 << 1
	setMtime    = 1 << 2
	setMtimeNow = 1 << 3
)

// times reads the arguments of a call that sets times: two times and flags.
func (c *call) times(i int) (memfs.Times, Errno) {
	flags := c.u32(i + 2)
	t := memfs.Times{Atime: int64(c.args[i]), Mtime: int64(c.args[i+1])}
	if flags >= 1<<4 || flags&(setAtime|setAtimeNow) == setAtime|setAtimeNow || flags&(setMtime|setMtimeNow) == setMtime|setMtimeNow {
		return t, errInvalid
	}
	now := c.cfg.Now().UnixNano()
	if flags&setAtimeNow != 0 {
		t.Atime = now
	}
	if flags&setMtimeNow != 0 {
		t.Mtime = now
	}
	t.SetAtime = flags&(setAtime|setAtimeNow) != 0
	t.SetMtime = flags&(setMtime|setMtimeNow) != 0
	return t, success
}

func (c *call) fdFilestatSetTimes() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	t, errno := c.times(1)
	switch {
	case errno != success:
		return errno
	case d.file == nil:
		return memfs.ErrPermission
	}
	return number(d.file.SetTimes(t))
}

// direntSize is the size of a dirent, before its name.
const direntSize = 24

// maxListing bounds what one call lists.
const maxListing = 1 << 20

func (c *call) fdReaddir() Errno {
	d, errno := c.get(c.u32(0))
	if errno != success {
		return errno
	}
	buf, ok := c.bytes(c.u32(1), c.u32(2))
	if !ok {
		return errFault
	}
	if d.file == nil {
		return errNotDir
	}
	if len(buf) > maxListing {
		return errInvalid // a part of it would mean that there is no more
	}
	used := 0
	for cookie := c.args[3]; used < len(buf); {
		// No more than fit, and few at a time: the file system is locked meanwhile.
		list, err := d.file.List(cookie, min(256, (len(buf)-used)/direntSize+1))
		if err != nil {
			return number(err)
		}
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			var head [direntSize]byte
			binary.LittleEndian.PutUint64(head[0:], e.Next)
			binary.LittleEndian.PutUint64(head[8:], e.Ino)
			binary.LittleEndian.PutUint32(head[16:], uint32(len(e.Name)))
			head[20] = byte(e.Kind)
			used += copy(buf[used:], head[:])
			used += copy(buf[used:], e.Name)
			cookie = e.Next
		}
	}
	return c.put32(c.u32(4), uint32(used))
}

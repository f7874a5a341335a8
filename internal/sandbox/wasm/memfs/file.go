package memfs

import "io"

// A File is an open file, directory or device. Where it reads and writes, its caller
// says.
type File struct {
	fs     *FS
	node   *node
	mode   Mode // without what happens once, when it is opened
	closed bool
}

// Mode returns how the file was opened.
func (h *File) Mode() Mode {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.mode
}

// SetAppend changes whether each write goes to the end.
func (h *File) SetAppend(on bool) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.mode.Append = on
}

// Kind returns what the file is.
func (h *File) Kind() Kind { return h.node.kind }

// Close releases the file. It may be called more than once.
func (h *File) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	if h.node.vol != nil {
		h.node.opens--
		h.fs.release(h.node)
	}
	return nil
}

// Stat describes the file.
func (h *File) Stat() Info {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.node.info()
}

// SetTimes sets times of the file.
func (h *File) SetTimes(t Times) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.fs.setTimes(h.node, t)
}

// usable reports whether the file can be used for reading or writing.
func (h *File) usable(allowed bool, off int64) error {
	switch {
	case h.closed || !allowed:
		return ErrBadFile
	case h.node.kind == Dir:
		return ErrIsDir
	case off < 0:
		return ErrInvalid
	}
	return nil
}

// mostRandom bounds what a read of random bytes returns.
const mostRandom = 1 << 20

// ReadAt reads at an offset. At the end of the file it returns 0 and no error, unlike
// an [io.ReaderAt].
func (h *File) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable(h.mode.Read, off); err != nil {
		return 0, err
	}
	n := h.node
	switch n.device {
	case null:
		return 0, nil
	case zero:
		clear(p)
		return len(p), nil
	case random:
		p = p[:min(len(p), mostRandom)]
		if _, err := io.ReadFull(h.fs.rand, p); err != nil {
			return 0, ErrIO
		}
		return len(p), nil
	}
	if n.vol == nil {
		if off >= int64(len(n.text)) {
			return 0, nil
		}
		return copy(p, n.text[off:]), nil
	}
	// The time of access is kept as "relatime" of Linux does.
	if n.atime <= n.mtime {
		n.atime = h.fs.now().UnixNano()
	}
	return n.data.readAt(p, off), nil
}

// WriteAt writes at an offset, or at the end of a file for appending, and returns
// where the next byte would go. It may write less than all of p without an error, as
// far as there is room.
func (h *File) WriteAt(p []byte, off int64) (n int, end int64, err error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable(h.mode.Write, off); err != nil {
		return 0, off, err
	}
	if h.node.kind == Device {
		return len(p), off, nil
	}
	if h.mode.Append {
		off = h.node.data.size
	}
	n, err = h.node.data.writeAt(h.node.vol, p, off)
	if n > 0 {
		h.fs.touch(h.node)
	}
	return n, off + int64(n), err
}

// Truncate sets the file's size.
func (h *File) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable(h.mode.Write, size); err != nil {
		return err
	}
	if h.node.kind != Regular {
		return ErrInvalid
	}
	if err := h.node.data.truncate(h.node.vol, size); err != nil {
		return err
	}
	h.fs.touch(h.node)
	return nil
}

// Entry is an entry of a directory. Next is the cookie of what comes after it.
type Entry struct {
	Name string
	Kind Kind
	Ino  uint64
	Next uint64
}

// List returns up to limit entries of a directory from a cookie on, which is 0 or the
// Next of an entry. Entries that are added or removed meanwhile do not move the
// others. The first two are "." and "..".
func (h *File) List(cookie uint64, limit int) ([]Entry, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return nil, ErrBadFile
	}
	if h.node.kind != Dir {
		return nil, ErrNotDir
	}
	var list []Entry
	if cookie == 0 && limit > 0 {
		list = append(list, Entry{".", Dir, h.node.ino, 1})
	}
	if cookie <= 1 && len(list) < limit {
		parent := h.fs.parentOf(h.node)
		if parent == nil {
			parent = h.node
		}
		list = append(list, Entry{"..", Dir, parent.ino, firstCookie})
	}
	for _, e := range h.node.from(cookie) {
		if len(list) >= limit {
			break
		}
		if e.node != nil {
			list = append(list, Entry{e.name, e.node.kind, e.node.ino, e.cookie + 1})
		}
	}
	return list, nil
}

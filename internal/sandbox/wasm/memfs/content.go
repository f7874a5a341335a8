package memfs

// A file is stored in chunks of chunkSize bytes. A chunk that was never written is
// absent, and one that was written in part is short: what is missing reads as zero.
const (
	chunkSize = 64 << 10
	minChunk  = 512
	indexCost = 24 // of a chunk's place in the index
)

// A Budget is memory that a file system shares with others. Its methods are called
// with the file system locked.
type Budget interface {
	// Take reserves n bytes, or reports that there are not so many left.
	Take(n int64) bool
	// Give returns n bytes.
	Give(n int64)
}

// A volume is a writable tree with a quota.
type volume struct {
	dev    uint64
	limit  int64
	used   int64
	budget Budget
}

// take charges n bytes to the volume and to the budget.
func (v *volume) take(n int64) error {
	if n > v.limit-v.used {
		return ErrNoSpace
	}
	if v.budget != nil && n > 0 && !v.budget.Take(n) {
		return ErrNoSpace
	}
	v.used += n
	return nil
}

// give returns n bytes that were taken.
func (v *volume) give(n int64) {
	v.used -= n
	if v.budget != nil && n > 0 {
		v.budget.Give(n)
	}
}

// retake takes what was taken for something at its new price.
func (v *volume) retake(before, now int64) error {
	if now > before {
		return v.take(now - before)
	}
	v.give(before - now)
	return nil
}

// content is what a writable file holds.
type content struct {
	size   int64
	chunks [][]byte
}

// index makes the index hold n chunks, and charges what that costs.
func (c *content) index(v *volume, n int) error {
	if n > cap(c.chunks) {
		if err := v.take(int64(n-cap(c.chunks)) * indexCost); err != nil {
			return err
		}
		chunks := make([][]byte, len(c.chunks), n)
		copy(chunks, c.chunks)
		c.chunks = chunks
	}
	c.chunks = c.chunks[:max(n, len(c.chunks))]
	return nil
}

// room makes chunk i hold at least n bytes, and charges what that costs.
func (c *content) room(v *volume, i int, n int) error {
	if i >= cap(c.chunks) {
		if err := c.index(v, max(i+1, 2*cap(c.chunks))); err != nil {
			return err
		}
	}
	c.chunks = c.chunks[:max(i+1, len(c.chunks))]
	chunk := c.chunks[i]
	if n <= len(chunk) {
		return nil
	}
	if n > cap(chunk) {
		grown := minChunk
		for grown < n {
			grown *= 2
		}
		if err := v.take(int64(grown - cap(chunk))); err != nil {
			return err
		}
		larger := make([]byte, len(chunk), grown)
		copy(larger, chunk)
		chunk = larger
	}
	c.chunks[i] = chunk[:n]
	return nil
}

// writeAt writes as much as there is room for. It fails if that is nothing.
func (c *content) writeAt(v *volume, p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		at := int(off % chunkSize)
		n := min(len(p)-done, chunkSize-at)
		err := error(ErrNoSpace)
		if off < v.limit {
			err = c.room(v, int(off/chunkSize), at+n)
		}
		if err != nil {
			if done > 0 {
				err = nil
			}
			return done, err
		}
		copy(c.chunks[off/chunkSize][at:], p[done:done+n])
		done += n
		off += int64(n)
		c.size = max(c.size, off)
	}
	return done, nil
}

// readAt reads up to the file's end.
func (c *content) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	done := 0
	for done < len(p) {
		at := int(off % chunkSize)
		part := p[done:min(len(p), done+chunkSize-at)]
		n := 0
		if i := off / chunkSize; i < int64(len(c.chunks)) && at < len(c.chunks[i]) {
			n = copy(part, c.chunks[i][at:])
		}
		clear(part[n:])
		done += len(part)
		off += int64(len(part))
	}
	return done
}

// truncate sets the size. What is added reads as zero.
func (c *content) truncate(v *volume, size int64) error {
	if size > v.limit {
		return ErrTooBig
	}
	if size == 0 {
		c.free(v)
		return nil
	}
	if size < c.size {
		keep := min(int((size+chunkSize-1)/chunkSize), len(c.chunks))
		var freed int64
		for i := keep; i < len(c.chunks); i++ {
			freed += int64(cap(c.chunks[i]))
			c.chunks[i] = nil
		}
		v.give(freed)
		c.chunks = c.chunks[:keep]
		if at := int(size % chunkSize); at > 0 && keep == int(size/chunkSize)+1 && at < len(c.chunks[keep-1]) {
			clear(c.chunks[keep-1][at:])
			c.chunks[keep-1] = c.chunks[keep-1][:at]
		}
	}
	c.size = size
	return nil
}

// free gives everything back.
func (c *content) free(v *volume) {
	freed := int64(cap(c.chunks)) * indexCost
	for _, chunk := range c.chunks {
		freed += int64(cap(chunk))
	}
	v.give(freed)
	*c = content{}
}

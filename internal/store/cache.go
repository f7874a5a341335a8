package store

import (
	"io/fs"
	"os"
	"sync"
	"time"
)

// A Cache keeps values that were computed from the files of one directory until
// the files change. Its zero value is ready for use. It is safe for concurrent
// use.
type Cache[T any] struct {
	mu      sync.Mutex
	entries map[string]cached[T]
	size    int64
}

type cached[T any] struct {
	info  fs.FileInfo
	value T
	size  int64
}

// maxCached bounds the total of the sizes passed to a Cache.
const maxCached = 8 << 20

// settled is the age after which a file's modification time distinguishes it
// from a later version: file systems have coarse times, and reuse the inodes of
// removed files.
const settled = 2 * time.Second

// Get returns the value that make computed from the file in d. It calls make if
// the file is new or has changed; make also returns the size of the value.
// Errors are not kept. The value is shared and must not be changed.
func (c *Cache[T]) Get(d Dir, name string, make func() (value T, size int64, err error)) (T, error) {
	var none T
	// Before the file is read, so that a change while it is read is noticed.
	info, err := os.Lstat(d.Path(name))
	now := time.Now()
	if err != nil {
		c.forget(name)
		return none, err
	}
	c.mu.Lock()
	have, ok := c.entries[name]
	c.mu.Unlock()
	if ok && os.SameFile(have.info, info) && have.info.ModTime().Equal(info.ModTime()) && have.info.Size() == info.Size() {
		return have.value, nil
	}
	c.forget(name)
	value, size, err := make()
	if err != nil {
		return none, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.entries[name]; !again && c.size+size <= maxCached && now.Sub(info.ModTime()) >= settled {
		if c.entries == nil {
			c.entries = map[string]cached[T]{}
		}
		c.entries[name] = cached[T]{info, value, size}
		c.size += size
	}
	return value, nil
}

// forget drops a file that has changed.
func (c *Cache[T]) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size -= c.entries[name].size
	delete(c.entries, name)
}

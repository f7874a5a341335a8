package state

import (
	"io/fs"
	"os"
	"sync"
	"time"
)

// A Cache keeps what was made of the files of one directory as long as these
// do not change, whoever changes them. Its zero value is ready. It is safe for
// concurrent use.
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

// maxCached bounds what a Cache keeps, by the sizes that it is told.
const maxCached = 8 << 20

// settled is the age from which a file's time of change tells it from a later
// one: file systems count in steps, and use the place of a removed file again.
const settled = 2 * time.Second

// Get returns what make made of the file in d. make is called when the file
// has changed, or was never seen; it says how large its value is. An error is
// not kept. The value is shared: nobody changes it.
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

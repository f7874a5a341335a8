package definitions

import (
	"os"
	"sync"
	"time"
)

// Only large files are worth caching, and only those that have not just been
// changed.
const (
	cacheFrom = 64 << 10
	cacheAge  = 2 * time.Second
)

// Cache keeps the contents of files that have not changed since they were read.
// A nil Cache keeps nothing.
type Cache struct {
	mu    sync.Mutex
	files map[string]cached
}

type cached struct {
	info    os.FileInfo
	dialect *dialect
	root    node
	err     error
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{files: make(map[string]cached)} }

// tree parses a file in a dialect, if there is room for it.
func (c *Cache) tree(path string, d *dialect, room *int64) (*node, error) {
	if c == nil {
		root, _, err := readTree(path, d, room)
		return root, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have, ok := c.files[path]
	if ok && have.dialect == d {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, have.info) &&
			info.Size() == have.info.Size() && info.ModTime().Equal(have.info.ModTime()) {
			if room != nil {
				if *room -= info.Size(); *room < 0 {
					return nil, errProjectTooLarge
				}
			}
			return &have.root, have.err
		}
	}
	delete(c.files, path)
	root, info, err := readTree(path, d, room)
	if info != nil && info.Size() >= cacheFrom && time.Since(info.ModTime()) > cacheAge {
		entry := cached{info: info, dialect: d, err: err}
		if root != nil {
			entry.root = *root
		}
		c.files[path] = entry
	}
	return root, err
}

func readTree(path string, d *dialect, room *int64) (*node, os.FileInfo, error) {
	data, info, err := readFrom(path, MaxFileSize, room)
	if err != nil {
		return nil, nil, err
	}
	root, err := decode(data, d)
	if err != nil {
		return nil, info, err
	}
	return &root, info, nil
}

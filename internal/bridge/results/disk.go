package results

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// One process at a time has the directory, which it locks; others keep results in
// memory alone. A file has a line that describes the result, and the result.

// lockName is the lock of the directory.
const lockName = "results"

// disk is where results outlive the process.
type disk struct {
	tried  bool
	unlock func() // nil: another process has the directory, or there is none
}

// description is the first line of a file.
type description struct {
	Server []byte        `json:"server"`
	Stored time.Time     `json:"stored"`
	Keep   time.Duration `json:"keep"`
}

func fileOf(id digest) string { return hex.EncodeToString(id[:]) }

// The following methods are called with c.mu.

// load reads what the last process kept, at the first use.
func (c *Cache) load() {
	if c.disk.tried || !c.config.Dir.Placed() {
		return
	}
	c.disk.tried = true
	root, err := c.config.Dir.OpenRoot() // creates it
	if err == nil {
		_ = root.Close()
		var ok bool
		if c.disk.unlock, ok, err = c.config.Dir.TryLock(lockName); err == nil && !ok {
			c.config.Log.Info("results are kept in memory alone: another Sallyport has those on disk")
			return
		}
	}
	names, listed := c.config.Dir.List()
	if err = errors.Join(err, listed); err != nil {
		c.config.Log.Warn("results are kept in memory alone", "error", err)
		c.disk.close()
		return
	}
	var found []*entry
	for _, name := range names {
		e := c.read(name)
		if e == nil || time.Since(e.stored) < 0 || e.age() >= e.keep { // a time to come: the clock was set
			c.unlink(name)
			if e != nil {
				c.tidy(e.server)
			}
			continue
		}
		found = append(found, e)
	}
	slices.SortFunc(found, func(a, b *entry) int { return a.stored.Compare(b.stored) })
	for _, e := range found {
		c.add(e)
	}
}

// read returns what a file has; nil where that cannot be used.
func (c *Cache) read(name string) *entry {
	id, err := hex.DecodeString(name)
	if err != nil || len(id) != len(digest{}) {
		return nil
	}
	data, err := c.config.Dir.Read(name, c.config.Bytes)
	if err != nil {
		return nil
	}
	first, result, ok := bytes.Cut(data, []byte("\n"))
	var d description
	if !ok || json.Unmarshal(first, &d) != nil || !json.Valid(result) {
		return nil
	}
	return &entry{server: c.server(string(d.Server)), id: digest(id), result: result, stored: d.Stored, keep: d.Keep, onDisk: true}
}

// write keeps an entry on disk, if there is a place.
func (c *Cache) write(e *entry) {
	if c.disk.unlock == nil {
		return
	}
	first, err := json.Marshal(description{[]byte(e.server.id), e.stored, e.keep})
	if err == nil {
		err = c.config.Dir.Write(fileOf(e.id), slices.Concat(first, []byte("\n"), e.result))
	}
	if err != nil {
		c.config.Log.Warn("a result is kept in memory alone", "error", err)
	}
	e.onDisk = err == nil
}

func (c *Cache) unlink(name string) {
	if err := c.config.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.config.Log.Warn("a result that must not be used any more cannot be removed", "file", c.config.Dir.Path(name), "error", err)
	}
}

func (d *disk) close() {
	if d.unlock != nil {
		d.unlock()
		d.unlock = nil
	}
}

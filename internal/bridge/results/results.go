// Package results keeps what tools returned, for as long as the user's rules let
// it be used again. It knows nothing of who may have a result: it is asked after
// the gate has decided, and what may not be shared is in the key.
//
// A call that writes empties what is kept of its server, when it begins and when
// it ends, and nothing that was read meanwhile is kept.
package results

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// overhead is about what a result takes besides its bytes.
const overhead = 512

// Config bounds a Cache.
type Config struct {
	Entries int   // results
	Bytes   int64 // of all of them together
	// Dir is where results of servers that all clients share outlive the process;
	// the zero Dir keeps them in memory alone.
	Dir store.Dir
	Log *slog.Logger // nil: nothing is logged
}

// Key is what a result depends on.
type Key struct {
	// Server identifies the running server; clients or sessions that are not to
	// share one have servers of different names here.
	Server string
	// Lasting means that Server identifies it in every process.
	Lasting     bool
	Owner, Tool string
	Form        []byte          // how the server describes the tool
	Arguments   json.RawMessage // one JSON object, or empty for none
}

// Answer is the result of a call, or of an earlier one.
type Answer struct {
	Result json.RawMessage // shared: it must not be changed
	// Kept means that no call was made for it. Age is how old it is; it is zero
	// where the same call of someone else was under way.
	Kept bool
	Age  time.Duration
}

// A Cache keeps results. It is safe for concurrent use.
type Cache struct {
	config Config

	mu      sync.Mutex
	servers map[string]*server
	order   *list.List // of *entry, the one used last at the back
	bytes   int64
	sweeper *time.Timer // removes what has expired; nil until there is something
	next    time.Time   // when it does
	disk    disk
}

// server is what is known of one server. It is forgotten when it is empty.
type server struct {
	id         string
	generation int // grows whenever what is read before and after may differ
	reads      int // calls under way whose results may be kept
	writes     int // calls under way that may change something
	entries    map[digest]*list.Element
	flights    map[digest]*flight
}

type entry struct {
	server *server
	id     digest
	result json.RawMessage
	stored time.Time
	keep   time.Duration
	onDisk bool
}

func (e *entry) size() int64 { return int64(len(e.result)) + overhead }

// age returns how old the result is. A machine that slept does not make it
// younger, nor does a clock that was set back.
func (e *entry) age() time.Duration {
	now := time.Now()
	return max(now.Sub(e.stored), now.Round(0).Sub(e.stored.Round(0)))
}

// flight is a call under way, for which others wait.
type flight struct {
	done   chan struct{}
	result json.RawMessage // nil: there is none for others
}

// New returns an empty Cache, which the caller closes.
func New(config Config) *Cache {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Cache{config: config, servers: map[string]*server{}, order: list.New()}
}

// Close forgets what is in memory.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweeper != nil {
		c.sweeper.Stop()
	}
	c.disk.close()
}

// Do returns the result that is kept for a key, if it is not older than keep, or
// makes the call. Of the same calls at the same time one is made; if it fails,
// each of the others makes its own, so that no one fails because of someone else.
// fresh makes the call in any case. Whether the result may be kept, call says.
func (c *Cache) Do(ctx context.Context, key Key, keep time.Duration, fresh bool, call func() (result json.RawMessage, may bool, err error)) (Answer, error) {
	id, ok := key.digest()
	if !ok {
		result, _, err := call()
		return Answer{Result: result}, err
	}
	c.mu.Lock()
	c.load()
	s := c.server(key.Server)
	if !fresh {
		if at := s.entries[id]; at != nil {
			e := at.Value.(*entry)
			if age := e.age(); age < keep {
				c.order.MoveToBack(at)
				c.mu.Unlock()
				return Answer{e.result, true, max(age, 1)}, nil
			}
		}
		if f := s.flights[id]; f != nil {
			c.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
				return Answer{}, context.Cause(ctx)
			}
			if f.result != nil {
				return Answer{Result: f.result, Kept: true}, nil
			}
			result, _, err := call()
			return Answer{Result: result}, err
		}
	}
	f := &flight{done: make(chan struct{})}
	s.flights[id] = f
	s.reads++
	generation := s.generation
	c.mu.Unlock()

	var result json.RawMessage
	var may bool
	var err error
	defer func() { // also where the call panics
		c.mu.Lock()
		defer c.mu.Unlock()
		s.reads--
		if s.flights[id] == f {
			delete(s.flights, id)
		}
		if err == nil && result != nil && int64(len(result))+overhead <= c.config.Bytes/4 {
			f.result = bytes.Clone(result) // it may be a part of something larger
			if may && s.writes == 0 && s.generation == generation {
				c.put(s, id, f.result, keep, key.Lasting)
			}
		}
		close(f.done)
		c.tidy(s)
	}()
	result, may, err = call()
	return Answer{Result: result}, err
}

// Writing notes that a call begins that may change something; the function that
// it returns, that it has ended. Meanwhile nothing of the server is kept.
func (c *Cache) Writing(id string) (ended func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	s := c.server(id)
	s.writes++
	c.empty(s)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.writes--
		c.empty(s)
		c.tidy(s)
	}
}

// Forget drops what is kept of a server, and does not keep what is being read.
func (c *Cache) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	if s := c.servers[id]; s != nil {
		c.empty(s)
		c.tidy(s)
	}
}

// The following methods are called with c.mu.

func (c *Cache) server(id string) *server {
	s := c.servers[id]
	if s == nil {
		s = &server{id: id, entries: map[digest]*list.Element{}, flights: map[digest]*flight{}}
		c.servers[id] = s
	}
	return s
}

// tidy forgets a server of which nothing is known. Calls under way have it.
func (c *Cache) tidy(s *server) {
	if s.reads == 0 && s.writes == 0 && len(s.entries) == 0 && c.servers[s.id] == s {
		delete(c.servers, s.id)
	}
}

func (c *Cache) empty(s *server) {
	s.generation++
	clear(s.flights) // who comes now must not get what was read before
	for _, at := range s.entries {
		c.drop(at)
	}
}

func (c *Cache) drop(at *list.Element) {
	e := c.order.Remove(at).(*entry)
	delete(e.server.entries, e.id)
	c.bytes -= e.size()
	if e.onDisk && c.disk.unlock != nil {
		c.unlink(fileOf(e.id))
	}
}

func (c *Cache) put(s *server, id digest, result json.RawMessage, keep time.Duration, lasting bool) {
	if at := s.entries[id]; at != nil {
		c.drop(at)
	}
	e := &entry{server: s, id: id, result: result, stored: time.Now(), keep: keep}
	if lasting {
		c.write(e)
	}
	c.add(e)
}

// add keeps an entry, and drops those that were not used for longest where there
// are too many.
func (c *Cache) add(e *entry) {
	for c.order.Len() > 0 && (c.order.Len() >= c.config.Entries || c.bytes+e.size() > c.config.Bytes) {
		last := c.order.Front()
		s := last.Value.(*entry).server
		c.drop(last)
		c.tidy(s)
	}
	e.server.entries[e.id] = c.order.PushBack(e)
	c.servers[e.server.id] = e.server
	c.bytes += e.size()
	if expires := e.stored.Add(e.keep); c.next.IsZero() || expires.Before(c.next) {
		c.wake(expires)
	}
}

func (c *Cache) wake(at time.Time) {
	c.next = at
	if wait := time.Until(at); c.sweeper == nil {
		c.sweeper = time.AfterFunc(wait, c.sweep)
	} else {
		c.sweeper.Reset(wait)
	}
}

// sweep drops what has expired.
func (c *Cache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = time.Time{}
	var first time.Time
	var following *list.Element
	for at := c.order.Front(); at != nil; at = following {
		following = at.Next()
		e := at.Value.(*entry)
		if e.age() >= e.keep {
			c.drop(at)
			c.tidy(e.server)
		} else if expires := e.stored.Add(e.keep); first.IsZero() || expires.Before(first) {
			first = expires
		}
	}
	if !first.IsZero() {
		c.wake(first)
	}
}

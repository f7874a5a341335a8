// Package usertools keeps the functions that code in sandboxes saves for later
// sessions: as text, which this program never runs. All sessions of a user
// share them, in all programs that run at the same time.
//
// Each is a file of its own with its last versions. What is kept was checked:
// a name is an identifier, everything has its bounds.
package usertools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/state"
)

// What can be wrong with a request. The errors of this package wrap them, or
// are the file system's.
var (
	ErrInvalid = errors.New("not a tool that can be saved")
	ErrLimit   = errors.New("too much to keep")
	ErrBroken  = errors.New("the file is broken")
	ErrMissing = errors.New("there is no such saved tool")
)

// Bounds of one version of a tool, in bytes.
const (
	MaxName      = 100
	MaxSource    = 256 << 10
	MaxDoc       = 16 << 10
	MaxSignature = 4 << 10
	MaxSchema    = 64 << 10
	MaxServers   = 64 // of them, not bytes
	maxShort     = 100
)

const (
	extension = ".json"
	lockName  = "user_tools"
)

// Limits bound what is kept. A zero takes its default.
type Limits struct {
	Tools    int   // 1,000
	Versions int   // of one tool: 20; older ones are dropped
	Total    int64 // bytes of all files: 64 MiB
}

// Version is one version of a tool.
type Version struct {
	Version   int    `json:"version"`  // counts up from 1
	SavedAt   string `json:"saved_at"` // RFC 3339
	Python    string `json:"python,omitempty"`
	Signature string `json:"signature"` // as in (x, y=2)
	Doc       string `json:"doc,omitempty"`
	Async     bool   `json:"async,omitempty"`
	// Servers are the aliases of the MCP servers that it calls, as far as its
	// text tells.
	Servers []string `json:"servers,omitempty"`
	// Schema is a JSON Schema of the arguments, an object.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Source is a whole module, whose attribute of the tool's name is the tool.
	Source string `json:"source"`
}

// Tool is a tool with the versions that are kept, oldest first.
type Tool struct {
	Name     string    `json:"name"`
	Versions []Version `json:"versions"`
}

// Current is the version in use.
func (t *Tool) Current() *Version { return &t.Versions[len(t.Versions)-1] }

// A Store is the saved tools in one directory. It is safe for concurrent use,
// also by several processes.
type Store struct {
	dir    state.Dir
	limits Limits
	now    func() time.Time
	// writing is held by whoever waits for the directory's lock.
	writing sync.Mutex
	// reading bounds how many files are read at a time.
	reading chan struct{}
	tools   state.Cache[Tool]
}

// maxReading bounds the files that one Store reads at a time: what is read may
// be large, and who asks may be hostile.
const maxReading = 4

// Open returns the tools in a directory, which need not be there.
func Open(dir state.Dir, limits Limits) *Store {
	if limits.Tools == 0 {
		limits.Tools = 1000
	}
	if limits.Versions == 0 {
		limits.Versions = 20
	}
	if limits.Total == 0 {
		limits.Total = 64 << 20
	}
	return &Store{dir: dir, limits: limits, now: time.Now, reading: make(chan struct{}, maxReading)}
}

// Save keeps a new version of a tool, whose number and time it sets, and returns
// the number. What is the current version's equal makes no new one.
func (s *Store) Save(name string, v Version) (version int, err error) {
	v.Version, v.SavedAt = 1, s.now().UTC().Format(time.RFC3339)
	if err := check(name, &v); err != nil {
		return 0, err
	}
	unlock, err := s.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	t, err := s.forUpdate(name)
	if err != nil {
		return 0, err
	}
	s.add(&t, v)
	return t.Current().Version, s.write(&t)
}

// forUpdate reads a tool that is to be changed, or makes one without versions.
func (s *Store) forUpdate(name string) (Tool, error) {
	t, err := s.Get(name)
	if errors.Is(err, ErrMissing) || errors.Is(err, ErrBroken) { // which is then replaced
		return Tool{Name: name}, nil
	}
	return t, err
}

// add appends a version, if it is another than the current one.
func (s *Store) add(t *Tool, v Version) {
	v.Version = 1
	if len(t.Versions) > 0 {
		if same(t.Current(), &v) {
			return
		}
		v.Version = t.Current().Version + 1
	}
	t.Versions = append(t.Versions, v)
	if n := len(t.Versions) - s.limits.Versions; n > 0 {
		t.Versions = slices.Delete(t.Versions, 0, n)
	}
}

// same says whether two versions are the same tool.
func same(a, b *Version) bool {
	return a.Source == b.Source && a.Signature == b.Signature && a.Doc == b.Doc && a.Async == b.Async &&
		slices.Equal(a.Servers, b.Servers)
}

// write replaces a tool's file. The lock is held.
func (s *Store) write(t *Tool) error {
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	name := state.FileName(t.Name, extension)
	if err := s.room(name, int64(len(data))); err != nil {
		return err
	}
	return s.dir.Write(name, data)
}

// room answers whether a file of that size can be kept.
func (s *Store) room(name string, size int64) error {
	names, err := s.dir.List()
	if err != nil {
		return err
	}
	tools, total := 1, size
	for _, other := range names {
		if other == name || !strings.HasSuffix(other, extension) {
			continue
		}
		tools++
		if info, err := os.Lstat(s.dir.Path(other)); err == nil {
			total += info.Size()
		}
	}
	if tools > s.limits.Tools {
		return fmt.Errorf("%w: there are %d saved tools already (setting savedTools.maxTools)", ErrLimit, s.limits.Tools)
	}
	if total > s.limits.Total {
		return fmt.Errorf("%w: all saved tools together would take %d bytes, of at most %d", ErrLimit, total, s.limits.Total)
	}
	return nil
}

// Get returns a tool, or ErrMissing.
func (s *Store) Get(name string) (Tool, error) {
	if !isName(name) {
		return Tool{}, ErrMissing // nothing can be there
	}
	t, err := s.read(state.FileName(name, extension))
	if errors.Is(err, fs.ErrNotExist) {
		return Tool{}, ErrMissing
	}
	if err == nil && t.Name != name {
		return Tool{}, fmt.Errorf("%w: it says that its name is another", ErrBroken)
	}
	return t, err
}

// Names returns the names of all tools, sorted. It does not look into the
// files.
func (s *Store) Names() ([]string, error) {
	files, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		name := state.TextOf(f, extension)
		if isName(name) && state.FileName(name, extension) == f {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// List returns all tools, sorted by name, and the names of those that cannot be
// read. What it returns is not to be changed.
func (s *Store) List() (tools []Tool, broken []string, err error) {
	names, err := s.Names()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		t, err := s.tools.Get(s.dir, state.FileName(name, extension), func() (Tool, int64, error) {
			t, err := s.Get(name)
			return t, sizeOf(&t), err
		})
		switch {
		case errors.Is(err, ErrMissing), errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			broken = append(broken, name)
		default:
			tools = append(tools, t)
		}
	}
	return tools, broken, nil
}

// sizeOf is about what a tool takes in memory.
func sizeOf(t *Tool) int64 {
	const more = 500
	size := more
	for i := range t.Versions {
		v := &t.Versions[i]
		size += len(v.Source) + len(v.Doc) + len(v.Schema) + len(v.Signature) + more
	}
	return int64(size)
}

// Remove removes a tool with all its versions, or returns ErrMissing.
func (s *Store) Remove(name string) error {
	if !isName(name) {
		return ErrMissing
	}
	if _, err := os.Lstat(s.dir.Path(state.FileName(name, extension))); errors.Is(err, fs.ErrNotExist) {
		return ErrMissing // no need for a lock, or for a directory
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = s.dir.Remove(state.FileName(name, extension))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrMissing
	}
	return err
}

func (s *Store) lock() (unlock func(), err error) {
	s.writing.Lock()
	release, err := s.dir.Lock(lockName)
	if err != nil {
		s.writing.Unlock()
		return nil, err
	}
	return func() { release(); s.writing.Unlock() }, nil
}

func (s *Store) read(file string) (Tool, error) {
	const most = 64 << 20
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	data, err := s.dir.Read(file, most)
	if err != nil {
		return Tool{}, err
	}
	var t Tool
	if err := json.Unmarshal(data, &t); err != nil {
		return Tool{}, fmt.Errorf("%w: it is not the JSON of a saved tool", ErrBroken)
	}
	if err := checkTool(&t); err != nil {
		return Tool{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return t, nil
}

// Package savedtools keeps the functions that code in sandboxes saves for later
// sessions, as source that this program never runs. All sessions of a user
// share them, in all programs that run at the same time.
//
// Each is a file of a keyed.Store with its last versions. Everything is checked
// before it is stored: names are identifiers, and all sizes are bounded.
package savedtools

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/store/keyed"
)

// ErrInvalid reports a tool that cannot be saved.
var ErrInvalid = errors.New("not a tool that can be saved")

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
	// Servers are the MCP servers that it calls, by the names that follow mcp_, as far as its
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
// also by several processes. Its errors wrap ErrInvalid and those of package
// keyed, or come from the file system.
type Store struct {
	tools    *keyed.Store[Tool]
	versions int // kept of one tool
	now      func() time.Time
}

var format = keyed.Format[Tool]{
	Lock: "user_tools", Plural: "saved tools", KeysSetting: "savedTools.maxTools",
	Key: func(t Tool) string { return t.Name }, Decode: decode, Encode: encode,
	Listed: func(t Tool) (Tool, int64) { return t, sizeOf(&t) },
}

// Check returns an error if a file of this name has a content that is not
// used.
func Check(name string, data []byte) error { return format.Check(name, data) }

// Open returns the tools in a directory, which need not exist.
func Open(dir store.Dir, limits Limits) *Store {
	limits = Limits{cmp.Or(limits.Tools, 1000), cmp.Or(limits.Versions, 20), cmp.Or(limits.Total, 64<<20)}
	tools := keyed.Open(dir, format, keyed.Limits{Keys: limits.Tools, Total: limits.Total})
	return &Store{tools: tools, versions: limits.Versions, now: time.Now}
}

// Save stores a new version of a tool, sets its number and time, and returns
// the number. It stores nothing if the version is equal to the current one.
func (s *Store) Save(name string, v Version) (version int, err error) {
	v.Version, v.SavedAt = 1, s.now().UTC().Format(time.RFC3339)
	if err := check(name, &v); err != nil {
		return 0, err
	}
	return s.update(name, func(t *Tool) { s.add(t, v) })
}

// update changes a tool, which has no versions if it is new, and returns the
// current version.
func (s *Store) update(name string, change func(*Tool)) (version int, err error) {
	_, err = s.tools.Update(name, func(t Tool, _ string, err error) (Tool, error) {
		if errors.Is(err, keyed.ErrMissing) || errors.Is(err, keyed.ErrBroken) { // which is then replaced
			t, err = Tool{Name: name}, nil
		}
		if err != nil {
			return Tool{}, err
		}
		change(&t)
		version = t.Current().Version
		return t, nil
	})
	return version, err
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
	if n := len(t.Versions) - s.versions; n > 0 {
		t.Versions = slices.Delete(t.Versions, 0, n)
	}
}

// same reports whether two versions are equal.
func same(a, b *Version) bool {
	return a.Source == b.Source && a.Signature == b.Signature && a.Doc == b.Doc && a.Async == b.Async &&
		slices.Equal(a.Servers, b.Servers)
}

// Get returns a tool, or keyed.ErrMissing.
func (s *Store) Get(name string) (Tool, error) {
	if !isName(name) {
		return Tool{}, keyed.ErrMissing // nothing can be there
	}
	t, _, err := s.tools.Get(name)
	return t, err
}

// Names returns the names of all tools, sorted.
func (s *Store) Names() ([]string, error) {
	keys, err := s.tools.Keys()
	return slices.DeleteFunc(keys, func(key string) bool { return !isName(key) }), err
}

// List returns all tools, sorted by name, and the names of those that cannot be
// read. The result must not be changed.
func (s *Store) List() (tools []Tool, broken []string, err error) {
	kept, err := s.tools.List()
	for _, k := range kept {
		switch {
		case k.Err == nil:
			tools = append(tools, k.Value)
		case isName(k.Key):
			broken = append(broken, k.Key)
		}
	}
	return tools, broken, err
}

// Remove removes a tool with all its versions, or returns keyed.ErrMissing.
func (s *Store) Remove(name string) error {
	if !isName(name) {
		return keyed.ErrMissing
	}
	return s.tools.Delete(name)
}

// sizeOf returns approximately what a tool takes in memory.
func sizeOf(t *Tool) int64 {
	const more = 500
	size := more
	for i := range t.Versions {
		v := &t.Versions[i]
		size += len(v.Source) + len(v.Doc) + len(v.Schema) + len(v.Signature) + more
	}
	return int64(size)
}

func encode(t Tool) ([]byte, error) {
	data, err := json.MarshalIndent(t, "", "  ")
	return append(data, '\n'), err
}

func decode(data []byte) (Tool, error) {
	var t Tool
	if err := json.Unmarshal(data, &t); err != nil {
		return Tool{}, fmt.Errorf("%w: it is not the JSON of a saved tool", keyed.ErrBroken)
	}
	if err := checkTool(&t); err != nil {
		return Tool{}, fmt.Errorf("%w: %w", keyed.ErrBroken, err)
	}
	return t, nil
}

// Package artifact keeps the files that executions leave in their workspaces, by
// content. Each execution that leaves files gets one record, which is written after
// the contents of all of them: a file that a record names survives the end of the
// program at any moment. A power failure may lose the last seconds; what is left is
// compared with its digest when it is copied.
package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/store"
)

// ErrUnknown is the error for a record or a file that is not kept, or no longer.
var ErrUnknown = errors.New("there is no such artifact")

var (
	// errNewer is the error for a record of a newer program.
	errNewer = errors.New("a newer program wrote the record")
	// errDamaged is the error for a record that can never be read.
	errDamaged = errors.New("the record is damaged")
)

const (
	recordVersion = 1
	maxRecord     = 8 << 20
	// maxFiles, maxPath and maxAbout bound a record, as they bound what the sandbox
	// reports.
	maxFiles = 1000
	maxPath  = 4096
	maxAbout = 1000
)

var (
	validID     = lazyregexp.New(`\A[a-z0-9]{10}\z`)
	validDigest = lazyregexp.New(`\A[0-9a-f]{64}\z`)
)

// Origin says where files come from.
type Origin struct {
	Owner     string `json:"owner,omitempty"`  // as of sessions; empty: the local user
	Client    string `json:"client,omitempty"` // as it calls itself
	Session   string `json:"session,omitempty"`
	Own       bool   `json:"own,omitempty"`       // the session belongs to one client, or to one command
	Execution uint64 `json:"execution,omitempty"` // its number in the session, as in "<cell 3>"
	Request   string `json:"request,omitempty"`   // its ID in the audit log
}

// File is a kept file. Path and About come from the sandbox.
type File struct {
	Path   string `json:"path"` // below /workspace, with slashes
	Type   string `json:"type"` // media type, from the content and the name
	Size   int64  `json:"size"`
	Digest string `json:"sha256"`
	About  string `json:"about,omitempty"` // what it shows, such as its title
}

// Record is what is known of the files of one execution.
type Record struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Origin
	Files []File `json:"files"`
}

// File returns the file of that path.
func (r *Record) File(path string) (File, error) {
	for _, f := range r.Files {
		if f.Path == path {
			return f, nil
		}
	}
	return File{}, fmt.Errorf("%s/%s: %w", r.ID, path, ErrUnknown)
}

// Options configure a Store.
type Options struct {
	Keep    time.Duration // how long files are kept; 0: forever
	MaxDisk int64         // of all contents and records, in bytes; 0: nothing is kept
	Log     *slog.Logger
}

// Store holds the artifacts of one state directory. It is safe for concurrent use, also
// by several processes.
type Store struct {
	dir, contents store.Dir
	options       Options

	mu    sync.Mutex
	known *index // of the last change by this process; nil: none

	step func(string) // for tests, which end the process in it
}

// at says how far a change has come.
func (s *Store) at(step string) {
	if s.step != nil {
		s.step(step)
	}
}

// NewStore returns the artifacts in dir, which is created with the first of them.
func NewStore(dir store.Dir, options Options) *Store {
	return &Store{dir: dir, contents: dir.Sub("contents"), options: options}
}

// Keeps reports whether files are kept at all.
func (s *Store) Keeps() bool { return s != nil && s.dir.Placed() && s.options.MaxDisk > 0 }

func recordName(id string) string { return id + ".json" }

// Check reports whether a file of the area is a record that this program reads.
func Check(name string, data []byte) error {
	id, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return errors.New("not a record")
	}
	_, err := decode(id, data)
	return err
}

// decode reads a record.
func decode(id string, data []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Version > recordVersion:
		return nil, fmt.Errorf("%w (version %d)", errNewer, r.Version)
	case r.Version != recordVersion:
		return nil, fmt.Errorf("a record of version %d", r.Version)
	case r.ID != id || !validID().MatchString(id):
		return nil, fmt.Errorf("the record of %q has the ID %q", id, r.ID)
	case len(r.Files) == 0 || len(r.Files) > maxFiles:
		return nil, fmt.Errorf("a record of %d files", len(r.Files))
	}
	for _, f := range r.Files {
		if err := checkPath(f.Path); err != nil {
			return nil, err
		}
		if f.Size < 0 || f.Size > math.MaxInt64/maxFiles || len(f.About) > maxAbout || !validDigest().MatchString(f.Digest) {
			return nil, fmt.Errorf("%q has the size %d and the digest %q", f.Path, f.Size, f.Digest)
		}
	}
	return &r, nil
}

// checkPath checks a path that a sandbox named.
func checkPath(path string) error {
	switch {
	case path == "" || len(path) > maxPath:
		return fmt.Errorf("a path of %d bytes", len(path))
	case !utf8.ValidString(path) || strings.ContainsRune(path, 0):
		return fmt.Errorf("%q is not a path", path)
	}
	return nil
}

// uriPrefix begins the addresses of kept files.
const uriPrefix = "sallyport://artifacts/"

// URI is the address of a kept file, for clients that read it as a resource.
func URI(id, path string) string {
	return uriPrefix + id + "/" + (&url.URL{Path: path}).EscapedPath()
}

// ParseURI takes an address of [URI] apart.
func ParseURI(uri string) (id, path string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return "", "", false
	}
	id, rest, ok = strings.Cut(rest, "/")
	if !ok || !validID().MatchString(id) {
		return "", "", false
	}
	path, err := url.PathUnescape(rest)
	return id, path, err == nil && checkPath(path) == nil
}

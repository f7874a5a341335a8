// Package snapshot keeps snapshots of sandboxes on disk, so that what is
// restored is what was saved: by this user's Sallyport, whole, and under the
// conditions that the engine named.
//
// A snapshot is a directory of the engine's files and a manifest with their
// sizes and digests, which is authenticated with a key of the store. It appears
// under its name complete or not at all. Several processes may share a store;
// who may write a name is for its users to settle.
package snapshot

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	// ErrNone: there is no snapshot of that name.
	ErrNone = errors.New("no snapshot")
	// ErrForeign: it was taken by another program, user or key, or under
	// other conditions. It is of no use here.
	ErrForeign = errors.New("the snapshot does not fit")
	// ErrCorrupt: it is not as it was written.
	ErrCorrupt = errors.New("the snapshot is damaged")
)

const (
	manifestName = "manifest.json"
	keyName      = "key"
	temporary    = ".tmp-"
	// abandoned is the age at which an unfinished snapshot is one that a
	// crash left behind.
	abandoned   = time.Hour
	maxManifest = 16 << 20
	maxFiles    = 64
	version     = 1
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// A Store is a directory of snapshots. It is safe for concurrent use.
type Store struct {
	path string

	mu  sync.Mutex
	key []byte
}

// At is the store in that directory, which is made with the first snapshot.
func At(path string) *Store { return &Store{path: path} }

// manifest describes a snapshot. Seal authenticates everything else.
type manifest struct {
	Version int             `json:"version"`
	Name    string          `json:"name"`
	Binding string          `json:"binding"`
	Note    json.RawMessage `json:"note"`
	Files   []file          `json:"files"`
}

type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"` // SHA-256
}

// sealed is a manifest as it lies on disk.
type sealed struct {
	Manifest json.RawMessage `json:"manifest"`
	Seal     string          `json:"seal"` // HMAC-SHA-256 of Manifest
}

// Write has fill write a snapshot into an empty directory and keeps it under
// the name, in the place of what was there. Binding is what a reader must give
// too; note is for the reader, and must encode as JSON.
func (s *Store) Write(name, binding string, note any, fill func(dir string) error) (err error) {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is no name of a snapshot", name)
	}
	key, err := s.secret(true)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.path, temporary+"*") // 0700
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := fill(dir); err != nil {
		return err
	}
	m := manifest{Version: version, Name: name, Binding: binding}
	if m.Note, err = json.Marshal(note); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f := file{Name: e.Name()}
		if f.Size, f.Digest, err = digest(filepath.Join(dir, f.Name)); err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	data, err := json.Marshal(sealed{Manifest: raw, Seal: seal(key, raw)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), data, 0o600); err != nil {
		return err
	}
	return s.publish(dir, name)
}

// publish gives a complete directory its name.
func (s *Store) publish(dir, name string) error {
	target := filepath.Join(s.path, name)
	err := os.Rename(dir, target)
	for range 10 { // others may publish the same name
		if err == nil || !(errors.Is(err, fs.ErrExist) || strings.Contains(err.Error(), "not empty")) {
			break
		}
		if err = s.Remove(name); err != nil && !errors.Is(err, ErrNone) {
			break
		}
		err = os.Rename(dir, target)
	}
	return err
}

// A Snapshot is one that was read and found in order.
type Snapshot struct {
	Dir  string
	Note json.RawMessage
	Size int64 // of its files, in bytes
}

// Read checks the snapshot of that name and says where it lies. The errors are
// ErrNone, ErrForeign and ErrCorrupt, or that it could not be read.
func (s *Store) Read(name, binding string) (*Snapshot, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a snapshot", name)
	}
	dir := filepath.Join(s.path, name)
	data, err := readFile(filepath.Join(dir, manifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(dir); err == nil {
			return nil, fmt.Errorf("%w: it has no manifest", ErrCorrupt)
		}
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	key, err := s.secret(false)
	if err != nil {
		return nil, err
	}
	var on sealed
	if err := json.Unmarshal(data, &on); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if !hmac.Equal([]byte(on.Seal), []byte(seal(key, on.Manifest))) {
		return nil, fmt.Errorf("%w: it was not sealed with the key of this store, or was changed since", ErrForeign)
	}
	var m manifest
	if err := json.Unmarshal(on.Manifest, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	switch {
	case m.Version != version:
		return nil, fmt.Errorf("%w: it has version %d", ErrForeign, m.Version)
	case m.Name != name:
		return nil, fmt.Errorf("%w: it was taken as %q", ErrForeign, m.Name)
	case m.Binding != binding:
		return nil, fmt.Errorf("%w: %s", ErrForeign, difference(m.Binding, binding))
	case len(m.Files) > maxFiles:
		return nil, fmt.Errorf("%w: %d files", ErrCorrupt, len(m.Files))
	}
	out := &Snapshot{Dir: dir, Note: m.Note}
	for _, f := range m.Files {
		if f.Name != filepath.Base(f.Name) {
			return nil, fmt.Errorf("%w: a file %q", ErrCorrupt, f.Name)
		}
		size, sum, err := digest(filepath.Join(dir, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, f.Name)
		}
		if err != nil {
			return nil, err
		}
		if size != f.Size || sum != f.Digest {
			return nil, fmt.Errorf("%w: %s has other content than was written", ErrCorrupt, f.Name)
		}
		out.Size += size
	}
	return out, nil
}

// difference says which lines of a binding changed.
func difference(then, now string) string {
	was, is := strings.Split(then, "\n"), strings.Split(now, "\n")
	var changed []string
	for _, line := range was {
		if what, _, _ := strings.Cut(line, ":"); !slices.Contains(is, line) && !slices.Contains(changed, what) {
			changed = append(changed, what)
		}
	}
	for _, line := range is {
		if what, _, _ := strings.Cut(line, ":"); !slices.Contains(was, line) && !slices.Contains(changed, what) {
			changed = append(changed, what)
		}
	}
	return "changed since: " + strings.Join(changed, ", ")
}

// Remove removes a snapshot; the error is ErrNone when there is none. A
// sandbox that was restored from it does not mind.
func (s *Store) Remove(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is no name of a snapshot", name)
	}
	// Out of sight at once, and whole until then.
	away := filepath.Join(s.path, temporary+rand.Text())
	if err := os.Rename(filepath.Join(s.path, name), away); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNone
		}
		return err
	}
	return os.RemoveAll(away)
}

// An Entry is a snapshot in a list, which need not be in order.
type Entry struct {
	Name string
	Size int64 // on disk, in bytes
	Time time.Time
}

// List lists the snapshots by name. It also removes what crashed processes left
// unfinished.
func (s *Store) List() ([]Entry, error) {
	entries, err := os.ReadDir(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []Entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		path := filepath.Join(s.path, e.Name())
		if strings.HasPrefix(e.Name(), temporary) {
			if time.Since(info.ModTime()) > abandoned {
				_ = os.RemoveAll(path)
			}
			continue
		}
		if !validName.MatchString(e.Name()) {
			continue
		}
		list = append(list, Entry{Name: e.Name(), Size: s.Size(e.Name()), Time: info.ModTime()})
	}
	return list, nil
}

// Size is what a snapshot takes on disk, in bytes; 0 when there is none.
func (s *Store) Size(name string) (total int64) {
	files, _ := os.ReadDir(filepath.Join(s.path, name))
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// secret is the store's key. It is made where there is none and create is set.
func (s *Store) secret(create bool) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	path := filepath.Join(s.path, keyName)
	if create {
		if err := os.MkdirAll(s.path, 0o700); err != nil {
			return nil, err
		}
		if err := newKey(path); err != nil {
			return nil, err
		}
	}
	key, err := readFile(path, 1<<10)
	if err != nil {
		return nil, err
	}
	if len(key) != sha256.Size {
		return nil, fmt.Errorf("%s: not a key; remove it, and the snapshots beside it are refused", path)
	}
	s.key = key
	return key, nil
}

// newKey makes a key file where there is none: whole, whoever else does the
// same.
func newKey(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key)                                      // never fails
	f, err := os.CreateTemp(filepath.Dir(path), temporary+"*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path) // the first one wins
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}

func seal(key, data []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil))
}

// open opens a regular file and no other.
func open(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return os.Open(path)
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: over %d bytes", path, limit)
	}
	return data, err
}

func digest(path string) (size int64, sum string, err error) {
	f, err := open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.CopyBuffer(h, onlyReader{f}, make([]byte, 256<<10)); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}

// onlyReader hides a file's other methods, with which io.Copy would not use the
// buffer.
type onlyReader struct{ io.Reader }

// Package snapshot keeps snapshots of sandboxes on disk. It restores only what
// this user's Sallyport saved, complete, and under the conditions that the
// engine named.
//
// A snapshot is a directory with the engine's files and a manifest, which is
// sealed with a key of the store and authenticates every byte of them. It
// appears under its name complete or not at all. Several processes may share a
// store; its users must agree on who writes which name.
package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/store"
)

var (
	// ErrNone reports that no snapshot has the name.
	ErrNone = errors.New("no snapshot")
	// ErrForeign reports that the snapshot was taken by another program or
	// user, with another key, or under other conditions. It cannot be used
	// here.
	ErrForeign = errors.New("the snapshot does not fit")
	// ErrCorrupt reports that the snapshot has changed since it was written.
	ErrCorrupt = errors.New("the snapshot is damaged")
)

const (
	manifestName = "manifest.json"
	keyName      = "key"
	temporary    = ".tmp-"
	// abandoned is the age after which an unfinished snapshot is considered
	// left by a crash.
	abandoned   = time.Hour
	maxManifest = 16 << 20
	maxFiles    = 64
	version     = 2
)

var validName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._%+~-]{0,199}$`)

// A Store is a directory of snapshots. It is safe for concurrent use.
type Store struct {
	path string

	mu  sync.Mutex
	key []byte
}

// At returns the store in that directory, which is created with the first
// snapshot.
func At(path string) *Store { return &Store{path: path} }

// Write calls fill to write a snapshot into an empty directory and keeps it
// under the name, replacing an earlier one. A reader must pass the same
// binding. note is for the reader, and must be encodable as JSON when fill has
// returned.
func (s *Store) Write(name, binding string, form Form, note any, fill func(dir string) error) (err error) {
	if !validName().MatchString(name) {
		return fmt.Errorf("%q is not a valid snapshot name", name)
	}
	key, err := s.secret(true)
	if err != nil {
		return err
	}
	root, err := private.Open(s.path)
	if err != nil {
		return err
	}
	defer root.Close()
	unfinished := ours() + rand.Text()
	if err := root.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.RemoveAll(unfinished))
		}
	}()
	dir := filepath.Join(s.path, unfinished)
	if err := fill(dir); err != nil {
		return err
	}
	m := manifest{Name: name, Binding: binding, Salt: make([]byte, saltSize)}
	_, _ = rand.Read(m.Salt) // never fails
	if m.Note, err = json.Marshal(note); err != nil {
		return err
	}
	if m.Files, err = describeAll(dir, key, m.Salt, form); err != nil {
		return err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	data, err := json.Marshal(sealed{Version: version, Manifest: raw, Seal: seal(key, raw)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), data, 0o600); err != nil {
		return err
	}
	return publish(root, unfinished, name)
}

// describeAll returns the entries of all files in a directory.
func describeAll(dir string, key, salt []byte, form Form) ([]file, error) {
	tags, err := newTagger(key, salt)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%d files are too many for a snapshot", len(entries))
	}
	var list []file
	for i, e := range entries {
		if !e.Type().IsRegular() {
			return nil, fmt.Errorf("%s: not a regular file", e.Name())
		}
		mode := os.O_RDONLY
		if form == Packed {
			mode = os.O_RDWR
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), mode, 0)
		if err != nil {
			return nil, err
		}
		entry, err := describe(tags, i, f, e.Name(), form)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	return list, nil
}

// publish gives a complete directory its name.
func publish(root *os.Root, dir, name string) error {
	err := root.Rename(dir, name)
	for range 10 { // others may publish the same name
		if err == nil || !(errors.Is(err, fs.ErrExist) || strings.Contains(err.Error(), "not empty")) {
			break
		}
		if err = remove(root, name); err != nil && !errors.Is(err, ErrNone) {
			break
		}
		err = root.Rename(dir, name)
	}
	return err
}

// Remove removes a snapshot; the error is ErrNone when there is none. Sandboxes
// restored from it are not affected.
func (s *Store) Remove(name string) error {
	if !validName().MatchString(name) {
		return fmt.Errorf("%q is not a valid snapshot name", name)
	}
	root, err := private.Existing(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNone
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return remove(root, name)
}

func remove(root *os.Root, name string) error {
	// It disappears at once, and is complete until then.
	away := ours() + rand.Text()
	if err := root.Rename(name, away); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNone
		}
		return err
	}
	return root.RemoveAll(away)
}

// An Entry is a snapshot in a list. The snapshot may be invalid.
type Entry struct {
	Name string
	Size int64 // on disk, in bytes
	Time time.Time
}

// List lists the snapshots by name. It also removes what crashed processes left
// unfinished.
func (s *Store) List() ([]Entry, error) {
	root, err := private.Existing(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		if strings.HasPrefix(e.Name(), temporary) {
			if time.Since(info.ModTime()) > abandoned && !alive(e.Name()) {
				_ = root.RemoveAll(e.Name())
			}
			continue
		}
		if !validName().MatchString(e.Name()) {
			continue
		}
		list = append(list, Entry{Name: e.Name(), Size: s.Size(e.Name()), Time: info.ModTime()})
	}
	return list, nil
}

// writingLock is held while a snapshot is written that counts towards a limit.
const writingLock = ".writing.lock"

// Lock waits until no other caller of Lock, in any process, holds the store.
// Callers that check the size and write under the lock keep the store within a
// limit.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := private.Check(s.path); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(s.path, writingLock))
	if ok, err := lock.TryLockContext(ctx, 10*time.Millisecond); err != nil || !ok {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return func() { _ = lock.Unlock() }, nil
}

// Unfinished returns the size of the snapshots that are being written or
// removed, in bytes. It removes those of dead processes.
func (s *Store) Unfinished() (total int64, err error) {
	root, err := private.Existing(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), temporary) {
			continue
		}
		if !alive(e.Name()) {
			err = errors.Join(err, root.RemoveAll(e.Name()))
			continue
		}
		total += s.Size(e.Name())
	}
	return total, err
}

// Left returns the names of what dead processes have not finished, and of the
// snapshots that cannot be restored because they are damaged.
func (s *Store) Left() (unfinished, unreadable []string) {
	entries, _ := os.ReadDir(s.path)
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.IsDir():
		case strings.HasPrefix(name, temporary):
			if !alive(name) {
				unfinished = append(unfinished, name)
			}
		case validName().MatchString(name):
			if binding, err := s.Binding(name); binding == "" && !errors.Is(err, ErrNone) {
				unreadable = append(unreadable, name)
			}
		}
	}
	return unfinished, unreadable
}

// Size returns the size of a snapshot on disk, in bytes; 0 if there is none.
func (s *Store) Size(name string) (total int64) {
	files, _ := os.ReadDir(filepath.Join(s.path, name))
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// Touch sets the time of a snapshot.
func (s *Store) Touch(name string, t time.Time) error {
	if !validName().MatchString(name) {
		return fmt.Errorf("%q is not a valid snapshot name", name)
	}
	return os.Chtimes(filepath.Join(s.path, name), t, t)
}

// ours returns the prefix of the names of what this process has not finished
// yet.
func ours() string { return fmt.Sprintf("%s%d-", temporary, os.Getpid()) }

// alive reports whether the process that left something unfinished may still
// finish it. Its age alone is not enough, because clocks jump.
func alive(name string) bool {
	number, _, ok := strings.Cut(strings.TrimPrefix(name, temporary), "-")
	pid, err := strconv.Atoi(number)
	return ok && err == nil && pid > 0 && running(pid)
}

// secret returns the store's key. If there is none and create is set, it is
// created.
func (s *Store) secret(create bool) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	key, err := store.At(s.path).Key(keyName, create)
	if errors.Is(err, store.ErrNoKey) {
		return nil, fmt.Errorf("%w; remove it (existing snapshots can then no longer be restored)", err)
	}
	if err != nil {
		return nil, err
	}
	s.key = key
	return key, nil
}

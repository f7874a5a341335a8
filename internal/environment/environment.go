// Package environment provides the packages that code needs: a definition is
// locked once, built once as an image of the store, and found again without a
// network.
package environment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/store"
)

var (
	// ErrUnbuilt reports an environment that has not been built yet.
	ErrUnbuilt = errors.New("the environment has not been built yet")
	// ErrLock reports a lock that no longer matches its definition.
	ErrLock = errors.New("the lock no longer matches")
	// ErrUnfit reports a definition that asks for what the engine does not have.
	ErrUnfit = errors.New("does not suit the engine")
)

// A Definition is what a user, or the header of a script, asks for.
type Definition struct {
	// Name is the user's; empty: the environment is that of a script or a command
	// line, and its content identifies it.
	Name string
	// Python selects an interpreter of the host: empty or "host" is that of the
	// settings; "3.12" any of that version; else an absolute path.
	Python string
	// Image is an OCI image to build on, in place of Python.
	Image string
	// Packages are requirements: "numpy", "pandas>=2".
	Packages []build.Requirement
	// File is an absolute path of requirements (.txt), of a pyproject.toml or of a
	// pylock.toml. Empty: none.
	File string
	// RequiresPython is a specifier of PEP 440, such as ">=3.11". Empty: any.
	RequiresPython string
}

// A Package is one of an environment.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Built is an environment that can be used.
type Built struct {
	Name     string    `json:"name,omitempty"`
	ID       string    `json:"id"`                // short, of the definition and its lock
	Image    string    `json:"image"`             // the ID of an image in the store; empty: it is an archive
	Archive  string    `json:"archive,omitempty"` // the digest of an archive: see Config.Pure
	Python   string    `json:"python"`
	Packages []Package `json:"packages"`
	// Modules are the top-level names that code can import, and no more than
	// those of Packages.
	Modules []string  `json:"modules"`
	Bytes   int64     `json:"bytes"` // on disk
	Time    time.Time `json:"time"`
}

// Tell receives progress for people: a stage, and how much of it is done; a total
// of 0 is not known.
type Tell func(stage string, done, total int64)

// Config is what a Store needs.
type Config struct {
	Images *image.Store
	// State keeps locks and records.
	State store.Dir
	// Base holds the root file system that a definition is built on.
	Base func(ctx context.Context, d *Definition, tell Tell) (*image.Root, error)
	// Builder returns what builds images, or for the engines of Pure archives, and what
	// ends it: that closes the engine and prunes the images that the Builder's Passing
	// names then.
	Builder func(ctx context.Context, pure bool) (*build.Builder, func(), error)
	// Pure, if not nil, is for engines whose environments are archives of packages
	// without machine code.
	Pure *Pure
}

// A Store keeps environments: their locks, and their images in an image store. It
// is safe for concurrent use, also by several processes.
type Store struct{ config Config }

// New returns a store. It reads nothing.
func New(c Config) *Store { return &Store{c} }

// record is the file of a built environment.
type record struct {
	Built
	Definition string `json:"definition"` // digest
	// Content identifies the base and the locked packages: environments with the
	// same share an image.
	Content string `json:"content"`
}

const maxRecord = 4 << 20

func recordFile(key string) string { return store.FileName(key, ".json") }
func lockFile(key string) string   { return store.FileName(key, ".pylock.toml") }

// readRecord returns what was built under a name or ID.
func (s *Store) readRecord(key string) (*record, error) {
	raw, err := s.config.State.Read(recordFile(key), maxRecord)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return nil, ErrUnbuilt
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(raw)
	if err != nil {
		return nil, ErrUnbuilt // it is built anew from its lock
	}
	return r, nil
}

func decodeRecord(raw []byte) (*record, error) {
	var r record
	err := json.Unmarshal(raw, &r)
	if err == nil && (r.ID == "" || (r.Image == "") == (r.Archive == "") || r.Definition == "") {
		err = errors.New("it is not the record of an environment")
	}
	return &r, err
}

// Check checks a record. It is for store.Dir.Check.
func Check(_ string, data []byte) error {
	_, err := decodeRecord(data)
	return err
}

// Get returns the environment that was built under a name, or under the ID of one
// without a name. The error is ErrUnbuilt if there is none for the engine.
func (s *Store) Get(name string) (*Built, error) { return s.get(name, s.Pure()) }

func (s *Store) get(name string, pure bool) (*Built, error) {
	r, err := s.readRecord(name)
	if err == nil && (r.Archive != "") != pure {
		err = ErrUnbuilt // it is for another engine
	}
	if err != nil {
		return nil, err
	}
	if pure {
		if err := s.kept(r.Archive); err != nil {
			return nil, err
		}
		return &r.Built, nil
	}
	if _, err := s.config.Images.Info(r.Image); err != nil {
		if errors.Is(err, image.ErrMissing) {
			err = ErrUnbuilt
		}
		return nil, err
	}
	return &r.Built, nil
}

// Find returns a built environment, at once and without a network. The error is
// ErrUnbuilt if there is none and ErrLock if its lock is of another definition.
func (s *Store) Find(d *Definition) (*Built, error) {
	r, err := s.read(d)
	if err != nil {
		return nil, err
	}
	return s.find(r)
}

func (s *Store) find(r *request) (*Built, error) {
	had, err := s.readRecord(r.key())
	if err == nil && had.Definition == r.digest {
		return s.get(r.key(), r.pure)
	}
	if err != nil && !errors.Is(err, ErrUnbuilt) {
		return nil, err
	}
	if _, err := s.locked(r); err != nil {
		return nil, err
	}
	return nil, ErrUnbuilt
}

// locked returns the lock of a definition, or nil if there is none.
func (s *Store) locked(r *request) (*lock, error) {
	if r.given != nil {
		return r.given, nil
	}
	raw, err := s.config.State.Read(lockFile(r.key()), maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := parseLock(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to lock anew", s.config.State.Path(lockFile(r.key())), err)
	}
	if l.Tool.Sallyport.Definition != r.digest {
		return nil, stale(r, "it was changed after it was locked")
	}
	return l, nil
}

// stale returns ErrLock with what to do.
func stale(r *request, why string) error {
	return fmt.Errorf("environment %s: %w: %s; run: sallyport env lock %s", r.Name, ErrLock, why, r.Name)
}

// LockOf returns the lock of an environment, a pylock.toml. The error is
// fs.ErrNotExist if there is none.
func (s *Store) LockOf(d *Definition) ([]byte, error) {
	r, err := s.read(d)
	if err != nil {
		return nil, err
	}
	if r.given != nil {
		return readFile(d.File)
	}
	return s.config.State.Read(lockFile(r.key()), maxFile)
}

// List returns everything that was built, sorted by name. If records cannot be
// read, it returns an error with the others.
func (s *Store) List() ([]Built, error) {
	all, err := s.records()
	out := make([]Built, 0, len(all))
	for _, r := range all {
		out = append(out, r.Built)
	}
	return out, err
}

func (s *Store) records() ([]record, error) {
	files, err := s.config.State.List()
	if err != nil {
		return nil, err
	}
	var (
		out  []record
		errs []error
	)
	for _, f := range files {
		if !strings.HasSuffix(f, ".json") {
			continue
		}
		raw, err := s.config.State.Read(f, maxRecord)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		var r *record
		if err == nil {
			r, err = decodeRecord(raw)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; remove it to build the environment anew", s.config.State.Path(f), err))
			continue
		}
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b record) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out, errors.Join(errs...)
}

// Remove removes a built environment. Its lock stays unless all is true. Its image
// goes when nothing needs it (image.Store.Prune).
func (s *Store) Remove(b *Built, all bool) error {
	key := s.keyOf(b)
	unlock, ok, err := s.config.State.TryLock(key)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("environment %s is being built: wait for that, or stop it", key)
	}
	defer unlock()
	if err := ignoreMissing(s.config.State.Remove(recordFile(key))); err != nil {
		return err
	}
	if all {
		if err := ignoreMissing(s.config.State.Remove(lockFile(key))); err != nil {
			return err
		}
	}
	if err := s.config.Images.Untag(image.Record{Name: tagOf(key).Full}); err != nil && !errors.Is(err, image.ErrMissing) {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Export writes a built environment as an OCI archive.
func (s *Store) Export(ctx context.Context, b *Built, w io.Writer) error {
	if b.Archive != "" {
		return fmt.Errorf("environment %s is an archive of packages for %s, and not an image: only an environment of another engine can be exported", cmp.Or(b.Name, b.ID), pureEngine)
	}
	root, _, err := s.config.Images.Open(ctx, b.Image)
	if err != nil {
		return err
	}
	defer root.Release()
	return build.Export(ctx, s.config.Images, root, tagOf(cmp.Or(b.Name, b.ID)).Full, w)
}

// tagOf returns the name of the image of an environment. A name that no image can
// have is replaced by its digest.
func tagOf(key string) image.Name {
	const prefix = "localhost/sallyport/env/"
	n, err := image.ParseName(prefix + key + ":latest")
	if err != nil || strings.ContainsAny(key, ":@/") {
		sum := sha256.Sum256([]byte(key))
		n, _ = image.ParseName(prefix + hex.EncodeToString(sum[:]) + ":latest")
	}
	return n
}

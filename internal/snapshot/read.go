package snapshot

import (
	"context"
	"crypto/hmac"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/store"
)

// A Snapshot is an open snapshot with a valid manifest. The caller closes it.
type Snapshot struct {
	Note json.RawMessage
	Size int64 // of its files on disk, in bytes

	list   []file
	stored []*os.File // as stored on disk
	plain  []*os.File // as written; the same files if nothing is packed
	tags   *tagger
}

// Open finds the snapshot of that name, and opens its files. Their content is
// not verified before Check. The error is ErrNone, ErrForeign, ErrCorrupt or a
// read error.
func (s *Store) Open(name, binding string) (_ *Snapshot, err error) {
	if !validName().MatchString(name) {
		return nil, fmt.Errorf("%q is not a valid snapshot name", name)
	}
	dir := store.At(filepath.Join(s.path, name))
	data, err := dir.Read(manifestName, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(dir.Path("")); err == nil {
			return nil, fmt.Errorf("%w: it has no manifest", ErrCorrupt)
		}
		return nil, ErrNone
	}
	if errors.Is(err, store.ErrTooLarge) {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return nil, err
	}
	key, err := s.secret(false)
	if err != nil {
		return nil, err
	}
	m, err := unseal(key, data)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Name != name:
		return nil, fmt.Errorf("%w: it was taken as %q", ErrForeign, m.Name)
	case m.Binding != binding:
		return nil, fmt.Errorf("%w: %s", ErrForeign, difference(m.Binding, binding))
	}
	out := &Snapshot{Note: m.Note, list: m.Files}
	if out.tags, err = newTagger(key, m.Salt); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, f := range m.Files {
		if err := out.open(dir, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// unseal checks a manifest, except for its name and binding.
func unseal(key, data []byte) (*manifest, error) {
	var on sealed
	if err := json.Unmarshal(data, &on); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if on.Version != version {
		return nil, fmt.Errorf("%w: another version of this program wrote it", ErrForeign)
	}
	if !hmac.Equal([]byte(on.Seal), []byte(seal(key, on.Manifest))) {
		return nil, fmt.Errorf("%w: it was not sealed with the key of this store, or was changed since", ErrForeign)
	}
	var m manifest
	if err := json.Unmarshal(on.Manifest, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(m.Files) > maxFiles || len(m.Salt) != saltSize {
		return nil, fmt.Errorf("%w: its manifest is malformed", ErrCorrupt)
	}
	seen := map[string]bool{manifestName: true}
	for _, f := range m.Files {
		if f.Name != filepath.Base(f.Name) || seen[f.Name] || !f.sound() {
			return nil, fmt.Errorf("%w: a file %q", ErrCorrupt, f.Name)
		}
		seen[f.Name] = true
	}
	return &m, nil
}

// open opens one file.
func (p *Snapshot) open(dir store.Dir, f file) error {
	stored, err := dir.Open(f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, f.Name)
	}
	if err != nil {
		return err
	}
	p.stored = append(p.stored, stored)
	info, err := stored.Stat()
	if err != nil {
		return err
	}
	if info.Size() != f.room() {
		return f.changed()
	}
	p.Size += info.Size()
	if f.Stored == nil {
		p.plain = append(p.plain, stored)
		return nil
	}
	plain, err := memoryFile(f.Name)
	if err == nil {
		p.plain = append(p.plain, plain)
	}
	return err
}

// Files returns the saved files by name, open. The snapshot closes them. They
// remain valid even if another snapshot has taken its name since.
func (p *Snapshot) Files() []*os.File { return p.plain }

// Check reads everything and verifies that it is what was saved. The error is
// ErrCorrupt or a read error. It is called once. The content of packed files is
// available after it returns.
func (p *Snapshot) Check(ctx context.Context) error {
	type piece struct {
		file, chunk int
		offset      int64
	}
	var all []piece
	for i, f := range p.list {
		offset := int64(0)
		for c := range f.pieces() {
			all = append(all, piece{i, c, offset})
			offset += int64(f.stored(c))
		}
	}
	return each(ctx, len(all), func(w *worker, i int) error {
		at := all[i]
		f := &p.list[at.file]
		data, err := w.read(p.stored[at.file], at.offset, f.stored(at.chunk))
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return f.changed()
		}
		if err != nil {
			return err
		}
		tag := p.tags.tag(at.file, at.chunk, data)
		if subtle.ConstantTimeCompare(tag[:], f.tag(at.chunk)) != 1 {
			return f.changed()
		}
		if f.Stored == nil {
			return nil
		}
		plain, err := w.unpack(data, f.plain(at.chunk))
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCorrupt, f.Name, err)
		}
		_, err = p.plain[at.file].WriteAt(plain, int64(at.chunk)*chunkSize)
		return err
	})
}

// Close closes the files. It is idempotent.
func (p *Snapshot) Close() {
	for _, f := range slices.Concat(p.stored, p.plain) {
		_ = f.Close() // the plain ones may be the stored ones
	}
}

// difference describes which lines of a binding changed.
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

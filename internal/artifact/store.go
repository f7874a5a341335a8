package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Get returns a record.
func (s *Store) Get(id string) (*Record, error) {
	if !validID().MatchString(id) {
		return nil, fmt.Errorf("%q: %w", id, ErrUnknown)
	}
	data, err := s.dir.Read(recordName(id), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	var r *Record
	if err == nil {
		r, err = decode(id, data)
		if err != nil && !errors.Is(err, errNewer) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", id, err)
	}
	return r, nil
}

// List returns all records, the latest first. The error names those that cannot be
// read.
func (s *Store) List() ([]*Record, error) {
	names, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	var list []*Record
	var bad []error
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		switch r, err := s.Get(id); {
		case err == nil:
			list = append(list, r)
		case !errors.Is(err, ErrUnknown): // removed meanwhile
			bad = append(bad, err)
		}
	}
	slices.SortFunc(list, func(a, b *Record) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, errors.Join(bad...)
}

// Open opens a kept file. Whoever keeps what it reads compares it with the digest: see
// [NewVerifier].
func (s *Store) Open(f File) (*os.File, error) {
	if !validDigest().MatchString(f.Digest) {
		return nil, fmt.Errorf("%s: %w", f.Path, ErrUnknown)
	}
	content, err := s.contents.Open(f.Digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", f.Path, ErrUnknown)
	}
	return content, err
}

// A Verifier is a reader of a file's content that fails at its end if that is not the
// content that was kept.
type Verifier struct {
	from io.Reader
	file File
	hash hash.Hash
	size int64
}

// NewVerifier returns a reader of the content of f, which it reads from content.
func NewVerifier(f File, content io.Reader) *Verifier {
	return &Verifier{from: content, file: f, hash: sha256.New()}
}

func (v *Verifier) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.hash.Write(p[:n])
	v.size += int64(n)
	if err == io.EOF && (v.size != v.file.Size || hex.EncodeToString(v.hash.Sum(nil)) != v.file.Digest) {
		err = fmt.Errorf("%q is damaged: its content on disk is not the one that was kept", v.file.Path)
	}
	return n, err
}

// Remove forgets files of a record; without paths, all of them.
func (s *Store) Remove(id string, paths ...string) error {
	if _, err := s.Get(id); errors.Is(err, ErrUnknown) {
		return err
	}
	return s.change(false, func(x *index) error {
		r, err := s.Get(id)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if _, err := r.File(path); err != nil {
				return err
			}
		}
		left := *r
		left.Files = slices.DeleteFunc(slices.Clone(r.Files), func(f File) bool { return slices.Contains(paths, f.Path) })
		if len(paths) == 0 || len(left.Files) == 0 {
			return s.forget(x, r)
		}
		if err := s.write(&left); err != nil {
			return err
		}
		x.add(&left)
		return s.free(x.drop(r))
	})
}

func (s *Store) write(r *Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("the names of %d files are longer than a record can hold", len(r.Files))
	}
	return s.dir.WriteUnsynced(recordName(r.ID), append(data, '\n'))
}

package artifact

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// sniffed is how much of a content tells its type.
const sniffed = 512

// Intake takes in the files of one execution. It has one owner.
type Intake struct {
	store  *Store
	record Record
	drafts []*store.Draft // of the record's files, in their order
	open   *draft
	size   int64 // that the files take on disk
}

// Begin starts to keep the files of an execution. The caller calls Close.
func (s *Store) Begin(o Origin) *Intake {
	return &Intake{store: s, record: Record{Version: recordVersion, Origin: o}}
}

// draft is a file that is taken in.
type draft struct {
	intake *Intake
	file   File
	to     *store.Draft
	hash   hash.Hash
	head   []byte
	failed error
}

// clip makes text that a sandbox sent fit for a record.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxAbout)], "")
}

// Create takes in one file. done is called once, with false if the file is not whole;
// an error means that the file is not kept. It has the form of session.Create.
func (i *Intake) Create(path string, size int64, about string) (content io.Writer, done func(whole bool) error, err error) {
	if err := checkPath(path); err != nil {
		return nil, nil, err
	}
	if len(i.record.Files) == maxFiles {
		return nil, nil, fmt.Errorf("more than %d files", maxFiles)
	}
	if slices.ContainsFunc(i.record.Files, func(f File) bool { return f.Path == path }) {
		return nil, nil, errors.New("the sandbox named it twice")
	}
	if err := i.fits(size); err != nil {
		return nil, nil, err
	}
	to, err := i.store.contents.Draft()
	if err != nil {
		return nil, nil, err
	}
	d := &draft{intake: i, file: File{Path: path, About: clip(about)}, to: to, hash: sha256.New()}
	i.open = d
	return d, d.done, nil
}

// fits returns an error if so many bytes more do not fit.
func (i *Intake) fits(size int64) error {
	if most := i.store.options.MaxDisk; size > most-i.size-2*block {
		return fmt.Errorf("more than artifacts.maxDisk (%d MB)", most>>20)
	}
	return nil
}

func (d *draft) Write(p []byte) (n int, err error) {
	if d.failed != nil {
		return 0, d.failed
	}
	if d.failed = d.intake.fits(d.file.Size + int64(len(p))); d.failed != nil {
		return 0, d.failed
	}
	if room := sniffed - len(d.head); room > 0 {
		d.head = append(d.head, p[:min(room, len(p))]...)
	}
	n, d.failed = d.to.Write(p)
	d.hash.Write(p[:n])
	d.file.Size += int64(n)
	return n, d.failed
}

func (d *draft) done(whole bool) error {
	i := d.intake
	i.open = nil
	if whole && d.failed == nil {
		d.failed = d.to.Close()
	}
	if !whole || d.failed != nil {
		d.to.Drop()
		if whole {
			return d.failed
		}
		return nil
	}
	i.store.at("written")
	d.file.Type = TypeOf(d.file.Path, d.head)
	d.file.Digest = hex.EncodeToString(d.hash.Sum(nil))
	if slices.ContainsFunc(i.record.Files, func(f File) bool { return f.Digest == d.file.Digest }) {
		d.to.Drop()
		d.to = nil
	} else {
		i.size += room(d.file.Size)
	}
	i.record.Files, i.drafts = append(i.record.Files, d.file), append(i.drafts, d.to)
	return nil
}

// Commit keeps the files that came whole and returns their record, which is nil if
// there are none. To make room, it removes the oldest records.
func (i *Intake) Commit() (*Record, error) {
	if len(i.record.Files) == 0 {
		return nil, nil
	}
	s, r := i.store, &i.record
	r.ID, r.Created = strings.ToLower(rand.Text()[:10]), time.Now().UTC()
	err := s.change(false, func(x *index) error {
		x.add(r)
		if err := s.makeRoom(x, r.room()+i.size); err != nil {
			return err
		}
		for n, f := range r.Files {
			to := i.drafts[n]
			if i.drafts[n] = nil; to == nil {
				continue // an earlier file has the same content
			}
			// It replaces an equal one, which a power failure may have damaged.
			if err := to.Keep(f.Digest); err != nil {
				return err
			}
			s.at("kept")
		}
		return s.write(r)
	})
	if err != nil {
		return nil, err
	}
	s.at("recorded")
	return r, nil
}

// Close drops what was not committed.
func (i *Intake) Close() {
	if i.open != nil {
		i.open.to.Drop()
	}
	for _, d := range i.drafts {
		if d != nil {
			d.Drop()
		}
	}
	i.open, i.drafts = nil, nil
}

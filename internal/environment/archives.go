package environment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	extension = ".tar"
	// answerHolds is how long a request is answered as before. Later it is only if the
	// index does not answer.
	answerHolds = time.Hour
	maxAnswer   = 1 << 20
)

// errNoArchive reports an archive that was removed, or never made.
var errNoArchive = &wire.CallError{Kind: wire.KindNotFound, Message: "these packages are not kept any more: install them again"}

func (s *Additions) open(archive string) (*os.File, error) {
	if !archiveName().MatchString(archive) {
		return nil, errNoArchive
	}
	f, err := s.config.State.Open(archive + extension)
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoArchive
	}
	if err != nil {
		return nil, err
	}
	s.checking.Lock()
	defer s.checking.Unlock()
	if s.intact[archive] {
		return f, nil
	}
	if err := intact(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.intact[archive] = true
	return f, nil
}

// intact returns an error unless the file ends with its own hash.
func intact(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	size := info.Size() - int64(sum.Size())
	if size < 0 {
		return errNoArchive
	}
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return err
	}
	want := make([]byte, sum.Size())
	if _, err := f.ReadAt(want, size); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errNoArchive
	}
	return nil
}

// Part returns a part of an archive, and the size of the archive.
func (s *Additions) Part(archive string, offset int64) (data []byte, size int64, err error) {
	f, err := s.open(archive)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if offset < 0 || offset > info.Size() {
		return nil, 0, &wire.CallError{Kind: wire.KindInvalid, Message: "the archive has no such part"}
	}
	if offset == 0 { // the oldest are removed
		now := time.Now()
		_ = os.Chtimes(s.config.State.Path(archive+extension), now, now)
	}
	data = make([]byte, min(partSize, info.Size()-offset))
	if _, err := f.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return data, info.Size(), nil
}

// before returns what the same request was answered with, and whether that still holds.
func (s *Additions) before(request string) (wheels []build.Wheel, holds bool) {
	raw, err := s.config.State.Read(request+".json", maxAnswer)
	if err != nil || json.Unmarshal(raw, &wheels) != nil {
		return nil, false
	}
	info, err := os.Stat(s.config.State.Path(request + ".json"))
	return wheels, err == nil && time.Since(info.ModTime()) < answerHolds
}

func (s *Additions) note(request string, wheels []build.Wheel) error {
	raw, err := json.Marshal(append([]build.Wheel{}, wheels...)) // [] and not null
	if err != nil {
		return err
	}
	return s.config.State.WriteUnsynced(request+".json", raw)
}

// keep moves an archive to the others, and removes the oldest of those that are too
// many.
func (s *Additions) keep(made, archive string) error {
	root, err := s.config.State.OpenRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.Rename(made, s.config.State.Path(archive+extension)); err != nil {
		return err
	}
	names, err := s.config.State.List()
	if err != nil {
		return err
	}
	var all []fs.FileInfo
	total := int64(0)
	for _, name := range names {
		if info, err := root.Stat(name); err == nil {
			all = append(all, info)
			total += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range all {
		if total <= s.config.MaxTotal {
			break
		}
		if info.Name() == archive+extension {
			continue
		}
		if err := ignoreMissing(root.Remove(info.Name())); err != nil {
			return err
		}
		total -= info.Size()
	}
	return nil
}

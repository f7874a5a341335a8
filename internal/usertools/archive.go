package usertools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Format is the first member of an archive.
const Format = "sallyport-saved-tools/1"

// MaxArchive bounds an archive that is read.
const MaxArchive = 64 << 20

// Archive is saved tools in one JSON file.
type Archive struct {
	Format string `json:"format"`
	Tools  []Tool `json:"tools"`
}

// ReadArchive reads an archive, which may come from anywhere: it is bounded,
// nothing in it is unknown, every name is an identifier, and no tool is there
// twice.
func ReadArchive(r io.Reader) (*Archive, error) { return readArchive(r, MaxArchive) }

func readArchive(r io.Reader, most int64) (*Archive, error) {
	limited := &io.LimitedReader{R: r, N: most + 1}
	decoder := json.NewDecoder(limited)
	decoder.DisallowUnknownFields()
	var a Archive
	if err := decoder.Decode(&a); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("%w: the archive is larger than %d bytes", ErrLimit, most)
		}
		return nil, fmt.Errorf("this is no archive of saved tools: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("this is no archive of saved tools: something follows its end")
	}
	if a.Format != Format {
		return nil, fmt.Errorf("this is no archive of saved tools that this program reads: format %.60q, not %q", a.Format, Format)
	}
	seen := map[string]bool{}
	for i := range a.Tools {
		t := &a.Tools[i]
		if err := checkTool(t); err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("%w: %s is there twice", ErrInvalid, t.Name)
		}
		seen[t.Name] = true
	}
	return &a, nil
}

// Imported says what Import did with one tool.
type Imported struct {
	Name    string `json:"name"`
	Version int    `json:"version"` // the current one now
	// Change is "new", "updated" (a version more) or "same".
	Change string `json:"change"`
}

// Import adds the tools of an archive. One that is not there is taken with all
// its versions; to one that is, the archive's current version is added, unless
// it is the current one already. The archive must come from ReadArchive. After
// an error those before it are imported.
func (s *Store) Import(a *Archive) ([]Imported, error) {
	var done []Imported
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for i := range a.Tools {
		t, err := s.forUpdate(a.Tools[i].Name)
		if err != nil {
			return done, err
		}
		result := Imported{Name: t.Name, Change: "new"}
		if len(t.Versions) == 0 {
			for _, v := range a.Tools[i].Versions {
				s.add(&t, v)
			}
		} else {
			before := t.Current().Version
			s.add(&t, *a.Tools[i].Current())
			result.Change = "updated"
			if t.Current().Version == before {
				result.Change = "same"
			}
		}
		if result.Change != "same" {
			if err := s.write(&t); err != nil {
				return done, err
			}
		}
		result.Version = t.Current().Version
		done = append(done, result)
	}
	return done, nil
}

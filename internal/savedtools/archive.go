package savedtools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sallyport/sallyport/internal/store/keyed"
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

// ReadArchive reads an archive, which may come from anywhere: its size is
// bounded, unknown members are refused, every name is an identifier, and no
// tool occurs twice.
func ReadArchive(r io.Reader) (*Archive, error) { return readArchive(r, MaxArchive) }

func readArchive(r io.Reader, most int64) (*Archive, error) {
	limited := &io.LimitedReader{R: r, N: most + 1}
	decoder := json.NewDecoder(limited)
	decoder.DisallowUnknownFields()
	var a Archive
	if err := decoder.Decode(&a); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("%w: the archive is larger than %d bytes", keyed.ErrLimit, most)
		}
		return nil, fmt.Errorf("not an archive of saved tools: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not an archive of saved tools: it has data after its end")
	}
	if a.Format != Format {
		return nil, fmt.Errorf("not an archive of saved tools that this program can read: its format is %.60q, want %q", a.Format, Format)
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

// Imported tells what Import did with one tool.
type Imported struct {
	Name    string `json:"name"`
	Version int    `json:"version"` // the current one now
	// Change is "new", "updated" (a version more) or "same".
	Change string `json:"change"`
}

// Import adds the tools of an archive. A tool that does not exist yet is added
// with all its versions; to an existing one the archive's current version is
// added, unless it is already the current one. The archive must come from
// ReadArchive. After an error those before it are imported.
func (s *Store) Import(a *Archive) ([]Imported, error) {
	var done []Imported
	for i := range a.Tools {
		imported := &a.Tools[i]
		result := Imported{Name: imported.Name}
		var err error
		result.Version, err = s.update(imported.Name, func(t *Tool) {
			if len(t.Versions) == 0 {
				result.Change = "new"
				for _, v := range imported.Versions {
					s.add(t, v)
				}
				return
			}
			before := t.Current().Version
			s.add(t, *imported.Current())
			result.Change = "updated"
			if t.Current().Version == before {
				result.Change = "same"
			}
		})
		if err != nil {
			return done, err
		}
		done = append(done, result)
	}
	return done, nil
}

package snapshot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"sallyport/internal/state"
)

// Binding says what a snapshot depends on, without finding out whether it is in
// order. What nobody can restore depends on nothing. The error is ErrNone where
// there is no snapshot of that name.
func (s *Store) Binding(name string) (string, error) {
	if !validName.MatchString(name) {
		return "", nil
	}
	data, err := state.At(filepath.Join(s.path, name)).Read(manifestName, maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", ErrNone
	case errors.Is(err, state.ErrTooLarge):
		return "", nil
	case err != nil:
		return "", err
	}
	var on sealed
	var m manifest
	if json.Unmarshal(data, &on) != nil || json.Unmarshal(on.Manifest, &m) != nil {
		return "", nil
	}
	return m.Binding, nil
}

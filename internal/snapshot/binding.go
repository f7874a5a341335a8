package snapshot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/store"
)

// Binding returns the binding of a snapshot, without checking the snapshot. It
// is empty for a snapshot that cannot be restored. The error is ErrNone if
// there is no snapshot of that name.
func (s *Store) Binding(name string) (string, error) {
	if !validName().MatchString(name) {
		return "", nil
	}
	data, err := store.At(filepath.Join(s.path, name)).Read(manifestName, maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", ErrNone
	case errors.Is(err, store.ErrTooLarge):
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

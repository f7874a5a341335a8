// Package image keeps the root file systems of OCI images on disk, for
// sandboxes that share them read-only.
//
// A root is stored under the digest of its image's configuration, which names
// the digests of all layers: the same content is stored once, whatever its
// names, and the content under a digest never changes. It appears complete or
// not at all. A record maps a name to a digest, until the image is pulled or
// built again.
//
// Several processes share a store. A process that uses a root holds its lock
// shared; one that removes a root holds it exclusively. A lock is released when
// its process ends, however that happens. A crash leaves a scratch folder
// without a holder, which the next writer removes.
package image

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/store"
)

var (
	// ErrMissing reports that no image of that name is in the store.
	ErrMissing = errors.New("the image is not here")
	// ErrUnusable reports that the image can never run here.
	ErrUnusable = errors.New("the image cannot be used")
)

// A Store is a directory of images. It is safe for concurrent use.
type Store struct {
	path   string
	limits flatten.Limits
}

// At returns the store in that directory, which is created with the first
// image. With an empty path the store is empty and cannot be written.
func At(path string, limits flatten.Limits) *Store { return &Store{path: path, limits: limits} }

func (s *Store) names() store.Dir { return store.At(s.path).Sub("names") }

// rootDir returns the directory with the root of an image and its metadata.
func (s *Store) rootDir(id string) string { return filepath.Join(s.path, "roots", hexOf(id)) }

// Files of a root's directory.
const (
	infoFile   = "image.json"
	configFile = "config.json"
	rootFolder = "root"
)

// A Root is the root file system of an image. It is not removed before Release.
type Root struct {
	Info
	// Dir is the file system. Its content may be hostile: symbolic links in it
	// must not be followed.
	Dir string

	config  string // file
	release func()
}

// Release ends the use of the root. It is idempotent.
func (r *Root) Release() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// missing returns ErrMissing with advice to the user.
func missing(name string) error {
	return fmt.Errorf("%w: %s; get it with: sallyport image pull %s", ErrMissing, name, name)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

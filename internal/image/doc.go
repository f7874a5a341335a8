// Package image keeps the root file systems of OCI images on disk, for
// sandboxes that share them read-only.
//
// A root lies under the digest of its image's configuration, which names the
// digests of all layers: the same content is there once, whatever it is called,
// and what lies under a digest never changes. It appears complete or not at
// all. A name leads to a digest by a record of its own, until the image is pulled or built
// again.
//
// Several processes share a store. Whoever uses a root holds its lock, shared;
// whoever removes one holds it alone. A lock goes with its holder, however that
// ends. What a crash leaves is a scratch folder without a holder, which the next
// one to write removes.
package image

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"sallyport/internal/image/flatten"
	"sallyport/internal/state"
)

var (
	// ErrMissing: no image of that name is in the store.
	ErrMissing = errors.New("the image is not here")
	// ErrUnusable: the image cannot run here, whatever is done.
	ErrUnusable = errors.New("the image cannot be used")
)

// A Store is a directory of images. It is safe for concurrent use.
type Store struct {
	path   string
	limits flatten.Limits
}

// At is the store in that directory, which is made with the first image. With
// an empty path nothing is in it and nothing can be put there.
func At(path string, limits flatten.Limits) *Store { return &Store{path: path, limits: limits} }

func (s *Store) names() state.Dir { return state.At(s.path).Sub("names") }

// rootDir is where the root of an image lies, with what is known of it.
func (s *Store) rootDir(id string) string { return filepath.Join(s.path, "roots", hexOf(id)) }

// Files of a root's directory.
const (
	infoFile   = "image.json"
	configFile = "config.json"
	rootFolder = "root"
)

// A Root is the root file system of an image. Nobody removes it before Release.
type Root struct {
	Info
	// Dir is the file system. What is in it may be hostile: a symbolic link
	// in it is not to be followed.
	Dir string

	config  string // file
	release func()
}

// Release says that the root is not used any longer. It is idempotent.
func (r *Root) Release() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// missing is ErrMissing with what to do.
func missing(name string) error {
	return fmt.Errorf("%w: %s; get it with: sallyport image pull %s", ErrMissing, name, name)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

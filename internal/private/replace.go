package private

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
)

// Replace replaces a file below root, whole or not at all. A new file has the
// mode, less the umask. ready, if not nil, gets the new file when its content is
// on disk, right before it takes the name; if it fails, nothing changes.
func Replace(root *os.Root, name string, content []byte, mode fs.FileMode, ready func(*os.File) error) (err error) {
	temporary := path.Join(path.Dir(name), ".sallyport-"+rand.Text())
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && ready != nil {
		err = ready(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		err = errors.Join(err, root.Remove(temporary))
	}
	return err
}

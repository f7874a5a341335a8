package image

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush has the disk take what was written below dir, so that a name never
// outlives a power cut that its content did not.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

package image

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush writes everything below dir to the disk, so that after a power cut no
// name exists without its content.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

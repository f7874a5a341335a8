//go:build !linux

package container

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func euid() int { return os.Geteuid() }

// openCopied opens what is in a folder that is copied.
func openCopied(path string) (*os.Root, error) {
	if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
		return nil, fmt.Errorf("%s is not a folder, or a part of its path is a symbolic link now. Start again with the folder's own path", path)
	}
	return os.OpenRoot(path)
}

// bindFolders is not reached: containers run in a virtual machine.
func (b *Engine) bindFolders(context.Context, *facts, string, string, []sandbox.Mount) (*folders, error) {
	return nil, sandbox.ErrUnsupported
}

func (b *Engine) dropFolders(string) {}

func (fo *folders) verify(context.Context, *Engine, string) error { return nil }

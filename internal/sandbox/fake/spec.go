//go:build unix

package fake

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"sallyport/internal/sandbox"
)

var (
	validID  = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\z`)
	validEnv = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
)

// check says what is wrong with a spec. The error has ErrUnsupported in its
// chain where the spec is good and the engine cannot do it.
func check(spec *sandbox.Spec, batch bool) error {
	switch {
	case spec == nil:
		return errors.New("no spec")
	case !validID.MatchString(spec.ID):
		return fmt.Errorf("ID %q: 1 to 63 characters of a-z, 0-9 and -", spec.ID)
	case spec.Root.Python != "" && spec.Root.Image != "":
		return errors.New("both an interpreter and an image are set as root")
	case spec.Root.Python != "" && !filepath.IsAbs(spec.Root.Python):
		return fmt.Errorf("interpreter %q: not an absolute path", spec.Root.Python)
	}
	l := spec.Limits
	for _, n := range []int64{l.MemoryBytes, int64(l.Processes), l.WorkspaceBytes, l.TmpBytes, int64(l.OpenFiles), l.OutputBytes} {
		if n < 0 {
			return errors.New("a negative limit")
		}
	}
	if l.CPUs < 0 {
		return errors.New("a negative limit")
	}
	for k, v := range spec.Env {
		if !validEnv.MatchString(k) || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment variable %q", k)
		}
	}
	if err := checkFiles(spec.Files); err != nil {
		return err
	}
	switch {
	case spec.Root.Image != "":
		return fmt.Errorf("%w: an image as root", sandbox.ErrUnsupported)
	case spec.Network != sandbox.NetworkNone:
		return fmt.Errorf("%w: network %d", sandbox.ErrUnsupported, spec.Network)
	case spec.Code != "" && !batch:
		return fmt.Errorf("%w: code goes through the channel", sandbox.ErrUnsupported)
	case spec.Code == "" && batch:
		return errors.New("a batch run without code")
	}
	return nil
}

func checkFiles(files []sandbox.File) error {
	seen := map[string]bool{}
	for _, f := range files {
		if f.Path == "." || !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || strings.ContainsRune(f.Path, 0) {
			return fmt.Errorf("file %q: not a clean relative path", f.Path)
		}
		if seen[f.Path] {
			return fmt.Errorf("file %q: twice", f.Path)
		}
		seen[f.Path] = true
	}
	for name := range seen {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if seen[dir] {
				return fmt.Errorf("file %q: below a file", name)
			}
		}
	}
	return nil
}

// place writes the spec's files below dir.
func place(dir string, files []sandbox.File) error {
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(f.Mode) & 0o777
		if mode == 0 {
			mode = 0o644
		}
		if err := os.WriteFile(name, f.Data, mode); err != nil {
			return err
		}
		if err := os.Chmod(name, mode); err != nil {
			return err
		}
	}
	return nil
}

package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	validID  = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\z`)
	validEnv = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
)

// Check says what is wrong with the form of a spec, whatever the engine. What
// only this or that engine can do, the engine checks itself.
func (spec *Spec) Check() error {
	switch {
	case spec == nil:
		return errors.New("no spec")
	case !validID.MatchString(spec.ID):
		return fmt.Errorf("ID %q: 1 to 63 characters of a-z, 0-9 and -", spec.ID)
	case spec.Root.Image != "" && spec.Root.Python != "":
		return errors.New("both an image and an interpreter are set as root")
	case spec.Root.Python != "" && !filepath.IsAbs(spec.Root.Python):
		return fmt.Errorf("interpreter %q: an absolute path is needed", spec.Root.Python)
	}
	l := spec.Limits
	if l.MemoryBytes < 0 || l.Processes < 0 || l.CPUs < 0 || l.WorkspaceBytes < 0 || l.TmpBytes < 0 || l.OpenFiles < 0 || l.OutputBytes < 0 {
		return errors.New("a limit is negative")
	}
	for k, v := range spec.Env {
		if !validEnv.MatchString(k) || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment variable %q", k)
		}
	}
	taken := map[string]bool{} // paths, true for files
	for _, f := range spec.Files {
		if !filepath.IsLocal(f.Path) || filepath.ToSlash(filepath.Clean(f.Path)) != f.Path || f.Path == "." || strings.ContainsRune(f.Path, 0) {
			return fmt.Errorf("file %q: a clean path inside /workspace is needed", f.Path)
		}
		if _, there := taken[f.Path]; there {
			return fmt.Errorf("file %q: there is another of that path, or below it", f.Path)
		}
		taken[f.Path] = true
		for dir := filepath.ToSlash(filepath.Dir(f.Path)); dir != "."; dir = filepath.ToSlash(filepath.Dir(dir)) {
			if taken[dir] {
				return fmt.Errorf("file %q: %s is a file", f.Path, dir)
			}
			taken[dir] = false
		}
	}
	return nil
}

// FileBytes is what Files weigh together.
func (spec *Spec) FileBytes() (total int) {
	for _, f := range spec.Files {
		total += len(f.Data)
	}
	return total
}

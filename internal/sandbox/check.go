package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

var (
	validID  = lazyregexp.New(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\z`)
	validEnv = lazyregexp.New(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
	// validArchive is the name of an archive of packages.
	validArchive = lazyregexp.New(`\A[0-9a-f]{64}\.tar\z`)
)

// Check returns an error if a spec is malformed for every engine. Each engine
// checks what only some engines can do.
func (spec *Spec) Check() error {
	switch {
	case spec == nil:
		return errors.New("no spec")
	case spec.Root.Image != "" && spec.Root.Interpreter != "":
		return errors.New("both an image and an interpreter are set as root")
	case spec.Root.Packages != "" && (spec.Root.Image != "" || spec.Root.Interpreter != ""):
		return errors.New("both an archive of packages and another root are set")
	case spec.Root.Packages != "" && (!filepath.IsAbs(spec.Root.Packages) || !validArchive().MatchString(filepath.Base(spec.Root.Packages))):
		return fmt.Errorf("archive of packages %q: an absolute path is needed that ends with its digest and %s", spec.Root.Packages, PackagesExt)
	case spec.Root.Interpreter != "" && !filepath.IsAbs(spec.Root.Interpreter):
		return fmt.Errorf("interpreter %q: an absolute path is needed", spec.Root.Interpreter)
	}
	if spec.Program != nil {
		if err := spec.Program.check(); err != nil {
			return err
		}
	}
	return cmp.Or(CheckID(spec.ID), spec.Limits.Check(), CheckEnv(spec.Env), CheckFiles(spec.Files), CheckMounts(spec.Mounts))
}

// CheckID returns an error if id cannot name a run.
func CheckID(id string) error {
	if !validID().MatchString(id) {
		return fmt.Errorf("ID %q: 1 to 63 characters of a-z, 0-9 and -", id)
	}
	return nil
}

// Check returns an error if a limit is out of range.
func (l Limits) Check() error {
	if l.MemoryBytes < 0 || l.Processes < 0 || l.CPUs < 0 || l.WorkspaceBytes < 0 || l.TmpBytes < 0 || l.PackagesBytes < 0 || l.OpenFiles < 0 || l.OutputBytes < 0 {
		return errors.New("a limit is negative")
	}
	return nil
}

// CheckEnv returns an error if env cannot be added to an environment.
func CheckEnv(env map[string]string) error {
	for k, v := range env {
		if !validEnv().MatchString(k) || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment variable %q", k)
		}
	}
	return nil
}

// CheckFiles returns an error if files cannot all be put into one directory.
func CheckFiles(files []File) error {
	taken := map[string]bool{} // paths, true for files
	for _, f := range files {
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

// ownPlaces are the directories of a sandbox at and below which no folder can be mounted.
var ownPlaces = []string{
	"/bin", "/boot", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/packages", "/proc",
	"/run", "/sbin", "/sys", "/tmp", "/usr", "/var", "/workspace",
}

// maxMounts bounds the mounts of a sandbox.
const maxMounts = 64

// CheckMounts returns an error if mounts cannot all be in one sandbox. It does not
// look at the host.
func CheckMounts(mounts []Mount) error {
	if len(mounts) > maxMounts {
		return fmt.Errorf("%d folders: a sandbox sees at most %d", len(mounts), maxMounts)
	}
	for i, m := range mounts {
		switch {
		case !filepath.IsAbs(m.Source) || filepath.Clean(m.Source) != m.Source || strings.ContainsRune(m.Source, 0):
			return fmt.Errorf("folder %q: an absolute, clean path is needed", m.Source)
		case !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || strings.ContainsRune(m.Target, 0):
			return fmt.Errorf("folder %q: its place in the sandbox, %q, must be an absolute, clean path such as /mnt/data", m.Source, m.Target)
		case m.Mode != ReadOnly && m.Mode != Copy && m.Mode != ReadWrite:
			return fmt.Errorf("folder %q: mode %q: write ro, copy or rw", m.Source, m.Mode)
		}
		for _, own := range ownPlaces {
			if m.Target == "/" || within(m.Target, own) {
				return fmt.Errorf("folder %q: %s belongs to the sandbox itself. Use a place such as /mnt/data", m.Source, m.Target)
			}
		}
		for _, other := range mounts[:i] {
			if within(m.Target, other.Target) || within(other.Target, m.Target) {
				return fmt.Errorf("folder %q: its place %s and that of %q, %s, overlap. Name other places, such as /mnt/data", m.Source, m.Target, other.Source, other.Target)
			}
		}
	}
	return nil
}

// within reports whether a clean path is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// FileBytes returns the total size of Files.
func (spec *Spec) FileBytes() (total int) {
	for _, f := range spec.Files {
		total += len(f.Data)
	}
	return total
}

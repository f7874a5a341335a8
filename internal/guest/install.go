package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// compiler writes byte code beside the sources. Its hash is not checked against
// the source when it is loaded: the directory is ours and is read-only inside.
const compiler = `
import os, py_compile, sys
for top, _, files in os.walk(sys.argv[1]):
    for name in files:
        if name.endswith(".py"):
            path = os.path.join(top, name)
            py_compile.compile(path, dfile=sys.argv[2] + path[len(sys.argv[1]):], doraise=True,
                               invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
`

// Compile has the interpreter python write byte code beside the sources in dir.
// Another interpreter than the one that runs in the sandbox is of no use, and
// does no harm.
func Compile(ctx context.Context, python, dir string) error {
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-c", compiler, dir, Dir)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("byte-compile the guest with %s: %w: %.500s", python, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Write writes the sources into dir, which exists.
func Write(dir string) error {
	return fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		b, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
}

// Install returns a directory below cacheDir with the sources, and byte code
// that the host's interpreter python made if it could. The directory is what a
// sandbox has at [Dir]. It is made once for each pair of guest and interpreter,
// by whoever comes first of any number of processes.
func Install(ctx context.Context, cacheDir, python string) (string, error) {
	key, err := installKey(python)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cacheDir, "guest-"+key)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cacheDir, "new-guest-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := Write(tmp); err != nil {
		return "", err
	}
	if err := Compile(ctx, python, tmp); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		// Sources alone do as well, only slower. Half of the byte code would
		// do no harm either, but would be kept for ever.
		if err := dropCaches(tmp); err != nil {
			return "", err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return dir, nil // another process was first
		}
		return "", err
	}
	return dir, nil
}

func dropCaches(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", "__pycache__"))
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// installKey identifies the guest's sources and the interpreter, the latter by
// what changes when a distribution replaces it.
func installKey(python string) (string, error) {
	fi, err := os.Stat(python)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d\n%d\n%s\n", python, fi.Size(), fi.ModTime().UnixNano(), compiler)
	err = fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:24], err
}

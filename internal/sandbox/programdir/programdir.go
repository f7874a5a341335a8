// Package programdir keeps the files of sandboxes' programs on the host's disk,
// compiled for an interpreter, for engines that show them by a mount.
package programdir

import (
	"bytes"
	"context"
	"crypto/rand"
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

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Install returns a directory below cacheDir with the program's files, and what
// the host's interpreter compiled of them if it could. The directory is what a
// sandbox has at [sandbox.ProgramDir]. It is made once for each pair of program
// and interpreter, by the first of any number of processes.
func Install(ctx context.Context, cacheDir string, p *sandbox.Program, interpreter string) (string, error) {
	fi, err := os.Stat(interpreter)
	if err != nil {
		return "", err
	}
	// What changes when a distribution replaces it.
	key := fmt.Sprintf("%s\n%d\n%d", interpreter, fi.Size(), fi.ModTime().UnixNano())
	return InstallFor(ctx, cacheDir, p, key, func(dir string) ([]byte, error) {
		return compile(ctx, p, interpreter, dir)
	})
}

// compile runs the program's Compile on the host.
func compile(ctx context.Context, p *sandbox.Program, interpreter, dir string) ([]byte, error) {
	argv := sandbox.Command(p.Compile, interpreter, dir)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("compile the program with %s: %w: %.500s", interpreter, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// InstallFor is Install for an interpreter that the host cannot run, which key
// tells from all others. compile gets the directory with the files and returns
// what the program's Compile wrote. The interpreter may be hostile: only a
// sandbox with the same interpreter loads that.
func InstallFor(ctx context.Context, cacheDir string, p *sandbox.Program, key string, compile func(dir string) ([]byte, error)) (string, error) {
	name, err := dirName(p, key)
	if err != nil {
		return "", err
	}
	// Others may read what is there. They must not have put it there.
	cache, err := private.Passable(cacheDir)
	if errors.Is(err, fs.ErrNotExist) {
		cache, err = private.Open(cacheDir)
	}
	if err != nil {
		return "", err
	}
	defer cache.Close()
	dir := filepath.Join(cacheDir, name)
	if info, err := cache.Lstat(name); err == nil && info.IsDir() {
		return dir, nil
	}
	temporary := "new-guest-" + strings.ToLower(rand.Text()[:10])
	if err := cache.Mkdir(temporary, 0o700); err != nil {
		return "", err
	}
	defer cache.RemoveAll(temporary)
	tmp := filepath.Join(cacheDir, temporary)
	if err := cache.Chmod(temporary, 0o755); err != nil {
		return "", err
	}
	if err := os.CopyFS(tmp, p.Files); err != nil {
		return "", err
	}
	if len(p.Compile) > 0 {
		// Without it the program does as well, only slower.
		if path, data, err := compiled(p, tmp, compile); err == nil {
			if err := os.WriteFile(filepath.Join(tmp, path), data, 0o644); err != nil {
				return "", err
			}
		} else if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	if err := cache.Rename(temporary, name); err != nil {
		if info, statErr := cache.Lstat(name); statErr == nil && info.IsDir() {
			return dir, nil // another process was first
		}
		return "", err
	}
	return dir, nil
}

// nameEnd is what a Compile may choose of its file's name.
var nameEnd = lazyregexp.New(`^[a-z0-9_-]{1,40}$`)

// compiled returns the path of the file that compile makes, and its content.
func compiled(p *sandbox.Program, dir string, compile func(dir string) ([]byte, error)) (string, []byte, error) {
	out, err := compile(dir)
	if err != nil {
		return "", nil, err
	}
	end, data, ok := bytes.Cut(out, []byte("\n"))
	if !ok || !nameEnd().Match(end) {
		return "", nil, errors.New("compile the program: no answer")
	}
	return filepath.FromSlash(p.Compiled + string(end)), data, nil
}

// dirName identifies the program and the interpreter.
func dirName(p *sandbox.Program, key string) (string, error) {
	digest, err := p.Digest()
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n", digest, key))
	return "guest-" + hex.EncodeToString(h[:])[:24], nil
}

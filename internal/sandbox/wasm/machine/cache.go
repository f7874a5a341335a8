//go:build linux

package machine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
)

// A codeCache gives wazero compiled code that is in a file, and keeps in the file what it
// compiles. Wazero runs whatever it finds in its cache. Therefore it gets a directory of
// its own with nothing but a link to the file, whose content the caller vouches for.
//
// The file is what wazero wrote, and the name that wazero wants its file to have.
type codeCache struct {
	file  *os.File // nil: nothing is kept
	found bool     // wazero gets code from the file

	unkept  error  // why what is compiled cannot be kept, if that is known
	scratch string // wazero's directory
	wazero  wazero.CompilationCache
}

// codeName is the size of the name.
const codeName = 2 * sha256.Size

// openCodeCache returns the cache of an interpreter's code.
func openCodeCache(c Config) (_ *codeCache, err error) {
	if c.Code == nil {
		return &codeCache{}, nil
	}
	cache := &codeCache{file: c.Code}
	name, err := cache.name()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cache.close())
		}
	}()
	if err := cache.makeScratch(c.ScratchDir, name != ""); err != nil {
		return &codeCache{unkept: err}, nil
	}
	if cache.wazero, err = wazero.NewCompilationCacheWithDir(cache.scratch); err != nil {
		return nil, err
	}
	dir, err := cache.directory()
	if err != nil {
		return nil, err
	}
	if name != "" {
		target := fmt.Sprintf("/proc/self/fd/%d", c.Code.Fd())
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		cache.found = true
	}
	return cache, nil
}

// name returns the name in the file; empty: the file is empty.
func (c *codeCache) name() (string, error) {
	info, err := c.file.Stat()
	if err != nil || info.Size() == 0 {
		return "", err
	}
	name := make([]byte, codeName)
	if _, err := c.file.ReadAt(name, info.Size()-codeName); err != nil {
		return "", fmt.Errorf("the name of the code: %w", err)
	}
	if !isName(string(name)) {
		return "", errors.New("the file holds no compiled code")
	}
	return string(name), nil
}

// makeScratch makes wazero's directory in dir. To load code any other place will do,
// because all that it holds then is a link: dir may be on a file system that cannot be
// written to.
func (c *codeCache) makeScratch(dir string, load bool) (err error) {
	dirs := []string{cmp.Or(dir, os.TempDir())}
	if load {
		dirs = append(dirs, os.TempDir(), "/dev/shm", "/run")
	}
	name := "sallyport-wasm-" + rand.Text() // which no one can foresee
	var errs []error
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		err := os.Mkdir(path, 0o700)
		if err == nil {
			c.scratch = path
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// directory returns the one directory that wazero has made in its own.
func (c *codeCache) directory() (string, error) {
	entries, err := os.ReadDir(c.scratch)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 || !entries[0].IsDir() {
		return "", errors.New("wazero's cache has an unknown form")
	}
	return filepath.Join(c.scratch, entries[0].Name()), nil
}

// isName reports whether s is a name as wazero gives them.
func isName(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// keep writes what wazero has compiled to the file, if it has compiled anything. That
// it cannot be kept is no reason to fail: it is unkept then.
func (c *codeCache) keep() (unkept, err error) {
	if c.wazero == nil {
		return c.unkept, nil
	}
	dir, err := c.directory()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	unkept = c.unkept
	for _, e := range entries {
		if !e.Type().IsRegular() || !isName(e.Name()) {
			continue
		}
		file := filepath.Join(dir, e.Name())
		code, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c.found = false
		// Not two copies on the disk.
		err = os.Remove(file)
		if err == nil {
			_, err = c.file.WriteAt(append(code, e.Name()...), 0)
		}
		if err != nil {
			unkept = errors.Join(unkept, fmt.Errorf("%d MB of compiled code: %w", len(code)>>20, err))
		}
	}
	return unkept, nil
}

// close removes what only wazero needed, while it compiled or loaded. The code that it
// has loaded stays.
func (c *codeCache) close() error {
	if c.scratch == "" {
		return nil
	}
	if err := os.RemoveAll(c.scratch); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// release frees the code. No module may use it any more.
func (c *codeCache) release(ctx context.Context) error {
	if c.wazero == nil {
		return nil
	}
	return c.wazero.Close(ctx)
}

//go:build linux

package machine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// A codeCache gives wazero compiled code that this user's program has made, and keeps
// what it compiles. Wazero runs whatever it finds in its cache. Therefore it never sees
// the directory that outlives the program: it gets a directory of its own with a link
// to a copy in memory of which the authenticity has been checked.
//
// A file of the cache is a header, a line feed, and what wazero wrote. The header is
// the name of the form, the name that wazero wants its file to have, a salt and a tag,
// separated by spaces. The tag is an AES-256-GMAC of the code, which processors compute
// as fast as they read. Its key is for this one file: it is derived from the cache's
// key, the salt, the name, and all that the code depends on.
type codeCache struct {
	path    string // of the file that outlives the program; empty: there is none
	key     []byte
	binding string
	found   bool // wazero gets code from the file
	name    string

	unkept  error  // why what is compiled cannot be kept, if that is known
	scratch string // wazero's directory
	code    *os.File
	wazero  wazero.CompilationCache
}

const (
	codeForm = "sallyport-wasm-code-1"
	// maxCode bounds what is read of a file of compiled code.
	maxCode = 512 << 20

	codeSalt = 32
	codeTag  = 16
)

// errForged says that a file of the cache is not what was written there.
var errForged = errors.New("not what was written")

// openCodeCache returns the cache of an interpreter's code. A file that cannot be used
// counts as absent.
func openCodeCache(c Config, i Interpreter) (_ *codeCache, err error) {
	if c.CacheDir == "" {
		return &codeCache{}, nil
	}
	if len(c.Key) < sha256.Size {
		return nil, errors.New("a cache of compiled code needs a key")
	}
	binding := i.Digest + "\n" + c.Build + "\n" + Binding()
	// The name has a digest of the key: programs with other keys keep files of their own.
	name, err := hkdf.Key(sha256.New, c.Key, nil, "engine wasm code name\n"+binding, 12)
	if err != nil {
		return nil, err
	}
	cache := &codeCache{
		path:    filepath.Join(c.CacheDir, "wasm-code-"+hex.EncodeToString(name)),
		key:     c.Key,
		binding: binding,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cache.close())
		}
	}()
	found := cache.load() == nil
	if err := cache.makeScratch(c.ScratchDir, found); err != nil {
		closeFiles(cache.code)
		return &codeCache{unkept: err}, nil
	}
	if cache.wazero, err = wazero.NewCompilationCacheWithDir(cache.scratch); err != nil {
		return nil, err
	}
	dir, err := cache.directory()
	if err != nil {
		return nil, err
	}
	if found {
		target := fmt.Sprintf("/proc/self/fd/%d", cache.code.Fd())
		if err := os.Symlink(target, filepath.Join(dir, cache.name)); err != nil {
			return nil, err
		}
		cache.found = true
	}
	return cache, nil
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

// load sets c.code and c.name from the file if it is authentic.
func (c *codeCache) load() (err error) {
	f, err := os.OpenFile(c.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCode {
		return errForged
	}
	head := make([]byte, len(codeForm)+2*(sha256.Size+codeSalt+codeTag)+4)
	if _, err := io.ReadFull(f, head); err != nil {
		return err
	}
	var salt, tag []byte
	fields := strings.Split(strings.TrimSuffix(string(head), "\n"), " ")
	if len(fields) != 4 || fields[0] != codeForm || !isName(fields[1]) {
		return errForged
	}
	if salt, err = hex.DecodeString(fields[2]); err != nil {
		return errForged
	}
	if tag, err = hex.DecodeString(fields[3]); err != nil {
		return errForged
	}
	// The copy is checked, not the file, which another process may change meanwhile.
	memory, err := memoryFile("sallyport-wasm-code")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	size := info.Size() - int64(len(head))
	if err := memory.Truncate(size); err != nil {
		return err
	}
	data, err := unix.Mmap(int(memory.Fd()), 0, int(max(size, 1)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(data)
	if _, err := io.ReadFull(f, data); err != nil {
		return err
	}
	right, err := c.tag(fields[1], salt, data)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(tag, right) != 1 {
		return errForged
	}
	c.code, c.name = memory, fields[1]
	return nil
}

// isName reports whether s is a name as wazero gives them.
func isName(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// tag authenticates code under a name.
func (c *codeCache) tag(name string, salt, code []byte) ([]byte, error) {
	info := fmt.Sprintf("engine wasm code\n%d\n%s\n%s", len(c.binding), c.binding, name)
	key, err := hkdf.Key(sha256.New, c.key, salt, info, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, make([]byte, aead.NonceSize()), nil, code), nil
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
		unkept = errors.Join(unkept, os.Remove(file), c.write(e.Name(), code))
		if unkept != nil {
			unkept = fmt.Errorf("%d MB of compiled code in %s: %w", len(code)>>20, filepath.Dir(c.path), unkept)
		}
	}
	return unkept, nil
}

// write replaces the file.
func (c *codeCache) write(name string, code []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(c.path), "new-wasm-code-")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), c.path)
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	salt := make([]byte, codeSalt)
	rand.Read(salt)
	tag, err := c.tag(name, salt, code)
	if err != nil {
		return err
	}
	head := fmt.Sprintf("%s %s %x %x\n", codeForm, name, salt, tag)
	_, err = io.Copy(f, io.MultiReader(strings.NewReader(head), bytes.NewReader(code)))
	return err
}

// close removes what only wazero needed, while it compiled or loaded. The code that it
// has loaded stays.
func (c *codeCache) close() error {
	closeFiles(c.code)
	c.key = nil
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

// memoryFile returns a new file that only this process has.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/private"
)

// images keeps the images of programs in a directory, or compiled code, which is called an
// image here, too. An image becomes memory that compiled code trusts, or that code itself,
// so only what this user's programs have made is used: a seal, a file next to the image,
// authenticates it and its purpose. Images are made by a process that has run no other code
// when they are sealed, and no process that does can write to them.
type images struct {
	dir    string
	key    func() ([]byte, error)
	prefix string // begins the names of its files
	keep   int    // how many stay when another is made, at most
}

const (
	imagePrefix = "image-"
	sealSuffix  = ".json"
	draftPrefix = "new-"
	// maxSeal bounds what is read of a seal.
	maxSeal = 4 << 10
	// maxImage bounds the size of an image: an interpreter boots in less memory.
	maxImage   = 1 << 30
	keptImages = 8
	// codePrefix begins the names of compiled code.
	codePrefix = "code-"
	keptCode   = 4
	// unused is how long an image stays that no start uses, as those of older executables.
	unused = 30 * 24 * time.Hour
	// abandoned is the age of a draft that a crash has left.
	abandoned = time.Hour
)

// seal is the content of a seal.
type seal struct {
	File string `json:"file"` // the image's
	Salt []byte `json:"salt"`
	MAC  []byte `json:"mac"`
}

const (
	saltSize  = 32
	chunkSize = 1 << 20 // what one tag authenticates
)

// secret returns the key for one purpose.
func secret(key func() ([]byte, error), purpose string) ([]byte, error) {
	master, err := key()
	if err != nil {
		return nil, fmt.Errorf("the key of the cache: %w", err)
	}
	if len(master) < sha256.Size {
		return nil, fmt.Errorf("the key of the cache has %d bytes, not %d", len(master), sha256.Size)
	}
	return hkdf.Key(sha256.New, master, nil, "engine wasm "+purpose, sha256.Size)
}

// sealFile returns the name of the seal of an image. It has a digest of the key, so that an
// image of another key is not taken for one that can be used, and not replaced either.
func (c *images) sealFile(name string) (string, error) {
	key, err := secret(c.key, "image names")
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, name) // never fails
	return c.prefix + hex.EncodeToString(mac.Sum(nil)[:20]) + sealSuffix, nil
}

// open returns the image of that name: a copy in memory that nothing can change any
// more, because what was checked in a file may be replaced before it is used. The error
// is fs.ErrNotExist if there is none that can be used.
func (c *images) open(ctx context.Context, name string) (*os.File, error) {
	root, err := c.existing()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := c.seal(root, name)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(root, s.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sealed, err := memoryFile("sallyport-wasm-image")
	if err != nil {
		return nil, err
	}
	mac, err := c.mac(ctx, name, s.Salt, f, sealed)
	if err == nil && !hmac.Equal(mac, s.MAC) {
		err = fmt.Errorf("%s is not what was written there: %w", filepath.Join(c.dir, s.File), fs.ErrNotExist)
	}
	if err == nil {
		err = endChanges(sealed)
	}
	if err != nil {
		sealed.Close()
		return nil, err
	}
	c.used(root, name)
	return sealed, nil
}

// used notes in the time of a seal that its image is used, which prune looks at. It does not
// matter where that cannot be written.
func (c *images) used(root *os.Root, name string) {
	if file, err := c.sealFile(name); err == nil {
		_ = root.Chtimes(file, time.Time{}, time.Now())
	}
}

// memoryFile returns a new file that only this process has.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// endChanges ends all changes of a file in memory.
func endChanges(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return os.NewSyscallError("fcntl", err)
}

// writeSparse writes data to an empty part of a file, and leaves holes where a page is
// zero.
func writeSparse(f *os.File, data []byte, at int64) error {
	var zeros [4096]byte
	for len(data) > 0 {
		page := data[:min(len(zeros), len(data))]
		if !bytes.Equal(page, zeros[:len(page)]) {
			if _, err := f.WriteAt(page, at); err != nil {
				return err
			}
		}
		data, at = data[len(page):], at+int64(len(page))
	}
	return nil
}

// present reports whether there is an image of that name and of this key, without reading
// it.
func (c *images) present(name string) bool {
	root, err := c.existing()
	if err != nil {
		return false
	}
	defer root.Close()
	s, err := c.seal(root, name)
	if err != nil {
		return false
	}
	_, err = root.Lstat(s.File)
	return err == nil
}

// seal returns the seal of the image of that name.
func (c *images) seal(root *os.Root, name string) (s seal, err error) {
	file, err := c.sealFile(name)
	if err != nil {
		return s, err
	}
	return c.read(root, file)
}

func (c *images) read(root *os.Root, file string) (s seal, err error) {
	f, err := openRegular(root, file)
	if err != nil {
		return s, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSeal))
	if err != nil {
		return s, err
	}
	if json.Unmarshal(data, &s) != nil || !strings.HasPrefix(s.File, c.prefix) || strings.ContainsRune(s.File, '/') {
		return s, fs.ErrNotExist
	}
	return s, nil
}

func openRegular(root *os.Root, name string) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return root.Open(name)
}

// mac authenticates a file as the image of that name, and copies what it authenticates
// to the file copied unless that is nil. The result is an HMAC of the tags of the file's
// chunks, which are AES-256-GMAC, because processors compute that as fast as they read.
// The salt makes the keys those of this image alone, so no two chunks have the same
// nonce.
func (c *images) mac(ctx context.Context, name string, salt []byte, f, copied *os.File) ([]byte, error) {
	master, err := secret(c.key, "image")
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxImage {
		return nil, fmt.Errorf("an image of %d bytes; at most %d", info.Size(), int64(maxImage))
	}
	keys, err := hkdf.Key(sha256.New, master, salt, "engine wasm image keys", 64)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(keys[:32])
	if err != nil {
		return nil, err
	}
	tags, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if copied != nil {
		if err := copied.Truncate(info.Size()); err != nil {
			return nil, err
		}
	}
	mac := hmac.New(sha256.New, keys[32:])
	fmt.Fprintf(mac, "engine wasm image\n%s%s\n%d\n", c.prefix, name, info.Size())
	chunk := make([]byte, min(chunkSize, info.Size()))
	for at := int64(0); at < info.Size(); at += chunkSize {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data := chunk[:min(chunkSize, info.Size()-at)]
		if _, err := f.ReadAt(data, at); err != nil {
			return nil, err
		}
		if copied != nil {
			if err := writeSparse(copied, data, at); err != nil {
				return nil, err
			}
		}
		var nonce [12]byte
		binary.BigEndian.PutUint64(nonce[4:], uint64(at/chunkSize))
		mac.Write(tags.Seal(nil, nonce[:], nil, data))
	}
	return mac.Sum(nil), nil
}

// create makes the image of that name: fill writes it to an empty file, and nothing
// writes to the file after fill has returned.
func (c *images) create(ctx context.Context, name string, fill func(*os.File) error) (err error) {
	root, err := private.Open(c.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	draft := draftPrefix + rand.Text()
	f, err := root.OpenFile(draft, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = root.Remove(draft)
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	mac, err := c.mac(ctx, name, salt, f, nil)
	if err != nil {
		return err
	}
	s := seal{File: c.prefix + rand.Text(), Salt: salt, MAC: mac}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file, err := c.sealFile(name)
	if err != nil {
		return err
	}
	if err := root.Rename(draft, s.File); err != nil {
		return err
	}
	// The image comes first, so that a seal never stands for what is not there.
	note := draftPrefix + rand.Text()
	err = root.WriteFile(note, data, 0o600)
	if err == nil {
		err = root.Rename(note, file)
	}
	if err != nil {
		_ = root.Remove(note)
		return errors.Join(err, root.Remove(s.File))
	}
	c.prune(root)
	return nil
}

// prune removes images that are not sealed any more, those that no start has used for long,
// all but the last used of the others, and what crashes left. Programs that run have copies.
func (c *images) prune(root *os.Root) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	age := func(e fs.DirEntry) time.Duration {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return time.Since(info.ModTime())
	}
	var seals []fs.DirEntry
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.prefix) && strings.HasSuffix(e.Name(), sealSuffix) {
			seals = append(seals, e)
		}
	}
	slices.SortFunc(seals, func(a, b fs.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	sealed := map[string]bool{}
	for i, e := range seals {
		if s, err := c.read(root, e.Name()); err == nil && i < c.keep && age(e) <= unused {
			sealed[s.File], sealed[e.Name()] = true, true
		}
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, c.prefix) && !sealed[name] && age(e) > time.Minute, // not one that is about to be sealed
			(strings.HasPrefix(name, draftPrefix) || strings.HasPrefix(name, scratchPrefix)) && age(e) > abandoned:
			_ = root.RemoveAll(name)
		}
	}
}

// scratchPrefix begins the names of directories that package machine uses for a moment.
const scratchPrefix = "sallyport-wasm-"

// existing opens the directory to read from it. Others may read it, too, where the file
// system cannot be written to.
func (c *images) existing() (*os.Root, error) {
	root, err := private.Existing(c.dir)
	if errors.Is(err, unix.EROFS) {
		return private.Passable(c.dir)
	}
	return root, err
}

// lock waits until no other process makes an image in the directory: two that do it at
// one time only work in vain. It gives up where that takes too long, or is impossible.
func (c *images) lock(ctx context.Context) (unlock func()) {
	root, err := private.Open(c.dir)
	if err != nil {
		return func() {}
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	lock := flock.New(filepath.Join(c.dir, lockFile))
	if ok, err := lock.TryLockContext(ctx, lockLook); err != nil || !ok {
		return func() {}
	}
	return func() { _ = lock.Unlock() }
}

const (
	lockFile = "lock"
	// lockLook is how often a process that waits for another looks.
	lockLook = 50 * time.Millisecond
)

package image

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/store"
)

// Info is the metadata of an image.
type Info struct {
	ID       string         `json:"id"`
	Platform string         `json:"platform"` // linux/amd64
	Env      []string       `json:"env,omitempty"`
	Python   *Python        `json:"python,omitempty"` // nil if it has no usable one
	Trouble  string         `json:"trouble,omitempty"`
	Bytes    int64          `json:"bytes"`
	Entries  int            `json:"entries"`
	Dropped  map[string]int `json:"dropped,omitempty"`
	Version  int            `json:"version"`
}

// infoVersion is the version of the layout of a root's directory.
const infoVersion = 1

// Content is an image to add to the store.
type Content struct {
	// Config is the image's configuration, whose digest is its ID.
	Config []byte
	// Layers are the image's layers, lowest first. Their DiffIDs are those of
	// the configuration.
	Layers []flatten.Layer
	// Digest is the digest of the manifest, if there is one.
	Digest string
	// Passing is set if a power cut may lose the root.
	Passing bool
}

// config has the used fields of an image's configuration.
type config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
	Config       struct {
		Env []string `json:"Env,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// DiffIDs returns the digests of an image's layers from its configuration. It
// returns an error for an image for another system.
func DiffIDs(raw []byte) ([]string, error) {
	c, err := readConfig(raw)
	if err != nil {
		return nil, err
	}
	return c.RootFS.DiffIDs, nil
}

func readConfig(raw []byte) (*config, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%w: its configuration: %w", flatten.ErrLayer, err)
	}
	if c.OS != "linux" || c.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("%w: it is for %s/%s, and this machine is linux/%s", ErrUnusable, c.OS, c.Architecture, runtime.GOARCH)
	}
	return &c, nil
}

// ID returns the ID of the image with that configuration.
func ID(config []byte) string {
	sum := sha256.Sum256(config)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Limits returns the limits of an image in the store.
func (s *Store) Limits() flatten.Limits { return s.limits }

// Scratch creates a temporary folder on the store's disk. remove removes it;
// after a crash, the next call of Scratch does.
func (s *Store) Scratch() (dir string, remove func(), err error) {
	if s.path == "" {
		return "", nil, store.ErrNoPlace
	}
	path := filepath.Join(s.path, "scratch")
	top, err := private.Open(path)
	if err != nil {
		return "", nil, err
	}
	sweep(top)
	name := rand.Text()
	dir = filepath.Join(path, name)
	if err := top.Mkdir(name, 0o700); err != nil {
		return "", nil, errors.Join(err, top.Close())
	}
	lock := flock.New(dir + ".lock")
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = errors.New("it is locked by another process")
	}
	if err != nil {
		return "", nil, errors.Join(err, top.RemoveAll(name), top.Close())
	}
	return dir, sync.OnceFunc(func() {
		_ = top.RemoveAll(name)
		_ = top.Remove(name + ".lock")
		_ = lock.Unlock()
		_ = top.Close()
	}), nil
}

// scratchGrace gives other processes time to lock the folder that they have
// just created.
const scratchGrace = time.Minute

// sweep removes scratch folders without a holder.
func (s *Store) sweep() {
	if top, err := private.Existing(filepath.Join(s.path, "scratch")); err == nil {
		sweep(top)
		_ = top.Close()
	}
}

func sweep(top *os.Root) {
	entries, _ := fs.ReadDir(top.FS(), ".")
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lock")
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < scratchGrace {
			continue
		}
		lock := flock.New(filepath.Join(top.Name(), name+".lock"))
		if ok, err := lock.TryLock(); err != nil || !ok {
			continue
		}
		_ = top.RemoveAll(name)
		_ = top.Remove(name + ".lock")
		_ = lock.Unlock()
	}
}

// lock returns the lock of a root. Locks stay when their roots are removed: a
// lock that is removed and created again would be two locks.
func (s *Store) lock(id string) (*flock.Flock, error) {
	dir := filepath.Join(s.path, "locks")
	if err := private.Check(dir); err != nil {
		return nil, err
	}
	return flock.New(filepath.Join(dir, hexOf(id))), nil
}

// hold takes the lock of a root, shared. Removing a root holds it for a moment
// only.
func (s *Store) hold(ctx context.Context, id string) (release func(), err error) {
	lock, err := s.lock(id)
	if err != nil {
		return nil, err
	}
	if ok, err := lock.TryRLockContext(ctx, 5*time.Millisecond); err != nil || !ok {
		return nil, errors.Join(err, ctx.Err())
	}
	return func() { _ = lock.Unlock() }, nil
}

// roots returns the entries of the directory of roots.
func (s *Store) roots() ([]fs.DirEntry, error) {
	root, err := private.Existing(filepath.Join(s.path, "roots"))
	if isNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return fs.ReadDir(root.FS(), ".")
}

// Info returns the metadata of the image with that ID. The error is ErrMissing
// if it is not in the store.
func (s *Store) Info(id string) (Info, error) {
	var in Info
	if s.path == "" || !wholeID().MatchString(id) {
		return in, missing(id)
	}
	raw, err := store.At(s.rootDir(id)).Read(infoFile, maxRecord)
	if isNotExist(err) {
		return in, missing(id)
	}
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(raw, &in); err != nil || in.ID != id || in.Version != infoVersion {
		return in, fmt.Errorf("the image in %s was stored by another version of this program: remove it with sallyport image rm, and pull it again", s.rootDir(id))
	}
	return in, nil
}

// Open finds the image of that name and holds its root.
func (s *Store) Open(ctx context.Context, text string) (*Root, Record, error) {
	r, err := s.Find(text)
	if err != nil {
		return nil, r, err
	}
	root, err := s.open(ctx, r.ID)
	if errors.Is(err, ErrMissing) {
		err = missing(text)
	}
	return root, r, err
}

func (s *Store) open(ctx context.Context, id string) (*Root, error) {
	if s.path == "" {
		return nil, missing(id)
	}
	release, err := s.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(id) // now that it cannot be removed
	if err != nil {
		release()
		return nil, err
	}
	dir := s.rootDir(id)
	return &Root{Info: info, Dir: filepath.Join(dir, rootFolder), config: filepath.Join(dir, configFile), release: release}, nil
}

// Add adds an image to the store and holds its root. If the store has it
// already, nothing is read. progress, which may be nil, receives the progress
// of the unpacking.
func (s *Store) Add(ctx context.Context, c *Content, progress func(done, total int64)) (*Root, error) {
	conf, err := readConfig(c.Config)
	if err != nil {
		return nil, err
	}
	if len(conf.RootFS.DiffIDs) != len(c.Layers) {
		return nil, fmt.Errorf("%w: its configuration names %d layers, and it has %d", flatten.ErrLayer, len(conf.RootFS.DiffIDs), len(c.Layers))
	}
	id := ID(c.Config)
	if root, err := s.open(ctx, id); err == nil || !errors.Is(err, ErrMissing) {
		return root, err
	}
	dir, remove, err := s.Scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	made := filepath.Join(dir, "image")
	if err := s.make(ctx, made, id, c, conf, progress); err != nil {
		return nil, err
	}
	release, err := s.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := private.Check(filepath.Dir(s.rootDir(id))); err != nil {
		return nil, err
	}
	if err := os.Rename(made, s.rootDir(id)); err != nil {
		if _, there := s.Info(id); there != nil { // no other process was faster
			return nil, err
		}
	}
	return s.open(ctx, id)
}

// make writes the complete directory of a root.
func (s *Store) make(ctx context.Context, dir, id string, c *Content, conf *config, progress func(done, total int64)) error {
	root := filepath.Join(dir, rootFolder)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	var total int64
	layers := make([]flatten.Layer, len(c.Layers))
	for i, l := range c.Layers {
		l.DiffID = conf.RootFS.DiffIDs[i]
		layers[i] = l
		total += 2 * l.Size
	}
	var told func(int64)
	if progress != nil {
		told = func(done int64) { progress(done, total) }
	}
	report, err := flatten.Unpack(ctx, root, layers, s.limits, told)
	if err != nil {
		return err
	}
	info := Info{
		ID: id, Version: infoVersion, Platform: conf.OS + "/" + conf.Architecture,
		Env: harmless(conf.Config.Env), Bytes: report.Bytes, Entries: report.Entries, Dropped: report.Dropped,
	}
	if info.Python, err = FindPython(root, info.Env); err != nil {
		info.Trouble = err.Error()
	}
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	at := store.At(dir)
	if err := errors.Join(at.Write(configFile, c.Config), at.Write(infoFile, raw)); err != nil {
		return err
	}
	if c.Passing {
		return nil
	}
	return flush(dir)
}

// harmless returns the variables of an image that a sandbox may have.
func harmless(env []string) []string {
	var out []string
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && len(kv) < 4096 && !strings.ContainsRune(kv, 0) && value != "" {
			switch name {
			case "PATH", "LANG":
				out = append(out, kv)
			}
		}
	}
	return out
}

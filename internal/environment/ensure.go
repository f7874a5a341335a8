package environment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
)

// Lock resolves the definition anew and writes its lock. What was built from another
// lock is built anew on its next use.
func (s *Store) Lock(ctx context.Context, d *Definition, tell Tell) error {
	r, err := s.read(d)
	if err != nil {
		return err
	}
	if r.given != nil {
		return fmt.Errorf("%s is itself the lock of environment %s: write it anew with the tool that made it", d.File, r.Name)
	}
	return s.alone(ctx, r, tell, func() error {
		return s.work(ctx, r, tell, func(w *work) error {
			_, err := w.lock(ctx)
			return err
		})
	})
}

// Ensure returns the built environment. It locks and builds it first where that was
// not done; others that build the same wait for the first.
func (s *Store) Ensure(ctx context.Context, d *Definition, tell Tell) (*Built, error) {
	r, err := s.read(d)
	if err != nil {
		return nil, err
	}
	out, err := s.find(r)
	if !errors.Is(err, ErrUnbuilt) {
		return out, err
	}
	err = s.alone(ctx, r, tell, func() error {
		if out, err = s.find(r); !errors.Is(err, ErrUnbuilt) {
			return err // another process was faster
		}
		return s.work(ctx, r, tell, func(w *work) (err error) {
			out, err = w.build(ctx)
			return err
		})
	})
	return out, err
}

// alone runs f while no other process builds the same.
func (s *Store) alone(ctx context.Context, r *request, tell Tell, f func() error) error {
	for first := true; ; first = false {
		unlock, ok, err := s.config.State.TryLock(r.key())
		if err != nil {
			return err
		}
		if ok {
			defer unlock()
			return f()
		}
		if first && tell != nil {
			tell("waiting: another program builds this environment", 0, 0)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// work is one build.
type work struct {
	*Store
	r      *request
	base   *image.Root
	target *build.Target
	b      *build.Builder
	dir    string // for temporary files
}

// work prepares a build, runs f, and cleans up.
func (s *Store) work(ctx context.Context, r *request, tell Tell, f func(w *work) error) (err error) {
	if tell == nil {
		tell = func(string, int64, int64) {}
	}
	b, end, err := s.config.Builder(ctx, r.pure)
	if err != nil {
		return err
	}
	defer end()
	defer func() {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; free some space ('sallyport image prune' and 'sallyport env rm' may help), and try again", err)
		}
	}()
	b.Tell = tell
	if r.pure {
		return s.workPure(ctx, r, b, f)
	}
	base, err := s.config.Base(ctx, r.Definition, tell)
	if err != nil {
		return err
	}
	defer base.Release() // before end, which removes the host's Python
	if r.Image == "" {
		b.Passing = append(b.Passing, base.ID)
	}
	if base.Python == nil {
		return fmt.Errorf("packages cannot be added to %s: %s", r.Image, base.Trouble)
	}
	dir, remove, err := s.config.Images.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	tell("looking at the base's Python", 0, 0)
	target, err := b.Inspect(ctx, base)
	if err != nil {
		return err
	}
	return f(&work{s, r, base, target, b, dir})
}

// lock resolves and writes the lock. An old record is removed first: a crash leaves
// an environment that is built again.
func (w *work) lock(ctx context.Context) (*lock, error) {
	dir := filepath.Join(w.dir, "lock")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	found, err := w.b.Resolve(ctx, w.target, w.r.requirements, dir)
	if err != nil {
		return nil, err
	}
	l := newLock(w.r.digest, w.target, found)
	raw, err := l.encode()
	if err != nil {
		return nil, err
	}
	name := lockFile(w.r.key())
	if old, err := w.config.State.Read(name, maxFile); err == nil && string(old) == string(raw) {
		return l, nil
	}
	w.orphan(w.r.key())
	if err := ignoreMissing(w.config.State.Remove(recordFile(w.r.key()))); err != nil {
		return nil, err
	}
	return l, w.config.State.Write(name, raw)
}

// current returns the lock to build from, and locks if there is none.
func (w *work) current(ctx context.Context) (*lock, error) {
	l, err := w.locked(w.r)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return w.lock(ctx)
	}
	t := l.Tool.Sallyport
	python := fmt.Sprintf("%d.%d", w.target.Version[0], w.target.Version[1])
	if w.r.given != nil || t.Python == python && t.Platform == w.target.Platform() {
		return l, nil
	}
	if w.r.Name == "" {
		return w.lock(ctx) // no command could name it
	}
	return nil, stale(w.r, fmt.Sprintf("it is for Python %s on %s, and this is Python %s on %s", t.Python, t.Platform, python, w.target.Platform()))
}

func (w *work) build(ctx context.Context) (*Built, error) {
	l, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	requirements, err := l.requirements()
	if err != nil {
		return nil, err
	}
	base := "archive 1 " + w.target.Purelib
	if !w.r.pure {
		base = w.base.ID
	}
	content, err := digestOf(base, requirements)
	if err != nil {
		return nil, err
	}
	out := &record{Definition: w.r.digest, Content: content, Built: Built{
		Name: w.r.Name, ID: w.r.key(), Python: fmt.Sprintf("%d.%d.%d", w.target.Version[0], w.target.Version[1], w.target.Version[2]),
		Packages: []Package{}, Modules: []string{}, Time: time.Now().UTC().Truncate(time.Second),
	}}
	if w.r.Name != "" {
		if out.ID, err = digestOf(w.r.digest, content); err != nil {
			return nil, err
		}
		out.ID = out.ID[:12]
	}
	if w.r.pure {
		return w.buildPure(ctx, requirements, out)
	}
	root, err := w.equal(ctx, out)
	if err != nil {
		return nil, err
	}
	if root == nil {
		if root, err = w.image(ctx, requirements, out); err != nil {
			return nil, err
		}
	}
	defer root.Release()
	out.Image, out.Bytes = root.ID, root.Bytes
	if slices.Contains(w.b.Passing, root.ID) {
		w.b.Passing = slices.DeleteFunc(w.b.Passing, func(id string) bool { return id == root.ID })
	}
	if had, err := w.readRecord(w.r.key()); err == nil && had.Image != root.ID {
		w.b.Passing = append(w.b.Passing, had.Image)
	}
	if _, err := w.config.Images.Tag(tagOf(w.r.key()), root, "", image.SourceBuild); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &out.Built, w.config.State.Write(recordFile(w.r.key()), raw)
}

// equal opens the image of an environment with the same content, and returns nil if
// there is none.
func (w *work) equal(ctx context.Context, out *record) (*image.Root, error) {
	all, _ := w.records()
	for _, other := range all {
		if other.Content != out.Content {
			continue
		}
		root, _, err := w.config.Images.Open(ctx, other.Image)
		if err == nil {
			out.Packages, out.Modules = other.Packages, other.Modules
			return root, nil
		}
		if !errors.Is(err, image.ErrMissing) {
			return nil, err
		}
	}
	return nil, nil
}

// image builds and adds the image.
func (w *work) image(ctx context.Context, requirements []build.Requirement, out *record) (*image.Root, error) {
	dir := filepath.Join(w.dir, "build")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	w.b.Pip.Locked = true
	built, err := w.b.Packages(ctx, w.base, requirements, dir)
	if err != nil {
		return nil, err
	}
	out.describe(built.Packages, built.Modules)
	return w.config.Images.Add(ctx, built.Content, func(done, total int64) { w.b.Tell("unpacking", done, total) })
}

// describe records what was built, from the names of wheels.
func (r *record) describe(wheels, modules []string) {
	for _, file := range wheels {
		name, version := build.NameOf(file)
		r.Packages = append(r.Packages, Package{name, version})
	}
	slices.SortFunc(r.Packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	r.Modules = append(r.Modules, modules...)
}

// digestOf identifies values.
func digestOf(values ...any) (string, error) {
	raw, err := json.Marshal(values)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), err
}

package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/sallyport/sallyport/internal/image/build"
)

// Pure describes environments for an engine that brings its own Python along, and takes
// archives of packages without machine code.
type Pure struct {
	// Used reports whether environments are for that engine now.
	Used func() bool
	// Default reports whether a definition's Python stands for that of the settings.
	Default func(python string) bool
	// Needed reports whether a suspended session needs an archive.
	Needed func(digest string) (bool, error)
}

const (
	// pureEngine is the engine that takes archives.
	pureEngine = "the engine wasm"
	// pureSuffix follows a user's name in the names of files. No user's name has a dot.
	pureSuffix = ".wasm"
	others     = "set engine to gvisor, podman or docker"
	// orphanTime is for how long an archive stays after it was built, or an environment
	// got another one: sessions may start with it again.
	orphanTime = 7 * 24 * time.Hour
)

// The Python of that engine.
var pureVersion = [2]int{3, 13}

// Pure reports whether environments are archives now, in place of images.
func (s *Store) Pure() bool { return s.config.Pure != nil && s.config.Pure.Used() }

// fit returns an error if a definition asks for what the engine does not have, and
// removes from it what the engine always has.
func (p *Pure) fit(d *Definition) error {
	of := "what the program needs"
	if d.Name != "" {
		of = "environment " + d.Name
	}
	own := fmt.Sprintf("%d.%d", pureVersion[0], pureVersion[1])
	switch {
	case d.Image != "":
		return fmt.Errorf("%s %w: it is for the image %s, and %s runs no images: %s", of, ErrUnfit, d.Image, pureEngine, others)
	case d.Python != "" && !p.Default(d.Python) && d.Python != own:
		return fmt.Errorf("%s %w: it is for Python %s, and %s has Python %s alone: %s", of, ErrUnfit, d.Python, pureEngine, own, others)
	}
	d.Python = ""
	return nil
}

// FitsPure returns an error if a specifier of PEP 440 does not accept the Python of the
// engine that takes archives.
func FitsPure(requires string) error {
	ok, err := Accepts(requires, pureVersion[0], pureVersion[1])
	if err == nil && !ok {
		err = fmt.Errorf("requires-python is %s, and %s has Python %d.%d alone: %s", requires, pureEngine, pureVersion[0], pureVersion[1], others)
	}
	return err
}

// keyOf names the files of an environment.
func (s *Store) keyOf(b *Built) string {
	if b.Name != "" && (b.Archive != "" || b.Image == "" && s.Pure()) {
		return b.Name + pureSuffix
	}
	return cmp.Or(b.Name, b.ID)
}

func archiveFile(digest string) string { return digest + extension }

// Archive returns the path of an environment's archive, for sandbox.Root.Packages; empty:
// it has none.
func (s *Store) Archive(b *Built) string {
	if b.Archive == "" {
		return ""
	}
	return s.config.State.Path(archiveFile(b.Archive))
}

// kept returns ErrUnbuilt if there is no such archive.
func (s *Store) kept(digest string) error {
	if !archiveName().MatchString(digest) {
		return ErrUnbuilt
	}
	f, err := s.config.State.Open(archiveFile(digest))
	if err != nil {
		return ErrUnbuilt // it is built anew from its lock
	}
	return f.Close()
}

// workPure is work where there is no base.
func (s *Store) workPure(ctx context.Context, r *request, b *build.Builder, f func(*work) error) error {
	if err := FitsPure(r.RequiresPython); err != nil {
		return err
	}
	dir, remove, err := s.config.Images.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	target, err := b.PureTarget(ctx)
	if err != nil {
		return err
	}
	return f(&work{Store: s, r: r, target: target, b: b, dir: dir})
}

// buildPure builds an archive, unless there is one of the same content.
func (w *work) buildPure(ctx context.Context, requirements []build.Requirement, out *record) (*Built, error) {
	all, _ := w.records()
	var release func()
	i := slices.IndexFunc(all, func(r record) bool {
		ok := false
		if r.Content == out.Content {
			release, ok = w.hold(r.Archive)
		}
		return ok
	})
	if i >= 0 {
		out.Packages, out.Modules, out.Archive, out.Bytes = all[i].Packages, all[i].Modules, all[i].Archive, all[i].Bytes
	} else {
		var err error
		if release, err = w.archive(ctx, requirements, out); err != nil {
			return nil, err
		}
	}
	defer release()
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	w.orphan(w.r.key())
	if err := w.config.State.Write(recordFile(w.r.key()), raw); err != nil {
		return nil, err
	}
	_, _ = w.Sweep("") // what cannot be removed now is removed later
	return &out.Built, nil
}

// hold keeps other processes from removing an archive, until release. It reports whether
// there is such an archive.
func (s *Store) hold(digest string) (release func(), ok bool) {
	if s.kept(digest) != nil {
		return nil, false
	}
	inUse := flock.New(s.Archive(&Built{Archive: digest}), flock.SetFlag(os.O_RDONLY))
	// Where files cannot be locked, nothing can be held.
	if locked, err := inUse.TryRLock(); err == nil && !locked || s.kept(digest) != nil {
		_ = inUse.Close()
		return nil, false // another process removes it
	}
	return func() { _ = inUse.Close() }, true
}

// orphan has the archive of a record, which is replaced now, stay for orphanTime.
func (s *Store) orphan(key string) {
	if had, err := s.readRecord(key); err == nil && s.kept(had.Archive) == nil {
		now := time.Now()
		_ = os.Chtimes(s.Archive(&had.Built), now, now)
	}
}

// archive builds and keeps an archive, and holds it.
func (w *work) archive(ctx context.Context, requirements []build.Requirement, out *record) (release func(), err error) {
	dir := filepath.Join(w.dir, "build")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	w.b.Pip.Locked = true
	built, err := w.b.Pure(ctx, w.target, requirements, dir)
	if err != nil {
		return nil, err
	}
	out.describe(built.Packages, built.Modules)
	out.Archive, out.Bytes = built.Digest, built.Bytes
	const attempts = 3 // another process may remove one that is not held yet
	for range attempts {
		if err := w.keep(built); err != nil {
			return nil, err
		}
		if release, ok := w.hold(built.Digest); ok {
			return release, nil
		}
	}
	return nil, errors.New("another process removes the environment's packages: try again")
}

// keep copies an archive to where it stays.
func (w *work) keep(built *build.Pure) error {
	from, err := os.Open(built.File)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := w.config.State.Draft()
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	if err != nil {
		to.Drop()
		return err
	}
	return to.Keep(archiveFile(built.Digest))
}

// AllArchives has Sweep remove whatever is not needed.
const AllArchives = "*"

// Sweep removes the archives that no environment and no suspended session needs any more:
// that of the given digest, or of all for AllArchives, and those of which that has been
// so for long. It returns how many bytes are free now.
func (s *Store) Sweep(digest string) (freed int64, err error) {
	files, err := s.config.State.List()
	if err != nil {
		return 0, err
	}
	all, err := s.records()
	if err != nil {
		return 0, nil // one that cannot be read may need any
	}
	for _, name := range files {
		which, ok := strings.CutSuffix(name, extension)
		if !ok || slices.ContainsFunc(all, func(r record) bool { return r.Archive == which }) {
			continue
		}
		info, err := os.Stat(s.config.State.Path(name))
		if err != nil || which != digest && digest != AllArchives && time.Since(info.ModTime()) < orphanTime {
			continue
		}
		if s.config.Pure != nil && s.config.Pure.Needed != nil {
			if needed, err := s.config.Pure.Needed(which); err != nil {
				return freed, err
			} else if needed {
				continue
			}
		}
		gone, err := s.discard(name)
		if err != nil {
			return freed, err
		}
		if gone {
			freed += info.Size()
		}
	}
	return freed, nil
}

// discard removes an archive unless an engine has it open: its sessions start with it
// again.
func (s *Store) discard(name string) (bool, error) {
	inUse := flock.New(s.config.State.Path(name), flock.SetFlag(os.O_RDONLY))
	defer inUse.Close()
	if ok, err := inUse.TryLock(); err != nil || !ok {
		return false, ignoreMissing(err)
	}
	return true, ignoreMissing(s.config.State.Remove(name))
}

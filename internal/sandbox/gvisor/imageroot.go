//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/guest"
	"sallyport/internal/image"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

// images are the roots that this engine has used. It holds them until it ends:
// a session that sleeps wakes in the root that it knew, whatever the image's
// name leads to by then.
type images struct {
	mu    sync.Mutex
	roots map[string]*image.Root // by name
	guest sync.Mutex             // one guest is compiled at a time
}

func (i *images) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.roots {
		r.Release()
	}
	i.roots = nil
}

// imageOf is the image that a spec's sandbox has, or "" for the host's Python.
func (b *Backend) imageOf(spec *sandbox.Spec) string {
	switch {
	case spec.Root.Image != "":
		return spec.Root.Image
	case spec.Root.Python != "":
		return ""
	}
	return b.opts.Image
}

// errNoImage: what was asked for is not to be had.
var errNoImage = image.ErrMissing

// openImage is the root of an image, which is looked for once.
func (b *Backend) openImage(ctx context.Context, name string) (*image.Root, error) {
	if b.opts.Images == nil {
		return nil, fmt.Errorf("%w: %s: there is no place for images", errNoImage, name)
	}
	b.images.mu.Lock()
	have := b.images.roots[name]
	b.images.mu.Unlock()
	if have != nil {
		return have, nil
	}
	root, err := b.opts.Images.Open(ctx, name) // without the lock: it may take long
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	b.images.mu.Lock()
	defer b.images.mu.Unlock()
	if have := b.images.roots[name]; have != nil || closed {
		root.Release()
		if closed {
			return nil, errors.New("the engine is closed")
		}
		return have, nil
	}
	if b.images.roots == nil {
		b.images.roots = map[string]*image.Root{}
	}
	b.images.roots[name] = root
	return root, nil
}

// imageRoot plans a root of an image: its files, the guest, and who the sandbox
// is.
func (b *Backend) imageRoot(ctx context.Context, name string) (*planned, error) {
	root, err := b.openImage(ctx, name)
	if err != nil {
		return nil, err
	}
	if root.Python == nil {
		return nil, fmt.Errorf("the image %s cannot run code: %s", name, root.Trouble)
	}
	fsys, err := planImage(root.Dir)
	if err != nil {
		return nil, fmt.Errorf("the image %s: %w", name, err)
	}
	dir, err := b.imageGuest(ctx, root, fsys)
	if err != nil {
		return nil, err
	}
	fsys.Binds = append(fsys.Binds, hostroot.Bind{Source: dir, Target: guest.Dir})
	out := &planned{fsys: fsys, python: root.Python.Path, env: root.Env, image: root.ID}
	out.marks = func() []string {
		// What is in a root is what its ID says.
		marks := []string{root.ID}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err == nil {
			marks = append(marks, fmt.Sprintf("%s %d %d %d.%d", dir, st.Dev, st.Ino, st.Mtim.Sec, st.Mtim.Nsec))
		}
		for path, f := range fsys.Files {
			marks = append(marks, "file "+path+" "+digestOf(string(f.Data), fmt.Sprint(f.Mode)))
		}
		slices.Sort(marks)
		return marks
	}
	return out, nil
}

// Directories of an image that a sandbox has of its own, and those into which
// something of ours goes: their members are shown one by one, beside it.
var (
	ownDirs    = map[string]bool{"proc": true, "sys": true, "dev": true, "tmp": true, "workspace": true}
	sharedDirs = map[string]bool{"etc": true, "opt": true}
)

// maxBinds bounds what is shown one by one. Real images have some hundred.
const maxBinds = 2000

// planImage shows the file system in dir. It is a stranger's: a symbolic link
// in it becomes one in the sandbox and is never followed here, and nothing of
// ours is put below one.
func planImage(dir string) (hostroot.Rootfs, error) {
	fsys := hostroot.Rootfs{Links: map[string]string{}, Files: hostroot.Identity()}
	ours := map[string]bool{guest.Dir: true, guest.FilesDir: true, guest.ModesFile: true}
	for path := range fsys.Files {
		ours[path] = true
	}
	var show func(at string) error
	show = func(at string) error {
		entries, err := os.ReadDir(filepath.Join(dir, at))
		if err != nil {
			return err
		}
		for _, e := range entries {
			target := path.Join("/", at, e.Name())
			name := strings.TrimPrefix(target, "/")
			switch {
			case ownDirs[name], ours[target]:
			case sharedDirs[name]:
				if e.IsDir() { // else it gives way to ours
					if err := show(name); err != nil {
						return err
					}
				}
			case e.Type()&fs.ModeSymlink != 0:
				to, err := os.Readlink(filepath.Join(dir, name))
				if err != nil {
					return err
				}
				fsys.Links[target] = to
			case e.IsDir(), e.Type().IsRegular():
				fsys.Binds = append(fsys.Binds, hostroot.Bind{Source: filepath.Join(dir, name), Target: target})
			}
		}
		if len(fsys.Binds)+len(fsys.Links) > maxBinds {
			return fmt.Errorf("more than %d files in its root, /etc and /opt", maxBinds)
		}
		return nil
	}
	err := show("")
	return fsys, err
}

// imageGuest is the guest for an image's interpreter: the first time, its byte
// code is made in a sandbox. What that writes is hostile and loaded by the same
// interpreter alone.
func (b *Backend) imageGuest(ctx context.Context, root *image.Root, fsys hostroot.Rootfs) (string, error) {
	b.images.guest.Lock()
	defer b.images.guest.Unlock()
	interpreter := root.ID + " " + root.Python.Path
	return guest.InstallFor(ctx, b.opts.CacheDir, interpreter, func(dir string) ([]byte, error) {
		out, err := b.compileGuest(ctx, root, fsys, dir)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("the guest could not be compiled for an image; sandboxes start more slowly", "image", root.ID, "error", err)
		}
		return out, err
	})
}

// maxBundle bounds a guest's byte code.
const maxBundle = 8 << 20

// compileTime bounds the making of it: an image's interpreter may never end, and
// others wait for it.
const compileTime = 2 * time.Minute

func (b *Backend) compileGuest(ctx context.Context, root *image.Root, fsys hostroot.Rootfs, dir string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	id := "guest-" + strings.TrimPrefix(root.ID, "sha256:")[:16]
	place, err := b.enter(id)
	if err != nil {
		return nil, err
	}
	fsys.Binds = append(fsys.Binds[:len(fsys.Binds):len(fsys.Binds)], hostroot.Bind{Source: dir, Target: guest.Dir})
	r, err := b.startCell(ctx, place, id, sandbox.DefaultLimits, CellConfig{
		Rootfs: fsys,
		Args:   guest.CompileArgv(root.Python.Path),
		Env:    environment(guest.Environ(), root.Env),
	}, nil)
	if err != nil {
		b.leave(id)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Destroy(context.Background()) })
	defer stop()
	defer func() { _ = r.Destroy(context.Background()) }()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r.channel.Stderr, 4<<10))
		said <- string(text)
		_, _ = io.Copy(io.Discard, r.channel.Stderr)
	}()
	out, err := io.ReadAll(io.LimitReader(r.channel.Stdout, maxBundle))
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	exit, err := r.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if exit.Code != 0 || exit.Reason != sandbox.Exited {
		return nil, fmt.Errorf("its %s ended with %d (%s): %.1000s", root.Python.Path, exit.Code, exit.Reason, strings.TrimSpace(<-said))
	}
	return out, nil
}

// probeImage says what Python the image has, as far as that can be told without
// getting it.
func (b *Backend) probeImage(rep *sandbox.Report) {
	name := b.opts.Image
	var info image.Info
	later, err := false, fmt.Errorf("there is no place for images: set stateDir")
	if b.opts.Images != nil {
		info, later, err = b.opts.Images.Look(name)
	}
	switch {
	case err == nil && info.Python != nil:
		rep.Python = fmt.Sprintf("%s (%s) of the image %s", info.Python.Path, info.Python, name)
	case err == nil:
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal: true, Title: "the image " + name + " cannot run code", Detail: info.Trouble,
			Remedy: "choose an image with CPython, such as python:3.13-slim",
		})
	case errors.Is(err, image.ErrMissing) && later:
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Title:  "the image " + name + " is not here yet",
			Detail: "the first execution waits until it has been pulled",
			Remedy: "sallyport image pull " + name,
		})
	default:
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal: true, Title: "the image " + name + " cannot be used", Detail: err.Error(),
			Remedy: "sallyport image pull " + name,
		})
	}
}

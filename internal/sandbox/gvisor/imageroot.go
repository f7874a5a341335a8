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

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/programdir"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// images are the roots that this engine has used. It holds them until it ends: a
// suspended session resumes in its own root, even if the image's name refers to
// another one by then.
type images struct {
	mu        sync.Mutex
	roots     map[string]*image.Root // by name
	compiling sync.Mutex             // one program is compiled at a time
}

func (i *images) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.roots {
		r.Release()
	}
	i.roots = nil
}

// imageOf returns the image of a spec's sandbox, or "" for the host's files.
func (b *Engine) imageOf(spec *sandbox.Spec) string {
	switch {
	case spec.Root.Image != "":
		return spec.Root.Image
	case spec.Root.Interpreter != "":
		return ""
	}
	return b.opts.Image
}

// errNoImage: the image is not here and cannot be pulled.
var errNoImage = image.ErrMissing

// openImage returns the root of an image, which is opened once.
func (b *Engine) openImage(ctx context.Context, name string) (*image.Root, error) {
	if b.opts.Images == nil {
		return nil, fmt.Errorf("%w: %s: images cannot be stored: set stateDir", errNoImage, name)
	}
	b.images.mu.Lock()
	have := b.images.roots[name]
	b.images.mu.Unlock()
	if have != nil {
		return have, nil
	}
	root, err := b.opts.Images.Open(ctx, name) // without the lock, because it may take long
	if err != nil {
		return nil, err
	}
	closed := b.runs.Closed()
	b.images.mu.Lock()
	defer b.images.mu.Unlock()
	if have := b.images.roots[name]; have != nil || closed {
		root.Release()
		if closed {
			return nil, supervise.ErrClosed
		}
		return have, nil
	}
	if b.images.roots == nil {
		b.images.roots = map[string]*image.Root{}
	}
	b.images.roots[name] = root
	return root, nil
}

// imageRoot plans a root of an image: its files, the program, and who the
// sandbox is.
func (b *Engine) imageRoot(ctx context.Context, name string, program *sandbox.Program) (*planned, error) {
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
	dir, err := b.imageProgram(ctx, root, fsys, program)
	if err != nil {
		return nil, err
	}
	fsys.Binds = append(fsys.Binds, hostroot.Bind{Source: dir, Target: sandbox.ProgramDir})
	out := &planned{fsys: fsys, interpreter: root.Python.Path, env: root.Env, image: root.ID}
	out.marks = func() []string {
		// An image's ID determines its content.
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

// Directories of an image that the sandbox replaces, and those in which we add
// files: their entries are mounted one by one.
var (
	ownDirs    = map[string]bool{"proc": true, "sys": true, "dev": true, "tmp": true, "workspace": true}
	sharedDirs = map[string]bool{"etc": true, "opt": true}
)

// maxBinds bounds the entries that are mounted one by one. Real images have some
// hundred.
const maxBinds = 2000

// planImage plans a root from the file system in dir, which is not trusted: a
// symbolic link in it becomes one in the sandbox and is never followed here, and
// none of our files is put below one.
func planImage(dir string) (hostroot.Rootfs, error) {
	fsys := hostroot.Rootfs{Links: map[string]string{}, Files: hostroot.Identity()}
	ours := map[string]bool{sandbox.ProgramDir: true, sandbox.FilesDir: true, sandbox.ModesFile: true}
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
				if e.IsDir() { // otherwise our directory replaces it
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

// imageProgram returns the directory with the program for an image's
// interpreter: the first time, it is compiled in a sandbox. What that writes is
// hostile and loaded by the same interpreter alone.
func (b *Engine) imageProgram(ctx context.Context, root *image.Root, fsys hostroot.Rootfs, program *sandbox.Program) (string, error) {
	b.images.compiling.Lock()
	defer b.images.compiling.Unlock()
	interpreter := root.ID + " " + root.Python.Path
	return programdir.InstallFor(ctx, b.opts.CacheDir, program, interpreter, func(dir string) ([]byte, error) {
		out, err := b.compile(ctx, root, fsys, program, dir)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("the program could not be compiled for an image; sandboxes start more slowly", "image", root.ID, "error", err)
		}
		return out, err
	})
}

// maxCompiled bounds what a program's Compile writes.
const maxCompiled = 8 << 20

// compileTime bounds the making of it: an image's interpreter may never end, and
// others wait for it.
const compileTime = 2 * time.Minute

func (b *Engine) compile(ctx context.Context, root *image.Root, fsys hostroot.Rootfs, program *sandbox.Program, dir string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	id := "guest-" + strings.TrimPrefix(root.ID, "sha256:")[:16]
	fsys.Binds = append(fsys.Binds[:len(fsys.Binds):len(fsys.Binds)], hostroot.Bind{Source: dir, Target: sandbox.ProgramDir})
	var r *run
	_, err := b.runs.Register(id, func() (_ sandbox.Run, err error) {
		r, err = b.startSandbox(ctx, id, sandbox.DefaultLimits, SupervisorConfig{
			Rootfs: fsys,
			Args:   sandbox.Command(program.Compile, root.Python.Path, sandbox.ProgramDir),
			Env:    supervise.Environment(program.Env, root.Env),
		}, nil)
		return r, err
	})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Destroy(context.Background()) })
	defer stop()
	defer func() { _ = r.Destroy(context.Background()) }()
	channel := r.Channel()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(channel.Stderr, 4<<10))
		said <- string(text)
		_, _ = io.Copy(io.Discard, channel.Stderr)
	}()
	out, err := io.ReadAll(io.LimitReader(channel.Stdout, maxCompiled))
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

// probeImage reports which Python the image has, as far as that is known without
// pulling it.
func (b *Engine) probeImage(rep *sandbox.Report) {
	name := b.opts.Image
	var info image.Info
	later, err := false, errors.New("images cannot be stored: set stateDir")
	if b.opts.Images != nil {
		info, later, err = b.opts.Images.Look(name)
	}
	switch {
	case err == nil && info.Python != nil:
		rep.Runtime = fmt.Sprintf("%s (%s) of the image %s", info.Python.Path, info.Python, name)
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

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/settings"
)

// newest is the newest Python that is looked for where a script needs another one
// than that of the settings.
const newest = 14

// uvTime bounds how long uv may take to find a Python.
const uvTime = time.Minute

// ImageBase holds the root that a definition's packages are added to: an image of
// the store, which is pulled if it is not there, or a Python of this machine.
func (a *App) ImageBase(ctx context.Context, images *image.Store, d *environment.Definition, tell environment.Tell) (*image.Root, error) {
	if d.Image == "" {
		return a.hostBase(ctx, images, d, tell)
	}
	root, _, err := images.Open(ctx, d.Image)
	if errors.Is(err, image.ErrMissing) {
		n, wrong := image.ParseName(d.Image)
		if wrong != nil || n.Local() || a.Settings.Images.Pull == settings.PullNever {
			return nil, err
		}
		root, _, err = a.PullImage(ctx, images, n, tell)
	}
	if err != nil || d.RequiresPython == "" || root.Python == nil {
		return root, err
	}
	ok, err := environment.Accepts(d.RequiresPython, root.Python.Major, root.Python.Minor)
	if err == nil && !ok {
		err = fmt.Errorf("%s has Python %s, and requires-python is %s: choose another image", d.Image, root.Python, d.RequiresPython)
	}
	if err != nil {
		root.Release()
		return nil, err
	}
	return root, nil
}

// hostBase copies a Python of this machine.
func (a *App) hostBase(ctx context.Context, images *image.Store, d *environment.Definition, tell environment.Tell) (*image.Root, error) {
	p, err := a.interpreter(ctx, d.Python, d.RequiresPython)
	if err != nil {
		return nil, err
	}
	tell("copying the host's Python", 0, 0)
	dir, remove, err := images.Scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	layer, env, err := build.HostBase(ctx, build.HostPython{Executable: p.Executable, Prefix: p.Prefix, Library: p.Library()}, dir, images.Limits())
	if err != nil {
		return nil, err
	}
	config, err := archive.Config([]string{layer.DiffID}, env)
	if err != nil {
		return nil, err
	}
	return images.Add(ctx, &image.Content{Config: config, Layers: []flatten.Layer{layer}, Passing: true}, func(done, total int64) { tell("unpacking the base", done, total) })
}

// interpreter finds the Python of an environment: that of the settings, one of a
// version, or the one at a path. Where a script needs another version than the
// settings have, and names none, any that it accepts will do.
func (a *App) interpreter(ctx context.Context, which, requires string) (*python.Interpreter, error) {
	accepts := func(v python.Version) (bool, error) { return environment.Accepts(requires, v.Major, v.Minor) }
	any := a.isHost(which)
	p, err := a.pythonOf(ctx, which)
	if err != nil {
		return nil, err
	}
	ok, err := accepts(p.Version)
	if ok || err != nil {
		return p, err
	}
	for minor := newest; any && minor >= python.MinPython.Minor; minor-- {
		v := python.Version{Major: 3, Minor: minor}
		if ok, _ := accepts(v); !ok {
			continue
		}
		if other, err := a.pythonOf(ctx, v.String()); err == nil {
			return other, nil
		}
	}
	return nil, fmt.Errorf("%s is Python %s, and requires-python is %s: install a Python that it accepts, for example with 'uv python install'", p.Executable, p.Version, requires)
}

// HostPython returns the path of the settings' Python, so that what is built for it is
// not found for another one. It is empty if requires-python does not accept that
// Python, or there is none.
func (a *App) HostPython(ctx context.Context, requires string) string {
	p, err := a.pythonOf(ctx, settings.EnvironmentHost)
	if err != nil {
		return ""
	}
	if ok, err := environment.Accepts(requires, p.Version.Major, p.Version.Minor); !ok || err != nil {
		return ""
	}
	return p.Executable
}

// isHost reports whether the setting environments.NAME.python means the Python of
// the settings.
func (a *App) isHost(which string) bool {
	return which == "" || which == settings.EnvironmentHost || which == a.Settings.Python
}

// pythonOf finds a Python as the setting environments.NAME.python names it.
func (a *App) pythonOf(ctx context.Context, which string) (*python.Interpreter, error) {
	path := a.Env["PATH"]
	switch {
	case a.isHost(which):
		return python.FindInterpreter(ctx, a.Settings.Python, path)
	case strings.ContainsAny(which, `/\`):
		return python.FindInterpreter(ctx, which, path)
	}
	version := strings.SplitN(which, ".", 3)
	short := version[0] + "." + version[1]
	if len(version) == 2 { // a third part is known to uv alone
		if p, err := python.FindInterpreter(ctx, "python"+short, path); err == nil && p.Version.String() == short {
			return p, nil
		}
	}
	if uv, err := python.LookPath("uv", path); err == nil {
		ctx, cancel := context.WithTimeout(ctx, uvTime)
		defer cancel()
		// Not in the working directory: a project's files must not choose.
		cmd := exec.CommandContext(ctx, uv, "python", "find", "--no-project", "--no-python-downloads", which)
		cmd.Env, cmd.Dir, cmd.WaitDelay = a.Env.List(), "/", time.Second
		if out, err := cmd.Output(); err == nil {
			return python.FindInterpreter(ctx, string(bytes.TrimSpace(out)), path)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("there is no Python %s on this machine: install it ('uv python install %s'), or use an image (image: python:%s-slim)", which, which, short)
}

package container

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// folders are the folders of the host that a container sees. Those of mode copy are
// part of what its loader reads; the others are mounted.
type folders struct {
	binds  []bind
	user   string // that the container runs as, to read them; empty: the usual
	userns string // Podman's --userns for that
	// release undoes what was made on the host for the start. It may be nil.
	release func()
}

// bind is a folder that the engine mounts.
type bind struct {
	source, target string
	readOnly       bool
	dev, ino       uint64 // which folder it is; of a file that hides something, 0
}

// close ends what only the start needed.
func (fo *folders) close() {
	if fo.release != nil {
		fo.release()
	}
}

// openFolders prepares the folders of a spec.
func (b *Engine) openFolders(ctx context.Context, f *facts, img *image, instance string, spec *sandbox.Spec) (*folders, error) {
	var shown []sandbox.Mount
	for _, m := range spec.Mounts {
		if strings.ContainsAny(m.Target, ":,\"\n") {
			return nil, fmt.Errorf("%w: a folder at %q: a place in a container has no colon, comma or quote", sandbox.ErrUnsupported, m.Target)
		}
		if m.Mode != sandbox.Copy {
			shown = append(shown, m)
		}
	}
	if len(shown) == 0 {
		return &folders{}, nil
	}
	if why := b.hides(f, img.inspection); why != "" {
		return nil, fmt.Errorf("%w: the folder %s: %s. Use mode copy for up to %d MB, or engine gvisor", sandbox.ErrUnsupported, shown[0].Source, why, maxFiles>>20)
	}
	return b.bindFolders(ctx, f, instance, spec.ID, shown)
}

// hides returns why containers cannot see folders of this machine, or "".
func (b *Engine) hides(f *facts, t *inspection) string {
	_, own := t.ownKernel(f)
	switch user := euid(); {
	case !t.outside.Local:
		return f.where() + " runs containers on another machine, or in a virtual one, which does not have this machine's folders"
	case own:
		return "a container with a kernel of its own gets files from a program that knows no mapped users"
	case f.SELinux:
		return "SELinux forbids containers to read your files, and Sallyport does not change their labels"
	case !f.Seccomp || f.NoProfile:
		return f.where() + " does not apply Sallyport's seccomp profile, which keeps code from sockets in a folder"
	case f.Podman && b.opts.UserNamespace != "" && (b.opts.UserNamespace != "keep-id" || user == 0):
		return "container.userNamespace is " + b.opts.UserNamespace + ", in which your files belong to no one. Unset it"
	case f.Remapped:
		return "Docker maps users (userns-remap), and your files belong to none of them"
	case !f.Podman && f.Rootless:
		return "rootless Docker shows your files to the root of a container alone. Podman can show them"
	case user == 0 && f.Rootless:
		return "root uses the rootless engine of another user. Run Sallyport as that user"
	}
	return ""
}

// apply makes a container see the folders.
func (fo *folders) apply(spec *containerSpec, mounts []sandbox.Mount) {
	spec.binds = fo.binds
	if fo.user != "" {
		spec.user = fo.user
	}
	if fo.userns != "" {
		spec.userns = fo.userns
	}
	for _, m := range mounts {
		if m.Mode == sandbox.Copy {
			spec.copies = append(spec.copies, m.Target)
		}
		spec.volumes = slices.DeleteFunc(slices.Clone(spec.volumes), func(v string) bool { return v == m.Target })
	}
}

// args are the client's arguments for a mounted folder.
func (m *bind) args(podman bool) []string {
	options := "type=bind,source=" + m.source + ",target=" + m.target + ",bind-propagation=rprivate"
	if podman {
		options += ",nosuid,nodev,noexec"
	}
	if m.readOnly {
		options += ",readonly=true"
	}
	return []string{"--mount", options}
}

// copyFolders adds copies of folders, which must not be larger than limit each, and
// together not than what is left for files.
func (p *payload) copyFolders(ctx context.Context, mounts []sandbox.Mount, left, limit int64) error {
	for _, m := range mounts {
		if m.Mode != sandbox.Copy {
			continue
		}
		dir, err := openCopied(m.Source)
		if err != nil {
			return err
		}
		err = hostroot.ReadFolder(ctx, dir, m.Source, min(left, limit), func(name string, mode fs.FileMode, data []byte) error {
			bits := mode.Perm()
			switch mode.Type() {
			case fs.ModeDir:
				bits |= 0o040000
			case fs.ModeSymlink:
				bits |= 0o120000
			}
			left -= int64(len(data))
			p.add('f', fmt.Sprintf("%o %s", bits, path.Join(m.Target, name)), data)
			return nil
		})
		dir.Close()
		if err != nil {
			return fmt.Errorf("copying a folder: %w", err)
		}
	}
	return nil
}

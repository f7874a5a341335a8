package flatten

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Pack writes the content of dir as an archive, with the same bytes for the
// same files: sorted, and owned by root. Files with several names are written
// once. Names below skip, which are paths without a slash at their ends, are
// left out.
func Pack(ctx context.Context, w io.Writer, dir string, skip ...string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	out := tar.NewWriter(w)
	omit := map[string]bool{}
	for _, s := range skip {
		omit[s] = true
	}
	p := &packer{ctx: ctx, out: out, root: root, names: map[inode]string{}, omit: omit}
	if err := p.dir(""); err != nil {
		return err
	}
	return out.Close()
}

// packer is one Pack. It does not use fs.WalkDir, for which a name must be
// UTF-8.
type packer struct {
	ctx   context.Context
	out   *tar.Writer
	root  *os.Root
	names map[inode]string // of files that have several, the first
	omit  map[string]bool
}

// dir packs what is in a directory; "" is the root.
func (p *packer) dir(name string) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	d, err := p.root.Open(cmp.Or(name, "."))
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		at := path.Join(name, e.Name())
		if p.omit[at] {
			continue
		}
		info, err := p.root.Lstat(at)
		if err != nil {
			return err
		}
		if err := p.one(at, info); err != nil {
			return err
		}
		if info.IsDir() {
			if err := p.dir(at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packer) one(name string, info fs.FileInfo) error {
	out, root, names := p.out, p.root, p.names
	h := &tar.Header{
		Name:    name,
		Mode:    int64(info.Mode().Perm()),
		ModTime: time.Unix(info.ModTime().Unix(), 0),
		Format:  tar.FormatPAX,
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return out.WriteHeader(h)
	case fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Mode, h.ModTime = tar.TypeSymlink, target, 0o777, time.Unix(0, 0)
		return out.WriteHeader(h)
	case 0:
	default:
		return fmt.Errorf("%s: not a file, directory or symbolic link", path.Join(root.Name(), name))
	}
	if id, several := inodeOf(info); several {
		if first, ok := names[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return out.WriteHeader(h)
		}
		names[id] = name
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, h.Size)
	return err
}

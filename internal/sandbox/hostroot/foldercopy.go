package hostroot

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// maxEntries bounds the files and folders below a mounted folder where all of them
// must be looked at.
const maxEntries = 1 << 20

// ReadFolder calls add for everything that a copy of the folder has: folders, itself
// as "." first, files with their content, links with their target. It follows no link,
// and returns an error before it has read more than limit bytes.
func ReadFolder(ctx context.Context, dir *os.Root, at string, limit int64, add func(name string, mode fs.FileMode, data []byte) error) error {
	left := limit
	spend := func(n int64) error {
		const each = 512 // what an empty one takes
		if left -= n + each; left < 0 {
			return fmt.Errorf("%s has more than %d MB, which is as much as this engine copies. Choose a smaller folder, or mode ro", at, limit>>20)
		}
		return nil
	}
	fi, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if err := add(".", fs.ModeDir|0o700|fi.Mode().Perm(), nil); err != nil {
		return err
	}
	return walk(ctx, dir, at, func(name string, d fs.DirEntry) error {
		switch kind := d.Type(); {
		case kind.IsDir():
			fi, err := d.Info()
			if err == nil {
				err = spend(0)
			}
			if err != nil {
				return err
			}
			return add(name, fs.ModeDir|0o700|fi.Mode().Perm(), nil)
		case kind&fs.ModeSymlink != 0:
			target, err := dir.Readlink(name)
			if err != nil {
				return err
			}
			if err := spend(int64(len(target))); err != nil {
				return err
			}
			return add(name, fs.ModeSymlink, []byte(target))
		case !kind.IsRegular():
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if err := spend(fi.Size()); err != nil {
			return err
		}
		data, err := dir.ReadFile(name)
		if err != nil {
			return err
		}
		if err := spend(int64(len(data)) - fi.Size()); err != nil { // it may have grown
			return err
		}
		return add(name, fi.Mode().Perm(), data)
	})
}

// walk calls visit for everything below the folder, a folder before its content.
func walk(ctx context.Context, dir *os.Root, at string, visit func(name string, d fs.DirEntry) error) error {
	n := 0
	return fs.WalkDir(dir.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch n++; {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n > maxEntries:
			return fmt.Errorf("%s has more than %d files. Choose a smaller folder", at, maxEntries)
		case err != nil && d != nil && d.IsDir() && name != ".":
			return nil // it cannot be read, or is gone
		case err != nil || name == ".":
			return err
		}
		return visit(path.Clean(name), d)
	})
}

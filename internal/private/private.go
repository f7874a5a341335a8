// Package private opens directories that belong to this user alone. Everything
// that the program keeps on the host lies below one of them. Nothing below a
// directory that another user owns, can write to or can replace is used or
// removed.
//
// A directory is checked through its handle after it was opened, and so are its
// parents: a user who can write to a parent could replace it with another
// directory or a link to one. Files below are reached through the handle.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A Rejected is the error for a directory that another user may be able to
// change.
type Rejected struct {
	Path   string // what was asked for
	Cause  string // which directory is wrong, its owner and mode, and why
	Remedy string
}

func (r *Rejected) Error() string {
	return fmt.Sprintf("%s cannot be used: %s. %s", r.Path, r.Cause, r.Remedy)
}

// maxLinks bounds the symbolic links on the way to a directory.
const maxLinks = 40

// Open opens a directory, and creates it (0700) if it does not exist. The error
// is a *Rejected if another user owns it, or can write to or replace it. A
// directory of this user that others can only read is made private.
func Open(path string) (*os.Root, error) { return open(path, true, true) }

// Existing is Open without creating the directory. The error is fs.ErrNotExist
// if it does not exist.
func Existing(path string) (*os.Root, error) { return open(path, false, true) }

// Passable is Existing for a directory that others may read and pass through,
// and that stays so.
func Passable(path string) (*os.Root, error) { return open(path, false, false) }

// Check is Open without using the directory.
func Check(path string) error {
	root, err := Open(path)
	if err != nil {
		return err
	}
	return root.Close()
}

// Foreign returns why another user may be able to change a file or a directory; it
// is empty if none is.
func Foreign(info fs.FileInfo) string {
	top, err := os.Stat(string(filepath.Separator))
	switch {
	case err != nil:
		return err.Error()
	case !isOwn(info) && !trusted(info, top):
		return describe("it", info) + ", and not to this user"
	case writable(info):
		return describe("it", info) + ", so that other users can write to it"
	}
	return ""
}

// Way returns an error if another user may be able to put something else in the
// place of a file or a directory, by changing a directory on the way to it or
// through a link on that way. It is a *Rejected, or fs.ErrNotExist if there is
// nothing. saw, if not nil, gets everything on the way, without following links.
// Whether others can write to the file itself, Foreign says.
func Way(path string, saw func(path string, info fs.FileInfo)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	w := &walker{path: path, file: true, saw: saw}
	_, err = w.walk()
	return err
}

func open(path string, create, tighten bool) (*os.Root, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// This user's own processes rename directories, too.
	for range 20 {
		root, err := tryOpen(path, create, tighten)
		if !errors.Is(err, errReplaced) {
			return root, err
		}
	}
	return nil, &Rejected{path, "it was replaced while it was opened, again and again", "See who else can write to the directory that it lies in."}
}

// errReplaced reports that a directory was replaced while it was being opened.
var errReplaced = errors.New("replaced")

func tryOpen(path string, create, tighten bool) (*os.Root, error) {
	real, err := (&walker{path: path, create: create}).walk()
	if err != nil {
		return nil, err
	}
	before, err := os.Lstat(real)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	if err := checkHandle(path, real, before, root, tighten); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// checkHandle checks an open directory, which must be the one at real and not a
// link.
func checkHandle(path, real string, before fs.FileInfo, root *os.Root, tighten bool) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if !before.IsDir() || !os.SameFile(before, info) {
		return errReplaced
	}
	if !isOwn(info) {
		return &Rejected{path, describe(real, info) + ", and must belong to this user", remedy(real)}
	}
	if writable(info) {
		return &Rejected{path, describe(real, info) + ", so that other users can write to it", fmt.Sprintf("If no one else has put anything into it, make it private (chmod 700 %s), or name another directory.", real)}
	}
	if tighten && exposes(info.Mode().Perm()) {
		return root.Chmod(".", 0o700)
	}
	return nil
}

// remedy tells the user what to do about another user's directory. It may be a
// directory that we did not create, such as a home directory in a container.
func remedy(dir string) string {
	text := "Name a directory of this user: set XDG_CACHE_HOME for the cache, SALLYPORT_STATE_DIR for the state directory and XDG_RUNTIME_DIR for the runtime directory, or HOME for the first two (as sudo -H does)."
	if strings.HasPrefix(filepath.Base(dir), "sallyport") {
		text += fmt.Sprintf(" Or have %s removed.", dir)
	}
	return text
}

// walker follows a path.
type walker struct {
	path   string
	create bool                                // directories that do not exist
	file   bool                                // whether the path may end at a file
	saw    func(path string, info fs.FileInfo) // nil: no one asks
}

// walk returns the path without symbolic links. Each directory on it must be
// one that no other user can replace: it belongs to this user or to root, and
// no one else can write to it, unless its sticky bit protects the files of
// others. By induction from the top, nothing on the path changes after it was
// checked.
func (w *walker) walk() (string, error) {
	path := w.path
	volume := filepath.VolumeName(path)
	at := volume + string(filepath.Separator)
	rest := strings.Split(strings.TrimPrefix(path, at), string(filepath.Separator))
	top, err := os.Lstat(at)
	if err != nil {
		return "", err
	}
	here := top // the directory at
	links := 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at) // at has no links
			if here, err = os.Lstat(at); err != nil {
				return "", err
			}
			continue
		}
		if writable(here) && !sticky(here) {
			return "", &Rejected{path, describe(at, here) + ", so that other users can replace what is in it", fmt.Sprintf("Take the write permission from others (chmod go-w %s) or set its sticky bit (chmod +t), or name another directory.", at)}
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && w.create {
			if err = os.Mkdir(next, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				info, err = os.Lstat(next)
			}
		}
		if err != nil {
			return "", err
		}
		if w.saw != nil {
			w.saw(next, info)
		}
		if !isOwn(info) && !trusted(info, top) {
			return "", &Rejected{path, describe(next, info), remedy(next)}
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			// A hard link can bring anyone's symbolic link into a directory
			// that others can write to.
			if writable(here) {
				return "", &Rejected{path, next + " is a symbolic link in a directory that all users can write to", remedy(next)}
			}
			if links++; links > maxLinks {
				return "", &Rejected{path, "too many symbolic links lead to it", remedy(path)}
			}
			to, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(to) {
				at, here = filepath.VolumeName(to)+string(filepath.Separator), top
				to = strings.TrimPrefix(to, at)
			}
			rest = append(strings.Split(to, string(filepath.Separator)), rest...)
		case !info.IsDir() && w.file && len(rest) == 0:
			return next, nil
		case !info.IsDir():
			return "", &fs.PathError{Op: "open", Path: next, Err: syscall.ENOTDIR}
		default:
			at, here = next, info
		}
	}
	return at, nil
}

// Empty removes everything that is in a directory.
func Empty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, root.RemoveAll(e.Name()))
	}
	return errors.Join(errs...)
}

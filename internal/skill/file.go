package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/sallyport/sallyport/internal/manual"
	"github.com/sallyport/sallyport/internal/private"
)

const (
	file = "SKILL.md"
	// maxSize bounds the file that is compared.
	maxSize = 1 << 20
)

// State is how the file at a place compares with the manual.
type State string

// The states of a place.
const (
	Absent   State = "absent"
	Current  State = "current"
	Outdated State = "outdated" // of another version, and unchanged
	Changed  State = "changed"  // by the user, or someone else's
)

// Result is what Install or Remove did.
type Result struct {
	Before  State
	Changed bool   // the file was written or removed
	Backup  string // the path of the user's changed file; empty: none
}

// ErrChanged reports that the user changed the file.
var ErrChanged = errors.New("the file was changed, or was not written by Sallyport: --force replaces it and keeps a copy")

// State returns the state of the place.
func (p Place) State() (State, error) {
	root, err := p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return Absent, nil
	}
	if err != nil {
		return "", err
	}
	defer root.Close()
	return p.state(root)
}

// open opens the folder that contains everything.
func (p Place) open() (*os.Root, error) {
	if p.linked {
		return private.Passable(p.base)
	}
	return os.OpenRoot(p.base)
}

// Install writes the skill. It changes nothing if the file is current.
func (p Place) Install(force bool) (Result, error) {
	if err := os.MkdirAll(p.base, 0o755); err != nil {
		return Result{}, err
	}
	return p.change(force, func(root *os.Root, before State) error {
		if before == Current {
			return errNothing
		}
		return p.write(root)
	})
}

// Remove removes the skill, and its folder if nothing else is in it.
func (p Place) Remove(force bool) (Result, error) {
	return p.change(force, func(root *os.Root, before State) error {
		if before == Absent {
			return errNothing
		}
		if err := root.Remove(p.file()); err != nil && before != Changed { // which was moved aside
			return p.explain(err)
		}
		_ = root.Remove(p.below) // fails if the user put something else there
		return nil
	})
}

// errNothing reports that nothing had to be done.
var errNothing = errors.New("nothing to do")

// change does something to a file that the user has not changed. With force, a
// changed file is moved aside first.
func (p Place) change(force bool, do func(*os.Root, State) error) (Result, error) {
	root, err := p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return Result{Before: Absent}, nil
	}
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	r := Result{}
	if r.Before, err = p.state(root); err != nil {
		return r, err
	}
	var backup string
	if r.Before == Changed {
		if !force {
			return r, fmt.Errorf("%s: %w", p.Path(), ErrChanged)
		}
		if backup, err = p.backUp(root); err != nil {
			return r, p.explain(err)
		}
	}
	switch err = do(root, r.Before); {
	case errors.Is(err, errNothing):
		return r, nil
	case err != nil && backup != "":
		return r, errors.Join(err, root.Rename(path.Join(p.below, backup), p.file()))
	case err != nil:
		return r, err
	}
	r.Changed = true
	if backup != "" {
		r.Backup = strings.TrimSuffix(p.Path(), file) + backup
	}
	return r, nil
}

func (p Place) file() string { return path.Join(p.below, file) }

// state compares the file with the manual.
func (p Place) state(root *os.Root) (State, error) {
	text, err := p.read(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Absent, nil
	case err != nil:
		return "", p.explain(err)
	case text == manual.Skill():
		return Current, nil
	case manual.Unchanged(text):
		return Outdated, nil
	}
	return Changed, nil
}

// read reads the file, which must be a regular one.
func (p Place) read(root *os.Root) (string, error) {
	info, err := root.Lstat(p.file())
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file; remove it first")
	}
	f, err := root.Open(p.file())
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize))
	return string(text), err
}

// write replaces the file, whole or not at all.
func (p Place) write(root *os.Root) error {
	if err := root.MkdirAll(p.below, 0o755); err != nil {
		return p.explain(err)
	}
	if err := private.Replace(root, p.file(), []byte(manual.Skill()), 0o644, nil); err != nil {
		return p.explain(err)
	}
	return nil
}

// backUp gives the file a name that no other file has, and returns the name.
func (p Place) backUp(root *os.Root) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%d.bak", file, n)
		if _, err := root.Lstat(path.Join(p.below, name)); errors.Is(err, fs.ErrNotExist) {
			return name, root.Rename(p.file(), path.Join(p.below, name))
		} else if err != nil {
			return "", err
		}
	}
}

// explain adds the path to an error, and what to do if a symbolic link leads out
// of the folder.
func (p Place) explain(err error) error {
	if strings.Contains(err.Error(), "escapes") {
		return fmt.Errorf("%s: a symbolic link on the way leads out of %s: replace it with a folder, or copy the output of 'sallyport skill show' there yourself", p.Path(), p.base)
	}
	return fmt.Errorf("%s: %w", p.Path(), err)
}

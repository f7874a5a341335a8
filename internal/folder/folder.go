// Package folder decides which folders of the host a sandbox may see. What a person
// wrote becomes a mount whose source has no symbolic link in it, or an error that
// says why the folder is refused.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Under is where a folder appears for which no place was named.
const Under = "/mnt"

// maxPath bounds a path; no system takes longer ones.
const maxPath = 4096

// Parse reads DIR[:PATH][:MODE]: a folder of the host, its place in the sandbox, and
// ro, copy or rw. What is not given is empty in the mount, and DIR is as it was
// written: [Rules.Resolve] completes and checks it. A folder with a colon in its name
// has no such form.
func Parse(arg string) (sandbox.Mount, error) {
	return parse(arg, len(filepath.VolumeName(arg)))
}

// parse is Parse where the first bytes name a volume: no colon among them separates
// anything.
func parse(arg string, volume int) (sandbox.Mount, error) {
	var m sandbox.Mount
	parts := strings.Split(arg[volume:], ":")
	m.Source = arg[:volume] + parts[0]
	rest := parts[1:]
	if n := len(rest); n > 0 && isMode(rest[n-1]) {
		m.Mode, rest = sandbox.MountMode(rest[n-1]), rest[:n-1]
	}
	if len(rest) > 0 {
		m.Target, rest = rest[0], rest[1:]
	}
	mode := m.Target // misplaced, if it is one
	if len(rest) > 0 && !isMode(mode) {
		mode = rest[0]
	}
	switch {
	case m.Source == "":
		return sandbox.Mount{}, fmt.Errorf("folder %s: no folder is named; write DIR[:PATH][:MODE], such as ~/data:/mnt/data:ro", quote(arg))
	case len(rest) > 0 && isMode(mode):
		return sandbox.Mount{}, fmt.Errorf("folder %s: nothing can follow the mode %s; write DIR[:PATH][:MODE]", quote(arg), quote(mode))
	case len(rest) > 0:
		return sandbox.Mount{}, fmt.Errorf("folder %s: %s is not a mode; write ro (read-only), copy (a private copy) or rw (code changes the folder itself)", quote(arg), quote(rest[0]))
	case m.Target != "" && !path.IsAbs(m.Target):
		return sandbox.Mount{}, fmt.Errorf("folder %s: %s is neither a place in the sandbox such as /mnt/data nor a mode (ro, copy, rw). Mount a folder with a colon in its name through a link to it", quote(arg), quote(m.Target))
	}
	return m, nil
}

func isMode(s string) bool {
	m := sandbox.MountMode(s)
	return m == sandbox.ReadOnly || m == sandbox.Copy || m == sandbox.ReadWrite
}

// Format writes a mount as [Parse] reads it.
func Format(m sandbox.Mount) string {
	out := m.Source
	for _, part := range []string{m.Target, string(m.Mode)} {
		if part != "" {
			out += ":" + part
		}
	}
	return out
}

// Rules say what is refused.
type Rules struct {
	// Home is the user's home directory. Empty: there is none, and no ~.
	Home string
	// Account is the home directory that the system knows, where that is another.
	Account string
	// Own are the directories of this program, and others with secrets that are not in
	// their usual places. Relative and empty paths are ignored.
	Own []string
	// Fixed are files that code must not change, such as this program: a folder with
	// one of them is not mounted as rw.
	Fixed []string
	// Open are folders that code can change: no link in one is followed, because code
	// may have made it.
	Open []string
}

// ErrGone reports a folder that does not exist, or cannot be read, at this moment.
var ErrGone = errors.New("there is no such folder")

// gone is an ErrGone that says more.
type gone string

func (g gone) Error() string        { return string(g) }
func (g gone) Is(target error) bool { return target == ErrGone }

// Read reads a folder as [Parse] does, and completes and checks it as [Rules.Resolve].
func (r Rules) Read(arg string) (sandbox.Mount, error) {
	m, err := Parse(arg)
	if err != nil {
		return m, err
	}
	return r.Resolve(m)
}

// Resolve completes and checks a mount. Its source becomes absolute, a relative one
// from the working directory, and loses its symbolic links; the place is by default
// below [Under], and the mode read-only. What is allowed is the folder as it is now:
// an engine follows no link when it opens the source.
func (r Rules) Resolve(m sandbox.Mount) (sandbox.Mount, error) {
	written := m.Source
	fail := func(err error) (sandbox.Mount, error) {
		return sandbox.Mount{}, fmt.Errorf("folder %s: %w", quote(written), err)
	}
	abs, err := r.absolute(written)
	if err != nil {
		return fail(err)
	}
	source, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return fail(unreachable(err))
	}
	if source != abs {
		if link, in := r.planted(abs); link != "" {
			return fail(fmt.Errorf("%s is a link, and code can change %s, which it is in. Name the folder that it leads to, if that is what you mean", quote(link), quote(in)))
		}
	}
	info, err := os.Stat(source)
	if err != nil {
		return fail(unreachable(err))
	}
	if !info.IsDir() {
		return fail(notFolder(info.Mode()))
	}
	if why := r.refused(source); why != "" {
		if source != abs {
			why = "it leads to " + quote(source) + ", and " + why
		}
		return fail(errors.New(why))
	}
	if m.Mode == sandbox.ReadWrite {
		for _, file := range r.Fixed {
			if filepath.IsAbs(file) && newPlace(source).contains(file) {
				return fail(fmt.Errorf("code must not change %s, which is in it. Use ro or copy", quote(file)))
			}
		}
	}
	if err := readable(source); err != nil {
		return fail(unreachable(err))
	}
	m.Source = abs // whose last part is the name that the user knows
	m = WithDefaults(m)
	m.Source = source
	if err := printable(m.Target); err != nil {
		return fail(fmt.Errorf("its place in the sandbox: %w", err))
	}
	return m, sandbox.CheckMounts([]sandbox.Mount{m})
}

// planted returns the first link on the way of an absolute path that is in a folder
// which code can change, and that folder.
func (r Rules) planted(p string) (link, in string) {
	at, rest := filepath.VolumeName(p)+string(filepath.Separator), strings.TrimPrefix(p, filepath.VolumeName(p))
	const most = 255 // links, as many as Go follows
	for links := 0; rest != "" && links <= most; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, string(filepath.Separator)), string(filepath.Separator))
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		links++
		for _, dir := range r.Open {
			if _, ok := newPlace(at).below(dir); ok && filepath.IsAbs(dir) {
				return next, dir
			}
		}
		if filepath.IsAbs(target) {
			at, target = filepath.VolumeName(target)+string(filepath.Separator), strings.TrimPrefix(target, filepath.VolumeName(target))
		}
		rest = target + string(filepath.Separator) + rest
	}
	return "", ""
}

// WithDefaults returns the mount with a place and a mode: by default, its folder's name
// below [Under], and read-only.
func WithDefaults(m sandbox.Mount) sandbox.Mount {
	if m.Target == "" {
		m.Target = path.Join(Under, filepath.Base(m.Source))
	}
	if m.Mode == "" {
		m.Mode = sandbox.ReadOnly
	}
	return m
}

// absolute returns the clean, absolute path that a person meant.
func (r Rules) absolute(p string) (string, error) {
	if p == "" {
		return "", errors.New("the path is empty")
	}
	if err := printable(p); err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(p, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if r.Home == "" {
			return "", errors.New("~ cannot be used: there is no home directory. Write the whole path")
		}
		p = filepath.Join(r.Home, rest)
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", fmt.Errorf("the working directory is unknown. Write the whole path: %w", err)
	}
	return abs, nil
}

// printable returns an error for a path that cannot be shown as it is.
func printable(p string) error {
	switch {
	case len(p) > maxPath:
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	case !utf8.ValidString(p):
		return errors.New("the path is not UTF-8. Rename the folder, or make a link to it")
	case strings.ContainsFunc(p, func(c rune) bool { return !unicode.IsPrint(c) }):
		return errors.New("the path has a character that cannot be shown. Rename the folder, or make a link to it")
	}
	return nil
}

func unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone("there is no such folder. Create it, or correct the path")
	case errors.Is(err, fs.ErrPermission):
		return gone("you may not read it. Change its permissions, or name a folder that you can read")
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err // the path is in the message already
	}
	return gone("it cannot be opened: " + err.Error())
}

func notFolder(mode fs.FileMode) error {
	what := "it is not a folder"
	switch {
	case mode.IsRegular():
		return errors.New("it is a file, and only folders can be mounted. Use 'sallyport run --file' to copy a file into the sandbox, or mount the folder that it is in")
	case mode&fs.ModeSocket != 0:
		what = "it is a socket"
	case mode&fs.ModeDevice != 0:
		what = "it is a device"
	case mode&fs.ModeNamedPipe != 0:
		what = "it is a pipe"
	}
	return errors.New(what + ", and only folders can be mounted")
}

// readable returns an error for a folder that the user cannot read.
func readable(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// quote quotes a path for a message.
func quote(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

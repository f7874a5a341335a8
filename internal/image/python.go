package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Python is the interpreter of an image.
type Python struct {
	// Path is the path to start it by, which may be a link: a virtual
	// environment is recognized by it.
	Path string `json:"path"`
	// Real is the path with links resolved.
	Real  string `json:"real"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
}

func (p Python) String() string { return fmt.Sprintf("%d.%d", p.Major, p.Minor) }

// oldest is the minor version of the oldest supported Python.
const oldest = 9

// usualPath is searched for interpreters after the image's own PATH.
var usualPath = []string{
	"/usr/local/bin", "/usr/bin", "/bin", "/opt/python/bin", "/opt/conda/bin", "/opt/venv/bin", "/venv/bin",
	"/app/.venv/bin", "/opt/bitnami/python/bin", "/opt/app-root/bin", "/usr/local/python/current/bin",
}

// maxHops is how many symbolic links are followed for one name.
const maxHops = 40

// FindPython finds the interpreter of the file system in dir, whose image sets
// the environment env. Links are followed within dir, and nothing is run.
func FindPython(dir string, env []string) (*Python, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	places := slices.Clone(usualPath)
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			places = append(strings.Split(value, ":"), places...)
		}
	}
	// Distributions with several also have them in /opt/NAME/bin.
	more, _ := fs.Glob(root.FS(), "opt/*/bin/python3")
	for _, m := range more {
		places = append(places, "/"+path.Dir(m))
	}
	if len(places) > 200 {
		places = places[:200]
	}
	var old *Python
	var odd error
	seen := map[string]bool{}
	for _, place := range places {
		if !path.IsAbs(place) || seen[path.Clean(place)] {
			continue
		}
		place = path.Clean(place)
		seen[place] = true
		for _, name := range interpretersIn(root, place) {
			p, err := interpreterAt(root, path.Join(place, name))
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				odd = fmt.Errorf("%s: %w", path.Join(place, name), err)
			case p.Major != 3 || p.Minor < oldest:
				old = p
			default:
				return p, nil
			}
		}
	}
	switch {
	case old != nil:
		return nil, fmt.Errorf("its %s is Python %s; 3.%d or newer is needed", old.Path, old, oldest)
	case odd != nil:
		return nil, fmt.Errorf("it has no CPython 3.%d or newer that can be used (%w)", oldest, odd)
	}
	return nil, fmt.Errorf("it has no CPython 3.%d or newer in its PATH, /usr/local/bin, /usr/bin or /opt", oldest)
}

var interpreterName = lazyregexp.New(`^python3\.(\d{1,2})$`)

// interpretersIn returns the names of interpreters in a directory of the image:
// the usual one first, then those with versions, newest first.
func interpretersIn(root *os.Root, dir string) []string {
	names := []string{"python3", "python"}
	real, err := resolve(root, dir)
	if err != nil {
		return names
	}
	d, err := root.Open(relative(real))
	if err != nil {
		return names
	}
	defer d.Close()
	entries, _ := d.ReadDir(-1)
	var versions []int
	for _, e := range entries {
		if m := interpreterName().FindStringSubmatch(e.Name()); m != nil {
			n, _ := strconv.Atoi(m[1])
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	for _, v := range slices.Backward(versions) {
		names = append(names, fmt.Sprintf("python3.%d", v))
	}
	return names
}

// interpreterAt returns the interpreter at a path in the image: a program for
// this machine with its standard library next to it, which tells the version.
func interpreterAt(root *os.Root, name string) (*Python, error) {
	real, err := resolve(root, name)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(relative(real))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o001 == 0 {
		return nil, errors.New("not executable by everyone")
	}
	machine, err := elf.NewFile(f)
	if err != nil {
		return nil, errors.New("a script, not a program")
	}
	if want := machines[runtime.GOARCH]; machine.Machine != want {
		return nil, fmt.Errorf("a program for %s", machine.Machine)
	}
	p := &Python{Path: name, Real: real, Major: 3}
	prefix := path.Dir(path.Dir(real))
	if m := interpreterName().FindStringSubmatch(path.Base(real)); m != nil {
		p.Minor, _ = strconv.Atoi(m[1])
		return p, checkLibrary(root, prefix, p.Minor)
	}
	for minor := 40; minor > 0; minor-- {
		err := checkLibrary(root, prefix, minor)
		if !errors.Is(err, errNoLibrary) {
			p.Minor = minor
			return p, err
		}
	}
	return nil, fmt.Errorf("%w in %s/lib", errNoLibrary, prefix)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

var errNoLibrary = errors.New("its standard library is not")

// checkLibrary returns why the library of an interpreter cannot be used. Debian's
// python3-minimal has a part of it.
func checkLibrary(root *os.Root, prefix string, minor int) error {
	has := func(name string) bool {
		_, err := resolve(root, name)
		return err == nil
	}
	for _, lib := range []string{"lib", "lib64"} {
		at := path.Join(prefix, lib, fmt.Sprintf("python3.%d", minor))
		if has(path.Join(prefix, lib, fmt.Sprintf("python3%d.zip", minor))) {
			return nil
		}
		if has(path.Join(at, "os.py")) || has(path.Join(at, "os.pyc")) {
			if !has(path.Join(at, "asyncio")) {
				return fmt.Errorf("%s has only a part of the standard library: no asyncio (on Debian and Ubuntu, install python3 instead of python3-minimal)", at)
			}
			return nil
		}
	}
	return fmt.Errorf("%w in %s/lib/python3.%d", errNoLibrary, prefix, minor)
}

// relative converts an absolute path of the image to a relative path of package
// os.
func relative(name string) string {
	if name = strings.TrimPrefix(path.Clean(name), "/"); name == "" {
		return "."
	}
	return name
}

// resolve resolves the symbolic links of a path within the image, as a process
// in it would.
func resolve(root *os.Root, name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	for hops := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, element)
		info, err := root.Lstat(relative(next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := root.Readlink(relative(next))
		if err != nil {
			return "", err
		}
		if hops++; hops > maxHops || len(rest) > 4096 {
			return "", errors.New("too many symbolic links")
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

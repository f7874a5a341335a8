package python

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// MinPython is the oldest CPython that the guest runs on.
var MinPython = Version{3, 9}

// Version is a Python version, major and minor.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Interpreter is a Python on the host.
type Interpreter struct {
	Executable string // with symbolic links resolved
	Prefix     string // the directory that holds its bin and lib
	Version    Version
	// Packages is the folder of packages of the virtual environment that was
	// asked for, empty if it was none. It takes the place of the interpreter's
	// own packages.
	Packages string
}

// Library is the directory of the standard library: in lib64 on Fedora and
// openSUSE, whose lib has packages alone.
func (p Interpreter) Library() string {
	version := "python" + p.Version.String()
	wide := filepath.Join(p.Prefix, "lib64", version)
	if _, err := os.Stat(filepath.Join(p.Prefix, "lib", version, "os.py")); err != nil {
		if _, err := os.Stat(filepath.Join(wide, "os.py")); err == nil {
			return wide
		}
	}
	return filepath.Join(p.Prefix, "lib", version)
}

// sandboxPrefix is where a sandbox has an interpreter from a home directory.
const sandboxPrefix = "/opt/python"

// find is [sandbox.Program.Find].
func find(ctx context.Context, name, path string) (*sandbox.Runtime, error) {
	p, err := FindInterpreter(ctx, name, path)
	if err != nil {
		return nil, err
	}
	return p.runtime(), nil
}

// runtime describes what a sandbox needs of the interpreter.
func (p *Interpreter) runtime() *sandbox.Runtime {
	r := &sandbox.Runtime{
		Executable: p.Executable, Prefix: p.Prefix, Version: p.Version.String(), Private: sandboxPrefix,
	}
	packages := filepath.Join(p.Library(), "site-packages") // where the interpreter looks for them
	if p.Prefix == "/" || p.Prefix == "/usr" {
		// Debian's interpreter looks for packages here first: what pip
		// installed for all, or a virtual environment's.
		installed := filepath.Join("/usr/local/lib/python"+p.Version.String(), "dist-packages")
		if p.Packages == "" {
			r.Show = []string{installed}
		} else if fi, err := os.Stat("/usr/lib/python3/dist-packages"); err == nil && fi.IsDir() {
			packages = installed
		}
	}
	if p.Packages != "" {
		r.Replace = map[string]string{packages: p.Packages}
	}
	version := "python" + p.Version.String()
	for _, lib := range []string{filepath.Join(p.Prefix, "lib"), filepath.Join(p.Prefix, "lib64"), "/usr/lib", "/usr/local/lib"} {
		for _, path := range []string{
			version, version + "/lib-dynload", version + "/site-packages", version + "/dist-packages",
			"python3/dist-packages", "lib" + version + ".so.1.0",
		} {
			r.Depends = append(r.Depends, filepath.Join(lib, path))
		}
	}
	return r
}

// FindInterpreter finds the interpreter that name means: an absolute path, or
// a name that is looked up in path. A script (a shim, as pyenv's) is asked
// which interpreter it stands for; a virtual environment stands for the
// interpreter that it was made from, with the environment's packages.
func FindInterpreter(ctx context.Context, name, path string) (*Interpreter, error) {
	file, err := LookPath(name, path)
	if err != nil {
		return nil, err
	}
	resolved, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	p, err := interpreterAt(resolved)
	if err != nil || !isELF(resolved) {
		// A shim, or an installation laid out in a way of its own.
		if p, err = askInterpreter(ctx, file, path); err != nil {
			return nil, fmt.Errorf("%s is not a usable Python: %w", file, err)
		}
	}
	p.Packages = packagesOf(file, p.Version)
	return p, check(p)
}

// packagesOf is the folder of packages if file is the interpreter of a virtual
// environment, as site finds it: by the pyvenv.cfg next to it or one above.
func packagesOf(file string, v Version) string {
	bin, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return ""
	}
	for _, dir := range []string{bin, filepath.Dir(bin)} {
		if _, err := os.Stat(filepath.Join(dir, "pyvenv.cfg")); err != nil {
			continue
		}
		packages := filepath.Join(dir, "lib", "python"+v.String(), "site-packages")
		if fi, err := os.Stat(packages); err == nil && fi.IsDir() {
			return packages
		}
	}
	return ""
}

// check returns why the guest cannot run on the interpreter.
func check(p *Interpreter) error {
	if p.Version.less(MinPython) {
		return fmt.Errorf("%s is Python %s; Python %s or newer is needed", p.Executable, p.Version, MinPython)
	}
	// Debian's python3-minimal leaves out half of the library.
	if _, err := os.Stat(filepath.Join(p.Library(), "asyncio")); err != nil {
		return fmt.Errorf("%s has only a part of its standard library: %s has no asyncio", p.Executable, p.Library())
	}
	return nil
}

// LookPath is exec.LookPath over a given path. Relative entries are skipped:
// a project folder must not choose the interpreter.
func LookPath(name, path string) (string, error) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	if strings.ContainsRune(name, filepath.Separator) {
		return "", fmt.Errorf("%q: give a name or an absolute path", name)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("no %s in the search path", name)
}

func executable(file string) error {
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "execute", Path: file, Err: fs.ErrPermission}
	}
	return nil
}

func isELF(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

var versionedName = lazyregexp.New(`^python(\d+)\.(\d+)$`)

// interpreterAt reads version and prefix off the usual layout,
// PREFIX/bin/pythonX.Y with PREFIX/lib/pythonX.Y/os.py, which spares a
// start of the interpreter.
func interpreterAt(file string) (*Interpreter, error) {
	m := versionedName().FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return nil, errors.New("no version in the name")
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	p := &Interpreter{
		Executable: file,
		Prefix:     filepath.Dir(filepath.Dir(file)),
		Version:    Version{major, minor},
	}
	if _, err := os.Stat(filepath.Join(p.Library(), "os.py")); err != nil {
		return nil, err
	}
	return p, nil
}

const askProgram = `import sys
v = sys.version_info
print(sys.implementation.name, v[0], v[1], sep="\n")
print(getattr(sys, "_base_executable", "") or sys.executable, sys.base_prefix, sep="\n")`

func askInterpreter(ctx context.Context, file, path string) (*Interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "-I", "-S", "-c", askProgram)
	cmd.Dir = "/" // a shim must not take its answer from the current folder
	cmd.Env = []string{"PATH=" + path, "HOME=" + os.TempDir()}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(lastLine(stderr.String())))
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(lines) != 5 {
		return nil, errors.New("unexpected answer")
	}
	if lines[0] != "cpython" {
		return nil, fmt.Errorf("it is %s; CPython is needed", lines[0])
	}
	major, err1 := strconv.Atoi(lines[1])
	minor, err2 := strconv.Atoi(lines[2])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	exe, err := filepath.EvalSymlinks(lines[3])
	if err != nil {
		return nil, err
	}
	prefix, err := filepath.EvalSymlinks(lines[4])
	if err != nil {
		return nil, err
	}
	p := &Interpreter{Executable: exe, Prefix: prefix, Version: Version{major, minor}}
	if _, err := os.Stat(filepath.Join(p.Library(), "os.py")); err != nil {
		return nil, fmt.Errorf("its standard library is not in %s", p.Library())
	}
	return p, nil
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// Package hostroot builds a sandbox's root from files on the host: it finds the
// interpreter and what it needs, and describes the read-only file system that
// shows that and nothing else.
package hostroot

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Rootfs describes a read-only root file system, put together in a mount
// namespace by [Assemble]. All paths are absolute and clean.
type Rootfs struct {
	Binds []Bind            `json:"binds"`
	Links map[string]string `json:"links"` // path in the sandbox -> target
	Dirs  []string          `json:"dirs"`
	Files map[string]File   `json:"files"` // path in the sandbox -> file
}

// File is a small file made for one sandbox.
type File struct {
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"` // permission bits
}

// Bind makes a file or directory of the host visible in the sandbox, read-only.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// systemDirs are the host's directories that a sandbox may see as they are:
// programs and libraries. Data directories of /usr are named one by one below.
var systemDirs = []string{
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec",
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/nix/store", "/gnu/store",
}

// systemData are further files and directories that programs need to run and
// that hold no data of the user.
var systemData = []string{
	"/usr/share/zoneinfo", "/usr/share/mime", "/usr/share/misc", "/usr/share/file",
	"/usr/share/ca-certificates", "/usr/share/fonts", "/usr/share/fontconfig",
	"/usr/share/terminfo", "/usr/share/locale", "/usr/share/i18n", "/usr/share/perl",
	"/usr/share/perl5", "/usr/share/python3", "/usr/share/nodejs", "/usr/share/javascript",
	"/usr/share/matplotlib", "/usr/share/tcltk", "/usr/share/dict",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates",
	"/etc/fonts", "/etc/mime.types", "/etc/magic", "/etc/python3", "/etc/localtime",
	"/etc/matplotlibrc", "/etc/protocols", "/etc/services",
}

// identity is the sandbox's own user database.
var identity = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:65534:65534:sandbox:/workspace:/bin/sh\n",
	"/etc/group":         "root:x:0:\nsandbox:x:65534:\n",
	"/etc/hostname":      "sandbox\n",
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	"/etc/timezone":      "Etc/UTC\n",
}

// Identity are the files by which a sandbox knows its only user, and itself.
func Identity() map[string]File {
	files := map[string]File{}
	for path, content := range identity {
		files[path] = File{Data: []byte(content), Mode: 0o644}
	}
	return files
}

// Plan plans the default root: the host's programs and libraries, the
// interpreter wherever it lies, and the program's files, which are in
// programDir. It returns the interpreter's path in the sandbox, and variables
// for its environment.
func Plan(r *sandbox.Runtime, home, programDir string) (fsys Rootfs, interpreter string, env []string, err error) {
	fsys = Rootfs{Links: map[string]string{}, Files: Identity()}
	for _, path := range slices.Concat(systemDirs, systemData) {
		if err := fsys.Show(path); err != nil {
			return fsys, "", nil, err
		}
	}
	prefix := r.Prefix // in the sandbox
	switch {
	case prefix == "/" || prefix == "/usr":
	case filepath.Clean(home) == prefix:
		return fsys, "", nil, fmt.Errorf("the interpreter %s has the home directory itself as its prefix; choose another with --python", r.Executable)
	case private(prefix, home) && r.Private == "":
		return fsys, "", nil, fmt.Errorf("the interpreter %s lies among a user's own files", r.Executable)
	case private(prefix, home):
		// Its own prefix alone, and of that only programs and libraries:
		// ~/.local may be a prefix, and holds much else.
		prefix = r.Private
		fsys.addPrefix(r.Prefix, prefix)
		env = append(env, "LD_LIBRARY_PATH="+prefix+"/lib")
	default:
		fsys.addPrefix(prefix, prefix)
	}
	for _, path := range r.Show {
		if err := fsys.Show(path); err != nil {
			return fsys, "", nil, err
		}
	}
	moved := func(path string) (string, error) {
		if prefix == r.Prefix {
			return path, nil
		}
		rel, err := filepath.Rel(r.Prefix, path)
		if err != nil || !filepath.IsLocal(rel) {
			return "", fmt.Errorf("%s of the interpreter %s lies outside its prefix %s", path, r.Executable, r.Prefix)
		}
		return filepath.Join(prefix, rel), nil
	}
	// After what they may lie in.
	for _, at := range slices.Sorted(maps.Keys(r.Replace)) {
		target, err := moved(at)
		if err != nil {
			return fsys, "", nil, err
		}
		fsys.Binds = append(fsys.Binds, Bind{Source: r.Replace[at], Target: target})
	}
	if interpreter, err = moved(r.Executable); err != nil {
		return fsys, "", nil, err
	}
	fsys.Binds = append(fsys.Binds, Bind{Source: programDir, Target: sandbox.ProgramDir})
	return fsys, interpreter, env, nil
}

// AddFiles adds the caller's files for the program to copy. It does that
// without privileges: all can read them here, and their modes are in a file of
// their own.
func (r *Rootfs) AddFiles(files []sandbox.File) {
	for _, f := range files {
		r.Files[filepath.Join(sandbox.FilesDir, f.Path)] = File{Data: f.Data, Mode: 0o644}
	}
	if modes := sandbox.Modes(files); modes != nil {
		r.Files[sandbox.ModesFile] = File{Data: modes, Mode: 0o644}
	}
}

// Show shows path as it is on the host: a symbolic link as a link, a
// file or directory read-only, and nothing where the host has none.
func (r *Rootfs) Show(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil // not on this host
	}
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if path == "/etc/localtime" || !filepath.IsAbs(target) || r.shows(target) {
			r.Links[path] = target
			return nil
		}
		// A link to a place that the sandbox does not show: show its content.
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			r.Binds = append(r.Binds, Bind{Source: resolved, Target: path})
		}
	case fi.IsDir() || fi.Mode().IsRegular():
		r.Binds = append(r.Binds, Bind{Source: path, Target: path})
	}
	return nil
}

func (r *Rootfs) shows(path string) bool {
	for _, b := range r.Binds {
		if path == b.Target || strings.HasPrefix(path, b.Target+"/") {
			return true
		}
	}
	return false
}

func (r *Rootfs) addPrefix(prefix, target string) {
	for _, sub := range []string{"bin", "lib", "lib64"} {
		source := filepath.Join(prefix, sub)
		if fi, err := os.Lstat(source); err != nil {
			continue
		} else if fi.Mode()&os.ModeSymlink != 0 {
			// lib64 -> lib
			if to, err := os.Readlink(source); err == nil && !filepath.IsAbs(to) && !strings.Contains(to, "..") {
				r.Links[filepath.Join(target, sub)] = to
				continue
			}
		}
		r.Binds = append(r.Binds, Bind{Source: source, Target: filepath.Join(target, sub)})
	}
}

// private reports whether dir lies where a user's own files do.
func private(dir, home string) bool {
	for _, h := range []string{home, "/home", "/root", "/Users", "/tmp", "/var"} {
		if h != "" && h != "/" && (dir == h || strings.HasPrefix(dir, strings.TrimSuffix(h, "/")+"/")) {
			return true
		}
	}
	return false
}

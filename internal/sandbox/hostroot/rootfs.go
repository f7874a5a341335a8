// Package hostroot is a sandbox's root made of the host's own Python: which
// interpreter, what of the host it needs, and the read-only file system that
// shows that and nothing else.
package hostroot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where things are in the sandbox.
const (
	sandboxPython = "/opt/python" // an interpreter from a home directory
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

// Bind shows a file or directory of the host in the sandbox, read-only.
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
// that hold nothing of the user's.
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
// interpreter wherever it lives, and the guest. It returns the interpreter's
// path in the sandbox, and variables for its environment.
func Plan(p *Interpreter, home, guestDir, guestTarget string) (fsys Rootfs, python string, env []string, err error) {
	fsys = Rootfs{Links: map[string]string{}, Files: map[string]File{}}
	for path, content := range identity {
		fsys.Files[path] = File{Data: []byte(content), Mode: 0o644}
	}
	for _, dir := range systemDirs {
		if err := fsys.Show(dir); err != nil {
			return fsys, "", nil, err
		}
	}
	for _, path := range systemData {
		if err := fsys.Show(path); err != nil {
			return fsys, "", nil, err
		}
	}
	python = p.Executable
	packages := filepath.Join(p.Library(), "site-packages") // where the sandbox looks for them
	switch {
	case p.Prefix == "/" || p.Prefix == "/usr":
		// Debian's interpreter looks for packages here first: what pip
		// installed for all, or a virtual environment's.
		installed := filepath.Join("/usr/local/lib/python"+p.Version.String(), "dist-packages")
		switch fi, statErr := os.Stat("/usr/lib/python3/dist-packages"); {
		case p.Packages == "":
			err = fsys.Show(installed)
		case statErr == nil && fi.IsDir():
			packages = installed
		}
	case filepath.Clean(home) == p.Prefix:
		return fsys, "", nil, fmt.Errorf("the interpreter %s has the home directory itself as its prefix; choose another with --python", p.Executable)
	case private(p.Prefix, home):
		// Its own prefix alone, and of that only programs and libraries:
		// ~/.local may be a prefix, and holds much else.
		rel, err := filepath.Rel(p.Prefix, p.Executable)
		if err != nil || strings.HasPrefix(rel, "..") {
			return fsys, "", nil, fmt.Errorf("the interpreter %s lies outside its prefix %s", p.Executable, p.Prefix)
		}
		fsys.addPrefix(p.Prefix, sandboxPython)
		python = filepath.Join(sandboxPython, rel)
		packages = filepath.Join(sandboxPython, "lib", "python"+p.Version.String(), "site-packages")
		env = append(env, "LD_LIBRARY_PATH="+sandboxPython+"/lib")
	default:
		fsys.addPrefix(p.Prefix, p.Prefix)
	}
	if err != nil {
		return fsys, "", nil, err
	}
	if p.Packages != "" {
		// After what it may lie in.
		fsys.Binds = append(fsys.Binds, Bind{Source: p.Packages, Target: packages})
	}
	fsys.Binds = append(fsys.Binds, Bind{Source: guestDir, Target: guestTarget})
	return fsys, python, env, nil
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

package build

import (
	"archive/tar"
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// hostPrograms are the programs that code expects besides Python; those that
// the host has are included.
var hostPrograms = strings.Fields(`sh env cat ls cp mv rm mkdir rmdir touch ln stat du df pwd id whoami basename dirname
	realpath readlink head tail wc sort uniq cut tr tee seq expr printf date sleep uname echo true false test
	sha256sum md5sum base64 grep sed awk find xargs tar gzip gunzip diff`)

// hostLibraries are libraries that wheels may expect on every Linux.
var hostLibraries = strings.Fields(`libpthread.so.0 libdl.so.2 librt.so.1 libm.so.6 libutil.so.1 libresolv.so.2
	libgcc_s.so.1 libstdc++.so.6 libatomic.so.1 libgomp.so.1 libz.so.1 libexpat.so.1`)

// hostData are files that the standard library looks for.
var hostData = []string{"/usr/share/zoneinfo", "/etc/ssl/certs/ca-certificates.crt", "/etc/mime.types"}

// HostPython is an interpreter of the host.
type HostPython struct {
	Executable string // with symbolic links resolved
	Prefix     string // the directory that holds its bin and lib
	Library    string // the directory of its standard library
}

// HostBase writes a layer with this host's Python to a file in dir: the
// interpreter, its standard library except for what only tests need, and the
// libraries and programs that these need. Packages are not included.
func HostBase(ctx context.Context, p HostPython, dir string, limits flatten.Limits) (layer flatten.Layer, env []string, err error) {
	if runtime.GOOS != "linux" {
		return layer, nil, errors.New("images are for Linux, and this machine's Python is not: name an image to build on, such as python:3.13-slim")
	}
	h := &host{ctx: ctx, done: map[string]bool{}, paths: libraryPaths()}
	if p.Prefix != "/" && p.Prefix != "/usr" && !strings.HasPrefix(p.Prefix, "/usr/") && !strings.HasPrefix(p.Prefix, "/opt/") {
		h.prefix = p.Prefix // in a home directory: the image must not reveal whose
	}
	layer, err = packLayer(filepath.Join(dir, "host.tar"), limits.Archives(), func(w io.Writer) error {
		h.w = tar.NewWriter(w)
		return h.write(p)
	})
	bin := filepath.Dir(h.shown(p.Executable))
	return layer, []string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, err
}

// shown returns the path in the image of a file on the host.
func (h *host) shown(name string) string {
	if h.prefix != "" {
		if rel, err := filepath.Rel(h.prefix, name); err == nil && filepath.IsLocal(rel) {
			return filepath.Join("/opt/python", rel)
		}
	}
	return name
}

// host is a layer of files from this host that is being written.
type host struct {
	ctx   context.Context
	w     *tar.Writer
	done  map[string]bool
	paths []string // where libraries are
	// prefix is the prefix of an interpreter that is moved to /opt/python.
	prefix string
	// system is where the loader looks for libraries, whatever a program says.
	system string
}

func (h *host) write(p HostPython) error {
	// Distributions may have merged these directories; programs must be found
	// either way.
	for _, link := range []string{"/bin", "/lib", "/lib64", "/sbin"} {
		if target, err := os.Readlink(link); err == nil {
			if err := h.put(link, &tar.Header{Typeflag: tar.TypeSymlink, Linkname: target}, nil); err != nil {
				return err
			}
		}
	}
	self, err := elf.Open(p.Executable)
	if err != nil {
		return err
	}
	defer self.Close()
	if libc, err := h.find("libc.so.6", h.paths, self.Machine, self.Class); err == nil {
		h.system = filepath.Dir(libc)
	} else if h.prefix != "" && self.Section(".dynamic") != nil {
		return fmt.Errorf("%s: its C library is unknown: choose the distribution's Python with --set python=PYTHON, or an image with --base", p.Executable)
	}
	if err := h.program(p.Executable); err != nil {
		return err
	}
	bin := filepath.Dir(p.Executable)
	for _, name := range []string{"python3", "python"} {
		link := &tar.Header{Typeflag: tar.TypeSymlink, Linkname: filepath.Base(p.Executable)}
		if err := h.put(filepath.Join(bin, name), link, nil); err != nil {
			return err
		}
	}
	if err := h.tree(p.Library, skipLibrary); err != nil {
		return err
	}
	for _, name := range hostPrograms {
		for _, dir := range []string{"/bin", "/usr/bin"} {
			program := filepath.Join(dir, name)
			if _, err := os.Stat(program); err != nil {
				continue
			}
			if err := h.program(program); err != nil {
				return err
			}
			break
		}
	}
	for _, name := range hostLibraries {
		file, err := h.find(name, h.paths, self.Machine, self.Class)
		if err != nil {
			continue
		}
		if err := h.program(file); err != nil {
			return err
		}
	}
	for _, data := range hostData {
		if _, err := os.Stat(data); err != nil {
			continue
		}
		if err := h.tree(data, func(string) bool { return false }); err != nil {
			return err
		}
	}
	return h.w.Close()
}

// skipLibrary reports whether a sandbox can do without a part of the standard
// library.
func skipLibrary(rel string) bool {
	first, rest, _ := strings.Cut(rel, "/")
	switch first {
	case "test", "idlelib", "turtledemo", "site-packages", "dist-packages", "ensurepip":
		return true
	}
	return strings.HasPrefix(first, "config-") || strings.Contains(rel, ".opt-") && strings.HasSuffix(rel, ".pyc") || rest == "test" || rest == "tests" || strings.HasPrefix(rest, "test/") || strings.HasPrefix(rest, "tests/")
}

// put writes one entry, once, under its real path: no directory above it is a
// link.
func (h *host) put(name string, header *tar.Header, content io.Reader) error {
	if parent, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		name = filepath.Join(parent, filepath.Base(name))
	}
	name = h.shown(name)
	if h.done[name] {
		return nil
	}
	h.done[name] = true
	header.Name = strings.TrimPrefix(name, "/")
	header.Format = tar.FormatPAX
	if header.ModTime.IsZero() {
		header.ModTime = built
	}
	if err := h.w.WriteHeader(header); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	_, err := io.CopyN(h.w, content, header.Size)
	return err
}

// file writes a file with its content, whatever links lead to it.
func (h *host) file(name string) error { return h.copy(name, name) }

// copy is file with another name.
func (h *host) copy(name, to string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a file", name)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	// Byte code records the time of its source.
	return h.put(to, &tar.Header{Typeflag: tar.TypeReg, Size: info.Size(), Mode: mode, ModTime: time.Unix(info.ModTime().Unix(), 0)}, f)
}

// program writes a program or library and those that it needs.
func (h *host) program(name string) error {
	if err := h.ctx.Err(); err != nil {
		return context.Cause(h.ctx)
	}
	if h.done["needs "+name] {
		return nil
	}
	h.done["needs "+name] = true
	if err := h.file(name); err != nil {
		return err
	}
	return h.needs(name)
}

// needs writes the libraries that a program needs. A file that is not ELF needs
// none.
func (h *host) needs(name string) error {
	f, err := elf.Open(name)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			raw := make([]byte, p.Filesz)
			if _, err := p.ReadAt(raw, 0); err != nil {
				return err
			}
			if err := h.program(strings.TrimRight(string(raw), "\x00")); err != nil {
				return err
			}
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil // it is static
	}
	var paths []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		found, _ := f.DynString(tag)
		for _, list := range found {
			for _, dir := range strings.Split(list, ":") {
				dir = strings.NewReplacer("$ORIGIN", filepath.Dir(name), "${ORIGIN}", filepath.Dir(name)).Replace(dir)
				paths = append(paths, filepath.Clean(dir))
			}
		}
	}
	for _, library := range libraries {
		file, err := h.find(library, append(paths, h.paths...), f.Machine, f.Class)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := h.program(file); err != nil {
			return err
		}
		if h.shown(file) != file {
			// Programs name its path on the host.
			if err := h.copy(file, filepath.Join(h.system, filepath.Base(file))); err != nil {
				return err
			}
		}
	}
	return nil
}

// find finds a library for a machine.
func (h *host) find(library string, paths []string, machine elf.Machine, class elf.Class) (string, error) {
	if filepath.IsAbs(library) {
		return library, nil
	}
	for _, dir := range paths {
		file := filepath.Join(dir, library)
		f, err := elf.Open(file)
		if err != nil {
			continue
		}
		fits := f.Machine == machine && f.Class == class
		f.Close()
		if fits {
			return file, nil
		}
	}
	return "", fmt.Errorf("its library %s is not on this host", library)
}

// libraryPaths are where the host's loader looks for libraries.
func libraryPaths() []string {
	var out []string
	var read func(pattern string, depth int)
	read = func(pattern string, depth int) {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			f, err := os.Open(file)
			if err != nil || depth > 4 {
				continue
			}
			lines := bufio.NewScanner(f)
			for lines.Scan() {
				line, _, _ := strings.Cut(lines.Text(), "#")
				line = strings.TrimSpace(line)
				if more, ok := strings.CutPrefix(line, "include "); ok {
					if more = strings.TrimSpace(more); !filepath.IsAbs(more) {
						more = filepath.Join("/etc", more)
					}
					read(more, depth+1)
				} else if filepath.IsAbs(line) {
					out = append(out, line)
				}
			}
			f.Close()
		}
	}
	read("/etc/ld.so.conf", 0)
	usual, _ := filepath.Glob("/usr/lib/*-linux-gnu")
	out = append(out, usual...)
	return append(out, "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
}

// tree writes a directory or file, and what programs and libraries in it need.
func (h *host) tree(top string, skip func(rel string) bool) error {
	real, err := filepath.EvalSymlinks(top)
	if err != nil {
		return err
	}
	var modules []string
	err = filepath.WalkDir(real, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := h.ctx.Err(); err != nil {
			return context.Cause(h.ctx)
		}
		rel, err := filepath.Rel(real, file)
		if err != nil {
			return err
		}
		shown := filepath.Join(top, rel)
		if rel == "." {
			shown = top
		} else if skip(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			if filepath.IsLocal(filepath.Join(filepath.Dir(rel), target)) && !filepath.IsAbs(target) {
				return h.put(shown, &tar.Header{Typeflag: tar.TypeSymlink, Linkname: target}, nil)
			}
			if fi, err := os.Stat(file); err != nil || !fi.Mode().IsRegular() {
				return nil // its target is not in the image
			}
		case !d.Type().IsRegular():
			return nil
		}
		if strings.HasSuffix(rel, ".so") {
			modules = append(modules, file)
		}
		return h.file(shown)
	})
	if err != nil {
		return err
	}
	slices.Sort(modules)
	for _, m := range modules {
		if err := h.needs(m); err != nil {
			return err
		}
	}
	return nil
}

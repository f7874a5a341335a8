package build

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Limits of what wheels may hold.
const (
	maxWheelFiles = 500000 // and directories
	maxWheelPath  = 1024
	maxWheelDepth = 32
	maxWheelBytes = 32 << 30
	maxOneWheel   = 8 << 30
	maxMetadata   = 4 << 20
	maxWheelList  = 64 << 20 // bytes, for the list of a wheel's files
	maxFirstLine  = 4096     // of a script
)

// built is the time of every file of a layer, so that the same packages always
// make the same image.
var built = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var wheelName = lazyregexp.New(`^[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+(-[0-9][A-Za-z0-9_.]*)?-[a-z0-9_.]+-[a-z0-9_.]+-[a-z0-9_.]+\.whl$`)

// wheelsIn returns the downloaded wheels, sorted.
func wheelsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !wheelName().MatchString(e.Name()) || !e.Type().IsRegular() {
			return nil, fmt.Errorf("pip downloaded %q, which is not a wheel", e.Name())
		}
		out = append(out, e.Name())
	}
	if len(out) == 0 {
		return nil, errors.New("pip downloaded nothing")
	}
	slices.Sort(out)
	return out, nil
}

// installation is a layer of packages that is being written.
type installation struct {
	target *Target
	python string // of the base, for scripts
	below  string // the folder to which the names in the archive are relative; empty: the root

	w       *tar.Writer
	modules []string        // paths of .py files in the image
	tops    map[string]bool // names that code can import
	written map[string]bool // paths, of which only the first counts; nil: the last does
	sources bool            // byte code of wheels is not installed
	dirs    map[string]bool // directories of what was written
	files   int             // and directories
	bytes   int64
}

// write installs the wheels into an archive.
func (in *installation) write(ctx context.Context, w io.Writer, dir string, wheels []string) error {
	in.w = tar.NewWriter(w)
	for _, name := range wheels {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := in.wheel(filepath.Join(dir, name)); err != nil {
			return &WheelError{name, err}
		}
	}
	return in.w.Close()
}

// A WheelError reports a wheel that cannot be unpacked.
type WheelError struct {
	File string
	Err  error
}

func (e *WheelError) Error() string {
	text := fmt.Sprintf("the wheel %s: %v", e.File, e.Err)
	if errors.As(e.Err, new(*fs.PathError)) { // of this machine
		return text
	}
	return text + ": choose another version of the package"
}

// Unwrap returns what is wrong with it.
func (e *WheelError) Unwrap() error { return e.Err }

func (in *installation) wheel(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	list := &listReader{f, maxWheelList}
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(list, stat.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are checked here
		return err
	}
	list.left = math.MaxInt64
	info, whole := "", uint64(0)
	for _, f := range z.File {
		if whole += f.UncompressedSize64; f.UncompressedSize64 > maxOneWheel || whole > maxOneWheel {
			return fmt.Errorf("it unpacks to more than %d GiB", maxOneWheel>>30)
		}
		if top, rest, _ := strings.Cut(f.Name, "/"); rest == "WHEEL" && strings.HasSuffix(top, ".dist-info") {
			if info != "" && info != top {
				return errors.New("it has two folders .dist-info")
			}
			info = top
		}
	}
	if info == "" {
		return errors.New("it has no folder .dist-info")
	}
	lib, err := in.library(z, info)
	if err != nil {
		return err
	}
	data := strings.TrimSuffix(info, ".dist-info") + ".data"
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		to, script, err := in.place(f.Name, data, lib)
		if err != nil {
			return err
		}
		if in.sources && slices.Contains(strings.Split(f.Name, "/"), "__pycache__") {
			continue // the place of what is compiled here
		}
		if to != "" {
			in.note(f.Name, data)
			if err := in.copy(f, to, script); err != nil {
				return fmt.Errorf("%.200q: %w", f.Name, err)
			}
		}
	}
	return in.entryPoints(z, info)
}

// A listReader reads a wheel, and fails after so many bytes: the list of its files
// takes several times as much memory.
type listReader struct {
	io.ReaderAt
	left int64
}

func (r *listReader) ReadAt(p []byte, at int64) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		return 0, errors.New("it has too many files")
	}
	return r.ReaderAt.ReadAt(p, at)
}

var (
	identifier = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	moduleFile = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)(\.py|\.[A-Za-z0-9_-]+\.so|\.so)$`)
)

// note notes the top-level name that code can import thanks to a file.
func (in *installation) note(name, data string) {
	if rest, ok := strings.CutPrefix(name, data+"/"); ok {
		kind, rest, _ := strings.Cut(rest, "/")
		if kind != "purelib" && kind != "platlib" {
			return
		}
		name = rest
	}
	top, rest, folder := strings.Cut(name, "/")
	if !folder {
		m := moduleFile().FindStringSubmatch(name)
		if m == nil {
			return
		}
		top = m[1]
	} else if !strings.HasSuffix(rest, ".py") && !strings.HasSuffix(rest, ".so") || !identifier().MatchString(top) {
		return
	}
	if in.tops == nil {
		in.tops = map[string]bool{}
	}
	in.tops[top] = true
}

// names returns the names that code can import, sorted.
func (in *installation) names() []string { return slices.Sorted(maps.Keys(in.tops)) }

// library returns where a wheel's packages go, according to the wheel.
func (in *installation) library(z *zip.Reader, info string) (string, error) {
	text, err := member(z, info+"/WHEEL")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(strings.TrimSpace(key), "Root-Is-Purelib") && strings.EqualFold(strings.TrimSpace(value), "true") {
			return in.target.Purelib, nil
		}
	}
	return in.target.Platlib, nil
}

// member reads a small file of a wheel. A missing file reads as empty.
func member(z *zip.Reader, name string) (string, error) {
	for _, f := range z.File {
		if f.Name != name {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return "", err
		}
		defer r.Close()
		raw, err := io.ReadAll(io.LimitReader(r, maxMetadata))
		return string(raw), err
	}
	return "", nil
}

// place returns the path in the image of a wheel's file, or "" if it is not
// installed.
func (in *installation) place(name, data, lib string) (to string, script bool, err error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name || strings.ContainsAny(name, "\\\x00") {
		return "", false, fmt.Errorf("the name %.200q leads out of the wheel", name)
	}
	if len(name) > maxWheelPath || strings.Count(name, "/") >= maxWheelDepth {
		return "", false, fmt.Errorf("the name %.200q is too long, or lies too deep", name)
	}
	rest, ok := strings.CutPrefix(name, data+"/")
	if !ok {
		return path.Join(lib, name), false, nil
	}
	kind, rest, _ := strings.Cut(rest, "/")
	if rest == "" {
		return "", false, fmt.Errorf("the name %.200q is not allowed in a wheel", name)
	}
	switch kind {
	case "purelib":
		return path.Join(in.target.Purelib, rest), false, nil
	case "platlib":
		return path.Join(in.target.Platlib, rest), false, nil
	case "scripts":
		return path.Join(in.target.Scripts, rest), true, nil
	case "data":
		return path.Join(in.target.Data, rest), false, nil
	}
	return "", false, nil // headers are for compilers
}

func (in *installation) copy(f *zip.File, to string, script bool) error {
	mode := int64(0o644)
	if f.Mode()&fs.ModeType != 0 {
		return errors.New("this is not a regular file")
	}
	if script || f.Mode()&0o100 != 0 {
		mode = 0o755
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if script {
		return in.script(r, f, to)
	}
	if f.UncompressedSize64 > maxWheelBytes {
		return errors.New("it is too large")
	}
	if strings.HasSuffix(to, ".py") {
		in.modules = append(in.modules, to)
	}
	return in.put(to, mode, int64(f.UncompressedSize64), r)
}

// script writes a script, and replaces a first line that names Python.
func (in *installation) script(r io.Reader, f *zip.File, to string) error {
	b := bufio.NewReaderSize(r, maxFirstLine)
	size := int64(f.UncompressedSize64)
	const ask = "#!python"
	head, _ := b.Peek(len(ask))
	if string(head) != ask {
		return in.put(to, 0o755, size, b)
	}
	first, err := b.ReadSlice('\n') // no longer than the buffer
	if err != nil {
		return fmt.Errorf("its first line: %w", err)
	}
	begin := "#!" + in.python + "\n"
	return in.put(to, 0o755, size-int64(len(first))+int64(len(begin)), io.MultiReader(strings.NewReader(begin), b))
}

var (
	entrySection = lazyregexp.New(`^\[(\w+)\]$`)
	entryPoint   = lazyregexp.New(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*=\s*([A-Za-z_][A-Za-z0-9_.]*)\s*:\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(\[.*\])?$`)
)

// entryPoints writes the programs that a wheel declares.
func (in *installation) entryPoints(z *zip.Reader, info string) error {
	text, err := member(z, info+"/entry_points.txt")
	if err != nil {
		return err
	}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := entrySection().FindStringSubmatch(line); m != nil {
			section = m[1]
			continue
		}
		m := entryPoint().FindStringSubmatch(line)
		if section != "console_scripts" || m == nil {
			continue
		}
		first, _, _ := strings.Cut(m[3], ".")
		program := fmt.Sprintf("#!%s\nimport sys\nfrom %s import %s\nsys.exit(%s())\n", in.python, m[2], first, m[3])
		if err := in.put(path.Join(in.target.Scripts, m[1]), 0o755, int64(len(program)), strings.NewReader(program)); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the name in the archive of a path in the sandbox.
func (in *installation) entry(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path.Join("/", name), in.below), "/")
}

// put writes a file of the image.
func (in *installation) put(to string, mode, size int64, r io.Reader) error {
	if in.dirs == nil {
		in.dirs = map[string]bool{}
	}
	for dir := path.Dir(to); len(dir) > 1 && !in.dirs[dir]; dir = path.Dir(dir) {
		in.dirs[dir] = true
		in.files++
	}
	if in.files++; in.files > maxWheelFiles {
		return fmt.Errorf("more than %d files and directories", maxWheelFiles)
	}
	if in.bytes += size; size < 0 || in.bytes > maxWheelBytes {
		return fmt.Errorf("more than %d GiB", maxWheelBytes>>30)
	}
	name := in.entry(to)
	if in.written[name] {
		return nil
	}
	if in.written != nil {
		in.written[name] = true
	}
	if err := in.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size, ModTime: built, Format: tar.FormatPAX}); err != nil {
		return err
	}
	n, err := io.Copy(in.w, io.LimitReader(r, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

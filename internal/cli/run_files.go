package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/folder"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Limits on what --file sends. It is held in memory.
const (
	maxSent      = 96 << 20
	maxSentFiles = 4096
)

// readFiles reads the files and directories that --file names, each under its
// own name or the one after an equals sign.
func readFiles(args []string) ([]sandbox.File, error) {
	var files []sandbox.File
	total := int64(0)
	add := func(from, to string, info fs.FileInfo) error {
		if total += info.Size(); total > maxSent {
			return fmt.Errorf("--file: more than %d MiB in all", maxSent>>20)
		}
		if len(files) == maxSentFiles {
			return fmt.Errorf("--file: more than %d files", maxSentFiles)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, sandbox.File{Path: to, Data: data, Mode: uint32(info.Mode().Perm()) | 0o400})
		return nil
	}
	if err := eachFile("--file", args, add); err != nil {
		return nil, err
	}
	spec := sandbox.Spec{ID: "files", Files: files}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	return files, nil
}

// eachFile calls add for each of the files, and those below directories, that a flag
// names, under its own name or the one after an equals sign.
func eachFile(flag string, args []string, add func(from, to string, info fs.FileInfo) error) error {
	for _, arg := range args {
		from, to := splitFile(arg)
		info, err := os.Stat(from)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		to = path.Clean(to)
		if !filepath.IsLocal(to) || to == "." && !info.IsDir() {
			return fmt.Errorf("%s %s: %s is not a place below /workspace (write SRC=DEST)", flag, arg, to)
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return fmt.Errorf("%s %s: not a file or a directory", flag, arg)
			}
			if err := add(from, to, info); err != nil {
				return err
			}
			continue
		}
		err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() { // links may lead anywhere
				return err
			}
			below, err := filepath.Rel(from, name)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return add(name, path.Join(to, filepath.ToSlash(below)), info)
		})
		if err != nil {
			return fmt.Errorf("%s %s: %w", flag, arg, err)
		}
	}
	return nil
}

// readMounts reads and checks the folders that --mount names.
func readMounts(rules folder.Rules, args []string) ([]sandbox.Mount, error) {
	var mounts []sandbox.Mount
	for _, arg := range args {
		m, err := rules.Read(arg)
		if err != nil {
			return nil, fmt.Errorf("--mount: %w", err)
		}
		mounts = append(mounts, m)
	}
	if err := sandbox.CheckMounts(mounts); err != nil {
		return nil, fmt.Errorf("--mount: %w", err)
	}
	return mounts, nil
}

// splitFile splits SRC=DEST. An existing file whose name contains an equals
// sign is taken as is.
func splitFile(arg string) (from, to string) {
	if _, err := os.Stat(arg); err == nil {
		return arg, filepath.Base(filepath.Clean(arg))
	}
	if i := strings.LastIndexByte(arg, '='); i > 0 && i < len(arg)-1 {
		return arg[:i], arg[i+1:]
	}
	return arg, filepath.Base(filepath.Clean(arg))
}

// outDir is a directory for files that code has left. It is created together
// with the first of them.
type outDir struct {
	dir  string
	err  io.Writer // for messages
	root *os.Root
}

// out returns the directory that a user named with --out, which must not be another
// kind of file.
func (u *ui) out(dir string) (*outDir, error) { return u.outAs("--out", dir) }

// outAs is out for a flag of another name.
func (u *ui) outAs(flag, dir string) (*outDir, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s %s: not a directory", flag, dir)
	}
	return &outDir{dir: dir, err: u.stdio.Err}, nil
}

func (o *outDir) close() {
	if o.root != nil {
		_ = o.root.Close()
	}
}

// create creates a file. It stays below the directory, whatever its name and
// whatever links are there, and replaces nothing: if its name is taken it gets
// another. done must be called; with false, or after an error, nothing is left.
func (o *outDir) create(name string) (content io.Writer, done func(whole bool) error, err error) {
	return o.createAs(name, 0o666)
}

// createAs is create with other permissions, of which the umask takes some.
func (o *outDir) createAs(name string, mode fs.FileMode) (content io.Writer, done func(whole bool) error, err error) {
	if o.root == nil {
		if err := os.MkdirAll(o.dir, 0o777); err != nil {
			return nil, nil, err
		}
		if o.root, err = os.OpenRoot(o.dir); err != nil {
			return nil, nil, err
		}
	}
	name = filepath.FromSlash(name)
	var to *os.File
	as := name
	for n := 1; ; n++ {
		if to, err = o.open(as, mode); err == nil {
			break
		}
		if n > maxOtherNames || !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, nil, err
		}
		as = otherName(name, n, !errors.Is(err, errTaken))
	}
	w := bufio.NewWriterSize(to, 256<<10)
	return w, func(whole bool) error {
		err := errors.Join(w.Flush(), to.Close())
		if !whole || err != nil {
			_ = o.root.Remove(as)
			return err
		}
		said := filepath.Join(o.dir, as)
		if as != name {
			said += " (" + filepath.Join(o.dir, name) + " already existed)"
		}
		fmt.Fprintln(o.err, "sallyport: "+invisible.Escape(said))
		return nil
	}, nil
}

// maxOtherNames is how many names to try for a file.
const maxOtherNames = 9999

// errTaken reports that a file, or something else, of that name exists.
var errTaken = errors.New("the name is taken")

func (o *outDir) open(name string, mode fs.FileMode) (*os.File, error) {
	if dir := filepath.Dir(name); dir != "." {
		if err := o.root.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
	}
	to, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: %w", errTaken, err)
	}
	return to, err
}

// otherName returns a name with a number: plot-1.png. If a file has the name of
// a directory, the number goes to the outermost directory.
func otherName(name string, n int, ofDirectory bool) string {
	if first, rest, ok := strings.Cut(name, string(filepath.Separator)); ok && ofDirectory {
		return filepath.Join(fmt.Sprintf("%s-%d", first, n), rest)
	}
	ext := filepath.Ext(name)
	if filepath.Base(name) == ext {
		ext = "" // .bashrc
	}
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
}

// fetched copies the files that a batch run left.
func (c *runCmd) fetched(u *ui, sys *app.System, r *broker.Result, out *outDir) error {
	record, err := sys.Runs.Get(r.Run)
	if err != nil {
		return err
	}
	return u.copyRun(sys.Runs, record, out, false)
}

// left says what became of the files that the program left, pictures first; those that
// Python and others keep for themselves do not count.
func (c *runCmd) left(r *broker.Result) (lines []string) {
	if c.Out != "" || c.Session != "" || r.Run != "" {
		return nil
	}
	var kept, lost []string
	for _, picture := range []bool{true, false} {
		for _, a := range r.Artifacts {
			own := slices.ContainsFunc(strings.Split(a.Path, "/"), func(part string) bool { return strings.HasPrefix(part, ".") || part == "__pycache__" })
			switch {
			case own || picture != slices.Contains(pictures, strings.ToLower(path.Ext(a.Path))):
			case a.URI != "":
				kept = append(kept, invisible.Line(a.Path))
			default:
				lost = append(lost, invisible.Line(a.Path))
			}
		}
	}
	if len(kept) > 0 {
		lines = append(lines, fmt.Sprintf("kept: %s; to get such files: sallyport artifacts save %s", firstNames(kept), r.Kept()))
	}
	if len(lost) > 0 {
		lines = append(lines, fmt.Sprintf("lost with the sandbox: %s; to keep such files: sallyport run --out DIR …", firstNames(lost)))
	}
	return lines
}

// firstNames names the first few files.
func firstNames(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// pictures are the names' ends of what a client would show.
var pictures = []string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"}

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
	"strings"
	"syscall"

	"sallyport/internal/broker"
	"sallyport/internal/hidden"
	"sallyport/internal/sandbox"
)

// Bounds of what --file sends along. It passes through memory.
const (
	maxSent      = 96 << 20
	maxSentFiles = 4096
)

// readFiles reads what --file names: files, and directories with all that is in
// them, each under its own name or after an equals sign.
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
	for _, arg := range args {
		from, to := splitFile(arg)
		info, err := os.Stat(from)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		to = path.Clean(to)
		if !filepath.IsLocal(to) || to == "." && !info.IsDir() {
			return nil, fmt.Errorf("--file %s: %s is not a place below /workspace (write SRC=DEST)", arg, to)
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("--file %s: not a file or a directory", arg)
			}
			if err := add(from, to, info); err != nil {
				return nil, err
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
			return nil, fmt.Errorf("--file %s: %w", arg, err)
		}
	}
	spec := sandbox.Spec{ID: "files", Files: files}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	return files, nil
}

// splitFile takes SRC=DEST apart. A file that has an equals sign in its name is
// taken for itself.
func splitFile(arg string) (from, to string) {
	if _, err := os.Stat(arg); err == nil {
		return arg, filepath.Base(filepath.Clean(arg))
	}
	if i := strings.LastIndexByte(arg, '='); i > 0 && i < len(arg)-1 {
		return arg[:i], arg[i+1:]
	}
	return arg, filepath.Base(filepath.Clean(arg))
}

// outDir is a directory for files that code has left. It is made with the first
// of them.
type outDir struct {
	dir  string
	err  io.Writer // for people
	root *os.Root
}

// out is the directory that a user named, which must not be something else.
func (a *app) out(dir string) (*outDir, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("--out %s: not a directory", dir)
	}
	return &outDir{dir: dir, err: a.stdio.Err}, nil
}

func (o *outDir) close() {
	if o.root != nil {
		_ = o.root.Close()
	}
}

// create begins a file. It stays below the directory, whatever its name and
// whatever links lie there, and replaces nothing: where its name is taken it gets
// another. done must be called; with false, or after an error, nothing is left.
func (o *outDir) create(name string) (content io.Writer, done func(whole bool) error, err error) {
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
		if to, err = o.open(as); err == nil {
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
			said += " (" + filepath.Join(o.dir, name) + " was there already)"
		}
		fmt.Fprintln(o.err, "sallyport: "+hidden.Escape(said))
		return nil
	}, nil
}

// maxOtherNames is how many names are tried for a file.
const maxOtherNames = 9999

// errTaken: there is a file, or anything else, of that name.
var errTaken = errors.New("the name is taken")

func (o *outDir) open(name string) (*os.File, error) {
	if dir := filepath.Dir(name); dir != "." {
		if err := o.root.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
	}
	to, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: %w", errTaken, err)
	}
	return to, err
}

// otherName is a name with a number: plot-1.png. Where a directory's name is
// taken by a file, the number goes to the outermost directory.
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

// fetched copies what a run elsewhere left.
func (c *runCmd) fetched(a *app, sys *system, r *broker.Result, out *outDir) error {
	record, err := sys.runs.Get(r.Run)
	if err != nil {
		return err
	}
	return a.copyRun(sys.runs, record, out, false)
}

// statusLines prints how a run elsewhere goes, each change on a line.
func (a *app) statusLines() func(string) {
	last := ""
	return func(text string) {
		if text != "" && text != last {
			last = text
			fmt.Fprintln(a.stdio.Err, "sallyport: "+hidden.Escape(text))
		}
	}
}

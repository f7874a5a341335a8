package definitions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
)

// Bounds of what is read.
const (
	MaxFileSize = 128 << 20
	maxFiles    = 1000
	maxServers  = 5000
	maxShadowed = 50
)

// Bounds of what is read from a project's folder, which may be anyone's: of all
// its files together, including those that its definitions name.
const (
	maxProjectBytes    = 1 << 20
	maxProjectFiles    = 100
	maxProjectServers  = 200
	maxProjectProblems = 100
)

// Options of Load.
type Options struct {
	Env  Environment // for variables; nil: none are set
	Home string      // for ~
	Dir  string      // the working directory, for what clients keep for a folder
	Self Self
	// AllowSelf takes definitions that start this program, too.
	AllowSelf bool
	// Check returns why a definition can never be started, which is then a
	// problem; nil: nothing is checked.
	Check func(Definition) error
	// Offer returns why a definition of a project waits; nil: all are offered.
	Offer func(project string, d Definition) Offer
	// Places leads to restrictions that are kept in other files.
	Places Places
	Cache  *Cache // nil: every file is read

	translate bool // see Translate
}

// Result is what Read found.
type Result struct {
	Definitions []Definition
	Problems    []Problem
	// Paths lists every file and directory that could have an effect, whether it
	// exists or not.
	Paths []string
}

// Load reads all sources. If a name is defined more than once, the first
// definition counts: sources in the order given, files of a directory in the
// order of their names, entries in the order of their file. Definitions that
// are only offered come after all others. The result is sorted by name; each
// definition lists those that it hides.
//
// What cannot be used is a Problem; Load itself does not fail.
func Load(sources []Source, opts Options) ([]Definition, []Problem) {
	r := Read(sources, opts)
	return r.Definitions, r.Problems
}

// Read is like Load, but also returns where it looked.
func Read(sources []Source, opts Options) Result {
	l := newLoader(opts)
	for _, source := range sources {
		if source.Dir != "" {
			l.dir(source)
		}
		if source.File != "" {
			l.file(source)
		}
	}
	l.finish()
	return Result{l.defs, l.problems, l.paths}
}

func newLoader(opts Options) *loader {
	if opts.Env == nil {
		opts.Env = func(string) (string, bool) { return "", false }
	}
	return &loader{opts: opts, byName: make(map[string]int), project: maxProjectBytes}
}

type loader struct {
	opts     Options
	defs     []Definition
	byName   map[string]int // index into defs
	problems []Problem
	// notOfProject lists servers of a project that the user switched off.
	notOfProject []string
	translated   []Translated
	project      int64 // bytes that may still be read of a project
	servers      int   // servers of a project, so far
	complaints   int   // problems of a project
	// paths lists what was looked at, in order.
	paths []string

	claude struct { // variables of Claude Code's settings
		read          bool
		user, project map[string]string
	}
}

func (l *loader) problem(file string, line int, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (l *loader) dir(source Source) {
	l.paths = append(l.paths, source.Dir)
	names, err := readDir(source.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) && source.Project != "" {
		return
	}
	if err != nil {
		l.problem(source.Dir, 0, "cannot be read: %v", reason(err))
		return
	}
	n := 0
	for _, name := range names {
		// Hidden files belong to editors and file systems.
		if !source.reads(name) || strings.HasPrefix(name, ".") {
			continue
		}
		most := maxFiles
		if source.Project != "" {
			most = maxProjectFiles
		}
		if n++; n > most {
			l.problem(source.Dir, 0, "more than %d files; the rest is not read", most)
			return
		}
		one := source
		one.File = filepath.Join(source.Dir, name)
		l.file(one)
	}
}

// room returns how much may still be read, which readers subtract from. It is
// nil if only the bound of each file applies.
func (l *loader) room(project bool) *int64 {
	if !project {
		return nil
	}
	return &l.project
}

// readFrom is readFile with a limit on what may still be read.
func readFrom(path string, limit int64, room *int64) ([]byte, os.FileInfo, error) {
	if room == nil {
		return readFile(path, limit)
	}
	if *room < limit {
		limit = *room
	}
	data, info, err := readFile(path, limit)
	*room -= int64(len(data))
	var large tooLarge
	if errors.As(err, &large) {
		*room, err = 0, errProjectTooLarge // do not try it again for every definition
	}
	return data, info, err
}

var errProjectTooLarge = fmt.Errorf("the files of the project are larger than %d KiB together; this one and what follows is not read", maxProjectBytes>>10)

// tooLarge is the error for a file that is larger than this many bytes.
type tooLarge int64

func (t tooLarge) Error() string { return fmt.Sprintf("larger than %d MB", int64(t)>>20) }

// readDir returns the names in a directory, sorted and bounded in number. It
// does not block, whatever the path leads to.
func readDir(path string) ([]string, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(10 * maxFiles)
	if errors.Is(err, io.EOF) { // it is empty
		err = nil
	}
	slices.Sort(names)
	return names, err
}

func (l *loader) file(source Source) {
	l.paths = append(l.paths, source.File)
	d := source.dialect
	if d == nil {
		d = own
		if guess := dialectOf(source.File); guess != nil && source.Name != NameMCPs {
			d = guess
		}
	}
	root, err := l.opts.Cache.tree(source.File, d, l.room(source.Project != ""))
	var bad *parseError
	switch {
	case source.Optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir)):
	case errors.As(err, &bad):
		l.problem(source.File, bad.line, "%s", bad.reason)
	case err != nil:
		l.problem(source.File, 0, "cannot be read: %v", reason(err))
	default:
		l.take(source, d, root)
	}
}

// ReadFile reads a regular file of bounded size. It does not block, whatever
// the path leads to.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readFile(path, limit)
	return data, err
}

func readFile(path string, limit int64) ([]byte, os.FileInfo, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(data)) > limit {
		return nil, nil, tooLarge(limit)
	}
	return data, info, nil
}

// reason strips the path from an error, which a Problem already names.
func reason(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// take reads the definitions of one file.
func (l *loader) take(source Source, d *dialect, root *node) {
	if root.kind != '{' {
		l.problem(source.File, root.line, "must be an object with a member %s, not %s", d.paths[0][0], root.what())
		return
	}
	f := &fileReader{loader: l, source: source, dialect: d, root: root}
	f.read()
}

// finish sorts everything.
func (l *loader) finish() {
	l.claudeRules()
	for i := range l.defs {
		d := &l.defs[i]
		if d.Source == NameProject && slices.Contains(l.notOfProject, d.Name) {
			d.Disabled = true
		}
		// A fixed order makes two loads of the same files equal.
		slices.Sort(d.DenyTools)
		d.DenyTools = slices.Compact(d.DenyTools)
	}
	slices.SortFunc(l.defs, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

// claudeRules applies what Claude Code's settings forbid to the servers that
// are defined for it. Such a file never allows anything here, so it does not
// matter who wrote it.
func (l *loader) claudeRules() {
	var concerned []*Definition
	for i := range l.defs {
		d := &l.defs[i]
		if d.Source == "claude-code" || d.Source == NameProject && filepath.Base(d.File) == ".mcp.json" {
			concerned = append(concerned, d)
		}
	}
	for _, path := range l.opts.Places.claudeSettings() {
		l.paths = append(l.paths, path)
		if len(concerned) == 0 {
			continue
		}
		root, err := l.opts.Cache.tree(path, claudeRulesFile, l.room(l.opts.Places.Dir != "" && strings.HasPrefix(path, l.opts.Places.Dir+string(filepath.Separator))))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
			continue
		}
		if err != nil {
			l.problem(path, 0, "cannot be read, so that what it forbids is not known: %v", reason(err))
			continue
		}
		for server, tools := range claudeDenies(root) {
			for _, d := range concerned {
				if claudeName(d.Name) == server || d.Name == server {
					d.DenyTools = append(d.DenyTools, tools...)
				}
			}
		}
	}
}

var claudeRulesFile = &dialect{format: edit.JSONC, prune: func(path []string) bool { return path[0] == "permissions" || path[0] == "env" }}

// claudeName returns a server's name as Claude Code's rules spell it.
func claudeName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("a server needs a name")
	case len(name) > maxName:
		return fmt.Errorf("a server's name has at most %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }):
		return errors.New("a server's name has no control characters")
	}
	return nil
}

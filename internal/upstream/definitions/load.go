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
)

// Bounds of what is read.
const (
	MaxFileSize = 16 << 20
	maxFiles    = 1000
	maxServers  = 5000
)

// Source is a file of definitions, or a directory of *.json files, which need
// not exist.
type Source struct {
	File string
	Dir  string
}

// Options of Load.
type Options struct {
	Env  Environment // for ${NAME}; nil: none is set
	Home string      // for ~
	Self Self
	// AllowSelf takes definitions that start this program, too.
	AllowSelf bool
}

// Load reads all sources. Of several definitions of one name the first counts:
// sources in the order given, files of a directory in the order of their names,
// entries in the order of their file. Definitions come sorted by name.
//
// What cannot be used is a Problem; Load itself does not fail.
func Load(sources []Source, opts Options) ([]Definition, []Problem) {
	if opts.Env == nil {
		opts.Env = func(string) (string, bool) { return "", false }
	}
	l := &loader{opts: opts, byName: make(map[string]Definition)}
	for _, source := range sources {
		if source.Dir != "" {
			l.dir(source.Dir)
		}
		if source.File != "" {
			l.file(source.File)
		}
	}
	slices.SortFunc(l.defs, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return l.defs, l.problems
}

type loader struct {
	opts     Options
	defs     []Definition
	byName   map[string]Definition
	problems []Problem
}

func (l *loader) problem(file string, line int, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (l *loader) dir(dir string) {
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.problem(dir, 0, "cannot be read: %v", reason(err))
		return
	}
	n := 0
	for _, entry := range entries {
		name := entry.Name()
		// Hidden files are editors' and file systems' own.
		if !strings.EqualFold(filepath.Ext(name), ".json") || strings.HasPrefix(name, ".") {
			continue
		}
		if n++; n > maxFiles {
			l.problem(dir, 0, "more than %d files; the rest is not read", maxFiles)
			return
		}
		l.file(filepath.Join(dir, name))
	}
}

func (l *loader) file(path string) {
	data, err := readFile(path)
	if err != nil {
		l.problem(path, 0, "cannot be read: %v", reason(err))
		return
	}
	l.parse(path, data)
}

// readFile reads a regular file of bounded size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("larger than %d MB", MaxFileSize>>20)
	}
	return data, nil
}

// reason leaves out the path, which a Problem names already.
func reason(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// parse takes the definitions of one file's content.
func (l *loader) parse(path string, data []byte) {
	root, err := parseTree(data)
	var bad *parseError
	if errors.As(err, &bad) {
		l.problem(path, bad.line, "%s", bad.reason)
		return
	}
	if err != nil {
		l.problem(path, 0, "%v", err)
		return
	}
	if root.kind != '{' {
		l.problem(path, root.line, "must be an object with a member mcpServers, not %s", root.what())
		return
	}
	description := ""
	var servers *node
	for i := range root.members {
		m := &root.members[i]
		switch m.key {
		case "mcpServers":
			servers = &m.value
		case "description":
			if m.value.kind == '"' {
				description = m.value.text
			} else {
				l.problem(path, m.value.line, "description must be a string, not %s", m.value.what())
			}
		case "$schema", "version", "name", "inputs", "//", "_comment", "comment":
		default:
			l.problems = append(l.problems, Problem{File: path, Line: m.line, Warning: true,
				Reason: fmt.Sprintf("unknown key %q is ignored%s", clip(m.key), didYouMean(m.key, []string{"mcpServers", "description"}))})
		}
	}
	switch {
	case servers == nil:
		hint := ""
		if _, ok := root.get("servers"); ok {
			hint = " (its servers must be called mcpServers here)"
		} else if _, ok := root.get("command"); ok {
			hint = ` (write {"mcpServers": {"NAME": …}} around the definition)`
		}
		l.problem(path, 0, "has no member mcpServers%s", hint)
		return
	case servers.kind != '{':
		l.problem(path, servers.line, "mcpServers must be an object, not %s", servers.what())
		return
	}
	for i := range servers.members {
		if len(l.defs) >= maxServers {
			l.problem(path, servers.members[i].line, "more than %d servers; the rest is not read", maxServers)
			return
		}
		l.entry(path, &servers.members[i], description)
	}
}

func (l *loader) entry(path string, m *member, description string) {
	p := &entryParser{file: path, name: m.key, line: m.line, expand: newExpander(l.opts.Env, l.opts.Home)}
	defer func() { l.problems = append(l.problems, p.problems...) }()
	if err := checkName(m.key); err != nil {
		p.fail(m.line, "%v", err)
		return
	}
	if first, taken := l.byName[m.key]; taken {
		p.warn(m.line, "already defined in %s, line %d; that one counts", first.File, first.Line)
		return
	}
	d, ok := p.parse(&m.value, description)
	if !ok {
		return
	}
	if why := l.opts.Self.why(d.Name, d.Launch()); why != "" && !l.opts.AllowSelf {
		p.fail(m.line, "left out, because %s (MCP_BRIDGE_ALLOW_SELF_SERVER=1 allows it)", why)
		return
	}
	l.byName[d.Name] = d
	l.defs = append(l.defs, d)
}

func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("a server needs a name")
	case len(name) > maxName:
		return fmt.Errorf("a server's name has at most %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("a server's name has no control characters")
	}
	return nil
}

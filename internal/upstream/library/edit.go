package library

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// ErrExists reports that a definition of that name is already in the user's own
// folder.
var ErrExists = errors.New("already there")

// Add writes a definition into a file of its own in ~/MCPs and returns the
// file. It never replaces a definition.
func (l *Library) Add(name string, entry json.RawMessage) (string, error) {
	dir := l.config.Places.MCPs()
	if dir == "" {
		return "", errors.New("there is no home directory, and so no ~/MCPs")
	}
	if d, ok := l.Current(true).Get(name); ok && d.Source == definitions.NameMCPs {
		return "", fmt.Errorf("server %q is %w, in %s", name, ErrExists, d.File)
	}
	d, err := definitions.Parse(name, entry, l.parseOptions(), true)
	if err == nil && l.config.Check != nil {
		err = l.config.Check(d)
	}
	if err != nil {
		return "", fmt.Errorf("server %q: %w", name, err)
	}
	text, err := definitions.File(name, entry)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for n := 1; n < 100; n++ {
		path := filepath.Join(dir, fileName(name, n))
		err := create(path, text)
		if errors.Is(err, os.ErrExist) {
			continue // it contains other servers
		}
		return path, err
	}
	return "", fmt.Errorf("%s has no room for a file for %q", dir, name)
}

// Defined returns the file in ~/MCPs that defines a server; empty: none does.
func (l *Library) Defined(name string) string {
	if d, ok := l.Current(true).Get(name); ok && d.Source == definitions.NameMCPs {
		return d.File
	}
	return ""
}

// NewFile returns a path in ~/MCPs for a server, which neither exists nor is
// taken.
func (l *Library) NewFile(name string, taken func(path string) bool) string {
	for n := 1; ; n++ {
		path := filepath.Join(l.config.Places.MCPs(), fileName(name, n))
		if _, err := os.Lstat(path); err != nil && !taken(path) {
			return path
		}
	}
}

// fileName returns the name of the file for a server.
func fileName(name string, n int) string {
	base := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	base = strings.TrimLeft(base, ".")
	if base == "" || reserved[strings.ToLower(strings.SplitN(base, ".", 2)[0])] {
		base = "_" + base
	}
	if n > 1 {
		base = fmt.Sprintf("%s-%d", base, n)
	}
	return base + ".json"
}

// reserved are names that Windows does not allow for files.
var reserved = map[string]bool{"con": true, "prn": true, "aux": true, "nul": true, "com1": true, "com2": true, "com3": true, "lpt1": true, "lpt2": true}

// create writes a whole file, which must not exist.
func create(path string, text []byte) error {
	temporary, err := temporaryFile(path, text)
	if err != nil {
		return err
	}
	// Unlike a rename, a link never replaces a file.
	return errors.Join(os.Link(temporary, path), os.Remove(temporary))
}

// temporaryFile writes a file with a hidden name, which other programs ignore.
func temporaryFile(path string, text []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".sallyport-*") // 0600: it may hold keys
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Remove removes a definition from ~/MCPs, and its file if no other is left in
// it, and returns the file. Files of other programs are not changed.
func (l *Library) Remove(name string) (string, error) {
	d, ok := l.Current(true).Get(name)
	switch {
	case !ok:
		return "", fmt.Errorf("there is no server %q", name)
	case d.Source != definitions.NameMCPs:
		return "", fmt.Errorf("server %q is defined in %s, line %d, which belongs to another program: remove it there, or switch it off with: sallyport servers disable %s", name, d.File, d.Line, terminal.ShellWord(name))
	}
	text, err := definitions.ReadFile(d.File, definitions.MaxFileSize)
	if err != nil {
		return "", err
	}
	rest, more, err := definitions.Without(text, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.File, err)
	}
	if !more {
		err = os.Remove(d.File)
	} else {
		err = l.rewrite(d.File, rest)
	}
	return d.File, errors.Join(err, l.Unswitch(name))
}

// rewrite replaces a file and keeps its mode; a link stays a link.
func (l *Library) rewrite(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	temporary, err := temporaryFile(path, text)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(temporary, info.Mode().Perm()), os.Rename(temporary, path)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// Translate returns the servers of a client, by its name, or of a file, in our
// own form. Servers of a project's file need no trust: the user chose to import
// them.
func (l *Library) Translate(from string) ([]definitions.Translated, []string, error) {
	sources := l.config.Places.ClientSources(from)
	if sources == nil {
		path := from
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(l.config.Places.Home, rest)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, nil, err
		}
		if _, err := os.Stat(path); err != nil {
			names := definitions.SourceNames()
			return nil, nil, fmt.Errorf("%q is neither a file nor a known client; the nearest client: %s", from, strings.Join(definitions.Near(from, names, 3), ", "))
		}
		sources = []definitions.Source{definitions.FileSource(path)}
	}
	opts := l.parseOptions()
	opts.Dir, opts.Places = l.config.Places.Dir, l.config.Places
	found, problems := definitions.Translate(sources, opts)
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	return found, texts, nil
}

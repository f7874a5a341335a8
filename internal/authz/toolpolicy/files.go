package toolpolicy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/settings"
)

// changed reports whether a file differs from when it was read.
func (r *Rules) changed(s *state) bool {
	if r.config.Path == "" {
		return false
	}
	// In a directory that has not changed nothing is new, so what was missing is not
	// looked for: that takes longer, and this is asked before each execution.
	dir := filepath.Dir(r.config.Path)
	now, err := os.Stat(dir)
	gone := errors.Is(err, fs.ErrNotExist)
	unchanged := err == nil && r.listed != nil && os.SameFile(now, r.listed) && now.ModTime().Equal(r.listed.ModTime()) && !recent(now)
	r.listed = now
	for path, before := range s.files {
		if before == nil && (gone || unchanged) && filepath.Dir(path) == dir {
			continue
		}
		info, _ := os.Stat(path)
		if !same(info, before) || info == nil && settings.Dangling(path) != nil {
			return true
		}
	}
	for path, before := range s.ways { // what they have besides does not matter
		if info, err := os.Lstat(path); err != nil || info.Mode() != before.Mode() || !os.SameFile(info, before) {
			return true
		}
	}
	switch {
	case gone:
		return len(s.names) > 0 || settings.Dangling(dir) != nil
	case unchanged:
		return false
	}
	return !slices.Equal(r.names(), s.names)
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// recent reports whether something changed just now: it may change again without a
// trace.
func recent(info fs.FileInfo) bool { return time.Since(info.ModTime()).Abs() < time.Second }

// names returns the names next to the configuration file that a person may have
// written instead of those that are read.
func (r *Rules) names() []string {
	dir := filepath.Dir(r.config.Path)
	out := settings.Lookalikes(r.config.Path)
	entries, _ := os.ReadDir(dir) // the files themselves say what is wrong with it
	for _, e := range entries {
		if e.Name() != Directory && strings.EqualFold(e.Name(), Directory) && !identical(filepath.Join(dir, e.Name()), filepath.Join(dir, Directory)) {
			out = append(out, e.Name())
		}
	}
	return out
}

// identical reports whether two names are of one file, as they are where the file
// system ignores case.
func identical(one, other string) bool {
	a, errA := os.Stat(one)
	b, errB := os.Stat(other)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// read reads everything. Had is what there was until now.
func (r *Rules) read(had Had) *state {
	s := &state{files: map[string]fs.FileInfo{}, ways: map[string]fs.FileInfo{}}
	l := &loading{names: map[string]*Rule{}}
	if r.config.Path != "" {
		r.readAll(s, l, had)
	}
	s.profileFrom = "default"
	if l.profile != "" {
		s.profile, s.profileFrom = max(0, slices.Index(settings.Profiles, l.profile)), fmt.Sprintf("%s:%d", r.config.Path, l.profiled)
	}
	if floor := slices.Index(settings.Profiles, r.config.Profile); floor > s.profile {
		s.profile, s.profileFrom = floor, "a variable or a flag"
	}
	for _, rule := range l.rules {
		switch {
		case rule.verdict.Effect == authz.Deny:
			s.denying = append(s.denying, rule)
		case rule.approved():
			s.approved = append(s.approved, rule)
		default:
			s.others = append(s.others, rule)
		}
	}
	if len(l.problems) > 0 {
		s.broken = &Broken{l.problems}
	}
	return s
}

// readAll reads the configuration file and the directory next to it.
func (r *Rules) readAll(s *state, l *loading, had Had) {
	path := r.config.Path
	dir := filepath.Join(filepath.Dir(path), Directory)
	s.names = r.names()

	content, foreign := s.file(l, path, settings.MaxFile)
	if r.config.Instead != nil {
		content = r.config.Instead
	}
	if content != nil {
		s.config(l, r.config, content)
	} else if len(l.problems) == 0 {
		if err := settings.Missing(path, r.config.Named); err != nil {
			l.wrong(path, "%v", err)
		}
	}
	inConfig := len(l.rules)
	switch vanished := had.Config && inConfig == 0 && l.profile == "" && len(l.problems) == 0; {
	case vanished && len(bytes.TrimSpace(content)) == 0:
		l.wrong(path, "it had rules for calls, and is gone or empty: restore it, or say policy: {profile: open} in it")
	case vanished:
		l.wrong(path, "it had rules for calls or a profile, and has neither now: restore them, or say policy: {profile: open} in it")
	}
	says := had.Config || l.profile != "" || inConfig > 0
	if foreign != "" && says { // else its owner has more to say than rules
		l.wrong(path, "%s", foreign)
	}

	for _, name := range s.names {
		if strings.EqualFold(name, Directory) {
			l.wrong(filepath.Join(filepath.Dir(path), name), "only %s is read: rename it", Directory)
		}
	}
	list := s.list(l, dir)
	for _, path := range list {
		content, foreign := s.file(l, path, maxFile)
		if foreign != "" {
			l.wrong(path, "%s", foreign)
		} else if content != nil {
			(&reader{l, path, short(path)}).extra(content)
		}
	}
	// To remove a file of rules is a decision; a directory may be lost.
	if had.Directory && s.files[dir] == nil && inConfig == 0 && l.profile == "" && len(l.problems) == 0 {
		l.wrong(dir, "it had rules for calls, and is gone: restore it, or say policy: {profile: open} in %s", short(path))
	}
	if says || had.Directory || len(l.rules) > inConfig {
		s.guard(l, path, append([]string{dir}, list...))
	}

	s.had = Had{
		Config:    inConfig > 0 || l.profile != "" && l.profile != settings.Profiles[open],
		Directory: slices.ContainsFunc(l.rules[inConfig:], (*Rule).restricts),
	}
	if len(l.problems) > 0 {
		s.had.Config, s.had.Directory = s.had.Config || had.Config, s.had.Directory || had.Directory
	}
}

// config reads the configuration file: what it says about calls, and whether all
// of it is right. In a file that is not, it may be that rules are not where they
// were meant to be.
func (s *state) config(l *loading, config Config, content []byte) {
	(&reader{l, config.Path, short(config.Path)}).main(content)
	rules := slices.Clone(l.problems)
	problems, needs := settings.CheckFile(config.Path, config.Home, content)
	for _, p := range problems {
		said := func(of settings.Problem) bool { return of.Line == p.Line }
		if p.Line == 0 || !slices.ContainsFunc(rules, said) {
			l.add(p)
		}
	}
	for _, path := range needs {
		info, _ := os.Stat(path) // nil where CheckFile has found it missing
		s.files[path] = info
	}
}

// look notes what is at a path. Nil means that nothing is.
func (s *state) look(l *loading, path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err == nil {
		s.files[path], s.unsettled = info, s.unsettled || recent(info)
		return info
	}
	s.files[path] = nil
	if errors.Is(err, fs.ErrNotExist) {
		err = settings.Dangling(path)
	} else {
		err = fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
	}
	if err != nil {
		s.unsettled = true // once it is right, nothing may look different
		l.wrong(path, "%v", err)
	}
	return nil
}

// file reads a file, and says why others can change it, if they can. The content
// is nil where there is none.
func (s *state) file(l *loading, path string, most int) (content []byte, foreign string) {
	before := s.look(l, path)
	if before == nil {
		return nil, ""
	}
	content, info, err := settings.ReadFile(path, most)
	if err != nil {
		s.unsettled = s.unsettled || errors.Is(err, fs.ErrNotExist)
		l.wrong(path, "%v", err)
		return nil, ""
	}
	if !same(info, before) {
		s.unsettled = true
	}
	return content, remedied(private.Foreign(info))
}

// guard looks for others who can replace what was read: by changing its directory,
// one above, or one that a link leads through.
func (s *state) guard(l *loading, config string, others []string) {
	saw := func(path string, info fs.FileInfo) {
		if info.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
			s.ways[path] = info
		}
	}
	found := map[string]bool{}
	way := func(path, of string) {
		err := private.Way(path, saw)
		rejected, ok := errors.AsType[*private.Rejected](err)
		switch {
		case err == nil:
		case ok:
			if !found[rejected.Cause] {
				found[rejected.Cause] = true
				l.add(settings.Problem{File: of, Message: "the way to it: " + remedied(rejected.Cause), Brief: "other users can change the way to it"})
			}
		case !errors.Is(err, fs.ErrNotExist):
			l.add(settings.Problem{File: of, Message: "the way to it: " + err.Error(), Brief: "the way to it cannot be checked"})
		}
	}
	dir := filepath.Dir(config)
	if info, err := os.Stat(dir); err == nil {
		if why := private.Foreign(info); why != "" && info.Mode()&fs.ModeSticky == 0 {
			saw(dir, info)
			l.wrong(config, "its directory: %s", remedied(why))
			return
		}
	}
	way(dir, config)
	for _, path := range append([]string{config}, others...) {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			way(path, path)
		}
	}
}

// remedied adds what to do about a file that others can change.
func remedied(why string) string {
	if why == "" {
		return ""
	}
	return why + ": make it yours alone (chown, chmod go-w)"
}

// list returns the files of rules in a directory, sorted by name.
func (s *state) list(l *loading, dir string) []string {
	info := s.look(l, dir)
	if info == nil {
		return nil
	}
	if !info.IsDir() {
		l.wrong(dir, "it is not a directory: files of rules are in it")
		return nil
	}
	if why := remedied(private.Foreign(info)); why != "" {
		l.wrong(dir, "%s", why)
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.wrong(dir, "it cannot be read: %v", errors.Unwrap(err))
		return nil
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch ext := filepath.Ext(e.Name()); strings.ToLower(ext) {
		case ".yaml", ".yml", ".json":
			if ext == ".yaml" {
				out = append(out, path)
				continue
			}
			l.wrong(path, "only files named *.yaml are read here: rename it")
			s.look(l, path)
		}
	}
	if len(out) > maxFiles {
		l.wrong(dir, "it has more than %d files", maxFiles)
		return nil
	}
	return out
}

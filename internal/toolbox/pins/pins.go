// Package pins remembers the first form in which each server described its
// tools, prompts, resources and itself. A server that later describes one
// differently, or has an additional one, may have been compromised: models
// follow what they read there. The changed form is kept along with the accepted
// one until the user accepts it.
package pins

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

const (
	format = 2
	// firstFormat is the format of files that had only tools, and not all about
	// them.
	firstFormat = 1
	maxFile     = 64 << 20
)

// Server identifies a server whose tools are pinned. Key names what runs,
// without secrets, in a form fit for a file name: the same program with another
// token is the same server, another program is another one.
type Server struct{ Name, Key string }

// Report compares what a server offers with what was accepted. All lists are
// sorted; tools appear by name, the others as "prompt review" and
// "instructions".
type Report struct {
	Changed []string `json:"changed,omitempty"`
	New     []string `json:"new,omitempty"`
	// Hidden are the tools whose strings contain invisible characters.
	Hidden []string `json:"hidden,omitempty"`
	// The same of prompts, resources, templates and instructions.
	OtherChanged []string `json:"otherChanged,omitempty"`
	OtherNew     []string `json:"otherNew,omitempty"`
	OtherHidden  []string `json:"otherHidden,omitempty"`
}

// Quiet reports whether there are no changes to report.
func (r Report) Quiet() bool { return r.Same(Report{}) }

// Same reports whether two reports have the same changes.
func (r Report) Same(other Report) bool {
	return slices.Equal(r.Changed, other.Changed) && slices.Equal(r.New, other.New) &&
		slices.Equal(r.OtherChanged, other.OtherChanged) && slices.Equal(r.OtherNew, other.OtherNew)
}

// Differences returns the names of everything that changed or is new.
func (r Report) Differences() []string {
	return slices.Concat(r.Changed, r.New, r.OtherChanged, r.OtherNew)
}

// Book holds the pins of all servers. It is safe for concurrent use, including
// by several processes.
type Book struct {
	dir store.Dir
	log *slog.Logger

	mu    sync.Mutex
	known map[string]*known // by key
}

// known is what is kept in memory of a file: enough to see that nothing
// changed.
type known struct {
	modified time.Time
	sections map[Kind]digests
}

type digests struct{ accepted, seen map[string]digest }

type digest = [sha256.Size]byte

// file holds the pins of one server.
type file struct {
	Format   int               `json:"format"`
	Server   string            `json:"server"`
	Since    time.Time         `json:"since"`
	Sections map[Kind]*section `json:"sections"`
	// Accepted and Seen belong to the first format, which had only tools.
	Accepted map[string]Form `json:"accepted,omitempty"`
	Seen     map[string]Form `json:"seen,omitempty"`

	migrated bool // it was of the first format
}

// section holds the items of a kind that have been listed.
type section struct {
	Accepted map[string]Form `json:"accepted"`
	// Seen are the current forms that differ from the accepted ones.
	Seen map[string]Form `json:"seen,omitempty"`
}

// Open returns the pins in a directory. It reads nothing yet.
func Open(dir store.Dir, log *slog.Logger) *Book {
	return &Book{dir: dir, log: log, known: map[string]*known{}}
}

// Check compares what a server describes now with what was accepted. Items of a
// kind listed for the first time are accepted, unless tools of the same server
// have changed. Kinds that are not listed are not compared.
func (b *Book) Check(s Server, all ...Listed) (Report, error) {
	var r Report
	forms := make(map[Kind]map[string]Form, len(all))
	now := make(map[Kind]map[string]digest, len(all))
	for _, l := range all {
		forms[l.kind], now[l.kind] = l.forms, make(map[string]digest, len(l.forms))
		for name, f := range l.forms {
			now[l.kind][name] = f.digest()
		}
		for _, name := range l.hidden {
			add(l.kind, name, &r.Hidden, &r.OtherHidden)
		}
	}
	slices.Sort(r.Hidden)
	slices.Sort(r.OtherHidden)
	k, err := b.load(s)
	if err == nil && (k == nil || !k.agrees(now)) {
		k, err = b.update(s, func(f *file) {
			kinds := slices.Sorted(maps.Keys(forms))
			slices.SortStableFunc(kinds, func(a, b Kind) int { // tools first: the others depend on them
				return cmp.Compare(btoi(b == Tool), btoi(a == Tool))
			})
			for _, kind := range kinds {
				f.compare(kind, forms[kind])
			}
		})
	}
	if err != nil {
		if errors.Is(err, store.ErrNoPlace) {
			return r, nil // there is nothing to compare with, now or later
		}
		return r, err
	}
	k.report(&r)
	return r, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add appends an item to the list of its kind.
func add(kind Kind, name string, tools, others *[]string) {
	if kind == Tool {
		*tools = append(*tools, name)
	} else {
		*others = append(*others, kind.Label(name))
	}
}

// compare records how a server's items of a kind differ from what was accepted.
func (f *file) compare(kind Kind, forms map[string]Form) {
	s := f.Sections[kind]
	if s == nil {
		s = &section{Accepted: maps.Clone(forms)}
		if tools := f.Sections[Tool]; tools != nil && tools.changed() {
			s.Accepted = map[string]Form{}
		}
		f.Sections[kind] = s
	}
	s.Seen = map[string]Form{}
	for name, form := range forms {
		old, ok := s.Accepted[name]
		switch {
		case ok && form.completes(old):
			s.Accepted[name] = form
		case !ok || old.digest() != form.digest():
			s.Seen[name] = form
		}
	}
}

// changed reports whether an accepted item has changed.
func (s *section) changed() bool {
	for name := range s.Seen {
		if _, ok := s.Accepted[name]; ok {
			return true
		}
	}
	return false
}

// Status returns the report as of the last listing of the server, without
// Hidden. It is empty if the server has never been listed.
func (b *Book) Status(s Server) (Report, error) {
	var r Report
	k, err := b.load(s)
	if err == nil && k != nil {
		k.report(&r)
	}
	return r, err
}

// Form returns the accepted form of an item and the one seen last, either of
// which may be nil. An item that has not changed has no second one.
func (b *Book) Form(s Server, kind Kind, name string) (accepted, seen *Form, err error) {
	f, err := b.read(s)
	if f == nil || err != nil || f.Sections[kind] == nil {
		return nil, nil, err
	}
	if form, ok := f.Sections[kind].Accepted[name]; ok {
		accepted = &form
	}
	if form, ok := f.Sections[kind].Seen[name]; ok {
		seen = &form
	}
	return accepted, seen, nil
}

// Difference shows people how an item differs from what was accepted. It takes
// a name from a report.
func (b *Book) Difference(s Server, name string) (string, error) {
	f, err := b.read(s)
	if f == nil || err != nil {
		return "", err
	}
	text := ""
	for kind, section := range f.Sections {
		for item, seen := range section.Seen {
			if kind.Label(item) != name {
				continue
			}
			var accepted *Form
			if form, ok := section.Accepted[item]; ok {
				accepted = &form
			}
			if d := Diff(accepted, &seen); d != "" {
				text += d
			} else {
				text += "+it has only a name\n"
			}
		}
	}
	return text, nil
}

// Approve accepts the seen forms of the items that a report names so, or of
// all, and returns the names of those for which this changed something.
func (b *Book) Approve(s Server, names ...string) ([]string, error) {
	var done []string
	_, err := b.update(s, func(f *file) {
		for kind, section := range f.Sections {
			for name, form := range section.Seen {
				label := kind.Label(name)
				if len(names) == 0 || slices.Contains(names, label) {
					section.Accepted[name] = form
					delete(section.Seen, name)
					done = append(done, label)
				}
			}
		}
	})
	slices.Sort(done)
	return done, err
}

// agrees reports whether the items are those in the file.
func (k *known) agrees(now map[Kind]map[string]digest) bool {
	for kind, items := range now {
		s, ok := k.sections[kind]
		if !ok {
			return false
		}
		differ := 0
		for name, d := range items {
			if old, ok := s.accepted[name]; ok && old == d {
				continue
			}
			if seen, ok := s.seen[name]; !ok || seen != d {
				return false
			}
			differ++
		}
		if differ != len(s.seen) {
			return false
		}
	}
	return true
}

func (k *known) report(r *Report) {
	for kind, s := range k.sections {
		for name := range s.seen {
			if _, ok := s.accepted[name]; ok {
				add(kind, name, &r.Changed, &r.OtherChanged)
			} else {
				add(kind, name, &r.New, &r.OtherNew)
			}
		}
	}
	for _, names := range [][]string{r.Changed, r.New, r.OtherChanged, r.OtherNew} {
		slices.Sort(names)
	}
}

// load returns what is known about a server, or nil if it has no file.
func (b *Book) load(s Server) (*known, error) {
	if b.dir.Path("") == "" {
		return nil, store.ErrNoPlace
	}
	modified := b.modified(s)
	b.mu.Lock()
	k := b.known[s.Key]
	b.mu.Unlock()
	if k != nil && k.modified.Equal(modified) {
		return k, nil
	}
	f, err := b.read(s)
	if f == nil || err != nil {
		return nil, err
	}
	return b.keep(s, f, modified), nil
}

func (b *Book) modified(s Server) time.Time {
	info, err := os.Lstat(b.dir.Path(fileName(s)))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (b *Book) keep(s Server, f *file, modified time.Time) *known {
	of := func(forms map[string]Form) map[string]digest {
		m := make(map[string]digest, len(forms))
		for name, form := range forms {
			m[name] = form.digest()
		}
		return m
	}
	k := &known{modified, make(map[Kind]digests, len(f.Sections))}
	for kind, s := range f.Sections {
		k.sections[kind] = digests{of(s.Accepted), of(s.Seen)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[s.Key] = k
	return k
}

func fileName(s Server) string { return s.Key + ".json" }

// read returns nil if there is no file. It reports a file that cannot be parsed
// and treats it as missing, as if the server were new.
func (b *Book) read(s Server) (*file, error) {
	data, err := b.dir.Read(fileName(s), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f file
	err = json.Unmarshal(data, &f)
	if err == nil && f.Format == firstFormat && f.Accepted != nil {
		f.migrate()
	}
	if err != nil || f.Format != format || f.Sections == nil {
		b.log.Warn("pins: a file is unusable; the server's current descriptions count as accepted",
			"server", s.Name, "file", b.dir.Path(fileName(s)), "error", err)
		return nil, nil
	}
	for kind, section := range f.Sections {
		if section == nil {
			delete(f.Sections, kind)
		} else if section.Accepted == nil {
			section.Accepted = map[string]Form{}
		}
	}
	return &f, nil
}

// migrate upgrades a file of the first format. What it lacks about a tool is
// accepted as soon as what it has agrees.
func (f *file) migrate() {
	for _, forms := range []map[string]Form{f.Accepted, f.Seen} {
		for name, form := range forms {
			form.Partial = true
			forms[name] = form
		}
	}
	f.Sections = map[Kind]*section{Tool: {f.Accepted, f.Seen}}
	f.Format, f.Accepted, f.Seen, f.migrated = format, nil, nil, true
}

// update changes a file under its lock.
func (b *Book) update(s Server, change func(*file)) (*known, error) {
	unlock, err := b.dir.Lock(s.Key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := b.read(s)
	if err != nil {
		return nil, err
	}
	before := []byte("none")
	if f == nil {
		f = &file{Since: time.Now(), Sections: map[Kind]*section{}}
	} else if before, err = json.Marshal(f); err != nil {
		return nil, err
	}
	change(f)
	f.Format, f.Server = format, s.Name
	after, err := json.Marshal(f)
	if err == nil && len(after) > maxFile { // it could not be read again
		err = fmt.Errorf("its descriptions take %d MB; the limit is %d MB", len(after)>>20, maxFile>>20)
	}
	if err == nil && (f.migrated || !bytes.Equal(before, after)) {
		err = b.dir.Write(fileName(s), after)
	}
	if err != nil {
		return nil, fmt.Errorf("recording the tools of %s: %w", s.Name, err)
	}
	if f.migrated {
		b.log.Warn("pins: the annotations and _meta of tools whose descriptions have not changed are recorded from now on, and so are the instructions, prompts and resources of their server",
			"server", s.Name)
	}
	return b.keep(s, f, b.modified(s)), nil
}

// Package pins remembers the first form in which each server described its
// tools. A server that later describes one otherwise, or has one more, may have
// been taken over: what a model reads there are instructions. The changed form
// is kept beside the accepted one until the user accepts it.
package pins

import (
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

	"sallyport/internal/hidden"
	"sallyport/internal/state"
)

const (
	format  = 1
	maxFile = 64 << 20
)

// Server is whose tools are pinned. Key names what runs, without its secrets
// and fit for a file's name: the same program with another token is the same
// server, another program is another one.
type Server struct{ Name, Key string }

// Tool is a tool as its server describes it.
type Tool struct {
	Name, Title, Description  string
	InputSchema, OutputSchema json.RawMessage
}

// Report is how a server's tools stand to what was accepted. All are names of
// tools, sorted.
type Report struct {
	Changed []string `json:"changed,omitempty"`
	New     []string `json:"new,omitempty"`
	// Hidden are tools whose texts hold characters that a person does not see.
	Hidden []string `json:"hidden,omitempty"`
}

// Quiet says that there is nothing to tell of changes.
func (r Report) Quiet() bool { return len(r.Changed) == 0 && len(r.New) == 0 }

// Same says that two reports tell the same of changes.
func (r Report) Same(other Report) bool {
	return slices.Equal(r.Changed, other.Changed) && slices.Equal(r.New, other.New)
}

// Book is the pins of all servers. It is safe for concurrent use, also by
// several processes.
type Book struct {
	dir state.Dir
	log *slog.Logger

	mu    sync.Mutex
	known map[string]*known // by key
}

// known is what is in memory of a file: enough to see that nothing changed.
type known struct {
	modified       time.Time
	accepted, seen map[string]digest
}

type digest = [sha256.Size]byte

// file is the pins of one server.
type file struct {
	Format   int             `json:"format"`
	Server   string          `json:"server"`
	Since    time.Time       `json:"since"`
	Accepted map[string]Form `json:"accepted"`
	// Seen are the forms of today that are not the accepted ones.
	Seen map[string]Form `json:"seen,omitempty"`
}

// Open returns the pins in a directory. It reads nothing yet.
func Open(dir state.Dir, log *slog.Logger) *Book {
	return &Book{dir: dir, log: log, known: map[string]*known{}}
}

// Check compares what a server describes now with what was accepted. The first
// time everything is accepted.
func (b *Book) Check(s Server, tools []Tool) (Report, error) {
	var r Report
	forms := make(map[string]Form, len(tools))
	digests := make(map[string]digest, len(tools))
	for i := range tools {
		t := &tools[i]
		f, secret := form(t)
		forms[t.Name], digests[t.Name] = f, f.digest()
		if secret || len(hidden.In(t.Name)) > 0 {
			r.Hidden = append(r.Hidden, t.Name)
		}
	}
	slices.Sort(r.Hidden)
	k, err := b.load(s)
	if err == nil && (k == nil || !k.agrees(digests)) {
		k, err = b.update(s, func(f *file) {
			if f.Accepted == nil {
				f.Accepted = forms
				return
			}
			f.Seen = map[string]Form{}
			for name, form := range forms {
				if old, ok := f.Accepted[name]; !ok || old.digest() != digests[name] {
					f.Seen[name] = form
				}
			}
		})
	}
	if err != nil {
		if errors.Is(err, state.ErrNoPlace) {
			return r, nil // nothing to compare with, now or ever
		}
		return r, err
	}
	k.report(&r)
	return r, nil
}

// Status is the report as of the last time that somebody looked at the server,
// without what is hidden. Of a server that nobody has looked at it is empty.
func (b *Book) Status(s Server) (Report, error) {
	var r Report
	k, err := b.load(s)
	if err == nil && k != nil {
		k.report(&r)
	}
	return r, err
}

// Form returns the accepted form of a tool and the one that was seen last, each
// nil where there is none. That of a tool that has not changed has no second
// one.
func (b *Book) Form(s Server, tool string) (accepted, seen *Form, err error) {
	f, err := b.read(s)
	if f == nil || err != nil {
		return nil, nil, err
	}
	if form, ok := f.Accepted[tool]; ok {
		accepted = &form
	}
	if form, ok := f.Seen[tool]; ok {
		seen = &form
	}
	return accepted, seen, nil
}

// Approve accepts the forms that were seen, of these tools or of all, and
// returns the names of those that this changed something for.
func (b *Book) Approve(s Server, tools ...string) ([]string, error) {
	var done []string
	_, err := b.update(s, func(f *file) {
		for name, form := range f.Seen {
			if len(tools) == 0 || slices.Contains(tools, name) {
				f.Accepted[name] = form
				delete(f.Seen, name)
				done = append(done, name)
			}
		}
	})
	slices.Sort(done)
	return done, err
}

// agrees says that the tools are those that the file knows of.
func (k *known) agrees(digests map[string]digest) bool {
	differ := 0
	for name, d := range digests {
		if old, ok := k.accepted[name]; ok && old == d {
			continue
		}
		if seen, ok := k.seen[name]; !ok || seen != d {
			return false
		}
		differ++
	}
	return differ == len(k.seen)
}

func (k *known) report(r *Report) {
	for name := range k.seen {
		if _, ok := k.accepted[name]; ok {
			r.Changed = append(r.Changed, name)
		} else {
			r.New = append(r.New, name)
		}
	}
	slices.Sort(r.Changed)
	slices.Sort(r.New)
}

// load returns what is known of a server, or nil for one without a file.
func (b *Book) load(s Server) (*known, error) {
	if b.dir.Path("") == "" {
		return nil, state.ErrNoPlace
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
	digests := func(forms map[string]Form) map[string]digest {
		m := make(map[string]digest, len(forms))
		for name, form := range forms {
			m[name] = form.digest()
		}
		return m
	}
	k := &known{modified, digests(f.Accepted), digests(f.Seen)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[s.Key] = k
	return k
}

func fileName(s Server) string { return s.Key + ".json" }

// read returns nil where there is no file. One that cannot be understood is
// told and counts as none, as if the server were new.
func (b *Book) read(s Server) (*file, error) {
	data, err := b.dir.Read(fileName(s), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil || f.Format != format || f.Accepted == nil {
		b.log.Warn("pins: a file is not usable; what the server describes now counts as accepted",
			"server", s.Name, "file", b.dir.Path(fileName(s)), "error", err)
		return nil, nil
	}
	return &f, nil
}

// update changes a file while nobody else does.
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
	if f == nil {
		f = &file{Since: time.Now()}
	}
	before := file{Accepted: maps.Clone(f.Accepted), Seen: maps.Clone(f.Seen)}
	change(f)
	f.Format, f.Server = format, s.Name
	if f.Accepted == nil {
		f.Accepted = map[string]Form{}
	}
	if before.Accepted == nil || !sameForms(before.Accepted, f.Accepted) || !sameForms(before.Seen, f.Seen) {
		data, err := json.Marshal(f)
		if err == nil && len(data) > maxFile { // it could not be read again
			err = fmt.Errorf("what it describes takes %d MB, of at most %d", len(data)>>20, maxFile>>20)
		}
		if err == nil {
			err = b.dir.Write(fileName(s), data)
		}
		if err != nil {
			return nil, fmt.Errorf("remembering the tools of %s: %w", s.Name, err)
		}
	}
	return b.keep(s, f, b.modified(s)), nil
}

func sameForms(a, b map[string]Form) bool {
	return maps.EqualFunc(a, b, func(x, y Form) bool { return x.digest() == y.digest() })
}

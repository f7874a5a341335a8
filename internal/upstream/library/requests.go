package library

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Bounds of the requests that code can make, and of what it is granted.
const (
	maxRequests = 32
	maxRequest  = 16 << 10
	maxGranted  = 32
)

// Request is a server that code requested.
type Request struct {
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"`
	Time       time.Time       `json:"time"`
	Folder     string          `json:"folder,omitempty"` // where Sallyport ran

	// Parsed is what would be started, with the user's variables inserted.
	Parsed Definition `json:"-"`
}

func (l *Library) requestState() store.Dir { return l.config.State.Area(store.Requests) }

func requestName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// ParseRequest parses the definition of a server that code requests. It inserts
// no variables and reads no files. Errors of this method and of the next two
// may be shown to code.
func (l *Library) ParseRequest(name string, definition json.RawMessage) (Definition, error) {
	if len(definition) > maxRequest {
		return Definition{}, fmt.Errorf("the definition is larger than %d bytes", maxRequest)
	}
	d, err := definitions.Parse(name, definition, definitions.Options{Self: l.config.Self, AllowSelf: l.config.AllowSelf}, false)
	if err != nil {
		return Definition{}, err
	}
	return d, l.free(name)
}

// free returns an error if a server of that name is configured.
func (l *Library) free(name string) error {
	if _, taken := l.Current(true).Get(name); taken {
		return errors.New("a server of this name is configured")
	}
	return nil
}

// AddRequested adds a definition that ParseRequest returned, for the life of
// this process. The caller has decided that code may add it.
func (l *Library) AddRequested(d Definition) error {
	if err := l.free(d.Name); err != nil {
		return err
	}
	d.Source = definitions.NameRequested
	l.mu.Lock()
	if len(l.requested) >= maxGranted {
		l.mu.Unlock()
		return fmt.Errorf("code can add at most %d servers", maxGranted)
	}
	l.requested = append(l.requested, d)
	l.mu.Unlock()
	l.loading.Lock()
	defer l.loading.Unlock()
	l.reload()
	return nil
}

// NoteRequest stores a request, which ParseRequest accepted, for the user to
// decide. It replaces an older request of the same name.
func (l *Library) NoteRequest(name string, definition json.RawMessage) error {
	return l.note(Request{Name: name, Definition: definition, Time: time.Now().UTC().Truncate(time.Second), Folder: l.folder})
}

// addRequested adds the servers granted to code, after everything else.
func (l *Library) addRequested(s *Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.requested {
		if _, taken := s.Get(d.Name); !taken {
			i, _ := slices.BinarySearchFunc(s.Definitions, d.Name, func(d Definition, name string) int { return strings.Compare(d.Name, name) })
			s.Definitions = slices.Insert(s.Definitions, i, d)
		}
	}
}

func (l *Library) note(r Request) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	dir := l.requestState()
	unlock, err := dir.Lock("requests")
	if err != nil {
		return noPlace(err)
	}
	defer unlock()
	files, err := dir.List()
	if err != nil {
		return noPlace(err)
	}
	file := requestName(r.Name)
	if len(files) >= maxRequests && !slices.Contains(files, file) {
		return fmt.Errorf("%d requests are already waiting for the user", len(files))
	}
	if err := dir.Write(file, data); err != nil {
		return noPlace(err)
	}
	l.config.Log.Warn("code requested an MCP server", "name", r.Name, "decide", "sallyport servers approve")
	return nil
}

// noPlace hides the state directory from code.
func noPlace(err error) error {
	if errors.Is(err, store.ErrNoPlace) {
		return errors.New("there is no state directory to record it in")
	}
	return errors.New("it cannot be recorded")
}

// Requests returns the waiting requests, sorted by name, without those that
// cannot be read.
func (l *Library) Requests() []Request {
	dir := l.requestState()
	files, err := dir.List()
	if err != nil {
		return nil
	}
	var out []Request
	for _, file := range files {
		if len(out) >= maxRequests {
			break
		}
		data, err := dir.Read(file, 2*maxRequest)
		var r Request
		if err != nil || json.Unmarshal(data, &r) != nil || requestName(r.Name) != file {
			continue
		}
		r.Parsed, err = definitions.Parse(r.Name, r.Definition, l.parseOptions(), true)
		if err == nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Request) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (l *Library) parseOptions() definitions.Options {
	return definitions.Options{Env: l.config.Places.Env, Home: l.config.Places.Home, Self: l.config.Self, AllowSelf: l.config.AllowSelf}
}

// Requested returns the names of the waiting requests.
func (l *Library) Requested() []string {
	var names []string
	for _, r := range l.Requests() {
		names = append(names, r.Name)
	}
	return names
}

// Approve writes a request, as the user saw it, into the user's own folder, and
// returns the file.
func (l *Library) Approve(r Request) (string, error) {
	path, err := l.Add(r.Name, r.Definition)
	if err != nil {
		return "", err
	}
	return path, l.Refuse(r.Name)
}

// Refuse deletes a request.
func (l *Library) Refuse(name string) error {
	err := l.requestState().Remove(requestName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

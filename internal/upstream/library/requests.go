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

	"sallyport/internal/state"
	"sallyport/internal/upstream/definitions"
)

// Bounds of what code can have written down, and of what it is granted.
const (
	maxRequests = 32
	maxRequest  = 16 << 10
	maxGranted  = 32
)

// Request is a server that code asked for.
type Request struct {
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"`
	Time       time.Time       `json:"time"`
	Folder     string          `json:"folder,omitempty"` // where Sallyport ran

	// Parsed is what would be started, variables of the user's put in.
	Parsed Definition `json:"-"`
}

func (l *Library) requestState() state.Dir { return l.config.State.Sub("requests") }

func requestName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// Request asks for a server on behalf of code. Granted: it is in force from now
// on, for the life of this process. Otherwise the wish was written down.
func (l *Library) Request(name string, definition json.RawMessage) (granted bool, err error) {
	if len(definition) > maxRequest {
		return false, fmt.Errorf("the definition is larger than %d bytes", maxRequest)
	}
	d, err := definitions.Parse(name, definition, definitions.Options{Self: l.config.Self, AllowSelf: l.config.AllowSelf}, false)
	if err != nil {
		return false, err
	}
	if _, taken := l.Current(true).Get(name); taken {
		return false, errors.New("a server of this name is configured")
	}
	if Grants(l.config.Grant, d) {
		return true, l.grant(d)
	}
	return false, l.note(Request{Name: name, Definition: definition, Time: time.Now().UTC().Truncate(time.Second), Folder: l.folder})
}

// grant puts a server into force that code asked for.
func (l *Library) grant(d Definition) error {
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

// addRequested adds what code was granted, after everything else.
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

// note writes a request down. A newer one of the same name takes the place of
// an older one.
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
		return fmt.Errorf("%d requests wait for the user already", len(files))
	}
	if err := dir.Write(file, data); err != nil {
		return noPlace(err)
	}
	l.config.Log.Warn("code asks for an MCP server", "name", r.Name, "decide", "sallyport servers approve")
	return nil
}

// noPlace hides from code where the state lies.
func noPlace(err error) error {
	if errors.Is(err, state.ErrNoPlace) {
		return errors.New("there is no place to note it")
	}
	return errors.New("it cannot be noted")
}

// Requests are those that wait, sorted by name. What cannot be read is left
// out.
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

// Requested names what waits.
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

// Refuse forgets a request.
func (l *Library) Refuse(name string) error {
	err := l.requestState().Remove(requestName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

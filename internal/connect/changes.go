// Package connect changes the files of MCP clients: it shows a change first,
// writes whole files, keeps what was there before, and restores it to the byte.
package connect

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/store"
)

// Change is one file before and after.
type Change struct {
	Client  string // empty: a file of Sallyport's own
	File    string
	Project string      // the folder that the file belongs to, or empty
	Format  edit.Format // of a client's file
	Before  []byte
	Existed bool
	After   []byte

	copy *moved // the file is the copy of a server
}

// Same reports that there is nothing to do.
func (c Change) Same() bool { return c.Existed && bytes.Equal(c.Before, c.After) }

// Diff returns the change in unified form; Notes says what it leaves out. hide
// removes secrets from a line.
func (c Change) Diff(hide func(string) string) string {
	old := c.File
	if !c.Existed {
		old = "/dev/null"
	}
	var b strings.Builder
	for i, line := range strings.SplitAfter(string(diff.Diff(old, plainLines(c.Before), c.File, plainLines(c.After))), "\n") {
		switch {
		case i == 0: // "diff a b", which the next two lines say again
		case i < 3:
			b.WriteString(line)
		default:
			b.WriteString(hide(line))
		}
	}
	return b.String()
}

// Record is what was done at one time, and what is needed to undo it.
type Record struct {
	ID      string    `json:"id"`
	Group   string    `json:"group"` // the same for all records of one command
	Time    time.Time `json:"time"`
	Action  string    `json:"action"`
	Files   []Written `json:"files"`
	Servers []string  `json:"servers,omitempty"` // that were moved
}

// Written is one file of a Record.
type Written struct {
	Client  string `json:"client,omitempty"`
	File    string `json:"file"`
	Project string `json:"project,omitempty"`
	// Backup is the name of the file with the content before; empty: there was no
	// file.
	Backup string `json:"backup,omitempty"`
	// Copy is the name of the file with the content after, for a file that may be
	// changed by its client, or for another client.
	Copy   string      `json:"copy,omitempty"`
	Format edit.Format `json:"format,omitempty"`
	// Server is what a copy defines, and Origin the client that it was copied from.
	Server string `json:"server,omitempty"`
	Origin string `json:"origin,omitempty"`
	// Folders are those that were made for the file, the deepest first.
	Folders []string    `json:"folders,omitempty"`
	Mode    fs.FileMode `json:"mode"`
	Before  string      `json:"before,omitempty"` // SHA-256
	After   string      `json:"after"`
}

// Client returns the client whose file a record changed.
func (r Record) Client() string {
	for _, w := range r.Files {
		if w.Client != "" {
			return w.Client
		}
	}
	return ""
}

// Journal keeps what was changed, in the state directory.
type Journal struct{ Dir store.Dir }

const (
	lockName   = "connections"
	maxRecords = 100
	maxRecord  = 1 << 20
	maxCopies  = 512 << 20
)

// NewGroup returns the group of what one command does.
func NewGroup() string { return rand.Text() }

// ErrChanged reports that a file is no longer what it was.
var ErrChanged = errors.New("it was changed in the meantime")

// Apply writes all changes, or none: if one cannot be written, those before it
// are restored. A file that no longer has the content that a change was made
// from is not written, except for the copy of a server, which another client's
// may share: this client is added to what is there.
func (j Journal) Apply(group, action string, changes []Change, servers ...string) (r Record, err error) {
	unlock, err := j.Dir.Lock(lockName)
	if err != nil {
		return r, err
	}
	defer unlock()
	now := time.Now().UTC()
	r = Record{Group: group, ID: now.Format("20060102T150405.000000000Z"), Time: now, Action: action, Servers: servers}
	changes = slices.Clone(changes)
	for i := range changes {
		w, err := j.keep(r.ID, i, &changes[i])
		r.Files = append(r.Files, w)
		if err != nil {
			return r, errors.Join(err, j.drop(r.Files))
		}
	}
	if err := j.save(r); err != nil { // first: a program that dies in between can be undone
		return r, err
	}
	for i, c := range changes {
		if err := put(c.File, c.Project, c.After, r.Files[i].Mode, c.Before, c.Existed); err != nil {
			// What came before is restored; this file and those after it are as they were.
			rest := r.Files[i:]
			r.Files = r.Files[:i]
			removeEmpty(rest[0].Folders, c.Project)
			return r, errors.Join(fmt.Errorf("%s is not written: %w; %s", c.File, err, advice(c.File, err)), j.undo(r), j.drop(rest))
		}
	}
	j.prune()
	return r, nil
}

// keep checks that a file is what a change was made from, and keeps what is
// needed to undo it.
func (j Journal) keep(id string, i int, c *Change) (w Written, err error) {
	w = Written{Client: c.Client, File: c.File, Project: c.Project, Mode: 0o600}
	if c.Project != "" {
		w.Mode = 0o644
	}
	content, mode, exists, err := look(c.File, c.Project)
	if err == nil && c.copy != nil {
		c.Before, c.Existed = content, exists
		c.After, err = c.copy.add(content, exists)
		w.Server, w.Origin = c.copy.server, c.copy.client
	}
	switch {
	case errors.Is(err, ErrChanged), err == nil && (exists != c.Existed || !bytes.Equal(content, c.Before)):
		return w, fmt.Errorf("%s is not written: %w; run the command again", c.File, ErrChanged)
	case err != nil:
		return w, fmt.Errorf("%s is not written: %w", c.File, err)
	}
	w.After, w.Folders = digest(c.After), missing(c.File, c.Project)
	base := fmt.Sprintf("%s-%d-%s", id, i, strings.TrimLeft(filepath.Base(c.File), "."))
	if exists {
		w.Mode, w.Before, w.Backup = mode, digest(content), base+".bak"
		if err := j.Dir.Write(w.Backup, content); err != nil {
			return w, fmt.Errorf("%s is not written, because what is there now cannot be kept: %w; %s", c.File, err, advice(j.Backup(w), err))
		}
	}
	if c.Client != "" || c.copy != nil {
		w.Copy, w.Format = base+".new", c.Format
		if err := j.Dir.Write(w.Copy, c.After); err != nil {
			return w, fmt.Errorf("%s is not written, because a copy of it cannot be kept: %w; %s", c.File, err, advice(j.Dir.Path(w.Copy), err))
		}
	}
	return w, nil
}

func put(path, project string, content []byte, mode fs.FileMode, expected []byte, existed bool) error {
	f, err := openFile(path, project, true)
	if err != nil {
		return err
	}
	defer f.close()
	return f.write(content, mode, expected, existed)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (j Journal) save(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return j.Dir.Write(r.ID+".json", text)
}

// Records returns what can be undone, the latest first.
func (j Journal) Records() ([]Record, error) {
	names, err := j.Dir.List()
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, name := range names {
		if filepath.Ext(name) != ".json" {
			continue
		}
		text, err := j.Dir.Read(name, maxRecord)
		if err != nil {
			return nil, err
		}
		var r Record
		if json.Unmarshal(text, &r) == nil && r.ID+".json" == name {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(b.ID, a.ID) })
	return out, nil
}

// Backup returns the path of the content before.
func (j Journal) Backup(w Written) string {
	if w.Backup == "" {
		return ""
	}
	return j.Dir.Path(w.Backup)
}

// Undo restores every file of a record to the byte. Where a client has changed
// its file since, it takes back only what was changed then. It changes nothing
// if that is not possible for one of them: the error is ErrChanged then.
func (j Journal) Undo(r Record) error {
	unlock, err := j.Dir.Lock(lockName)
	if err != nil {
		return err
	}
	defer unlock()
	return j.undo(r)
}

func (j Journal) undo(r Record) error {
	todo := make([]restoration, len(r.Files))
	for i, w := range r.Files {
		var err error
		if todo[i], err = j.restoration(w); err != nil {
			return err
		}
	}
	for i, w := range r.Files {
		var err error
		switch do := todo[i]; {
		case do.keep:
			if !do.exists {
				removeEmpty(w.Folders, w.Project)
			}
		case do.drop:
			if err = drop(w.File, w.Project); err == nil {
				removeEmpty(w.Folders, w.Project)
			}
		default:
			err = put(w.File, w.Project, do.content, do.mode, do.found, do.exists)
		}
		if err != nil {
			return fmt.Errorf("%s is not restored: %w; %s", w.File, err, advice(w.File, err))
		}
	}
	return j.forget(r)
}

// restoration is what undoing a change does to a file.
type restoration struct {
	keep, drop bool // else content is written
	content    []byte
	mode       fs.FileMode
	found      []byte // what the file has now, if it exists
	exists     bool
}

func (j Journal) restoration(w Written) (restoration, error) {
	out := restoration{mode: w.Mode}
	content, mode, exists, err := look(w.File, w.Project)
	if err != nil {
		return out, err
	}
	out.found, out.exists = content, exists
	if w.Backup != "" {
		if out.content, err = j.Dir.Read(w.Backup, maxBackup); err != nil {
			return out, fmt.Errorf("the backup of %s cannot be read, so that it cannot be restored: %w", w.File, err)
		}
		if digest(out.content) != w.Before {
			return out, fmt.Errorf("the backup of %s, %s, is not what was kept", w.File, j.Backup(w))
		}
	}
	now := digest(content)
	switch {
	case exists && now == w.After:
		out.drop = w.Backup == ""
		return out, nil
	case exists && w.Backup != "" && now == w.Before, !exists && w.Backup == "": // as it was
		out.keep = true
		return out, nil
	case !exists && w.Origin != "":
		out.keep = true
		return out, nil
	case !exists || w.Copy == "":
		return out, fmt.Errorf("%s is not restored: %w", w.File, ErrChanged)
	}
	after, err := j.Dir.Read(w.Copy, maxBackup)
	if err != nil {
		return out, fmt.Errorf("%s is not restored: %w, and what was written cannot be read: %w", w.File, ErrChanged, err)
	}
	if w.Origin != "" {
		out.content, out.drop, err = takeOut(content, after, w.Server, w.Origin)
	} else {
		out.content, err = edit.Revert(w.Format, content, out.content, after)
	}
	if err != nil {
		return out, fmt.Errorf("%s is not restored: %w: %w", w.File, ErrChanged, err)
	}
	out.keep, out.mode = !out.drop && bytes.Equal(out.content, content), mode
	return out, nil
}

const maxBackup = 129 << 20

func drop(path, project string) error {
	f, err := openFile(path, project, false)
	if err != nil {
		return err
	}
	defer f.close()
	return f.remove()
}

func (j Journal) forget(r Record) error {
	return errors.Join(j.drop(r.Files), j.Dir.Remove(r.ID+".json"))
}

// drop removes the copies of files.
func (j Journal) drop(files []Written) error {
	var errs []error
	for _, w := range files {
		for _, name := range []string{w.Backup, w.Copy} {
			if name == "" {
				continue
			}
			if err := j.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// prune forgets the oldest records, and those whose copies of large files take too
// much of the disk.
func (j Journal) prune() {
	records, err := j.Records()
	if err != nil {
		return
	}
	var size int64
	for i, r := range records {
		for _, w := range r.Files {
			for _, name := range []string{w.Backup, w.Copy} {
				if info, err := os.Stat(j.Dir.Path(name)); err == nil && name != "" {
					size += info.Size()
				}
			}
		}
		if i >= maxRecords || size > maxCopies && r.Group != records[0].Group {
			_ = j.forget(r) // the next time will try again
		}
	}
}

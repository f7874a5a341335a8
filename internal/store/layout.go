package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/private"
)

// Version is the layout of the state directory that this program reads and
// writes. A directory without the file layoutName has layout 1. A later layout
// must come with code here that migrates an older one, under the lock of the
// file.
const Version = 1

const layoutName = "layout.json"

// layout is the content of the file.
type layout struct {
	Version int `json:"version"`
}

// ErrNewer reports that a newer program wrote the state directory.
var ErrNewer = errors.New("the state directory has a newer layout than this program knows")

// An Area is a directory of the state directory. Each has one owner.
type Area string

// The areas. Data with several keys, several writers or a history does not get an
// area of files: it goes into one SQLite database, the file sallyport.db next to
// them, which the first user of it adds.
const (
	Accounted    Area = "accounted"
	Approvals    Area = "approvals"
	Artifacts    Area = "artifacts"
	Audit        Area = "audit"
	Carbon       Area = "carbon"
	Catalog      Area = "catalog"
	Connections  Area = "connections"
	Containers   Area = "containers"
	Environments Area = "environments"
	Eras         Area = "eras"
	Images       Area = "images"
	Kaggle       Area = "kaggle"
	Ledger       Area = "ledger"
	Logins       Area = "logins"
	Logs         Area = "logs"
	Memory       Area = "memory"
	Outbox       Area = "outbox"
	Owners       Area = "owners"
	Packages     Area = "packages"
	Pins         Area = "pins"
	Requests     Area = "requests"
	Results      Area = "results"
	Rules        Area = "rules"
	RunPod       Area = "runpod"
	Runs         Area = "runs"
	SavedTools   Area = "user_tools"
	Servers      Area = "servers"
	Sessions     Area = "sessions"
	Snapshots    Area = "snapshots"
	Spool        Area = "spool"
	Tasks        Area = "tasks"
	Trust        Area = "trust"
	Worker       Area = "worker"
)

// areas describes the content of each, for the user.
var areas = map[Area]string{
	Accounted:    "marks of runs that are in the ledger",
	Approvals:    "questions that wait for an answer, without arguments",
	Artifacts:    "files that code left, with records of where they come from",
	Audit:        "what was done, and who allowed it: a chain of records",
	Carbon:       "the place that was looked up",
	Catalog:      "tools of all servers, as they were last listed, and the types of their results",
	Connections:  "changes in the files of clients, with what was there before",
	Containers:   "files and records of container engines",
	Environments: "environments: locks, and what was built from them",
	Eras:         "protocol revisions that servers speak",
	Images:       "root file systems of images",
	Kaggle:       "records of runs at Kaggle",
	Ledger:       "energy and resource use, a file for each day",
	Logins:       "your logins at servers, sealed, and registrations for them",
	Logs:         "output of sessions",
	Memory:       "values that code keeps, a file for each key",
	Outbox:       "emissions that the dashboard does not have yet",
	Owners:       "memory and saved tools of other owners than you",
	Packages:     "packages that code added to its sessions",
	Pins:         "descriptions of tools that you accepted",
	Requests:     "servers that code asks for",
	Results:      "results of tools that are used again",
	Rules:        "which configuration files had rules for calls",
	RunPod:       "records of runs at RunPod",
	Runs:         "runs of batch services, their output and files",
	SavedTools:   "functions that code saves, with their versions",
	Servers:      "servers that you switched off or on",
	Sessions:     "records of named sessions",
	Snapshots:    "snapshots of suspended sessions and prepared sandboxes",
	Spool:        "messages of servers that find no room in memory",
	Tasks:        "calls whose results come later, and those results",
	Trust:        "servers of project folders that you trust",
	Worker:       "jobs of a worker",
}

// foreign are areas whose files are not checked: roots of images have files of
// every kind and mode.
var foreign = map[Area]bool{Images: true}

// Area returns the directory of an area of the state directory d.
func (d Dir) Area(a Area) Dir { return d.Sub(string(a)) }

// CheckVersion returns ErrNewer if a newer program wrote the state directory,
// and records this program's layout if none is recorded. It is not an error if
// the directory does not exist or cannot be written.
func (d Dir) CheckVersion() error {
	version, err := d.version()
	switch {
	case errors.Is(err, ErrNoPlace):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(d.path); err != nil {
			return nil
		}
		data, err := json.Marshal(layout{Version})
		if err == nil {
			_ = d.Write(layoutName, append(data, '\n')) // a later call may succeed
		}
		return nil
	case err != nil:
		return fmt.Errorf("the state directory: %w", err)
	case version > Version:
		return fmt.Errorf("%w: %s has layout %d, and this program knows up to %d; use a newer sallyport, or another directory with the setting stateDir", ErrNewer, d.path, version, Version)
	}
	return nil
}

func (d Dir) version() (int, error) {
	data, err := d.Read(layoutName, 1<<10)
	if err != nil {
		return 0, err
	}
	var l layout
	if err := json.Unmarshal(data, &l); err != nil || l.Version < 1 {
		return 0, fmt.Errorf("%s does not name a layout; it should be {\"version\": %d}", d.Path(layoutName), Version)
	}
	return l.Version, nil
}

// AreaReport is the result of Check for one area.
type AreaReport struct {
	Name  string `json:"name"`
	Holds string `json:"holds"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Problem is a file or directory that is not as this program leaves it.
type Problem struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
	// Fix says what [Dir.Repair] does about it; empty: nothing can be done without
	// losing what cannot be made again.
	Fix  string `json:"fix,omitempty"`
	kind kind
}

// kind is what is wrong.
type kind int

const (
	other   kind = iota
	exposed      // others may use it
	left         // by a write that was cut short
	broken       // its content is of no use
)

// Made again are the files of these areas where they are missing.
var again = map[Area]bool{Carbon: true, Catalog: true, Eras: true, Results: true}

// fix returns what Repair does.
func (p *Problem) fix() string {
	switch {
	case p.kind == exposed:
		return "make it private"
	case p.kind == left, p.kind == broken && again[areaOf(p.Path)]:
		return "remove it"
	}
	return ""
}

// Repair does what the problem's Fix says.
func (d Dir) Repair(p Problem) error {
	root, err := d.existing()
	if err != nil {
		return err
	}
	defer root.Close()
	switch p.fix() {
	case "make it private":
		info, err := root.Lstat(p.Path)
		if err != nil {
			return err
		}
		return root.Chmod(p.Path, info.Mode().Perm()&0o700)
	case "remove it":
		return root.Remove(p.Path)
	}
	return fmt.Errorf("%s: nothing can be done about it", p.Path)
}

// Report is the result of Check.
type Report struct {
	Path     string       `json:"path"`
	Version  int          `json:"version"`
	Areas    []AreaReport `json:"areas"`
	Problems []Problem    `json:"problems"`
	// Newest is when the last of its files was written.
	Newest time.Time `json:"-"`
}

// Check examines the state directory without changing it: its layout, foreign
// files, permissions, broken records, and leftovers of crashed writes. An area
// may have a reader, which returns an error for a record that is not used.
func (d Dir) Check(readers map[Area]func(name string, data []byte) error) (*Report, error) {
	if d.path == "" {
		return nil, ErrNoPlace
	}
	r := &Report{Path: d.path, Version: Version, Areas: []AreaReport{}, Problems: []Problem{}}
	add := func(p Problem) {
		p.Fix = p.fix()
		r.Problems = append(r.Problems, p)
	}
	note := func(path, problem string) { add(Problem{Path: path, Problem: problem}) }
	root, err := private.Existing(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	switch version, err := d.version(); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		note(layoutName, err.Error())
	default:
		r.Version = version
		if version > Version {
			note(layoutName, fmt.Sprintf("layout %d is newer than this program's, %d", version, Version))
			return r, nil
		}
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		_, known := areas[Area(e.Name())]
		switch {
		case e.Name() == layoutName || strings.HasPrefix(e.Name(), "."):
		case !known:
			note(e.Name(), "not a part of the state directory; remove it if it is not yours")
		case !e.IsDir():
			note(e.Name(), "not a directory")
		}
	}
	for _, a := range slices.Sorted(maps.Keys(areas)) {
		report := AreaReport{Name: string(a), Holds: areas[a]}
		err := fs.WalkDir(root.FS(), string(a), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile, or the area does not exist
			}
			if err != nil {
				note(path, err.Error())
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return nil // removed meanwhile
			}
			if e.Type().IsRegular() {
				report.Files++
				report.Bytes += info.Size()
			}
			if foreign[a] && path != string(a) {
				return nil
			}
			if e.Type().IsRegular() && info.ModTime().After(r.Newest) {
				r.Newest = info.ModTime()
			}
			if problem, kind := d.judge(root, path, info, readers[areaOf(path)]); problem != "" {
				add(Problem{Path: path, Problem: problem, kind: kind})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if report.Files > 0 {
			r.Areas = append(r.Areas, report)
		}
	}
	return r, nil
}

// areaOf returns the area that has a file, or "" if the file is deeper.
func areaOf(path string) Area {
	parts := strings.Split(path, "/")
	if len(parts) == 4 && parts[0] == string(Owners) {
		parts = parts[2:]
	}
	if len(parts) != 2 {
		return ""
	}
	return Area(parts[0])
}

// maxRecord bounds the records whose form is checked.
const maxRecord = 64 << 20

// judge returns what is wrong with a file, or "", and of what kind that is.
func (d Dir) judge(root *os.Root, path string, info fs.FileInfo, reader func(string, []byte) error) (string, kind) {
	name := filepath.Base(path)
	// Engines write the files of snapshots, with modes of their own, into directories
	// that no one else can enter.
	theirs := strings.HasPrefix(path, string(Snapshots)+"/") && info.Mode().IsRegular()
	switch {
	case !info.Mode().IsRegular() && !info.IsDir() && info.Mode()&fs.ModeSocket == 0:
		return "neither a file nor a directory", other
	case permissions && !theirs && !strings.HasPrefix(name, ".") && info.Mode().Perm()&0o077 != 0: // a lock is empty
		return fmt.Sprintf("others may use it (mode %04o); make it private: chmod go= %s", info.Mode().Perm(), d.Path(path)), exposed
	case strings.HasPrefix(name, temporary) && time.Since(info.ModTime()) > abandoned:
		return "left by a write that was cut short; it goes at the next use", left
	case filepath.Ext(name) != ".json" || !info.Mode().IsRegular() || info.Size() > maxRecord || strings.HasPrefix(name, "."):
		return "", other
	}
	data, err := root.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", other
	case err != nil:
		return err.Error(), other
	case !json.Valid(data):
		return "not JSON: its content is not used; repair or remove it", broken
	case reader != nil:
		if err := reader(name, data); err != nil {
			return err.Error() + "; it is not used; repair or remove it", broken
		}
	}
	return "", other
}

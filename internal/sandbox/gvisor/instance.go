//go:build linux && (amd64 || arm64)

package gvisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"sallyport/internal/sandbox/place"
)

// instance is one program's place in the runtime directory: a directory with
// a lock file that the program holds for as long as it lives, an empty
// directory for cells to mount on, and a record for each run of what lies
// outside of the run's own namespaces. A directory whose lock can be had
// belongs to a program that is dead, and is swept.
type instance struct{ *place.Place }

type record struct {
	Cgroups []string `json:"cgroups"`
}

// openInstance sweeps what dead programs left and makes a place for this one.
func openInstance(runtimeDir string, log *slog.Logger) (*instance, error) {
	p, err := place.Open(runtimeDir, "cell", removePlace, log)
	if err != nil {
		return nil, err
	}
	return &instance{p}, nil
}

func (in *instance) mountpoint() string { return filepath.Join(in.Dir, "cell") }

func recordFile(run string) string { return run + ".json" }

// record writes down what run is about to make outside of its namespaces.
func (in *instance) record(run string, cgroups []string) error {
	b, err := json.Marshal(record{Cgroups: cgroups})
	if err != nil {
		return err
	}
	return in.Root.WriteFile(recordFile(run), b, 0o600)
}

func (in *instance) forget(run string) { _ = in.Root.Remove(recordFile(run)) }

// close removes the place. Records that are left keep it for a sweeper.
func (in *instance) close() error { return in.Place.Close(removePlace) }

// sweep removes what programs left that are dead now.
func sweep(runtimeDir string, log *slog.Logger) error {
	return place.Sweep(runtimeDir, removePlace, log)
}

// removePlace removes the groups that the records in a place name. The
// processes in those groups end by themselves: the program that held their
// lifelines is dead. If a cell still has its tmpfs mounted, it is in a namespace
// of its own and not seen from here.
func removePlace(dir *os.Root) error {
	records, err := fs.Glob(dir.FS(), "*.json")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range records {
		b, err := dir.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var rec record
		if json.Unmarshal(b, &rec) == nil { // half a record: nothing was made
			for _, group := range rec.Cgroups {
				// A record is a file; it must not choose what is removed.
				if !strings.HasPrefix(filepath.Base(group), cgroupPrefix) {
					continue
				}
				if err := removeGroup(group); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

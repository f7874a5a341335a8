//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox/instancedir"
)

// mountName names the empty directory, in the instance directory, that
// supervisors mount on.
const mountName = "mount"

// record lists what a run has outside of its own namespaces.
type record struct {
	Cgroups []string `json:"cgroups"`
}

// removeRecorded removes the control groups that the records in an instance
// directory name. The processes in them end by themselves: the program that held
// their lifelines is dead. A tmpfs that a supervisor still has mounted is in a
// namespace of its own and not visible here.
func removeRecorded(dir *os.Root) error {
	return instancedir.Records(dir, func(_ string, r record) error {
		var errs []error
		for _, group := range r.Cgroups {
			// A record is a file. It must not choose what is removed.
			if strings.HasPrefix(filepath.Base(group), cgroupPrefix) {
				errs = append(errs, removeGroup(group))
			}
		}
		return errors.Join(errs...)
	})
}

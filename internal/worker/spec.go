package worker

import (
	"fmt"

	"sallyport/internal/sandbox"
)

// maxFiles is what the files of a job may weigh together, RunPod's own limit on
// jobs.
const maxFiles = 20 << 20

// checkSpec says what is wrong with what a job asks for. The ID is ours.
func checkSpec(spec *sandbox.Spec) error {
	if total := spec.FileBytes(); total > maxFiles {
		return fmt.Errorf("files of %d bytes together; at most %d", total, maxFiles)
	}
	return spec.Check()
}

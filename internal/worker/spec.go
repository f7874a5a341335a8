package worker

import (
	"fmt"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// maxFiles bounds the total size of a job's files; it is RunPod's own limit on
// jobs.
const maxFiles = 20 << 20

// checkSpec returns an error if a job's spec is malformed. The ID is ours.
func checkSpec(spec *sandbox.Spec) error {
	if total := spec.FileBytes(); total > maxFiles {
		return fmt.Errorf("the files have %d bytes in total; the maximum is %d", total, maxFiles)
	}
	return spec.Check()
}

package supervise

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// maxFiles bounds the total size of Spec.Files: they pass through the memory of
// a helper.
const maxFiles = 16 << 20

// CheckSpec returns an error if no helper can run the spec.
func CheckSpec(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if total := spec.FileBytes(); total > maxFiles {
		return fmt.Errorf("files of %d bytes together; at most %d", total, maxFiles)
	}
	if spec.Program == nil {
		return errors.New("no program")
	}
	return nil
}

// Environment merges lists of variables. The last value of a name wins.
func Environment(lists ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, kv := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// Variables returns the variables of a map as a list, sorted.
func Variables(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for name, value := range m {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

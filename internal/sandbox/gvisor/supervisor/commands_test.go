//go:build linux && (amd64 || arm64)

package supervisor

import (
	"maps"
	"testing"

	"gvisor.dev/gvisor/runsc/flag"

	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
)

// The suite of the engines tests the memory; a machine that has few processors
// cannot show fewer.
func TestLimitsThatTheKernelShows(t *testing.T) {
	const memory = 512 << 20
	kernel := flag.NewFlagSet("boot", flag.ContinueOnError)
	new(kernelCmd).SetFlags(kernel)
	for _, name := range []string{"spec-fd", "bundle"} {
		if kernel.Lookup(name) == nil {
			t.Errorf("the runtime's boot command has no flag --%s, which tells where the limits are", name)
		}
	}
	for _, tt := range []struct {
		name       string
		cpus       float64
		processors int
		want       map[string]string
	}{
		{"no limit", 0, 8, map[string]string{"total-memory": "536870912"}},
		{"half of one", 0.5, 8, map[string]string{"total-memory": "536870912", "cpu-num": "2"}},
		{"some", 2.5, 8, map[string]string{"total-memory": "536870912", "cpu-num": "3"}},
		{"more than there are", 16, 8, map[string]string{"total-memory": "536870912", "cpu-num": "8"}},
		{"a host with one", 0.5, 1, map[string]string{"total-memory": "536870912", "cpu-num": "1"}},
	} {
		spec := ociSpec(&gvisor.SupervisorConfig{MemoryBytes: memory, CPUs: tt.cpus}, &rootDirs{root: "/root"})
		got := limitFlags(spec, tt.processors)
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: flags %v, want %v", tt.name, got, tt.want)
		}
		for name, value := range got {
			if err := kernel.Set(name, value); err != nil {
				t.Errorf("%s: the runtime's boot command refuses --%s=%s: %v", tt.name, name, value, err)
			}
		}
	}
}

//go:build linux && (amd64 || arm64)

package supervisor

import (
	"maps"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
)

// The suite of the engines tests the memory; a machine that has few processors
// cannot show fewer.
func TestLimitsThatTheKernelShows(t *testing.T) {
	const memory = 512 << 20
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
		spec := ociSpec(&gvisor.SupervisorConfig{MemoryBytes: memory, CPUs: tt.cpus}, "/root")
		if got := limitFlags(spec, tt.processors); !maps.Equal(got, tt.want) {
			t.Errorf("%s: flags %v, want %v", tt.name, got, tt.want)
		}
	}
}

package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProfile(t *testing.T) {
	if runtime.GOOS != "linux" {
		if p := Profile("/"); p.CPUModel == "" || p.LogicalCPUs < 1 {
			t.Errorf("%+v", p)
		}
		return
	}
	root := t.TempDir()
	if p := Profile(root); p.CPUModel != "" || p.MemoryBytes != 0 || p.LogicalCPUs < 1 {
		t.Errorf("of nothing: %+v", p)
	}
	cpu := ""
	for i := range 4 {
		cpu += fmt.Sprintf("processor\t: %d\nmodel name\t: AMD EPYC 7763 64-Core Processor\nphysical id\t: %d\nflags\t\t: fpu hypervisor sse\n\n", i, i/2)
	}
	write(t, root, "proc/cpuinfo", cpu)
	write(t, root, "proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n")
	p := Profile(root)
	if p.CPUModel != "AMD EPYC 7763 64-Core Processor" || p.LogicalCPUs != 4 || p.Sockets != 2 || !p.Virtual || p.MemoryBytes != 16<<20 {
		t.Errorf("%+v", p)
	}
	if p := Profile("/"); p.LogicalCPUs < 1 || p.MemoryBytes < 1<<20 {
		t.Errorf("of this machine: %+v", p)
	}
}

// machine is a root with packages of so many microjoules.
func machine(t *testing.T, joules ...uint64) string {
	t.Helper()
	root := t.TempDir()
	for i, j := range joules {
		dir := fmt.Sprintf("sys/class/powercap/intel-rapl:%d/", i)
		write(t, root, dir+"name", fmt.Sprintf("package-%d\n", i))
		write(t, root, dir+"max_energy_range_uj", "1000000000\n")
		write(t, root, dir+"energy_uj", fmt.Sprintln(j))
		part := fmt.Sprintf("sys/class/powercap/intel-rapl:%d:0/", i)
		write(t, root, part+"name", "core\n")
		write(t, root, part+"energy_uj", "1\n")
	}
	write(t, root, "proc/stat", "cpu  100 0 100 5000 10 0 0 0 0 0\n")
	return root
}

func TestRAPL(t *testing.T) {
	root := machine(t, 5_000_000, 900_000_000, 900_000_500)
	// The same packages by another way.
	write(t, root, "sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n")
	write(t, root, "sys/class/powercap/intel-rapl-mmio:0/energy_uj", "5000000\n")
	m, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.domains) != 2 {
		t.Fatalf("%d packages, want 2: the third mirrors the second", len(m.domains))
	}
	start := time.Now().Add(-time.Hour)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	m.sample(at(0))
	write(t, root, "sys/class/powercap/intel-rapl:0/energy_uj", "25000000\n")
	write(t, root, "sys/class/powercap/intel-rapl:1/energy_uj", "50000000\n") // 100 J to the end of its range, and 50
	write(t, root, "proc/stat", "cpu  250 0 150 5000 10 0 0 0 0 0\n")
	m.sample(at(10))
	// A reading that fails counts nothing, and the next one makes up for it.
	write(t, root, "sys/class/powercap/intel-rapl:0/energy_uj", "rubbish\n")
	m.sample(at(20))
	write(t, root, "sys/class/powercap/intel-rapl:0/energy_uj", "26000000\n")
	m.sample(at(30))
	for _, c := range []struct {
		from, to     int
		joules, wall float64
		busy         time.Duration
	}{
		{0, 10, 170, 10, 2 * time.Second},
		{2, 3, 170, 10, 2 * time.Second},
		{5, 15, 170, 20, 2 * time.Second},
		{11, 30, 1, 20, 0},
	} {
		p := m.Between(at(c.from), at(c.to))
		if p == nil || p.Joules < c.joules-1e-9 || p.Joules > c.joules+1e-9 || p.Wall.Seconds() != c.wall || p.Busy != c.busy {
			t.Errorf("%d to %d: %+v", c.from, c.to, p)
		}
	}
	if p := m.Between(at(-10), at(10)); p != nil {
		t.Errorf("before the beginning: %+v", p)
	}
	before := len(m.samples)
	for range 100 { // many runs of the past push out no sample
		m.Between(at(0), at(10))
	}
	if len(m.samples) != before {
		t.Errorf("%d samples, there were %d", len(m.samples), before)
	}
	if p := m.Between(at(25), time.Now()); p == nil || len(m.samples) != before+1 {
		t.Errorf("until now: %+v, %d samples", p, len(m.samples))
	}
	var none *Meter
	if none.Between(at(0), at(1)) != nil {
		t.Error("no meter knows something")
	}
	none.Close()
}

func TestNoRAPL(t *testing.T) {
	if m, err := NewMeter(t.TempDir()); err == nil {
		t.Errorf("%+v", m)
	}
	m, err := NewMeter(machine(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
}

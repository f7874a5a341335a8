// Package hardware looks at the machine that it runs on: which processors it
// has, and what they say of the energy that they take.
package hardware

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// Profile is this machine's. What cannot be found out is left zero. root is
// "/" but in tests.
func Profile(root string) carbon.Profile {
	p := carbon.Profile{LogicalCPUs: runtime.NumCPU(), ARM: strings.HasPrefix(runtime.GOARCH, "arm")}
	if runtime.GOOS != "linux" {
		p.CPUModel, p.MemoryBytes = native()
		return p
	}
	if raw, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo")); err == nil {
		readCPUInfo(raw, &p)
	}
	if raw, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		for line := range bytes.Lines(raw) {
			f := strings.Fields(string(line))
			if len(f) >= 2 && f[0] == "MemTotal:" {
				if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					p.MemoryBytes = kb << 10
				}
			}
		}
	}
	return p
}

// Memory is how much memory programs here may use together: the machine's, or
// less where this is a container with a limit. 0 is not known.
func Memory(root string) int64 {
	least := Profile(root).MemoryBytes
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

func readCPUInfo(raw []byte, p *carbon.Profile) {
	sockets := map[string]bool{}
	processors := 0
	s := bufio.NewScanner(bytes.NewReader(raw))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			processors++
		case "model name", "Model":
			if p.CPUModel == "" && !strings.HasPrefix(value, "ARMv") {
				p.CPUModel = value
			}
		case "physical id":
			sockets[value] = true
		case "flags":
			p.Virtual = p.Virtual || strings.Contains(" "+value+" ", " hypervisor ")
		}
	}
	p.Sockets = max(1, len(sockets))
	if processors > 0 {
		p.LogicalCPUs = processors
	}
}

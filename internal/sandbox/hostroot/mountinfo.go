//go:build linux

package hostroot

import (
	"os"
	"slices"
	"strings"
)

// MountPoint is a line of a process's mountinfo.
type MountPoint struct {
	At      string
	Options []string
	Linked  bool // it receives mounts from, or passes them to, others
}

// MountPoints reads mountinfo.
func MountPoints(info string) (out []MountPoint) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		if len(fields) < 7 {
			continue
		}
		m := MountPoint{At: unescape.Replace(fields[4]), Options: strings.Split(fields[5], ",")}
		for _, f := range fields[6:] {
			if f == "-" {
				break
			}
			m.Linked = m.Linked || strings.HasPrefix(f, "shared:") || strings.HasPrefix(f, "master:")
		}
		out = append(out, m)
	}
	return out
}

// MountsBelow lists this process's mount points at and below dir, deepest last.
func MountsBelow(dir string) ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for _, m := range MountPoints(string(info)) {
		if m.At == dir || strings.HasPrefix(m.At, dir+"/") {
			below = append(below, m.At)
		}
	}
	slices.Sort(below)
	return below, nil
}

//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// cgroupPrefix begins the name of every control group that this engine makes.
const cgroupPrefix = "sallyport-"

// hierarchy holds the directories of this host in which control groups can be
// made: one for version 2, or one for each controller for version 1. The zero
// value has none.
type hierarchy struct {
	v2          string
	controllers map[string]string // version 1: controller -> our own group's directory
}

// cgroup is one group, a directory in each hierarchy.
type cgroup struct {
	v2      string
	dirs    map[string]string // version 1: controller -> directory
	foreign bool              // systemd removes it
}

// findHierarchy finds the groups under which this process may make groups. root is
// "/" except in tests.
func findHierarchy(root string) hierarchy {
	own := ownGroups(filepath.Join(root, "proc/self/cgroup"))
	h := hierarchy{controllers: map[string]string{}}
	f, err := os.Open(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return h
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		if !ok {
			continue
		}
		mount, super := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(super) < 3 {
			continue
		}
		point := filepath.Join(root, mount[4])
		within := func(group string) string {
			// mount[3] is the group that is mounted there.
			rel := strings.TrimPrefix(group, strings.TrimSuffix(mount[3], "/"))
			return filepath.Join(point, rel)
		}
		switch super[0] {
		case "cgroup2":
			h.v2 = point
		case "cgroup":
			for _, c := range strings.Split(super[2], ",") {
				if group, ok := own[c]; ok {
					h.controllers[c] = within(group)
				}
			}
		}
	}
	return h
}

// ownGroups maps each version 1 controller to this process's group.
func ownGroups(file string) map[string]string {
	own := map[string]string{}
	b, err := os.ReadFile(file)
	if err != nil {
		return own
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			if c != "" {
				own[c] = f[2]
			}
		}
	}
	return own
}

// limitsOn reports how the limits that need a control group are enforced here,
// given whether a user's systemd makes groups.
func (h hierarchy) limitsOn(scopes bool) map[sandbox.Resource]sandbox.LimitReport {
	out := map[sandbox.Resource]sandbox.LimitReport{
		sandbox.Memory: {Enforcement: sandbox.Soft, By: "a watcher of the sandbox's memory"},
		sandbox.CPU:    {Enforcement: sandbox.Absent, By: "no control group can be made here"},
	}
	if scopes {
		out[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v2 memory.max, a systemd scope"}
		out[sandbox.CPU] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v2 cpu.max, a systemd scope"}
	}
	probe := h.group(fmt.Sprintf("%sprobe-%d", cgroupPrefix, os.Getpid()))
	defer probe.remove()
	if probe.create(sandbox.Limits{MemoryBytes: 64 << 20, CPUs: 1}.WithDefaults()) != nil {
		return out
	}
	if probe.v2 != "" {
		out[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v2 memory.max"}
		out[sandbox.CPU] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v2 cpu.max"}
		return out
	}
	if _, ok := probe.dirs["memory"]; ok {
		out[sandbox.Memory] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v1 memory.limit_in_bytes"}
	}
	if _, ok := probe.dirs["cpu"]; ok {
		out[sandbox.CPU] = sandbox.LimitReport{Enforcement: sandbox.Hard, By: "cgroup v1 cpu.cfs_quota_us"}
	}
	return out
}

// group returns a group without making it.
func (h hierarchy) group(name string) *cgroup {
	g := &cgroup{dirs: map[string]string{}}
	if _, memory := h.controllers["memory"]; !memory && h.v2 != "" {
		g.v2 = filepath.Join(h.v2, "sallyport", name)
		return g
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if dir, ok := h.controllers[c]; ok {
			g.dirs[c] = filepath.Join(dir, name)
		}
	}
	return g
}

// paths lists the group's directories.
func (g *cgroup) paths() []string {
	var out []string
	if g.v2 != "" {
		out = append(out, g.v2)
	}
	for _, d := range g.dirs {
		out = append(out, d)
	}
	return out
}

// hostThreads returns how many threads gVisor's kernel may have on the host: a
// stub for each of the guest's processes and threads, and its own. gVisor counts
// the guest's own processes.
func hostThreads(l sandbox.Limits) int { return 4*l.Processes + 512 }

// create makes the group and sets its limits. If a limit cannot be set, it removes
// what it made and returns an error.
func (g *cgroup) create(l sandbox.Limits) (err error) {
	defer func() {
		if err != nil {
			g.remove()
		}
	}()
	if g.v2 != "" {
		return g.createV2(l)
	}
	if len(g.dirs) == 0 {
		return errors.New("no control groups here")
	}
	if _, ok := g.dirs["memory"]; !ok {
		return errors.New("no memory controller here")
	}
	for c, dir := range g.dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		switch c {
		case "memory":
			if err = writeFile(dir, "memory.limit_in_bytes", l.MemoryBytes); err != nil {
				return err
			}
			// It exists only if the kernel accounts swap.
			if e := writeFile(dir, "memory.memsw.limit_in_bytes", l.MemoryBytes); e != nil && !errors.Is(e, fs.ErrNotExist) {
				return e
			}
			_ = writeFile(dir, "memory.swappiness", 0)
		case "pids":
			err = writeFile(dir, "pids.max", hostThreads(l))
		case "cpu":
			if l.CPUs > 0 {
				if err = writeFile(dir, "cpu.cfs_period_us", 100_000); err == nil {
					err = writeFile(dir, "cpu.cfs_quota_us", int64(l.CPUs*100_000))
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *cgroup) createV2(l sandbox.Limits) error {
	parent := filepath.Dir(g.v2)
	top := filepath.Dir(parent)
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, dir := range []string{top, parent} {
		for _, c := range []string{"+memory", "+pids", "+cpu"} {
			// Already enabled, or refused: setting the limits shows which.
			_ = writeFile(dir, "cgroup.subtree_control", c)
		}
	}
	if err := os.Mkdir(g.v2, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := writeFile(g.v2, "memory.max", l.MemoryBytes); err != nil {
		return err
	}
	if err := writeFile(g.v2, "memory.swap.max", 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A sandbox lives and dies as a whole.
	_ = writeFile(g.v2, "memory.oom.group", 1)
	if err := writeFile(g.v2, "pids.max", hostThreads(l)); err != nil {
		return err
	}
	if l.CPUs > 0 {
		return writeFile(g.v2, "cpu.max", fmt.Sprintf("%d 100000", int64(l.CPUs*100_000)))
	}
	return nil
}

// add moves a process, with all its threads, into the group.
func (g *cgroup) add(pid int) error {
	for _, dir := range g.paths() {
		if err := writeFile(dir, "cgroup.procs", pid); err != nil {
			return err
		}
	}
	return nil
}

// outOfMemory reports whether the kernel killed a process of the group for
// its memory.
func (g *cgroup) outOfMemory() bool {
	file := filepath.Join(g.v2, "memory.events")
	if g.v2 == "" {
		file = filepath.Join(g.dirs["memory"], "memory.oom_control")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			n, _ := strconv.Atoi(f[1])
			return n > 0
		}
	}
	return false
}

// remove removes the group, waiting a little for its last processes to end. It is
// idempotent.
func (g *cgroup) remove() error {
	if g.foreign {
		return nil
	}
	var errs []error
	for _, dir := range g.paths() {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string) error {
	for delay := time.Millisecond; ; delay *= 2 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if delay > time.Second {
			return err
		}
		time.Sleep(delay)
	}
}

func writeFile(dir, name string, value any) error {
	// Not os.WriteFile: a control file must never be created.
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, value)
	return errors.Join(err, f.Close())
}

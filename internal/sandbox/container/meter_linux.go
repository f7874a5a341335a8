package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// limitFiles are the files that show limits, by the controller of cgroup v1; ""
// is cgroup v2.
var limitFiles = map[string][]string{
	"":       {"memory.max", "memory.swap.max", "pids.max", "cpu.max"},
	"memory": {"memory.limit_in_bytes"},
	"pids":   {"pids.max"},
	"cpu":    {"cpu.cfs_quota_us"},
}

// look inspects a container from outside.
func look(state *condition, pidns string) outside {
	if state.Pid <= 0 || !ours(state, pidns) {
		return outside{}
	}
	found := groups{}
	for controller, dir := range groupDirs(state.Pid, state.ID) {
		for _, file := range limitFiles[controller] {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				found[filepath.Join(controller, file)] = strings.TrimSpace(string(b))
			}
		}
	}
	return outside{Local: true, Groups: found, Watchable: watchable(state.Pid)}
}

// ours reports whether the container's process runs on this machine: its number
// alone proves nothing if the engine is remote.
func ours(state *condition, pidns string) bool {
	dir := "/proc/" + strconv.Itoa(state.Pid)
	if b, err := os.ReadFile(dir + "/cgroup"); err == nil && state.ID != "" && strings.Contains(string(b), state.ID) {
		return true
	}
	link, err := os.Readlink(dir + "/ns/pid")
	return err == nil && pidns != "" && link == pidns && apart(state)
}

// apart reports whether the process that an engine names can belong to a
// container. A process in this program's own process namespace could be any,
// whatever engine and image claim, and is never signalled.
func apart(state *condition) bool {
	link, err := os.Readlink("/proc/" + strconv.Itoa(state.Pid) + "/ns/pid")
	own, ownErr := os.Readlink("/proc/self/ns/pid")
	return err == nil && ownErr == nil && link != own
}

// groupDirs returns the container's own control groups, by controller; "" is that
// of cgroup v2.
func groupDirs(pid int, id string) map[string]string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// Only groups of the container alone, whose names contain its ID.
		if len(parts) != 3 || id == "" || !strings.Contains(parts[2], id) {
			continue
		}
		group := parts[2]
		if i := strings.Index(group, id); i >= 0 {
			// A group below it, such as crun's "…/container", shares its limit.
			if j := strings.IndexByte(group[i:], '/'); j >= 0 {
				group = group[:i+j]
			}
		}
		for _, controller := range strings.Split(parts[1], ",") {
			if controller == "" && parts[0] != "0" || strings.HasPrefix(controller, "name=") {
				continue
			}
			dir := filepath.Join(cgroupRoot, controller, group)
			if controller == "" {
				if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err != nil {
					continue // the v2 part of a hybrid layout limits nothing
				}
				dir = filepath.Join(cgroupRoot, group)
			}
			if _, err := os.Stat(dir); err == nil {
				found[controller] = dir
			}
		}
	}
	return found
}

// meter measures a container from outside. If the container is not on this
// machine, it asks the engine.
type meter struct {
	r     *run
	local bool // the inspected container was on this machine

	once  sync.Once
	ready chan struct{} // closed when the fields below are set
	pid   int
	dirs  map[string]string
	tree  *processTree // if no control group counts
	err   error

	oom atomic.Bool // the kernel or the watcher killed something for its memory

	mu   sync.Mutex
	peak int64

	remote remoteMeter
	ctx    context.Context
	end    context.CancelFunc
}

func newMeter(r *run, t *inspection) *meter {
	g := &meter{r: r, local: t.outside.Local, ready: make(chan struct{})}
	g.ctx, g.end = context.WithCancel(context.Background())
	if !g.local {
		return g
	}
	// Now: it takes a process, and the answer is needed soon.
	r.b.all.Go(func() {
		switch g.find(); {
		case g.err != nil:
		case g.tree == nil:
			if err := watchMemory(g.ctx, g.dirs, func() { g.oom.Store(true) }); err != nil {
				r.b.log.Debug("running out of memory will not be noticed", "run", r.name, "error", err)
			}
		case t.watched:
			g.tree.watch(g)
		}
	})
	return g
}

// find asks the engine for the container's process and looks for its groups.
func (g *meter) find() {
	g.once.Do(func() {
		defer close(g.ready)
		ctx, cancel := context.WithTimeout(g.ctx, inspectTime)
		defer cancel()
		state, err := g.r.b.cli.inspectContainer(ctx, g.r.name)
		if err != nil {
			g.err = err
			return
		}
		if state.Pid <= 0 {
			g.err = sandbox.ErrGone
			return
		}
		g.pid = state.Pid
		g.dirs = groupDirs(state.Pid, state.ID)
		if !g.counts() {
			if !ours(state, "") && !apart(state) {
				g.err = errors.New("the engine names a process that does not belong to a container")
				return
			}
			g.tree = newProcessTree(state.Pid)
		}
	})
	<-g.ready
}

// counts reports whether control groups count memory and time.
func (g *meter) counts() bool {
	_, v2 := g.dirs[""]
	_, memory := g.dirs["memory"]
	_, cpu := g.dirs["cpuacct"]
	return v2 || memory && cpu
}

func (g *meter) stop() { g.end() }

// outOfMemory reports whether a process of the container was seen to be killed
// for its memory.
func (g *meter) outOfMemory() bool { return g.oom.Load() }

// pause stops or continues every process if the engine cannot. Otherwise done is
// false.
func (g *meter) pause(on bool) (done bool, err error) {
	if !g.local {
		return false, nil
	}
	g.find()
	if g.err != nil || g.tree == nil {
		return false, nil
	}
	if on {
		return true, g.tree.stop(unix.SIGSTOP)
	}
	return true, g.tree.stop(unix.SIGCONT)
}

// usage implements sandbox.Meter.
func (g *meter) usage(ctx context.Context) (sandbox.Usage, error) {
	select {
	case <-g.r.process.ended:
		return sandbox.Usage{}, sandbox.ErrGone
	default:
	}
	if !g.local {
		return g.remote.usage(ctx, g.r)
	}
	g.find()
	if g.err != nil {
		return sandbox.Usage{}, g.err
	}
	var u sandbox.Usage
	var err error
	if g.tree != nil {
		u, err = g.tree.usage()
	} else {
		u, err = g.read()
	}
	if err != nil {
		return u, errors.Join(sandbox.ErrGone, err)
	}
	g.mu.Lock()
	g.peak = max(g.peak, u.MemoryBytes, u.PeakBytes)
	u.PeakBytes = g.peak
	g.mu.Unlock()
	return u, nil
}

// read reads the control groups. The page cache of files on disk does not count
// as the container's memory.
func (g *meter) read() (sandbox.Usage, error) {
	if dir, ok := g.dirs[""]; ok {
		memory, err := readNumber(dir, "memory.current")
		if err != nil {
			return sandbox.Usage{}, err
		}
		cpu, err := readKey(dir, "cpu.stat", "usage_usec")
		if err != nil {
			return sandbox.Usage{}, err
		}
		files, _ := readKey(dir, "memory.stat", "inactive_file")
		peak, err := readNumber(dir, "memory.peak")
		if err != nil {
			peak = -1
		}
		return sandbox.Usage{CPU: time.Duration(cpu) * time.Microsecond, MemoryBytes: memory - files, PeakBytes: peak}, nil
	}
	cpu, err := readNumber(g.dirs["cpuacct"], "cpuacct.usage")
	if err != nil {
		return sandbox.Usage{}, err
	}
	memory, err := readNumber(g.dirs["memory"], "memory.usage_in_bytes")
	if err != nil {
		return sandbox.Usage{}, err
	}
	files, _ := readKey(g.dirs["memory"], "memory.stat", "total_inactive_file")
	peak, err := readNumber(g.dirs["memory"], "memory.max_usage_in_bytes")
	if err != nil {
		peak = -1
	}
	return sandbox.Usage{CPU: time.Duration(cpu), MemoryBytes: memory - files, PeakBytes: peak}, nil
}

func readNumber(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func readKey(dir, file, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}

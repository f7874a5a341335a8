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

	"sallyport/internal/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// limitFiles are the files that are looked at, by the controller of cgroup v1;
// "" is cgroup v2.
var limitFiles = map[string][]string{
	"":       {"memory.max", "memory.swap.max", "pids.max", "cpu.max"},
	"memory": {"memory.limit_in_bytes"},
	"pids":   {"pids.max"},
	"cpu":    {"cpu.cfs_quota_us"},
}

// look looks at a container from outside.
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

// ours says whether the container's process is one of this machine's: its
// number alone says nothing where the engine is elsewhere.
func ours(state *condition, pidns string) bool {
	dir := "/proc/" + strconv.Itoa(state.Pid)
	if b, err := os.ReadFile(dir + "/cgroup"); err == nil && state.ID != "" && strings.Contains(string(b), state.ID) {
		return true
	}
	link, err := os.Readlink(dir + "/ns/pid")
	return err == nil && pidns != "" && link == pidns && apart(state)
}

// apart says whether the process that an engine names can be a container's: one
// in this program's own process namespace is anybody's, whatever engine and
// image say. Nothing else is ever signalled.
func apart(state *condition) bool {
	link, err := os.Readlink("/proc/" + strconv.Itoa(state.Pid) + "/ns/pid")
	own, ownErr := os.Readlink("/proc/self/ns/pid")
	return err == nil && ownErr == nil && link != own
}

// groupDirs are the container's own control groups: "" is that of cgroup v2.
func groupDirs(pid int, id string) map[string]string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// Of the container alone: its name has the container's ID.
		if len(parts) != 3 || id == "" || !strings.Contains(parts[2], id) {
			continue
		}
		group := parts[2]
		if i := strings.Index(group, id); i >= 0 {
			// A group below, such as crun's "…/container", shares the limit of
			// the one that bears the name.
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

// gauge measures a container from outside. Where the container is not one of
// this machine's it asks the engine.
type gauge struct {
	r     *run
	local bool // the trial's was

	once  sync.Once
	ready chan struct{} // closed when the fields below are set
	pid   int
	dirs  map[string]string
	tree  *tree // where no control group counts
	err   error

	oom atomic.Bool // the kernel or the watcher ended something for its memory

	mu   sync.Mutex
	peak int64

	remote remoteGauge
	ctx    context.Context
	end    context.CancelFunc
}

func newGauge(r *run, t *trial) *gauge {
	g := &gauge{r: r, local: t.outside.Local, ready: make(chan struct{})}
	g.ctx, g.end = context.WithCancel(context.Background())
	if !g.local {
		return g
	}
	// At once: it takes a process, and is wanted soon.
	r.b.all.Go(func() {
		switch g.find(); {
		case g.err != nil:
		case g.tree == nil:
			if err := watchMemory(g.ctx, g.dirs, func() { g.oom.Store(true) }); err != nil {
				r.b.log.Debug("the end of memory will not be seen", "run", r.name, "error", err)
			}
		case t.watched:
			g.tree.watch(g)
		}
	})
	return g
}

// find asks the engine for the container's process and looks for its groups.
func (g *gauge) find() {
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
				g.err = errors.New("the engine names a process that is none of a container's")
				return
			}
			g.tree = newTree(state.Pid)
		}
	})
	<-g.ready
}

// counts says whether control groups count memory and time.
func (g *gauge) counts() bool {
	_, v2 := g.dirs[""]
	_, memory := g.dirs["memory"]
	_, cpu := g.dirs["cpuacct"]
	return v2 || memory && cpu
}

func (g *gauge) stop() { g.end() }

// outOfMemory says whether something of the container's was ended for its
// memory, as far as was seen.
func (g *gauge) outOfMemory() bool { return g.oom.Load() }

// pause stops every process where the engine cannot, or has it go on; done is
// false where the engine can.
func (g *gauge) pause(on bool) (done bool, err error) {
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
func (g *gauge) usage(ctx context.Context) (sandbox.Usage, error) {
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

// read reads the control groups. What the page cache holds of files on disk
// is not the container's to answer for.
func (g *gauge) read() (sandbox.Usage, error) {
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

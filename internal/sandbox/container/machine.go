package container

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// machine is Podman's virtual machine, on systems without containers of their
// own. This program never creates or changes it, and starts it only if that is
// allowed.
type machine struct {
	b    *Engine
	goos string

	mu      sync.Mutex
	started string // the machine that this program started
	timer   *time.Timer
	inUse   int
}

func newMachine(b *Engine) *machine { return &machine{b: b, goos: runtime.GOOS} }

// virtual reports whether this engine needs a machine here: not if the
// environment names a service.
func (m *machine) virtual() bool {
	named := slices.ContainsFunc(m.b.opts.Environ, func(kv string) bool { return strings.HasPrefix(kv, "CONTAINER_HOST=") && kv != "CONTAINER_HOST=" })
	return m.b.opts.Engine == Podman && !named && (m.goos == "darwin" || m.goos == "windows")
}

// listed is a machine in the output of `podman machine list`.
type listed struct {
	Name     string
	Default  bool
	Running  bool
	Starting bool
}

func parseMachines(data []byte) ([]listed, error) {
	var found []listed
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("podman machine list: %w", err)
	}
	return found, nil
}

// chosen returns the machine that podman uses: the default one, or else the first.
func chosen(machines []listed) (listed, bool) {
	for _, m := range machines {
		if m.Default {
			return m, true
		}
	}
	if len(machines) > 0 {
		return machines[0], true
	}
	return listed{}, false
}

func (m *machine) list(ctx context.Context) ([]listed, error) {
	out, err := m.b.cli.output(ctx, "machine", "list", "--format", "json")
	if err != nil {
		return nil, err
	}
	return parseMachines(out)
}

// remedy returns what to do when no machine answers.
func (m *machine) remedy(ctx context.Context) string {
	if !m.virtual() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	machines, err := m.list(ctx)
	return machineRemedy(machines, err, m.goos)
}

func machineRemedy(machines []listed, err error, goos string) string {
	first := ""
	if goos == "windows" {
		first = "wsl --install (once), then: "
	}
	if err != nil {
		return first + "podman machine init; podman machine start"
	}
	found, ok := chosen(machines)
	switch {
	case !ok:
		return first + "podman machine init; podman machine start"
	case found.Starting:
		return "podman machine " + found.Name + " is starting: try again in a while"
	case found.Running:
		return "podman machine " + found.Name + " runs, but does not answer: podman system connection list; podman machine stop; podman machine start"
	}
	return "podman machine start " + found.Name + " (with container.startMachine: true, Sallyport starts it itself)"
}

// ready starts the machine if that is needed and allowed.
func (m *machine) ready(ctx context.Context) error {
	if !m.virtual() || !m.b.opts.StartMachine {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	machines, err := m.list(ctx)
	if err != nil {
		return err
	}
	found, ok := chosen(machines)
	if !ok || found.Running {
		return nil // there is none to start
	}
	m.b.log.Info("starting the podman machine", "machine", found.Name)
	// Not ctx: a machine hangs after an interrupted start.
	start, cancel := context.WithTimeout(context.WithoutCancel(ctx), machineTime)
	defer cancel()
	if _, err := m.b.cli.output(start, "machine", "start", found.Name); err != nil {
		return err
	}
	m.started = found.Name
	return nil
}

// machineTime bounds the start and the stop of a machine.
const machineTime = 3 * time.Minute

// use takes the number of sandboxes. When it is 0, the machine that this program
// started is stopped after the idle timeout.
func (m *machine) use(runs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inUse = runs
	if runs > 0 {
		if m.timer != nil {
			m.timer.Stop()
			m.timer = nil
		}
		return
	}
	if m.started == "" || m.b.opts.IdleTimeout <= 0 || m.timer != nil {
		return
	}
	m.timer = time.AfterFunc(m.b.opts.IdleTimeout, func() {
		ctx, cancel := context.WithTimeout(context.Background(), machineTime)
		defer cancel()
		m.stop(ctx)
	})
}

// stop stops the machine that this program started, unless other containers run
// in it.
func (m *machine) stop(ctx context.Context) {
	if !m.stopped(ctx) {
		return
	}
	m.b.probing.Lock()
	defer m.b.probing.Unlock()
	m.b.facts = nil
}

func (m *machine) stopped(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = nil
	if m.started == "" || m.inUse > 0 {
		return false
	}
	out, err := m.b.cli.output(ctx, "ps", "--quiet")
	if err == nil && len(out) > 0 {
		m.b.log.Info("the podman machine stays: other containers run in it", "machine", m.started)
		return false
	}
	if _, err := m.b.cli.output(ctx, "machine", "stop", m.started); err != nil {
		m.b.log.Warn("stopping the podman machine", "machine", m.started, "error", err)
		return false
	}
	m.b.log.Info("stopped the podman machine, which was idle", "machine", m.started)
	m.started = ""
	return true
}

// close stops the machine when the program that started it ends.
func (m *machine) close(ctx context.Context) {
	m.mu.Lock()
	m.inUse = 0
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	m.stop(ctx)
}

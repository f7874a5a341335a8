//go:build linux

package sandboxtest

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// canaryProgram waits for signals and prints each one that reaches it. It has
// its mark in its arguments, its environment and its memory, and holds /tmp
// open.
const canaryProgram = `
import ctypes, os, signal, sys
buf = ctypes.create_string_buffer(sys.argv[1].encode(), 64)
folder = os.open("/tmp", os.O_RDONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
print("ready", ctypes.addressof(buf), flush=True)
while True:
    info = signal.sigwaitinfo({signal.SIGWINCH})
    print("hit by a signal from process %d of user %d, code %d" % (info.si_pid, info.si_uid, info.si_code), flush=True)
`

// A canary is a host process that no sandbox may see or touch.
type canary struct {
	cmd     *exec.Cmd
	mark    string
	address uint64

	mu   sync.Mutex
	hits []string
	died bool
	done chan struct{}
}

// newCanary starts one; it ends with the test.
func newCanary(t testing.TB, python, mark string) *canary {
	t.Helper()
	c := &canary{mark: mark, done: make(chan struct{})}
	c.cmd = exec.Command(python, "-I", "-c", canaryProgram, mark)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("canary: %v", err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("canary: it did not start")
	}
	if _, err := fmt.Sscanf(lines.Text(), "ready %d", &c.address); err != nil {
		t.Fatalf("canary: %q: %v", lines.Text(), err)
	}
	go func() {
		defer close(c.done)
		for lines.Scan() {
			c.mu.Lock()
			c.hits = append(c.hits, lines.Text())
			c.mu.Unlock()
		}
		_ = c.cmd.Wait()
		c.mu.Lock()
		c.died = true
		c.mu.Unlock()
	}()
	t.Cleanup(c.stop)
	return c
}

// stop ends the canary and waits for it.
func (c *canary) stop() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// struck says what reached the canary, or nothing. It waits a moment for what
// is on its way.
func (c *canary) struck() string {
	time.Sleep(50 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.died {
		return "the host's canary process died"
	}
	return strings.Join(c.hits, "; ")
}

func (c *canary) params() map[string]any {
	return map[string]any{"pid": c.cmd.Process.Pid, "mark": c.mark, "address": c.address}
}

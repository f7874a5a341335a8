//go:build linux

package faults

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPodmanFaults and TestDockerFaults take away what a sandbox in a container
// stands on: its client, its monitor, its daemon, its image, the room on the
// disk. The next call says what happened, the one after it works, and nothing
// is left behind.
func TestPodmanFaults(t *testing.T) {
	t.Run("faults", func(t *testing.T) {
		h := newEngineHost(t, "podman", 0)
		t.Run("client killed", h.clientKilled)
		t.Run("container killed", h.containerKilled)
		t.Run("monitor killed", h.monitorKilled)
		t.Run("image gone", h.imageGone)
		t.Run("no engine", h.noEngine)
		t.Run("disk full", func(t *testing.T) { newEngineHost(t, "podman", 64<<20).diskFull(t) })
	})
}

func TestDockerFaults(t *testing.T) {
	t.Run("faults", func(t *testing.T) {
		h := newEngineHost(t, "docker", 0)
		t.Run("client killed", h.clientKilled)
		t.Run("container killed", h.containerKilled)
		t.Run("daemon killed", h.daemonKilled)
		t.Run("daemon stopped", h.daemonStopped)
		t.Run("image gone", h.imageGone)
		t.Run("no engine", h.noEngine)
		t.Run("disk full", func(t *testing.T) { newEngineHost(t, "docker", 64<<20).diskFull(t) })
	})
}

const stateProbe = "try:\n    print('x is', x)\nexcept NameError:\n    print('no x')"

// clientKilled kills the server at random moments. The next one sweeps.
func (h *engineHost) clientKilled(t *testing.T) {
	for i := range 6 {
		s := h.serve(t)
		moment := moments[i%len(moments)]
		var pending <-chan answer
		switch moment {
		case "starting":
			pending = s.runPython("x = 41")
			time.Sleep(time.Duration(rand.IntN(1200)) * time.Millisecond)
		default:
			h.works(t, s, moment)
			if moment == "running" {
				pending = s.runPython("import time\nwhile True:\n    print(1, flush=True); time.sleep(0.001)")
			}
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
		_, _ = h.containers() // to know their cgroups
		_ = s.cmd.Process.Kill()
		<-s.ended
		if pending != nil {
			wait(pending, answerWithin)
		}
		next := h.serve(t)
		h.works(t, next, "after a kill while "+moment)
		h.end(t, next, "killed while "+moment)
		if t.Failed() {
			t.Fatalf("round %d, killed while %s", i, moment)
		}
	}
}

// lost checks what a client sees when the sandbox of its session is gone.
func (h *engineHost) lost(t *testing.T, s *client, what string) {
	t.Helper()
	a := wait(s.runPython(stateProbe), containerPatience)
	told := a.Structured.StateLost != ""
	if a.err == nil && a.IsError && told {
		a = wait(s.runPython(stateProbe), containerPatience)
	}
	if a.err != nil || a.IsError || !strings.Contains(a.text(), "no x") {
		t.Errorf("%s: the next call: %v\n%s", what, a, s.logs)
	}
	if !told {
		t.Errorf("%s: no answer says that the state is lost: %v", what, a)
	}
	h.works(t, s, what+": the call after that")
}

// session starts a server with a session that has x.
func (h *engineHost) session(t *testing.T) (*client, string) {
	t.Helper()
	s := h.serve(t)
	if a := wait(s.runPython("x = 41"), containerPatience); a.err != nil || a.IsError {
		t.Fatalf("before anything happened: %v\n%s", a, s.logs)
	}
	ids, err := h.containers()
	if err != nil || len(ids) != 1 {
		t.Fatalf("containers %v, %v", ids, err)
	}
	return s, ids[0]
}

// containerKilled: somebody else removes the container.
func (h *engineHost) containerKilled(t *testing.T) {
	for _, busy := range []bool{false, true} {
		what := fmt.Sprintf("a container removed, busy %v", busy)
		s, id := h.session(t)
		var pending <-chan answer
		if busy {
			pending = s.runPython("import time\ntime.sleep(600)")
			time.Sleep(200 * time.Millisecond)
		}
		h.must(t, "rm", "--force", id)
		if busy {
			if a := wait(pending, containerPatience); a.err != nil || !a.IsError {
				t.Errorf("%s: the call under way: %v", what, a)
			}
			h.works(t, s, what)
		} else {
			h.lost(t, s, what)
		}
		h.end(t, s, what)
	}
}

// monitorKilled: Podman's monitor of the container dies, which holds its streams.
func (h *engineHost) monitorKilled(t *testing.T) {
	s, id := h.session(t)
	killed := 0
	for _, p := range h.processes() {
		if strings.Contains(p.line, "conmon") && strings.Contains(p.line, id) {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Error("no monitor is found: what is killed here?")
	}
	h.lost(t, s, "the monitor killed")
	// Podman leaves the control groups of a container whose monitor is dead,
	// with nothing in them, however it is removed.
	for _, dir := range h.cgroups(id) {
		if err := os.Remove(dir); err != nil {
			t.Errorf("a control group with something in it: %v", err)
		}
	}
	h.end(t, s, "the monitor killed")
}

// daemonKilled: Docker's daemon dies in the middle of a run and comes back.
func (h *engineHost) daemonKilled(t *testing.T) {
	s, _ := h.session(t)
	pending := s.runPython("import time\ntime.sleep(600)")
	time.Sleep(200 * time.Millisecond)
	h.stopDaemon(unix.SIGKILL)
	if a := wait(pending, containerPatience); a.err != nil || !a.IsError {
		t.Errorf("the call under way: %v", a)
	}
	refused(t, "a call without a daemon", wait(s.runPython("1"), containerPatience), "docker", "daemon")
	h.startDaemon(t)
	h.works(t, s, "with the daemon back")
	// What could not be removed meanwhile goes at the latest with the next start.
	ctx, cancel := context.WithTimeout(context.Background(), containerPatience)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Error(err)
	}
	next := h.serve(t)
	h.works(t, next, "the next server")
	h.end(t, next, "the daemon killed")
}

// daemonStopped: there is no daemon when the first call comes.
func (h *engineHost) daemonStopped(t *testing.T) {
	h.stopDaemon(unix.SIGTERM)
	s := h.serve(t)
	began := time.Now()
	refused(t, "a call without a daemon", wait(s.runPython("1"), containerPatience), "docker", "daemon")
	t.Logf("it was said after %v", time.Since(began).Round(time.Millisecond))
	h.startDaemon(t)
	h.works(t, s, "with the daemon there")
	h.end(t, s, "the daemon stopped")
}

// imageGone: a session that runs goes on without its image; a new one says
// what is missing.
func (h *engineHost) imageGone(t *testing.T) {
	s, _ := h.session(t)
	if out, err := h.client("rmi", "--force", testImage); h.name == "podman" && err != nil {
		t.Logf("podman rmi: %v %s", err, out)
	}
	if a := wait(s.runPython(stateProbe), containerPatience); h.name == "docker" && !strings.Contains(a.text(), "x is 41") {
		t.Errorf("the session that ran: %v", a)
	}
	h.end(t, s, "the image gone, the old session")
	_, _ = h.client("rmi", "--force", testImage)
	next := h.serve(t)
	refused(t, "a new session", wait(next.runPython("1"), containerPatience), testImage)
	h.must(t, "import", "--change", `CMD ["python3"]`, os.Getenv(archiveEnv), testImage)
	h.works(t, next, "with the image back")
	h.end(t, next, "the image gone")
}

// noEngine: the engine's program is not installed.
func (h *engineHost) noEngine(t *testing.T) {
	env := append([]string{}, h.env...)
	for i, v := range env {
		if strings.HasPrefix(v, "PATH=") {
			env[i] = "PATH=" + filepath.Join(h.place, "home")
		}
	}
	s := dial(t, h.exe, env, nil, filepath.Join(h.place, "home"))
	refused(t, "a call", wait(s.runPython("1"), containerPatience), h.name)
	h.end(t, s, "no engine")
}

// diskFull: a start without room fails and leaves nothing; with room it works.
func (h *engineHost) diskFull(t *testing.T) {
	filler := filepath.Join(h.place, "storage", "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	// The storage is a small file system of its own: it is full soon.
	n, err := io.Copy(f, io.LimitReader(zeros{}, 2<<30))
	if err == nil {
		t.Fatalf("%d bytes went in: the storage is not bounded", n)
	}
	_ = f.Close()
	s := h.serve(t)
	a := wait(s.runPython("1"), containerPatience)
	if a.err == nil && a.IsError {
		refused(t, "a call without room", a, "no space left")
	} else {
		t.Errorf("a call without room: %v", a)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	h.works(t, s, "with room again")
	h.end(t, s, "the disk full")
}

// zeros is as long as it is read.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

//go:build linux

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

const (
	// archiveEnv is the file that the container engines' image is imported
	// from; without it their faults are not tried. test/engines/run makes it.
	archiveEnv = "SALLYPORT_TEST_ARCHIVE"
	runtimeEnv = "SALLYPORT_TEST_RUNTIME"
	testImage  = "localhost/sallyport-faults:1"

	// containerPatience bounds what a container engine takes on a busy machine.
	containerPatience = 90 * time.Second
)

// An engineHost is a container engine of the test's own, with its image, and
// the Sallyports that use it.
type engineHost struct {
	name  string // podman or docker
	exe   string
	place string // everything below it is the test's
	env   []string
	ids   map[string]bool // of every container that was seen

	daemon *exec.Cmd // Docker's; nil while it is stopped
}

// newEngineHost makes one whose storage may grow by room bytes beyond its
// image; 0 is no bound.
func newEngineHost(t *testing.T, name string, room int64) *engineHost {
	t.Helper()
	bin, archive := os.Getenv("SALLYPORT_BIN"), os.Getenv(archiveEnv)
	if bin == "" || archive == "" {
		sandboxtest.Skip(t, "faults."+name, "SALLYPORT_BIN or "+archiveEnv+" is not set")
	}
	if os.Geteuid() != 0 {
		sandboxtest.Skip(t, "faults."+name, "only root gives an engine a storage of its own here")
	}
	place, err := os.MkdirTemp("/tmp", "sallyport-faults-")
	if err != nil {
		t.Fatal(err)
	}
	h := &engineHost{name: name, place: place, exe: filepath.Join(place, "sallyport"), ids: map[string]bool{}}
	t.Cleanup(h.remove)
	sandboxtest.Copy(t, bin, h.exe)
	for _, dir := range []string{"home", "run", "state", "cache", "storage"} {
		if err := os.Mkdir(filepath.Join(place, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if room > 0 {
		info, err := os.Stat(archive)
		if err != nil {
			t.Fatal(err)
		}
		// The image is there as an archive for a moment, and as files; without
		// an overlay each container has a copy of its own, and one to begin with.
		size := fmt.Sprintf("size=%d", 5*info.Size()+room)
		if err := unix.Mount("none", filepath.Join(place, "storage"), "tmpfs", 0, size); err != nil {
			t.Fatal(err)
		}
	}
	h.env = []string{
		"HOME=" + filepath.Join(place, "home"), "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR=" + filepath.Join(place, "run"), "XDG_CACHE_HOME=" + filepath.Join(place, "cache"),
		"XDG_STATE_HOME=" + filepath.Join(place, "state"),
		"SALLYPORT_ENGINE=" + name, "SALLYPORT_IMAGE=" + testImage, "SALLYPORT_IMAGES_PULL=never", "SALLYPORT_POLICY_MIN_ISOLATION=container",
	}
	storage := filepath.Join(place, "storage")
	if name == "podman" {
		conf := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", storage+"/graph", storage+"/runroot")
		if err := os.WriteFile(place+"/storage.conf", []byte(conf), 0o644); err != nil {
			t.Fatal(err)
		}
		h.env = append(h.env, "CONTAINERS_STORAGE_CONF="+place+"/storage.conf")
		if r := os.Getenv(runtimeEnv); r != "" {
			h.env = append(h.env, "SALLYPORT_CONTAINER_RUNTIME="+r)
		}
	} else {
		h.env = append(h.env, "DOCKER_HOST=unix://"+place+"/d.sock")
		h.startDaemon(t)
	}
	h.must(t, "import", "--change", `CMD ["python3"]`, archive, testImage)
	return h
}

// remove takes everything down, whatever the test has left.
func (h *engineHost) remove() {
	if h.name == "podman" {
		_, _ = h.client("rm", "--all", "--force", "--time", "0")
	}
	h.stopDaemon(unix.SIGKILL)
	for _, p := range h.processes() {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
	mounts := h.mounts("")
	slices.Reverse(mounts)
	for _, m := range mounts {
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
	_ = os.RemoveAll(h.place)
}

func (h *engineHost) startDaemon(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(h.place+"/dockerd.log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_ = os.Remove(h.place + "/d.pid") // what a killed one leaves keeps the next from starting
	h.daemon = exec.Command("dockerd", "--data-root", h.place+"/storage/root", "--exec-root", h.place+"/exec",
		"-H", "unix://"+h.place+"/d.sock", "-p", h.place+"/d.pid", "--iptables=false", "--bridge=none", "--storage-driver", "overlay2")
	h.daemon.Stdout, h.daemon.Stderr = log, log
	if err := h.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, "the daemon does not answer", containerPatience, func() []string {
		if out, err := h.client("info"); err != nil {
			return []string{fmt.Sprint(err), out}
		}
		return nil
	})
}

// stopDaemon ends Docker's daemon and waits for its end. Its containers live on
// where it was killed.
func (h *engineHost) stopDaemon(s unix.Signal) {
	if h.daemon == nil {
		return
	}
	_ = h.daemon.Process.Signal(s)
	_ = h.daemon.Wait()
	h.daemon = nil
}

// client runs the engine's own client.
func (h *engineHost) client(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), containerPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.name, args...)
	cmd.Env = h.env
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (h *engineHost) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.client(args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", h.name, strings.Join(args, " "), err, out)
	}
	return out
}

// containers lists all, by ID, and remembers them.
func (h *engineHost) containers() ([]string, error) {
	out, err := h.client("ps", "--all", "--quiet", "--no-trunc")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	ids := strings.Fields(out)
	for _, id := range ids {
		h.ids[id] = true
	}
	return ids, nil
}

type hostProcess struct {
	pid  int
	line string
}

// processes are those that have the test's place in their arguments, the daemon
// and its own excepted.
func (h *engineHost) processes() []hostProcess {
	var found []hostProcess
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		line := string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
		if !strings.Contains(line, h.place) || strings.HasPrefix(line, "dockerd ") || strings.HasPrefix(line, "containerd ") {
			continue
		}
		p := hostProcess{line: line}
		if _, err := fmt.Sscanf(file, "/proc/%d/", &p.pid); err == nil {
			found = append(found, p)
		}
	}
	return found
}

// mounts lists the mount points below the test's place that contain part.
func (h *engineHost) mounts(part string) []string {
	b, _ := os.ReadFile("/proc/self/mounts")
	var points []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], h.place+"/") && strings.Contains(f[1], part) {
			points = append(points, f[1])
		}
	}
	return points
}

// cgroups are those of one container, the deepest first.
func (h *engineHost) cgroups(id string) []string {
	var found []string
	for _, depth := range []string{"*/*", "*/*/*", "*/*/*/*"} {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/" + depth)
		for _, dir := range dirs {
			if strings.Contains(dir, id) {
				if info, err := os.Lstat(dir); err == nil && info.IsDir() {
					found = append(found, dir)
				}
			}
		}
	}
	slices.Reverse(found)
	return found
}

// left lists what sandboxes have left on the host.
func (h *engineHost) left() []string {
	var left []string
	ids, err := h.containers()
	if err != nil {
		left = append(left, err.Error())
	}
	for _, id := range ids {
		left = append(left, "container "+id)
	}
	for _, p := range h.processes() {
		left = append(left, fmt.Sprintf("process %d: %.150s", p.pid, p.line))
	}
	// What belongs to a container, not to the storage itself.
	for _, part := range []string{"/merged", "/shm", "/userdata", "/overlay-containers", "/containers/"} {
		for _, m := range h.mounts(part) {
			left = append(left, "mount "+m)
		}
	}
	for id := range h.ids {
		for _, dir := range h.cgroups(id) {
			left = append(left, "cgroup "+dir)
		}
	}
	return left
}

// nothingLeft waits until no sandbox has left anything.
func (h *engineHost) nothingLeft(t *testing.T, what string) {
	t.Helper()
	eventuallyWithin(t, what+": left behind", containerPatience, h.left)
}

// serve starts a server.
func (h *engineHost) serve(t *testing.T) *client {
	t.Helper()
	return dial(t, h.exe, h.env, nil, filepath.Join(h.place, "home"))
}

// end hangs up and waits until nothing is left.
func (h *engineHost) end(t *testing.T, s *client, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), containerPatience)
	defer cancel()
	if err := s.hangUp(ctx); err != nil {
		t.Errorf("%s: %v\n%s", what, err, s.logs)
	}
	h.nothingLeft(t, what)
}

// works fails t where a call does not succeed.
func (h *engineHost) works(t *testing.T, s *client, what string) {
	t.Helper()
	if a := wait(s.runPython("print(6 * 7)"), containerPatience); a.err != nil || a.IsError || !strings.Contains(a.text(), "42") {
		t.Errorf("%s: %v\n%s", what, a, s.logs)
	}
}

// refused checks that a call failed, as a tool's result that says each of words.
func refused(t *testing.T, what string, a answer, words ...string) {
	t.Helper()
	switch {
	case errors.Is(a.err, errLate):
		t.Errorf("%s: no answer within %v", what, containerPatience)
	case a.err != nil:
		t.Errorf("%s: not a result: %v", what, a)
	case !a.IsError:
		t.Errorf("%s: it succeeded: %v", what, a)
	default:
		text := strings.ToLower(a.text() + " " + a.Structured.Error)
		for _, w := range words {
			if !strings.Contains(text, strings.ToLower(w)) {
				t.Errorf("%s: the error does not say %q: %s", what, w, a.text())
			}
		}
	}
}

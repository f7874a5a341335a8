//go:build linux

package cli_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/systemd"
)

// hubUser is a user whose clients share a hub.
type hubUser struct {
	t       *testing.T
	bin     string
	env     []string
	home    string
	runtime string
}

func newHubUser(t *testing.T, more ...string) *hubUser {
	t.Helper()
	h := &hubUser{t: t, bin: executable(t), home: t.TempDir(), runtime: t.TempDir()}
	if err := os.Chmod(h.runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	h.env = append([]string{
		"HOME=" + h.home, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + h.runtime,
		"SALLYPORT_HUB_IDLE=1s", "SALLYPORT_SESSIONS_POOL=0", "SALLYPORT_CATALOG_REFRESH=off",
	}, more...)
	return h
}

// client is a client that has been welcomed.
type hubClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (h *hubUser) serve() *hubClient {
	h.t.Helper()
	c := &hubClient{cmd: exec.Command(h.bin, "serve")}
	c.cmd.Env, c.cmd.Dir, c.cmd.Stderr = h.env, h.runtime, h.t.Output()
	c.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	var out io.Reader
	var err error
	if c.in, err = c.cmd.StdinPipe(); err == nil {
		if out, err = c.cmd.StdoutPipe(); err == nil {
			err = c.cmd.Start()
		}
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	c.out = bufio.NewReader(out)
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`+"\n")
	if line, err := c.out.ReadString('\n'); err != nil || !strings.Contains(line, `"serverInfo"`) {
		h.t.Fatalf("initialize: got %q, %v", line, err)
	}
	return c
}

// leave ends a client.
func (h *hubUser) leave(c *hubClient) {
	h.t.Helper()
	_ = c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		h.t.Error(err)
	}
}

// hub returns the process of the hub that runs, which ends with the test.
func (h *hubUser) hub() int {
	h.t.Helper()
	cmd := exec.Command(h.bin, "hub", "status", "--json")
	cmd.Env = h.env
	out, err := cmd.Output()
	type one struct {
		PID      int
		Settings map[string]string
	}
	var status struct{ Hubs []one }
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	// Others of this user, with other homes, may run.
	status.Hubs = slices.DeleteFunc(status.Hubs, func(o one) bool { return !strings.HasPrefix(o.Settings["stateDir"], h.home+"/") })
	if err != nil || len(status.Hubs) != 1 {
		h.t.Fatalf("hub status: got %s, %v; want one hub with its state in %s", out, err, h.home)
	}
	pid := status.Hubs[0].PID
	h.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return pid
}

// gone waits for the end of a process.
func (h *hubUser) gone(pid int) {
	h.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n != 1 {
		h.t.Fatalf("process %d has not ended: %v", pid, err)
	}
}

// units stands in for a user's systemd.
type units struct{ asked chan []uint32 }

func (u *units) StartTransientUnit(name, _ string, props []systemd.Property, _ []systemd.Auxiliary) (dbus.ObjectPath, *dbus.Error) {
	for _, p := range props {
		if pids, ok := p.Value.Value().([]uint32); ok && strings.HasPrefix(name, "sallyport-hub-") && strings.HasSuffix(name, ".scope") {
			u.asked <- pids
		}
	}
	return "/org/freedesktop/systemd1/job/1", nil
}

// TestHubIsDetached: a hub is in a session and in a control group of its own, and
// has nothing of the client that started it but what all clients have.
func TestHubIsDetached(t *testing.T) {
	address := sandboxtest.Bus(t)
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	manager := &units{make(chan []uint32, 10)}
	if err := conn.Export(manager, systemd.Path, systemd.Manager); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(systemd.Name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	const secret = "s3cret-of-the-client"
	h := newHubUser(t, "DBUS_SESSION_BUS_ADDRESS="+address, "GITHUB_TOKEN="+secret, "SALLYPORT_RUNPOD_KEY="+secret,
		"RUNPOD_API_KEY="+secret, "HTTPS_PROXY=http://user:"+secret+"@127.0.0.1:1")
	c := h.serve()
	pid := h.hub()
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the hub's session: got %d, %v, want its own, %d", sid, err, pid)
	}
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the hub's process group: got %d, %v, want its own, %d", group, err, pid)
	}
	for _, file := range []string{"environ", "cmdline"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), secret) || file == "environ" && !strings.Contains(string(data), "HOME=") {
			t.Errorf("%s of the hub: got %q, want no secret", file, data)
		}
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != "/" {
		t.Errorf("the hub's directory: got %q, %v, want /", dir, err)
	}
	select {
	case pids := <-manager.asked:
		if len(pids) != 1 || int(pids[0]) != pid {
			t.Errorf("a control group for: got %d, want %d", pids, pid)
		}
	default: // the hub asks before it serves
		t.Error("no control group was asked for")
	}
	// It outlives the client's whole process group.
	if err := unix.Kill(-c.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	second := h.serve()
	if got := h.hub(); got != pid {
		t.Errorf("after its client was killed: got hub %d, want %d", got, pid)
	}
	h.leave(second)
	h.gone(pid)
}

// TestSocketActivation: a service manager's socket starts the hub for the client
// that connects, whenever it has ended.
func TestSocketActivation(t *testing.T) {
	h := newHubUser(t)
	dir := filepath.Join(h.runtime, "sallyport", "hub")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "hub.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	passed, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	// The manager starts the service when a client waits, and again after its end.
	over := make(chan struct{})
	started := make(chan int, 10)
	managed := make(chan struct{})
	go func() {
		defer close(managed)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(passed.Fd()), Events: unix.POLLIN}}, 50)
			select {
			case <-over:
				return
			default:
			}
			if n < 1 || err != nil {
				continue
			}
			cmd := exec.Command("/bin/sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" hub run`, h.bin)
			cmd.Env, cmd.ExtraFiles, cmd.Stderr = h.env, []*os.File{passed}, t.Output()
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			started <- cmd.Process.Pid
			if err := cmd.Wait(); err != nil {
				t.Errorf("the hub: %v", err)
			}
		}
	}()
	defer func() {
		close(over)
		select {
		case pid := <-started: // of a test that failed before it was told
			_ = unix.Kill(pid, unix.SIGKILL)
		default:
		}
		<-managed
	}()
	for round := range 3 {
		c := h.serve()
		pid := <-started
		if got := h.hub(); got != pid {
			t.Errorf("round %d: the client's hub is %d, want the manager's, %d", round, got, pid)
		}
		other := h.serve()
		if got := h.hub(); got != pid {
			t.Errorf("round %d: the second client's hub is %d, want %d", round, got, pid)
		}
		h.leave(other)
		h.leave(c)
		h.gone(pid) // it is idle
		if _, err := os.Lstat(filepath.Join(dir, "hub.sock")); err != nil {
			t.Errorf("round %d: the manager's socket: %v", round, err)
		}
	}
	select {
	case pid := <-started:
		t.Errorf("a hub was started for nobody: %d", pid)
	default:
	}
}

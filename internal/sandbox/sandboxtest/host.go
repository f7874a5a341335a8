//go:build linux

package sandboxtest

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A host is what the test puts on the host for attempts to reach: listeners,
// files, secrets, a process. All of it is removed when the test ends.
type host struct {
	token  string
	python string
	tmp    string // scratch of the native controls, below /tmp
	perm   *canary
	native *folders // for controls
	params map[string]any
}

// tokenEnv carries the host's secret in the test's own environment. An engine
// that passed its environment on would expose it.
const tokenEnv = "SALLYPORT_TEST_SECRET"

func randomToken() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// newHost plants everything. Call it before making the engine, so that the
// engine's process has the secret in its environment.
func newHost(t *testing.T, cfg *Config) *host {
	t.Helper()
	h := &host{token: randomToken(), python: cfg.HostPython}
	t.Setenv(tokenEnv, h.token)
	addresses, interfaces := hostAddresses(t)
	hostname, _ := os.Hostname()
	h.params = map[string]any{
		"token": h.token, "hostname": hostname, "release": unameRelease(),
		"addresses": addresses, "interfaces": interfaces, "resolvers": resolvers(),
		"bootid": strings.TrimSpace(readString("/proc/sys/kernel/random/boot_id")),
		"uptime": hostUptime(), "now": float64(time.Now().UnixMilli()) / 1000,
		"tcp": h.listenTCP(t), "udp": h.listenUDP(t), "dialled": h.dial(t),
	}
	h.listenUnix(t)
	h.plantFiles(t)
	h.native = h.newFolders(t)
	if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("sallyport test canary " + h.token + "\n")
		_ = f.Close()
	}
	state := cfg.StateDir
	if state == "" {
		state = t.TempDir()
	}
	h.params["state"] = []string{state}
	h.params["hostwords"] = append([]string{state, h.token}, rootDevice()...)
	h.perm = newCanary(t, h.python, h.token)
	h.params["canary"] = h.perm.params()
	// When process numbers wrap around, the kernel continues at 300
	// (RESERVED_PIDS): a number below is not recent, but may be one in the
	// sandbox.
	newest := h.perm.cmd.Process.Pid
	h.params["pids"] = []int{min(newest, max(newest-3000, 300)), newest}
	return h
}

// with returns the parameters of one attempt.
func (h *host) with(more map[string]any) map[string]any {
	p := maps.Clone(h.params)
	maps.Copy(p, more)
	return p
}

func (h *host) listenTCP(t *testing.T) int {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	h.serve(t, l)
	return l.Addr().(*net.TCPAddr).Port
}

// serve answers every connection with the secret.
func (h *host) serve(t *testing.T, l net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(conn, h.token)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

func (h *host) listenUDP(t *testing.T) int {
	c, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(h.token), from)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c.LocalAddr().(*net.UDPAddr).Port
}

// dial keeps connecting to a port on which nothing listens on the host.
func (h *host) dial(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if conn, err := net.DialTimeout("tcp", addr.String(), time.Second); err == nil {
				_, _ = io.WriteString(conn, h.token)
				_ = conn.Close()
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return addr.Port
}

func (h *host) listenUnix(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "sallyport-host-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h.tmp = dir
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h.serve(t, l)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	abstract := "sallyport-" + h.token
	a, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	h.serve(t, a)
	h.params["unix"], h.params["abstract"] = path, abstract
}

// plantFiles puts a world-readable secret into each directory that it can write
// to.
func (h *host) plantFiles(t *testing.T) {
	files := map[string]string{}
	plant := func(dir string) string {
		path := filepath.Join(dir, "sallyport-canary-"+h.token)
		if err := os.WriteFile(path, []byte(h.token), 0o644); err != nil {
			return ""
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		return path
	}
	for _, dir := range canaryDirs {
		if path := plant(dir); path != "" {
			files[dir] = path
		}
	}
	if files["/tmp"] == "" {
		t.Fatal("the test cannot write to /tmp")
	}
	h.params["files"] = files
	h.params["home"] = files["/tmp"]
	if home, err := os.UserHomeDir(); err == nil {
		if files[home] != "" {
			h.params["home"] = files[home]
		} else if path := plant(home); path != "" {
			h.params["home"] = path
		}
	}
}

func hostAddresses(t *testing.T) (addresses, interfaces []string) {
	addresses, interfaces = []string{}, []string{}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		if i.Flags&net.FlagLoopback == 0 {
			interfaces = append(interfaces, i.Name)
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				addresses = append(addresses, n.IP.String())
			}
		}
	}
	return addresses, interfaces
}

func resolvers() []string {
	list := []string{}
	for line := range strings.Lines(readString("/etc/resolv.conf")) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" {
			list = append(list, f[1])
		}
	}
	return list
}

// rootDevice returns what the host's root is mounted from. If the sandbox's
// mount table names it, it is the host's table.
func rootDevice() []string {
	for line := range strings.Lines(readString("/proc/self/mounts")) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "/" && strings.HasPrefix(f[0], "/dev/") {
			return f[:1]
		}
	}
	return nil
}

func unameRelease() string {
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return ""
	}
	b := make([]byte, 0, len(u.Release))
	for _, c := range u.Release {
		b = append(b, byte(c))
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func hostUptime() float64 {
	f, _, _ := strings.Cut(readString("/proc/uptime"), " ")
	v, _ := strconv.ParseFloat(f, 64)
	return v
}

// readString reads a small file of the host. It returns "" if there is none.
func readString(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(b)
}

//go:build linux

package socket

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// visit is a program that connects to a socket and says what it hears.
const visit = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    print(s.recv(100).decode())
except OSError as e:
    print(e.strerror)
`

// Even where a directory would let another user in, the socket does not answer.
func TestStrangersAreSentAway(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root to be another user, and a Python")
	}
	dir, err := os.MkdirTemp("/tmp", "socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, p := range []string{dir, path} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	g := Inherited(listener, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("welcome"))
			_ = c.Close()
		}
	}()
	for uid, welcome := range map[uint32]bool{0: true, 65534: false} {
		cmd := exec.Command(python, "-I", "-S", "-c", visit, path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if strings.Contains(string(out), "welcome") != welcome {
			t.Errorf("user %d heard %q", uid, out)
		}
	}
	_ = listener.Close()
	<-served
}

// Nobody speaks with a socket that another user has put there.
func TestStrangeServer(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("it takes root to be another user, and a Python")
	}
	for uid, trusted := range map[uint32]bool{0: true, 65534: false} {
		dir, err := os.MkdirTemp("/tmp", "socket")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-I", "-S", "-c", `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print("listening", flush=True)
sys.stdin.read()
`, filepath.Join(dir, "strange"))
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(t.Context(), dir, "strange")
		if (err == nil) != trusted {
			t.Errorf("user %d: got the error %v, want it trusted: %v", uid, err, trusted)
		}
		if err == nil {
			_ = conn.Close()
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

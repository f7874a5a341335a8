//go:build linux && (amd64 || arm64)

package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestKiller: the thread that ends a user's processes is none that they could
// end, and never the program's first.
func TestKiller(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	const uid = firstUser + 0x3fff00
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	onThread(func() {
		if !becomeKiller(uid) {
			t.Error("it has not become that")
		}
		real, effective, saved := unix.Getresuid()
		if real == uid || saved == uid || real == 0 || saved == 0 || effective != uid {
			t.Errorf("users %d, %d, %d", real, effective, saved)
		}
		if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
			t.Errorf("the run's own: %v", err)
		}
		if err := unix.Kill(os.Getppid(), 0); err == nil {
			t.Error("it may signal others")
		}
	})
	killUser(uid)
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	for range 300 {
		onThread(func() {
			if unix.Gettid() == unix.Getpid() {
				t.Error("the program's first thread")
			}
		})
	}
}

// TestSharedUser: where the code is of the program's own user, services that
// trust that user are out of its reach, and so are the program's limits.
func TestSharedUser(t *testing.T) {
	if landlockVersion() < landlockSignals {
		t.Skip("no Landlock")
	}
	b := engine(t, Options{NoNamespaces: true})
	b.root = false
	dir, err := os.MkdirTemp("/var/tmp", "sallyport-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code := fmt.Sprintf(`
import os, resource, socket
def pair():
    a, b = socket.socketpair()
    a.send(b"x")
    return b.recv(1)
for f in (lambda: socket.socket(socket.AF_UNIX).connect(%q), lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
          lambda: resource.prlimit(%d, resource.RLIMIT_NOFILE), lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)), pair):
    try:
        print(f())
    except OSError as e:
        print(type(e).__name__)
`, path, os.Getpid())
	got := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "shared"}).exec(t, code)
	if want := "OSError\nOSError\nPermissionError\nNone\nb'x'\n"; got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestSharedDirs: runs that share /tmp do not read each other's files there.
// They begin at a time.
func TestSharedDirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	b := engine(t, Options{NoNamespaces: true})
	var wg sync.WaitGroup
	runs := make([]sandbox.Run, 4)
	for i := range runs {
		wg.Go(func() {
			var err error
			if runs[i], err = b.Start(t.Context(), &sandbox.Spec{Program: python.Program(), ID: "run" + strconv.Itoa(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	made, err := filepath.Glob(filepath.Join(b.dir.sharedDir(), "run*"))
	if err != nil || len(made) != len(runs) {
		t.Errorf("%v, %v", made, err)
	}
	for _, r := range runs {
		if r != nil {
			if err := r.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	one, two := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "one"}), start(t, b, &sandbox.Spec{Program: python.Program(), ID: "two"})
	name := "/tmp/sallyport-test-" + strconv.Itoa(os.Getpid())
	if got := one.exec(t, fmt.Sprintf("open(%q, 'w').write('mine')", name)); got != "4\n" {
		t.Fatalf("got %s", got)
	}
	if got := two.exec(t, fmt.Sprintf("open(%q).read()", name)); !strings.Contains(got, "PermissionError") {
		t.Errorf("got %s", got)
	}
}

// TestSticky: directories whose files everybody can rename are not shared.
func TestSticky(t *testing.T) {
	safe, unsafe := t.TempDir(), t.TempDir()
	if err := os.Chmod(safe, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(unsafe, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := sticky([]string{safe, unsafe, filepath.Join(safe, "none")}); len(got) != 1 || got[0] != safe {
		t.Errorf("got %v", got)
	}
}

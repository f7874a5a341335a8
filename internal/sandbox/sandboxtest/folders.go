//go:build linux

package sandboxtest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// folderModes are the modes of the folders that a sandbox with folders has, each at
// /mnt/MODE.
var folderModes = []sandbox.MountMode{sandbox.ReadOnly, sandbox.ReadWrite, sandbox.Copy}

// folders are the folders of a test on the host.
type folders struct {
	base   string // has a folder for each mode, and the folder outside
	secret string // a file outside of the folders that has the token
}

// at returns the place of a folder on the host.
func (f *folders) at(mode sandbox.MountMode) string { return filepath.Join(f.base, string(mode)) }

// mounts returns the mounts of all folders.
func (f *folders) mounts() []sandbox.Mount {
	var out []sandbox.Mount
	for _, mode := range folderModes {
		out = append(out, sandbox.Mount{Source: f.at(mode), Target: "/mnt/" + string(mode), Mode: mode})
	}
	return out
}

// folderParams returns what attempts need to know: where the folders are, on the host
// or in a sandbox, and a secret of the host.
func folderParams(base, secret string) map[string]any {
	p := map[string]any{"secret": secret}
	for _, mode := range folderModes {
		p[string(mode)] = filepath.Join(base, string(mode))
	}
	return p
}

// newFolders makes folders that hold traps. What code reaches through them outside
// has the token.
func (h *host) newFolders(t *testing.T) *folders {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &folders{base: base, secret: filepath.Join(base, "outside", "secret")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Dir(f.secret), 0o700))
	must(os.WriteFile(f.secret, []byte(h.token), 0o600))
	for _, mode := range folderModes {
		dir := f.at(mode)
		in := func(name string) string { return filepath.Join(dir, name) }
		for _, d := range []string{"", "dir", "empty", "swapped"} {
			must(os.Mkdir(in(d), 0o700))
		}
		for _, name := range []string{"writes.txt", "dir/inner.txt", "swapped/secret"} {
			must(os.WriteFile(in(name), []byte("data of the folder\n"), 0o600))
		}
		for name, target := range map[string]string{
			"absolute": f.secret, "up": "../outside/secret", "chain": "chained", "chained": "absolute",
			"proc": "/proc/self/root" + f.secret, "upwards": "../outside", "dir/deep": "../../outside/secret",
			"swap": "../outside",
		} {
			must(os.Symlink(target, in(name)))
		}
		h.special(t, dir)
		if mode != sandbox.Copy {
			h.swap(t, in("swapped"), in("swap"))
		}
	}
	return f
}

// special makes a socket, a pipe and, as root, devices in dir.
func (h *host) special(t *testing.T, dir string) {
	t.Helper()
	// Through a descriptor: a socket's path must be short.
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := net.Listen("unix", "/proc/self/fd/"+strconv.Itoa(int(d.Fd()))+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	h.serve(t, l)
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for range 8 {
		if _, err := f.WriteString(h.token); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		_ = unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		_ = unix.Mknod(filepath.Join(dir, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0)))
	}
}

// swap swaps two names until the test ends.
func (h *host) swap(t *testing.T, a, b string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				return
			}
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1_000_000}, nil) // leave the processors to others
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// mountsFolders reports whether the engine can start a sandbox with these folders.
func (s *suite) mountsFolders(t *testing.T, b sandbox.Engine, mounts []sandbox.Mount) bool {
	t.Helper()
	spec := s.spec()
	spec.Mounts = mounts
	run, err := b.Start(t.Context(), spec)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return false
	}
	if err != nil {
		t.Fatalf("Start with folders: %v", err)
	}
	(&session{run: run}).destroy(t)
	return true
}

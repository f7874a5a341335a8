//go:build linux && (amd64 || arm64)

package process

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// owner owns the folders of tests, another user than root, if root runs them.
const owner = 54321

// ownFolder makes a folder that nobody but its owner can read, with one file.
func ownFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sallyport-folder-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("read"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(dir, owner, owner), os.Chown(file, owner, owner)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const tryFolder = `
import fcntl, os, socket
def attempt(what, f):
    try:
        print(what, f() or "done", end=";")
    except OSError as e:
        print(what, "refused", end=";")
d = "/mnt/d/"
attempt("read", lambda: open(d + "secret").read())
attempt("write", lambda: open(d + "new", "w").close())
attempt("setuid", lambda: os.chmod(d + "new", 0o4755))
attempt("born setuid", lambda: os.open(d + "born", os.O_CREAT | os.O_WRONLY, 0o6755))
attempt("run", lambda: os.execv(d + "true", ["true"]))
attempt("connect", lambda: socket.socket(socket.AF_UNIX).connect(d + "socket"))
attempt("send", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", d + "socket"))
attempt("pipe", lambda: os.read(os.open(d + "sub/pipe", os.O_RDWR | os.O_NONBLOCK), 9))
attempt("lock", lambda: fcntl.flock(open(d + "secret"), fcntl.LOCK_EX))
attempt("leave", lambda: open(d + "link").read())
pair = socket.socketpair()
`

func TestFolders(t *testing.T) {
	b := engine(t, Options{})
	if err := b.tryNamespaces(); err != nil {
		t.Skip(err)
	}
	blocked := "setuid refused;born setuid refused;run refused;connect refused;send refused;pipe refused;lock refused;leave refused;"
	for _, tt := range []struct {
		mode           sandbox.MountMode
		want, fromHost string // what code does, and the folder's files afterwards
	}{
		{sandbox.ReadOnly, "read read;write refused;" + blocked, "link secret socket sub true"},
		{sandbox.ReadWrite, "read read;write done;" + blocked, "link new secret socket sub true"},
		{sandbox.Copy, "read read;write done;" + blocked, "link secret socket sub true"},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			dir := ownFolder(t)
			l, err := net.Listen("unix", filepath.Join(dir, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			program, err := os.ReadFile("/bin/true")
			if err != nil {
				t.Fatal(err)
			}
			pipe := filepath.Join(dir, "sub/pipe")
			outside := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+"-outside")
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "true"), program, 0o777), os.WriteFile(outside, nil, 0o644),
				os.Chmod(filepath.Join(dir, "socket"), 0o777), os.Mkdir(filepath.Join(dir, "sub"), 0o777), unix.Mkfifo(pipe, 0o666), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(outside)
			host, err := os.OpenFile(pipe, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			if _, err := host.WriteString("from the host"); err != nil {
				t.Fatal(err)
			}
			s := start(t, b, &sandbox.Spec{ID: "folder-" + string(tt.mode), Program: python.Program(), Mounts: []sandbox.Mount{{Source: dir, Target: "/mnt/d", Mode: tt.mode}}})
			if got := s.exec(t, tryFolder); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			entries, err := os.ReadDir(dir)
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if got := strings.Join(names, " "); err != nil || got != tt.fromHost {
				t.Errorf("the folder has %q (%v), want %q", got, err, tt.fromHost)
			}
			if tt.mode == sandbox.ReadWrite {
				fi, err := os.Stat(filepath.Join(dir, "new"))
				of, _ := os.Stat(dir)
				if err != nil || fi.Sys().(*syscall.Stat_t).Uid != of.Sys().(*syscall.Stat_t).Uid || fi.Mode() != 0o644 {
					t.Errorf("a new file: %v, %v, want the folder's owner and 0644", fi, err)
				}
			}
		})
	}
}

// TestFoldersRefused: what no mount could make safe.
func TestFoldersRefused(t *testing.T) {
	b := engine(t, Options{})
	if err := b.tryNamespaces(); err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		name   string
		change func(dir string) (source string, err error)
		want   string
	}{
		{"link", func(dir string) (string, error) { return dir + "/link", os.Symlink("/etc", dir+"/link") }, "is a symbolic link"},
		{"link on the way", func(dir string) (string, error) { return dir + "/link/ssl", os.Symlink("/etc", dir+"/link") }, "is a symbolic link"},
		{"file", func(dir string) (string, error) { return dir + "/secret", nil }, "is not a folder"},
		{"gone", func(dir string) (string, error) { return dir + "/none", nil }, "is gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source, err := tt.change(ownFolder(t))
			if err != nil {
				t.Fatal(err)
			}
			run, err := b.Start(t.Context(), &sandbox.Spec{ID: "refused", Program: python.Program(), Mounts: []sandbox.Mount{{Source: source, Target: "/mnt/d", Mode: sandbox.ReadOnly}}})
			if err == nil {
				_ = run.Destroy(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestFoldersNeedNamespaces: the probe reports without them what a start would.
func TestFoldersNeedNamespaces(t *testing.T) {
	b := engine(t, Options{NoNamespaces: true})
	rep, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run, err := b.Start(t.Context(), &sandbox.Spec{ID: "plain", Program: python.Program(), Mounts: []sandbox.Mount{{Source: ownFolder(t), Target: "/mnt/d", Mode: sandbox.ReadOnly}}})
	if err == nil {
		_ = run.Destroy(t.Context())
	}
	if rep.NoFolders == "" || !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), rep.NoFolders) {
		t.Errorf("got the error %v and the report %q, want the same", err, rep.NoFolders)
	}
}

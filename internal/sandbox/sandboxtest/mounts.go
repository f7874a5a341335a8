//go:build linux

package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// mounts tests folders of the host in a sandbox. What must not be reachable through
// them is in the catalogue.
func (s *suite) mounts(t *testing.T) {
	b := s.backend(t)
	if !s.mountsFolders(t, b, []sandbox.Mount{{Source: folder(t), Target: "/mnt/data", Mode: sandbox.ReadOnly}}) {
		Skip(t, s.cfg.Engine+".folders", "the engine mounts no folders")
	}
	for _, mode := range folderModes {
		t.Run(string(mode), func(t *testing.T) { s.mode(t, b, mode) })
	}
	t.Run("changes of the host", func(t *testing.T) { s.hostChanges(t, b) })
	t.Run("new files", func(t *testing.T) { s.needIsolation(t); s.newFiles(t, b) })
	t.Run("copy is bounded", func(t *testing.T) { s.copyBounded(t, b) })
	t.Run("locks", func(t *testing.T) { s.needIsolation(t); s.locks(t, b) })
	t.Run("moved away", func(t *testing.T) { s.movedAway(t, b) })
	t.Run("mounted below", func(t *testing.T) { s.mountedBelow(t, b) })
	t.Run("refused", func(t *testing.T) { s.mountRefused(t, b) })
	if _, ok := sandbox.As[sandbox.Restorer](b); ok && s.report.Snapshots {
		t.Run("restored", func(t *testing.T) { s.mountRestored(t, b) })
		t.Run("restored elsewhere", func(t *testing.T) { s.mountChanged(t, b) })
		t.Run("saved without an open file", func(t *testing.T) { s.mountSaved(t, b) })
	}
}

// needIsolation skips what a plain process of the host does as the host does.
func (s *suite) needIsolation(t *testing.T) {
	t.Helper()
	if s.report.Isolation == sandbox.NoIsolation {
		Skip(t, s.cfg.Engine+".isolation", "the engine isolates nothing")
	}
}

// folder makes a folder as people have them: private.
func folder(t *testing.T) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "data")
	for _, d := range []string{dir, dir + "/private"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir+"/data.txt", "data")
	write(t, dir+"/private/inner.txt", "inner")
	write(t, dir+"/private/read-only.txt", "read-only")
	if err := os.Chmod(dir+"/private/read-only.txt", 0o400); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withFolder starts a sandbox with a folder at /mnt/data.
func (s *suite) withFolder(t *testing.T, b sandbox.Engine, dir string, mode sandbox.MountMode) (*session, *sandbox.Spec) {
	t.Helper()
	spec := s.spec()
	spec.Mounts = []sandbox.Mount{{Source: dir, Target: "/mnt/data", Mode: mode}}
	return s.start(t, b, spec), spec
}

// mode tests what code can do with a folder in a mode, and what is then on the
// host.
func (s *suite) mode(t *testing.T, b sandbox.Engine, mode sandbox.MountMode) {
	dir := folder(t)
	if os.Geteuid() == 0 && s.report.Isolation == sandbox.KernelIsolation { // files of others, too: the host's kernel shows those of one user
		write(t, dir+"/other.txt", "other")
		if err := os.Chown(dir+"/other.txt", 4711, 4711); err != nil {
			t.Fatal(err)
		}
	} else {
		write(t, dir+"/other.txt", "other")
	}
	sess, _ := s.withFolder(t, b, dir, mode)
	got := sess.must(t, `
import os
os.chdir("/mnt/data")
print(os.listdir(".."), os.stat("../data").st_mode & 0o777 == 0o700)
print([open(p).read() for p in ("data.txt", "private/inner.txt", "private/read-only.txt", "other.txt")], sorted(os.listdir(".")), os.stat("data.txt").st_uid == os.getuid())
def tries(f):
    try:
        f()
        return True
    except OSError:
        return False
def append():
    with open("data.txt", "a") as f:
        f.write(" changed")
def create():
    with open("new.txt", "w") as f:
        f.write("new")
def remove():
    os.unlink("private/inner.txt")
def move():
    os.rename("new.txt", "private/new.txt")
print([tries(f) for f in (append, create, remove, move)], open("data.txt").read(), sorted(os.listdir("private")))
`)
	can, seen, listed := "True", "data changed", "['new.txt', 'read-only.txt']"
	if mode == sandbox.ReadOnly {
		can, seen, listed = "False", "data", "['inner.txt', 'read-only.txt']"
	}
	want := fmt.Sprintf("['data'] True\n['data', 'inner', 'read-only', 'other'] ['data.txt', 'other.txt', 'private'] True\n[%s] %s %s\n",
		strings.TrimSuffix(strings.Repeat(can+", ", 4), ", "), seen, listed)
	if got != want {
		t.Errorf("the sandbox: got  %swant %s", got, want)
	}
	onHost := fmt.Sprintln(readString(dir+"/data.txt"), exists(dir+"/private/inner.txt"), exists(dir+"/private/new.txt"))
	want = "data true false\n"
	if mode == sandbox.ReadWrite {
		want = "data changed false true\n"
	}
	if onHost != want {
		t.Errorf("the host: got %s want %s", onHost, want)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hostChanges tests that a sandbox sees what the host changes.
func (s *suite) hostChanges(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	sess, _ := s.withFolder(t, b, dir, sandbox.ReadOnly)
	const look = `print(sorted(os.listdir("/mnt/data/private")), [open("/mnt/data/" + n).read() for n in ("data.txt",)], os.path.getsize("/mnt/data/data.txt"), os.path.exists("/mnt/data/new"), held.read())`
	sess.must(t, "import os\nheld = open('/mnt/data/data.txt')\n"+look)
	write(t, dir+"/data.txt", "changed by the host")
	write(t, dir+"/private/added", "")
	write(t, dir+"/new", "")
	if err := os.Remove(dir + "/private/inner.txt"); err != nil {
		t.Fatal(err)
	}
	got := sess.must(t, "held.seek(0)\n"+look)
	if want := "['added', 'read-only.txt'] ['changed by the host'] 19 True changed by the host\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// newFiles tests whose files are that code makes in a folder, and their modes.
func (s *suite) newFiles(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	wantUID := os.Geteuid()
	if wantUID == 0 { // root mounts the folder of a user
		wantUID = 4712
		if err := errors.Join(os.Chown(dir, wantUID, wantUID), os.Chown(dir+"/private", wantUID, wantUID)); err != nil {
			t.Fatal(err)
		}
	}
	sess, _ := s.withFolder(t, b, dir, sandbox.ReadWrite)
	sess.must(t, `
import os
os.chdir("/mnt/data/private")
open("file", "w").close()
os.mkdir("sub")
open("sub/deep", "w").close()
os.symlink("file", "symlink")
os.mknod("node")
os.link("file", "sub/hard")
open("tool", "w").close(); os.chmod("tool", 0o755)
open("private", "w").close(); os.chmod("private", 0o600)
`)
	for name, mode := range map[string]uint32{"file": 0o644, "sub": 0o755, "sub/deep": 0o644, "sub/hard": 0o644, "symlink": 0, "node": 0, "tool": 0o755, "private": 0o600} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "private", name), &st); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if int(st.Uid) != wantUID {
			t.Errorf("%s belongs to %d, want %d", name, st.Uid, wantUID)
		}
		if got := st.Mode & 0o7777; mode != 0 && got != mode {
			t.Errorf("%s has mode %o, want %o", name, got, mode)
		}
	}
}

// copyBounded tests that what code writes to its copy is limited.
func (s *suite) copyBounded(t *testing.T, b sandbox.Engine) {
	s.needLimit(t, sandbox.Disk)
	dir := folder(t)
	spec := s.spec()
	spec.Limits.WorkspaceBytes = 8 << 20
	spec.Mounts = []sandbox.Mount{{Source: dir, Target: "/mnt/data", Mode: sandbox.Copy}}
	sess := s.start(t, b, spec)
	got := sess.must(t, `
import os
try:
    with open("/mnt/data/large", "wb") as f:
        for _ in range(64):
            f.write(bytes(1 << 20))
    print("wrote it all")
except OSError as e:
    print("stopped", os.path.getsize("/mnt/data/large") <= 8 << 20)
os.unlink("/mnt/data/large")
print(open("/mnt/data/data.txt").read())
`)
	if want := "stopped True\ndata\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// locks tests that code cannot hold up the host's programs by locks on a folder that
// it can only read.
func (s *suite) locks(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	sess, _ := s.withFolder(t, b, dir, sandbox.ReadOnly)
	sess.must(t, `
import fcntl
held = open("/mnt/data/data.txt")
try:
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    pass
`)
	f, err := os.OpenFile(dir+"/data.txt", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("the host's lock: %v", err)
	}
}

// movedAway tests that a directory that the host moves out of the folder while code
// has it open leads nowhere.
func (s *suite) movedAway(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, outside+"/secret", "the secret")
	sess, _ := s.withFolder(t, b, dir, sandbox.ReadWrite)
	sess.must(t, "import os\nfd = os.open('/mnt/data/private', os.O_RDONLY)")
	if err := os.Rename(dir+"/private", outside+"/moved"); err != nil {
		t.Fatal(err)
	}
	got := sess.must(t, `
def attempt(path):
    try:
        return os.read(os.open(path, os.O_RDONLY, dir_fd=fd), 99)
    except OSError:
        return None
print([attempt(p) for p in ("../secret", "../../outside/secret", "../../../outside/secret")])
`)
	if want := "[None, None, None]\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	// The control: the host's kernel does lead there.
	fd, err := unix.Open(outside+"/moved", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if f, err := unix.Openat(fd, "../secret", unix.O_RDONLY, 0); err != nil {
		t.Errorf("the control: %v", err)
	} else {
		_ = unix.Close(f)
	}
}

// mountedBelow tests that another file system, mounted below the folder, is not
// shown with it.
func (s *suite) mountedBelow(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	if err := unix.Mount("suite", dir+"/private", "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("only root can mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir+"/private", unix.MNT_DETACH) })
	write(t, dir+"/private/secret", "the secret")
	sess, _ := s.withFolder(t, b, dir, sandbox.ReadOnly)
	got := sess.must(t, `
import os
try:
    print(open("/mnt/data/private/secret").read())
except OSError:
    print("not there")
print(open("/mnt/data/data.txt").read())
`)
	if want := "not there\ndata\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// mountRefused tests that a start fails, and says which folder it could not show.
func (s *suite) mountRefused(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	if err := os.Symlink(filepath.Dir(dir), dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"missing": dir + "/missing", "file": dir + "/data.txt", "link": dir + "/link", "through a link": dir + "/link/data",
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.spec()
			spec.Mounts = []sandbox.Mount{{Source: source, Target: "/mnt/data", Mode: sandbox.ReadOnly}}
			run, err := b.Start(t.Context(), spec)
			if err == nil {
				(&session{run: run}).destroy(t)
			}
			if err == nil || !strings.Contains(err.Error(), source) {
				t.Errorf("Start with the folder %s: got %v, want an error that names it", source, err)
			}
		})
	}
}

// mountRestored tests that a session goes on with its folders: open files, the current
// directory, its own changes.
func (s *suite) mountRestored(t *testing.T, b sandbox.Engine) {
	dirs := map[sandbox.MountMode]string{}
	spec := s.spec()
	for _, mode := range folderModes {
		dirs[mode] = folder(t)
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: dirs[mode], Target: "/mnt/" + string(mode), Mode: mode})
	}
	sess := s.start(t, b, spec)
	sess.must(t, `
import os
x = 42
os.chdir("/mnt/ro/private")
reading, writing = open("/mnt/ro/data.txt"), open("/mnt/rw/data.txt", "a")
reading.read(1)
writing.write("+1"); writing.flush()
open("/mnt/copy/data.txt", "a").write(" of the copy")
removed = open("/mnt/rw/removed", "w+")
removed.write("removed"); removed.flush(); os.unlink("/mnt/rw/removed")
`)
	k := s.take(t, sess, spec, false)
	write(t, dirs[sandbox.ReadOnly]+"/private/inner.txt", "changed meanwhile")
	write(t, dirs[sandbox.ReadWrite]+"/added", "")
	sess = s.restore(t, b, k)
	got := sess.must(t, `
writing.write("+2"); writing.close()
removed.seek(0)
print(x, reading.read(), removed.read(), open("inner.txt").read(), open("/mnt/copy/data.txt").read(), sorted(os.listdir("/mnt/rw")))
`)
	if want := "42 ata removed changed meanwhile data of the copy ['added', 'data.txt', 'private']\n"; got != want {
		t.Errorf("the sandbox: got  %swant %s", got, want)
	}
	if got, want := readString(dirs[sandbox.ReadWrite]+"/data.txt"), "data+1+2"; got != want {
		t.Errorf("the host: got %q want %q", got, want)
	}
	if got, want := readString(dirs[sandbox.Copy]+"/data.txt"), "data"; got != want {
		t.Errorf("the host's original of the copy: got %q want %q", got, want)
	}
}

// mountChanged tests what becomes of a session whose folder has changed since its
// snapshot: it goes on with its variables, or the restore fails and says why.
func (s *suite) mountChanged(t *testing.T, b sandbox.Engine) {
	for name, change := range map[string]func(dir string) error{
		"open file deleted":   func(dir string) error { return os.Remove(dir + "/data.txt") },
		"open file shortened": func(dir string) error { return os.Truncate(dir+"/data.txt", 1) },
		"open file is now a directory": func(dir string) error {
			return errors.Join(os.Remove(dir+"/data.txt"), os.Mkdir(dir+"/data.txt", 0o700))
		},
		"directory is now a file": func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/private"), os.WriteFile(dir+"/private", nil, 0o600))
		},
		"directory deleted": func(dir string) error { return os.RemoveAll(dir + "/private") },
		"folder deleted":    func(dir string) error { return os.RemoveAll(dir) },
		"folder replaced":   func(dir string) error { return errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			sess, spec := s.withFolder(t, b, dir, sandbox.ReadOnly)
			sess.must(t, "import os\nx = 42\nos.chdir('/mnt/data/private')\nheld = open('/mnt/data/data.txt')")
			k := s.take(t, sess, spec, false)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			err := s.tryRestore(t, b, k)
			if name == "folder deleted" && err == nil {
				t.Error("restored a session without its folder")
			}
			if err != nil && !strings.Contains(err.Error(), "/mnt/data") && !strings.Contains(err.Error(), dir) {
				t.Errorf("the error does not name the folder: %v", err)
			}
			t.Logf("restored: %t (%v)", err == nil, err)
		})
	}
}

// mountSaved tests that a session with open files that the host has removed or replaced
// is saved, or goes on and says why not.
func (s *suite) mountSaved(t *testing.T, b sandbox.Engine) {
	dir := folder(t)
	sess, spec := s.withFolder(t, b, dir, sandbox.ReadOnly)
	sess.must(t, "import os\nx = 42\nheld = open('/mnt/data/data.txt'); other = open('/mnt/data/private/inner.txt')")
	write(t, dir+"/new", "another file")
	if err := errors.Join(os.Rename(dir+"/new", dir+"/data.txt"), os.Remove(dir+"/private/inner.txt")); err != nil {
		t.Fatal(err)
	}
	got := sess.must(t, "print(open('/mnt/data/data.txt').read(), held.read(), os.path.exists('/mnt/data/private/inner.txt'), other.read())")
	if want := "another file data False inner\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	snapshotter, _ := sandbox.As[sandbox.Snapshotter](sess.run)
	if err := snapshotter.Snapshot(t.Context(), t.TempDir(), false); err == nil {
		return
	} else if !errors.Is(err, sandbox.ErrHeld) {
		t.Errorf("got error %v, want none or %v", err, sandbox.ErrHeld)
	}
	if got := sess.must(t, "held.close(); other.close(); print(x)"); got != "42\n" {
		t.Errorf("after the attempt: got %q, want 42", got)
	}
	if got := s.restore(t, b, s.take(t, sess, spec, false)).must(t, "print(x)"); got != "42\n" {
		t.Errorf("restored: got %q, want 42", got)
	}
}

// tryRestore restores a session and tests that its variables are there.
func (s *suite) tryRestore(t *testing.T, b sandbox.Engine, k taken) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	restorer, _ := sandbox.As[sandbox.Restorer](b)
	spec := *k.spec
	spec.ID = s.spec().ID
	run, err := restorer.Restore(ctx, &spec, image(t, k.dir))
	if err != nil {
		return err
	}
	sess := s.resumed(t, run, k)
	var seen []string
	out := sess.must(t, `
import json
def tries(f):
    try:
        return str(f())
    except OSError as e:
        return type(e).__name__
print(json.dumps([str(x), tries(lambda: held.read()), tries(lambda: os.listdir(".")), tries(lambda: os.listdir("/mnt/data"))]))
`)
	if err := json.Unmarshal([]byte(out), &seen); err != nil || len(seen) == 0 || seen[0] != "42" {
		t.Errorf("the restored session: got %s, want x = 42 (%v)", out, err)
	}
	t.Logf("the restored session sees %s", strings.TrimSpace(out))
	// Once more: what is gone stays gone.
	snapshotter, _ := sandbox.As[sandbox.Snapshotter](sess.run)
	if err := snapshotter.Snapshot(ctx, t.TempDir(), true); err != nil && !errors.Is(err, sandbox.ErrHeld) {
		t.Errorf("saved again: got %v, want no error but one that says what to do", err)
	} else if err != nil {
		t.Logf("saved again: %v", err)
		sess.must(t, "held.close(); os.chdir('/')")
	}
	if got := s.restore(t, b, s.take(t, sess, &spec, false)).must(t, "print(x)"); got != "42\n" {
		t.Errorf("restored again: got %q, want 42", got)
	}
	return nil
}

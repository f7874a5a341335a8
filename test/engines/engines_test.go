//go:build linux

package engines

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

const (
	binaryEnv = "SALLYPORT_BIN"
	proofsEnv = "SALLYPORT_TEST_PROOFS"
	userEnv   = "SALLYPORT_TEST_USER"
	// hostPython runs the positive controls, for every user of the host.
	hostPython = "/usr/bin/python3"
)

func who() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "user"
}

// TestGVisor runs the suite as whoever runs the test.
func TestGVisor(t *testing.T) {
	name := "gvisor." + who()
	exe := privateCopy(t, name, t.TempDir())
	state := t.TempDir()
	runtimeDir, cacheDir := filepath.Join(state, "run"), filepath.Join(state, "cache")
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Engine {
			home, _ := os.UserHomeDir()
			b, err := gvisor.New(gvisor.Options{
				Executable: exe, RuntimeDir: runtimeDir, CacheDir: cacheDir, Program: python.Program(),
				Path: "/usr/bin:/bin", Home: home,
				Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		StateDir:   state,
		HostPython: hostPython,
		ProofsFile: os.Getenv(proofsEnv),
		Leftovers: func(mark string) []string {
			h := sandboxtest.HostState{Executable: exe, Dirs: []string{runtimeDir}, Mark: mark}
			return h.Left()
		},
	})
	t.Run("example", func(t *testing.T) { example(t, name, "SALLYPORT_ENGINE=gvisor", "SALLYPORT_SESSIONS_SNAPSHOTS=off") })
	t.Run("packages", func(t *testing.T) { packages(t, name, "SALLYPORT_ENGINE=gvisor") })
	t.Run("memory", func(t *testing.T) {
		outOfMemory(t, name, "SALLYPORT_ENGINE=gvisor", "SALLYPORT_SESSIONS_SNAPSHOTS=off")
	})
}

// TestGVisorAsUser runs [TestGVisor] as the ordinary user that
// SALLYPORT_TEST_USER names, after root has proved the controls that only root
// can prove.
func TestGVisorAsUser(t *testing.T) {
	name := os.Getenv(userEnv)
	if name == "" || os.Geteuid() != 0 {
		sandboxtest.Skip(t, "gvisor.user", userEnv+" names no user, or root does not run the test")
	}
	proofs := filepath.Join(t.TempDir(), "proofs.json")
	sandboxtest.Prove(t, sandboxtest.Config{HostPython: hostPython, ProofsFile: proofs})
	asUser(t, name, proofs)
}

// privateCopy returns a copy of the executable in dir that nothing else runs.
func privateCopy(t *testing.T, name, dir string) string {
	t.Helper()
	bin := os.Getenv(binaryEnv)
	if bin == "" {
		sandboxtest.Skip(t, name, binaryEnv+" is not set")
	}
	return sandboxtest.Copy(t, bin, filepath.Join(dir, "sallyport"))
}

// asUser runs this test binary once more as an ordinary user.
func asUser(t *testing.T, name, proofs string) {
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	place, err := os.MkdirTemp("/tmp", "sallyport-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	self := sandboxtest.Copy(t, "/proc/self/exe", filepath.Join(place, "engines.test"))
	bin := sandboxtest.Copy(t, os.Getenv(binaryEnv), filepath.Join(place, "sallyport"))
	proofs = sandboxtest.Copy(t, proofs, filepath.Join(place, "proofs.json"))
	for _, dir := range []string{"home", "tmp"} {
		if err := os.Mkdir(filepath.Join(place, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(place, dir), uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(15 * time.Minute)
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-10*time.Second))
	defer cancel()
	// Frames and data are the host's side, which root's run has tried.
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestGVisor$", "-test.skip=^TestGVisor$/^(hostile|data)$", "-test.v", "-test.timeout="+time.Until(deadline).String())
	cmd.Dir = filepath.Join(place, "home")
	cmd.Env = []string{
		"HOME=" + filepath.Join(place, "home"), "TMPDIR=" + filepath.Join(place, "tmp"),
		"PATH=/usr/bin:/bin", "LANG=C.UTF-8", binaryEnv + "=" + bin, proofsEnv + "=" + proofs,
		sandboxtest.MustRunEnv + "=" + os.Getenv(sandboxtest.MustRunEnv),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Logf("the suite as user %d:\n%s", uid, out.String())
	if err != nil {
		t.Errorf("as user %d: %v", uid, err)
	}
	if err == nil && strings.Contains(out.String(), "--- SKIP: TestGVisor ") {
		sandboxtest.Skip(t, "gvisor.user", "it skipped as an ordinary user")
	}
}

//go:build linux

package engines

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/process"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// wholeEnv has TestProcess run: test/engines/run sets it.
const wholeEnv = "SALLYPORT_TEST_WHOLE"

// TestProcessBriefly runs the parts of [TestProcess] that are of this engine
// more than of the host's side of every engine.
func TestProcessBriefly(t *testing.T) {
	name := "process." + who()
	privateCopy(t, name, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestProcess$/^(probe|lifecycle|isolation|nothing_left)$", "-test.v")
	cmd.Env = append(os.Environ(), wholeEnv+"=1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestProcess runs the suite over engine process, with namespaces. What it does
// where there are none, its own tests try: the suite is of sandboxes that have
// a file system of their own.
func TestProcess(t *testing.T) {
	name := "process." + who()
	if os.Getenv(wholeEnv) == "" {
		t.Skip("a part of it is TestProcessBriefly; test/engines/run has all")
	}
	exe := privateCopy(t, name, t.TempDir())
	state := t.TempDir()
	runtimeDir, cacheDir := filepath.Join(state, "run"), filepath.Join(state, "cache")
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Engine {
			home, _ := os.UserHomeDir()
			b, err := process.New(process.Options{
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
}

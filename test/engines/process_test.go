//go:build linux

package engines

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/process"
	"sallyport/internal/sandbox/sandboxtest"
)

// TestProcess runs the suite over engine process, with namespaces. What it does
// where there are none, its own tests try: the suite is of sandboxes that have
// a file system of their own.
func TestProcess(t *testing.T) {
	name := "process." + who()
	exe := privateCopy(t, name, t.TempDir())
	state := t.TempDir()
	runtimeDir, cacheDir := filepath.Join(state, "run"), filepath.Join(state, "cache")
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Backend {
			home, _ := os.UserHomeDir()
			b, err := process.New(process.Options{
				Executable: exe, RuntimeDir: runtimeDir, CacheDir: cacheDir,
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

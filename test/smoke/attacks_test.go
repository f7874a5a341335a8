//go:build linux

package smoke

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// chosen are attempts of each kind whose controls succeed for every user on an
// ordinary kernel, and which take little time. test/engines makes all.
var chosen = []string{
	"tcp-loopback", "proc-net-tcp",
	"unix-path", "unix-abstract", "netlink-exotic",
	"symlink", "dotdot", "home", "own-state", "environment",
	"kernel-identity",
	"exec-writable", "mmap-exec-writable",
	"personality",
	"see-processes", "signal-canary", "limits-of-host",
	"neighbour-files", "neighbour-abstract",
	"inherited-descriptors",
}

func attacks(t *testing.T, p *place) {
	state := t.TempDir()
	runtimeDir := filepath.Join(state, "run")
	sandboxtest.Attack(t, sandboxtest.Config{
		Engine: "gvisor",
		New: func(t testing.TB) sandbox.Engine {
			home, _ := os.UserHomeDir()
			b, err := gvisor.New(gvisor.Options{
				Executable: p.executable, RuntimeDir: runtimeDir, CacheDir: filepath.Join(state, "cache"), Program: python.Program(),
				Path: "/usr/bin:/bin", Home: home,
				Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		StateDir:   state,
		HostPython: python3(t),
		Leftovers: func(mark string) []string {
			h := sandboxtest.HostState{Executable: p.executable, Dirs: []string{runtimeDir}, Mark: mark}
			return h.Left()
		},
		Attempts: chosen,
	})
}

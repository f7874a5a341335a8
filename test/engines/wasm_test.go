//go:build linux

package engines

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/sandbox/wasm"
	"github.com/sallyport/sallyport/internal/store"
)

// TestWasm runs the suite over engine wasm. Its engines share a cache, as a user's do:
// the first of them compiles the interpreter.
func TestWasm(t *testing.T) {
	name := "wasm." + who()
	exe := privateCopy(t, name, t.TempDir())
	state := t.TempDir()
	cacheDir, keys := filepath.Join(state, "cache"), store.At(filepath.Join(state, "keys"))
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Engine {
			e, err := wasm.New(wasm.Options{
				Executable: exe, CacheDir: cacheDir, Program: python.Program(),
				Key: func() ([]byte, error) { return keys.Key("wasm.key", true) },
				Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		StateDir:   state,
		HostPython: hostPython,
		ProofsFile: os.Getenv(proofsEnv),
		Leftovers: func(mark string) []string {
			h := sandboxtest.HostState{Executable: exe, Mark: mark}
			return h.Left()
		},
	})
}

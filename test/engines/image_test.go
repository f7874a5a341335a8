//go:build linux

package engines

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// rootfsEnv names the tar archive of a root file system, as test/engines/image
// makes it.
const rootfsEnv = "SALLYPORT_TEST_ROOTFS"

// stored is where the tests' images are.
type stored struct{ *image.Store }

func (s stored) Open(ctx context.Context, name string) (*image.Root, error) {
	root, _, err := s.Store.Open(ctx, name)
	return root, err
}

func (s stored) Look(name string) (image.Info, bool, error) {
	r, err := s.Find(name)
	if err != nil {
		return image.Info{}, false, err
	}
	info, err := s.Info(r.ID)
	return info, false, err
}

// TestGVisorImage runs the suite over gVisor with the root of an image, as
// whoever runs the test.
func TestGVisorImage(t *testing.T) {
	name := "gvisor-image." + who()
	rootfs := os.Getenv(rootfsEnv)
	if rootfs == "" {
		sandboxtest.Skip(t, name, rootfsEnv+" names no root file system")
	}
	exe := privateCopy(t, name, t.TempDir())
	place := t.TempDir()
	store := image.At(filepath.Join(place, "images"), flatten.Limits{})
	found, err := archive.Read(t.Context(), rootfs, t.TempDir(), flatten.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Add(t.Context(), found[0].Content, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Release()
	runtimeDir := filepath.Join(place, "run")
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Engine {
			b, err := gvisor.New(gvisor.Options{
				Executable: exe, RuntimeDir: runtimeDir, CacheDir: filepath.Join(place, "cache"), Program: python.Program(),
				Image: root.ID, Images: stored{store},
				Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		StateDir:   place,
		HostPython: hostPython,
		ProofsFile: os.Getenv(proofsEnv),
		Leftovers: func(mark string) []string {
			h := sandboxtest.HostState{Executable: exe, Dirs: []string{runtimeDir}, Mark: mark}
			return h.Left()
		},
	})
}

package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
)

// TestCacheKey: what was found out holds no longer when a file changes that says
// what an engine adds to containers.
func TestCacheKey(t *testing.T) {
	home, conf := t.TempDir(), filepath.Join(t.TempDir(), "mine.conf")
	b, err := New(Options{Engine: Podman, Program: python.Program(), Path: home, Environ: []string{"HOME=" + home, "CONTAINERS_CONF=" + conf, "XDG_CONFIG_HOME=" + filepath.Join(home, "xdg")}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{b.cacheKey("test:1"): "nothing"}
	for _, file := range []string{
		conf, filepath.Join(home, ".config/containers/containers.conf"), filepath.Join(home, ".config/containers/containers.conf.d/a.conf"),
		filepath.Join(home, "xdg/containers/mounts.conf"), filepath.Join(home, ".docker/config.json"), filepath.Join(home, ".config/docker/daemon.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		key := b.cacheKey("test:1")
		if before, ok := seen[key]; ok {
			t.Errorf("with %s it is as with %s", file, before)
		}
		seen[key] = file
	}
}

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/settings"
)

// TestScratch: what a command puts aside lies where the next one finds it, and not
// in the temporary directory, unless there is no other place.
func TestScratch(t *testing.T) {
	for _, dir := range []string{t.TempDir(), ""} {
		u := &ui{App: &app.App{Settings: &settings.Settings{StateDir: dir}}}
		got, remove, err := u.scratch()
		if err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(dir, "images", "scratch")
		if dir == "" {
			want = os.TempDir()
		}
		if !strings.HasPrefix(got, want+string(filepath.Separator)) {
			t.Errorf("state directory %q: got %s, want a directory in %s", dir, got, want)
		}
		remove()
		if _, err := os.Lstat(got); !os.IsNotExist(err) {
			t.Errorf("%s is there when it was removed: %v", got, err)
		}
	}
}

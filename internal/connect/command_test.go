package connect_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
)

// TestPassing: where Node.js keeps packages, some paths last and some do not, and
// none of them goes into a file that others share.
func TestPassing(t *testing.T) {
	const native = "node_modules/@sallyport/linux-x64/bin/sallyport"
	for _, tt := range []struct {
		path, vanishes, shared string
	}{
		{"usr/lib/node_modules/sallyport/" + native, "", "sallyport serve"},
		{"home/me/.volta/tools/image/packages/sallyport/lib/node_modules/sallyport/" + native, "", "sallyport serve"},
		{"me/.nvm/versions/node/v22.1.0/lib/node_modules/sallyport/" + native, "one version of Node.js", "sallyport serve"},
		{"me/.local/share/fnm/node-versions/v22.1.0/installation/lib/node_modules/sallyport/" + native, "one version of Node.js", "sallyport serve"},
		{"me/project/" + native, "the packages of one folder", "sallyport serve"},
		{"me/.npm/_npx/0123abc/" + native, "npx's cache", "npx -y sallyport serve"},
		{"me/.cache/uv/archive-v0/abc/bin/sallyport", "uv's cache", "uvx sallyport serve"},
	} {
		path := filepath.Join(t.TempDir(), filepath.FromSlash(tt.path))
		put(t, path, "x", 0o755)
		got := connect.FindIn(path, "", nil)
		if got.Path != path || (got.Vanishes == "") != (tt.vanishes == "") || !strings.Contains(got.Vanishes, tt.vanishes) {
			t.Errorf("%s: got %+v, want %q", tt.path, got, tt.vanishes)
		}
		if shared := got.Shared(); shared.Command+" "+strings.Join(shared.Args, " ") != tt.shared {
			t.Errorf("%s: got %v, want %s", tt.path, shared, tt.shared)
		}
	}
}

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestPackagesPolicy: what the user allows counts at once, and what cannot
// be read changes nothing.
func TestPackagesPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	p := &packagesPolicy{}
	for i, tt := range []struct{ text, want string }{
		{"policy:\n  packages: none\n", ""}, {"policy:\n  packages: [pandas]\n", "pandas"}, {"policy: [", "pandas"}, {"policy:\n  packages: [ask, numpy]\n", "ask numpy"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		if p.now == nil {
			set, err := settings.Load(settings.Sources{Home: t.TempDir(), ConfigFile: file})
			if err != nil {
				t.Fatal(err)
			}
			p.now = set
		}
		if got := strings.Join(p.allowed(), " "); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

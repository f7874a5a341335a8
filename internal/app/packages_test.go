package app

import (
	"fmt"
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

// TestScriptHeader: a header names packages, if it is for the Python that runs the code.
func TestScriptHeader(t *testing.T) {
	for _, tt := range []struct{ code, want string }{
		{"print(1)", "[] <nil>"},
		{"# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"Foo_bar[x]>=1\"]\n# ///", "[Foo_bar[x]>=1] <nil>"},
		{"# /// script\n# requires-python = \"==3.12.*\"\n# ///", "[] its header requires Python ==3.12.*, and this is 3.11"},
		{"# /// script\n# dependencies = 1\n# ///", "[] line 2: the script's header: dependencies is not a list"},
	} {
		found, err := scriptHeader(tt.code, 3, 11)
		if got := fmt.Sprint(found, err); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: got %s, want %s", tt.code, got, tt.want)
		}
	}
}

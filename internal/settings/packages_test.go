package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestPackagesAreNotWidened: what comes with a client's configuration takes away
// from the packages that the file allows, and adds none.
func TestPackagesAreNotWidened(t *testing.T) {
	for _, test := range []struct{ name, file, variable, want string }{
		{"none by default", "none", "any", "none"},
		{"other packages", "[pandas]", "numpy", "pandas"},
		{"another version", "[pandas>=2]", "pandas", "pandas>=2"},
		{"fewer packages", "[pandas, numpy]", "numpy", "numpy"},
		{"no packages", "[pandas]", "none", "none"},
		{"some of any package", "[any]", "numpy", "numpy"},
		{"ask in place of any", "[any]", "ask", "ask"},
		{"none that a person would be asked about", "[ask]", "numpy", "ask"},
		{"any, without the names that none may resemble", "[any, pandas]", "any", "any,pandas"},
		{"a package like one of those", "[any, pandas]", "pandass", "any,pandas"},
		{"any version", "[any, pandas>=2]", "pandas", "any,pandas>=2"},
		{"two clauses", `["pandas>=2,<3", numpy]`, "any", "pandas>=2,<3,numpy"},
		{"two clauses without quotes", "[pandas>=2,<3, numpy]", "pandas>=2,<3", "pandas>=2,<3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := settings.Sources{Home: t.TempDir(), Environ: map[string]string{"SALLYPORT_POLICY_PACKAGES": test.variable}}
			src.ConfigFile = filepath.Join(src.Home, "config.yaml")
			text := "policy:\n  packages: " + test.file + "\n"
			if err := os.WriteFile(src.ConfigFile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(mustLoad(t, src).Policy.Packages, ","); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

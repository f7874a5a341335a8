package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module example.com/program\n\ngo 1.25\n",
		"main.go":            "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(status()) }\n",
		"status_linux.go":    "package main\n\nfunc status() int { return 0 }\n",
		"status_windows.go":  "package main\n\nfunc status() int { return \"zero\" }\n",
		"status_darwin.go":   "package main\n\nfunc status() int { return 0 \n",
		"status_untested.go": "//go:build plan9\n\npackage main\n\nfunc status() int { return nothing }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ target, err string }{
		{"linux/arm64", ""},
		{"windows/amd64", `cannot use "zero"`},
		{"darwin/arm64", "expected"},
		{"freebsd/amd64", "undefined: status"},
		{"linux", "want GOOS/GOARCH"},
	} {
		packages, own, err := check(dir, ".", test.target)
		if test.err == "" {
			if err != nil || packages < 2 || own != 1 {
				t.Errorf("%s: got %d packages, %d of them ours, error %v; want several, 1 and none", test.target, packages, own, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got error %v, want one with %q", test.target, err, test.err)
		}
	}
}

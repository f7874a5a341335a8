package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestEmbedded: exactly what lies in the tree is embedded. go:embed forgets
// files of some names silently.
func TestEmbedded(t *testing.T) {
	list := func(fsys fs.FS) (names []string) {
		t.Helper()
		err := fs.WalkDir(fsys, "sallyport_guest", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(name, "__pycache__") {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	embedded, tree := list(Files()), list(os.DirFS("."))
	if !slices.Equal(embedded, tree) {
		t.Errorf("embedded %q, in the tree %q", embedded, tree)
	}
	if !slices.Contains(embedded, "sallyport_guest/__init__.py") {
		t.Error("the package's __init__.py is missing")
	}
}

func TestArgvNamesAnEmbeddedFile(t *testing.T) {
	argv := Program().Argv
	rel, err := filepath.Rel(sandbox.ProgramDir, argv[len(argv)-1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(Files(), filepath.ToSlash(rel)); err != nil {
		t.Error(err)
	}
}

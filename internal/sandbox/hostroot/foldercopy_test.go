package hostroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.Mkdir(in("sub"), 0o750), os.Chmod(dir, 0o755), os.WriteFile(in("sub/data"), []byte("data"), 0o600), os.WriteFile(in("tool"), nil, 0o700),
		os.Symlink("/etc/passwd", in("link")), os.Symlink("sub", in("inner")),
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	read := func(limit int64) (string, error) {
		var got []string
		err := ReadFolder(t.Context(), root, "/the/folder", limit, func(name string, mode fs.FileMode, data []byte) error {
			got = append(got, fmt.Sprintf("%s %v %q", name, mode, data))
			return nil
		})
		return strings.Join(got, "\n"), err
	}
	want := `. drwxr-xr-x ""
inner L--------- "sub"
link L--------- "/etc/passwd"
sub drwxr-x--- ""
sub/data -rw------- "data"
tool -rwx------ ""`
	if got, err := read(1 << 20); err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	for _, limit := range []int64{0, 1000, 5 * 512} {
		if _, err := read(limit); err == nil || !strings.Contains(err.Error(), "/the/folder has more than") {
			t.Errorf("%d bytes: got %v, want an error", limit, err)
		}
	}
}

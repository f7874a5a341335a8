//go:build unix

package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// other is a user that is neither root nor the one who runs the test.
const other = 54321

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	root := os.Geteuid() == 0
	tests := []struct {
		name string
		make func(t *testing.T, top string) (path string)
		want string // in the error; empty: it opens
		root bool   // it takes root to set up
	}{
		{name: "missing", make: func(_ *testing.T, top string) string { return filepath.Join(top, "a", "b") }},
		{name: "mine", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o700))
			return filepath.Join(top, "a")
		}},
		{name: "mine, readable by others", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o755))
			return filepath.Join(top, "a")
		}},
		{name: "writable by others", want: "so that other users can write to it", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o700), os.Chmod(filepath.Join(top, "a"), 0o777))
			return filepath.Join(top, "a")
		}},
		{name: "writable by others, sticky", want: "so that other users can write to it", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o700), os.Chmod(filepath.Join(top, "a"), 0o777|fs.ModeSticky))
			return filepath.Join(top, "a")
		}},
		{name: "below a sticky directory", make: func(t *testing.T, top string) string {
			must(t, os.Chmod(top, 0o777|fs.ModeSticky))
			return filepath.Join(top, "a")
		}},
		{name: "below a directory that others can write to", want: "can replace what is in it", make: func(t *testing.T, top string) string {
			must(t, os.MkdirAll(filepath.Join(top, "open", "a"), 0o700), os.Chmod(filepath.Join(top, "open"), 0o777))
			return filepath.Join(top, "open", "a")
		}},
		{name: "a link of mine", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "to"), 0o700), os.Symlink("to", filepath.Join(top, "link")))
			return filepath.Join(top, "link")
		}},
		{name: "a link on the way", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "to"), 0o700), os.Symlink(filepath.Join(top, "to"), filepath.Join(top, "link")))
			return filepath.Join(top, "link", "..", "to", "a")
		}},
		{name: "a link in a sticky directory", want: "is a symbolic link", make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "to"), 0o700), os.Symlink("to", filepath.Join(top, "link")), os.Chmod(top, 0o777|fs.ModeSticky))
			return filepath.Join(top, "link")
		}},
		{name: "links in a circle", want: "too many symbolic links", make: func(t *testing.T, top string) string {
			must(t, os.Symlink("b", filepath.Join(top, "a")), os.Symlink("a", filepath.Join(top, "b")))
			return filepath.Join(top, "a")
		}},
		{name: "another user's", want: "belongs to user 54321", root: true, make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o700), os.Chown(filepath.Join(top, "a"), other, other))
			return filepath.Join(top, "a")
		}},
		{name: "below another user's", want: "belongs to user 54321", root: true, make: func(t *testing.T, top string) string {
			must(t, os.MkdirAll(filepath.Join(top, "a", "mine"), 0o700), os.Chown(filepath.Join(top, "a"), other, other))
			return filepath.Join(top, "a", "mine")
		}},
		{name: "through another user's link", want: "belongs to user 54321", root: true, make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "to"), 0o700), os.Symlink("to", filepath.Join(top, "link")), os.Lchown(filepath.Join(top, "link"), other, other))
			return filepath.Join(top, "link", "a")
		}},
		{name: "a group may write", want: "other users can write to it", root: true, make: func(t *testing.T, top string) string {
			must(t, os.Mkdir(filepath.Join(top, "a"), 0o700), os.Chown(filepath.Join(top, "a"), 0, other), os.Chmod(filepath.Join(top, "a"), 0o770))
			return filepath.Join(top, "a")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && !root {
				t.Skip("only root can make another user's files")
			}
			top := t.TempDir()
			path := tt.make(t, top)
			dir, err := Open(path)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				info, err := dir.Stat(".")
				if err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("opened with mode %v, %v; want 0700", info.Mode(), err)
				}
				return
			}
			var rejected *Rejected
			if !errors.As(err, &rejected) || !strings.Contains(err.Error(), tt.want) || rejected.Path == "" || rejected.Remedy == "" {
				t.Errorf("got %v, want a Rejected with %q", err, tt.want)
			}
		})
	}
}

// TestRemedy: root in a container whose HOME is another user's reads which
// variable to set, and no advice to remove a home directory.
func TestRemedy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's files")
	}
	top := t.TempDir()
	for _, tt := range []struct {
		name    string
		removed bool
	}{{"home", false}, {"sallyport-0", true}} {
		dir := filepath.Join(top, tt.name)
		must(t, os.Mkdir(dir, 0o755), os.Chown(dir, other, other))
		_, err := Open(filepath.Join(dir, "cache"))
		if err == nil || !strings.Contains(err.Error(), "or HOME") || strings.Contains(err.Error(), "have "+dir+" removed") != tt.removed {
			t.Errorf("below %s: got %v; want an error that names HOME, and advises to remove it: %v", dir, err, tt.removed)
		}
	}
}

func TestExistingAndPassable(t *testing.T) {
	top := t.TempDir()
	missing := filepath.Join(top, "missing")
	if _, err := Existing(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Lstat(missing); err == nil {
		t.Error("Existing made the directory")
	}
	open := filepath.Join(top, "open")
	must(t, os.Mkdir(open, 0o700), os.Chmod(open, 0o711))
	dir, err := Passable(open)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if info, err := dir.Stat("."); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("mode %v, %v; want 0711", info.Mode(), err)
	}
}

// TestWay: a file's own mode does not matter here, but everything on the way does.
func TestWay(t *testing.T) {
	top := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{top}, names...)...) }
	must(t, os.MkdirAll(at("mine", "below"), 0o700), os.MkdirAll(at("open", "below"), 0o700), os.MkdirAll(at("sticky"), 0o700))
	for _, dir := range []string{"mine", "open", "sticky"} {
		must(t, os.WriteFile(at(dir, "file"), nil, 0o600), os.Symlink("file", at(dir, "link")))
	}
	must(t, os.Chmod(at("open"), 0o777), os.Chmod(at("sticky"), 0o777|fs.ModeSticky))
	must(t, os.Symlink(at("open", "file"), at("mine", "out")), os.Symlink("../open/below/../../mine/file", at("mine", "through")), os.Symlink("mine", at("home")))
	for path, want := range map[string]string{
		at("mine"):              "",
		at("mine", "file"):      "",
		at("mine", "link"):      "",
		at("home", "file"):      "",
		at("sticky", "file"):    "",
		at("open"):              "",
		at("open", "file"):      "can replace what is in it",
		at("open", "below"):     "can replace what is in it",
		at("mine", "out"):       "can replace what is in it",
		at("mine", "through"):   "can replace what is in it",
		at("sticky", "link"):    "in a directory that all users can write to",
		at("mine", "none"):      "no such file",
		at("mine", "file", "x"): "not a directory",
	} {
		saw := map[string]bool{}
		err := Way(path, func(path string, _ fs.FileInfo) { saw[path] = true })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
		if !saw[top] {
			t.Errorf("%s: it saw only %v", path, saw)
		}
	}
}

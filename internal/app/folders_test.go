package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Folders of the settings are looked at when a session begins: one that is gone is left
// out with a note, and one that is refused fails.
func TestFoldersOfSettings(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := appWith(t, "files:\n  roots: true\n  mounts: ["+filepath.Join(dir, "a")+", "+filepath.Join(dir, "b")+":/mnt/other:rw]\n", nil)
	f := folders{a}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, notes, err := f.Now()
	want := sandbox.Mount{Source: filepath.Join(dir, "a"), Target: "/mnt/a", Mode: sandbox.ReadOnly}
	if err != nil || len(got) != 1 || got[0] != want || len(notes) != 1 || !strings.Contains(notes[0], "files.mounts: folder") || !strings.Contains(notes[0], "The session began without it") {
		t.Fatalf("got %+v, %q, %v, want %+v and a note about the other", got, notes, err, want)
	}
	other, root, mine := want, want, want
	other.Mode, root.By, mine.By = sandbox.ReadWrite, sandbox.ByClient, sandbox.ByPerson
	gone := sandbox.Mount{Source: filepath.Join(dir, "b"), Target: "/mnt/other", Mode: sandbox.ReadWrite}
	secret := sandbox.Mount{Source: filepath.Join(a.Env.Home(), ".ssh"), Target: "/mnt/x", Mode: sandbox.ReadOnly, By: sandbox.ByPerson}
	if err := os.Mkdir(secret.Source, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		m    sandbox.Mount
		want string
	}{
		{want, ""}, {root, ""}, {mine, ""},
		{other, "files.mounts does not have " + want.Source + ":/mnt/a:rw any more. Put that back"},
		{gone, "there is no such folder"},
		{secret, "a hidden folder of your home directory"},
	} {
		got := ""
		if err := f.Again(tt.m); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("Again(%+v) = %q, want %q", tt.m, got, tt.want)
		}
	}
	a.Settings.Files.Roots = false
	if err := f.Again(root); err == nil || !strings.Contains(err.Error(), "files.roots is off") {
		t.Errorf("a root while they are off: got %v, want an error", err)
	}
	if err := os.Rename(want.Source, filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "c"), want.Source); err != nil {
		t.Fatal(err)
	}
	if err := f.Again(mine); err == nil || !strings.Contains(err.Error(), "is a link now") {
		t.Errorf("a folder that became a link: got %v, want an error", err)
	}
	inside := filepath.Join(dir, "b", "link") // in a folder that code can change
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "b"), 0o700), os.Symlink(filepath.Join(dir, "c"), inside)); err != nil {
		t.Fatal(err)
	}
	if m, err := a.FolderRules().Resolve(sandbox.Mount{Source: inside}); err == nil || !strings.Contains(err.Error(), "is a link, and code can change") {
		t.Errorf("a link that code can have made: got %+v, %v, want an error", m, err)
	}
	if err := errors.Join(os.Remove(want.Source), os.Symlink(secret.Source, want.Source)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Now(); err == nil || !strings.HasPrefix(err.Error(), "files.mounts: folder \"") || !strings.Contains(err.Error(), "hidden folder") {
		t.Errorf("a setting that leads to keys: got %v, want an error that names it", err)
	}
}

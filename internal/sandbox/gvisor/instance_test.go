//go:build linux && (amd64 || arm64)

package gvisor

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/instancedir"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// groupDirs makes directories that a record names as control groups.
func groupDirs(t *testing.T, names ...string) []string {
	t.Helper()
	base := t.TempDir()
	var out []string
	for _, n := range names {
		dir := filepath.Join(base, n)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		out = append(out, dir)
	}
	return out
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSweepRemovesOnlyTheDead(t *testing.T) {
	runtimeDir := filepath.Join(t.TempDir(), "run")
	dead := instancedir.New(runtimeDir, mountName, removeRecorded, quiet)
	if err := dead.Open(); err != nil {
		t.Fatal(err)
	}
	alive := instancedir.New(runtimeDir, mountName, removeRecorded, quiet)
	if err := alive.Open(); err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	groups := groupDirs(t, "sallyport-dead-r1", "sallyport-alive-r1", "of-somebody-else")
	if err := dead.Record("r1", record{[]string{groups[0], groups[2]}}); err != nil {
		t.Fatal(err)
	}
	if err := alive.Record("r1", record{groups[1:2]}); err != nil {
		t.Fatal(err)
	}
	// Half a record, as a crash leaves it.
	if err := dead.Root.WriteFile("r2.json", []byte(`{"cgr`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dead.Abandon(); err != nil { // as if the program had died
		t.Fatal(err)
	}

	for range 2 { // idempotent
		if err := alive.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	if exists(dead.Path) || exists(groups[0]) {
		t.Error("the dead program's leftovers are still there")
	}
	if !exists(alive.Mountpoint()) || !exists(groups[1]) {
		t.Error("the living program's directory was removed")
	}
	if !exists(groups[2]) {
		t.Error("a record made the sweeper remove a group that is not ours")
	}
}

//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestPrintable(t *testing.T) {
	for said, want := range map[string]string{
		"":                              "",
		"Grüße, 日本":                     "Grüße, 日本",
		" two\nlines \n":                "two\nlines",
		"\x1b[31mred\x07\r\x00":         "[31mred",
		"\u009b31m, \u202egnip":         "31m, gnip",
		"half \xe6\x97":                 "half ?",
		strings.Repeat("x", 256<<10):    strings.Repeat("x", maxText),
		strings.Repeat("\x00", 256<<10): "",
	} {
		if got := printable(said); got != want {
			t.Errorf("printable(%.40q) = %.40q, want %.40q", said, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, test := range []struct {
		n    int64
		want time.Duration
	}{
		{0, 0}, {7, 7 * time.Microsecond}, {-1, 0}, {math.MinInt64, 0},
		{math.MaxInt64, math.MaxInt64 / 1000 * 1000},
	} {
		if got := duration(test.n, time.Microsecond); got != test.want {
			t.Errorf("duration(%d) = %d, want %d", test.n, got, test.want)
		}
	}
}

// TestFirstToGo: where memory runs out, the process of sessions ends first.
func TestFirstToGo(t *testing.T) {
	c := start(t, newEngine(t, t.TempDir()), spec("one"))
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.child.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(data)); got != "1000" {
		t.Errorf("the process has the score %s, want 1000", got)
	}
}

// TestDeaf: a session that does not end takes the others with it, and the log says which
// one it was.
func TestDeaf(t *testing.T) {
	e := newEngine(t, t.TempDir())
	var log bytes.Buffer
	e.log = slog.New(slog.NewTextHandler(&log, nil))
	deaf, other := start(t, e, spec("deaf")), start(t, e, spec("other"))
	deaf.say(t, "deaf")
	deaf.hear(t, "echo deaf")
	deaf.patience = time.Millisecond
	if err := deaf.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit := other.exit(t); exit.Reason != sandbox.EngineDied {
		t.Errorf("the other's exit: got %+v, want EngineDied", exit)
	}
	if got := log.String(); !strings.Contains(got, "session=deaf") {
		t.Errorf("the log is %q, want that it names the session", got)
	}
}

// TestSealedImage: an image is a copy that changes no more, whatever happens to the file.
func TestSealedImage(t *testing.T) {
	dir := t.TempDir()
	c := images{dir: dir, key: fakeKey, prefix: imagePrefix, keep: 1}
	want := bytes.Repeat(append(make([]byte, 5000), "image"...), 1000)
	err := c.create(t.Context(), "one", func(f *os.File) error {
		_, err := f.Write(want)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.open(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files, err := filepath.Glob(filepath.Join(dir, imagePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if err := os.Truncate(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want the %d of the image", len(got), err, len(want))
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a write: got %v, want %v", err, unix.EPERM)
	}
	if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a cut: got %v, want %v", err, unix.EPERM)
	}
}

// TestHostileSnapshot: a child neither fills the disk with a snapshot nor has the engine
// wait for one, and the session of one that failed goes on.
func TestHostileSnapshot(t *testing.T) {
	e := newEngine(t, t.TempDir())
	for _, said := range []string{"flood", "unfinished"} {
		s := spec(said)
		s.Limits.MemoryBytes = 1 << 20
		c := start(t, e, s)
		c.say(t, said)
		c.hear(t, "echo "+said)
		dir := t.TempDir()
		if err := c.Snapshot(t.Context(), dir, false); err == nil || said == "flood" && !errors.Is(err, errTooLarge) {
			t.Errorf("%s: got %v, want an error", said, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: got %v, %v, want nothing in the directory", said, left, err)
		}
		if said == "flood" {
			c.say(t, "x")
			c.hear(t, "echo x")
		}
	}
}

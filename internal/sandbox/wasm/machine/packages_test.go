//go:build linux

package machine

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// archiveOf returns an archive with one empty file.
func archiveOf(t *testing.T, name string) io.ReaderAt {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name}), w.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// TestPackages: sessions with the same archive share its files, and a snapshot goes on
// with the archive that it was taken with, and with no other.
func TestPackages(t *testing.T) {
	img := openTiny(t)
	config := func(digest string, archive io.ReaderAt) SessionConfig {
		c, _, _ := pipes(t)
		c.Packages, c.Archive = digest, archive
		return c
	}
	s, err := img.Start(t.Context(), config("one", archiveOf(t, "one.py")))
	if err != nil {
		t.Fatal(err)
	}
	first, err := img.baseWith(t.Context(), config("one", archiveOf(t, "one.py")))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := img.baseWith(t.Context(), config("one", nil)); again != first || err != nil {
		t.Errorf("got other files (%v), want those that a session has", err)
	}
	if plain, err := img.baseWith(t.Context(), config("", nil)); plain != img.base || err != nil {
		t.Errorf("without packages: got other files (%v), want the image's", err)
	}
	var state bytes.Buffer
	if err := s.Snapshot(t.Context(), &state, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []SessionConfig{config("", nil), config("two", archiveOf(t, "two.py"))} {
		if _, err := img.Restore(t.Context(), c, bytes.NewReader(state.Bytes())); !errors.Is(err, ErrSnapshot) {
			t.Errorf("with the packages %q: got %v, want %v", c.Packages, err, ErrSnapshot)
		}
	}
	s, err = img.Restore(t.Context(), config("one", archiveOf(t, "one.py")), bytes.NewReader(state.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	s.Kill(sandbox.Destroyed)
	<-s.Done()
	if _, err := img.Start(t.Context(), config("bad", bytes.NewReader([]byte("no archive")))); err == nil {
		t.Error("what is no archive: got no error")
	}
	small := config("small", archiveOf(t, "small.py"))
	small.Limits.PackagesBytes = 1
	if _, err := img.Start(t.Context(), small); err == nil || !strings.Contains(err.Error(), "limits.packages") {
		t.Errorf("with a limit that is too low: got %v, want an error that names it", err)
	}
	// Each session has room alone, and together they have not.
	all := &img.machine.packages
	held, err := img.baseWith(t.Context(), config("held", archiveOf(t, "held.py")))
	if err != nil {
		t.Fatal(err)
	}
	all.mu.Lock()
	was := all.used
	all.most = 0
	all.mu.Unlock()
	if _, err := img.Start(t.Context(), config("further", archiveOf(t, "further.py"))); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("without room: got %v, want an error that says so", err)
	}
	if all.used > was {
		t.Errorf("a start that failed left %d bytes charged, want at most %d", all.used, was)
	}
	if again, err := img.baseWith(t.Context(), config("held", nil)); again != held || err != nil {
		t.Errorf("without room: got %v, want what a session has", err)
	}
}

//go:build unix

package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/private"
)

// A directory in which others have a hand is an error, and no reason to take
// the next one. One that cannot be made is passed over.
func TestFirstUsable(t *testing.T) {
	top := t.TempDir()
	file, mine := filepath.Join(top, "file"), filepath.Join(top, "mine")
	shared, foreign := filepath.Join(top, "shared"), filepath.Join(top, "foreign")
	err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777), os.Mkdir(foreign, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	rejected := []string{shared}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		rejected = append(rejected, foreign, filepath.Join(foreign, "below"))
	}
	for _, dir := range rejected {
		got, err := firstUsable([]string{dir, mine})
		var r *private.Rejected
		if !errors.As(err, &r) || got != "" {
			t.Errorf("%s: got %q, %v; want a rejection", dir, got, err)
		}
	}
	if got, err := firstUsable([]string{filepath.Join(file, "x"), mine}); got != mine || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, mine)
	}
	if got, err := firstUsable([]string{filepath.Join(file, "x")}); got != filepath.Join(file, "x") || err != nil {
		t.Errorf("got %q, %v; want the one that fails, whose error is read later", got, err)
	}
}

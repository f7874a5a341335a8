package registry

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// TestPullRefusesWhatIsTooLarge: no layer is fetched of an image whose layers are
// larger than an image may be.
func TestPullRefusesWhatIsTooLarge(t *testing.T) {
	d := newDouble(t, false)
	img := anImage(t, 5)
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, l := range manifest.Layers {
		total += l.Size
	}
	n := d.push(t, "team/tools:1", img)
	dir := t.TempDir()
	_, err = client(t, Options{MaxBytes: total - 1}).Pull(t.Context(), n, dir, nil)
	if !errors.Is(err, flatten.ErrLayer) || !strings.Contains(err.Error(), "images.maxSize") {
		t.Errorf("got %v, want that images.maxSize does not allow it", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("written: %v, %v", files, err)
	}
	if _, err := client(t, Options{MaxBytes: total}).Pull(t.Context(), n, dir, nil); err != nil {
		t.Errorf("what is just allowed: %v", err)
	}
}

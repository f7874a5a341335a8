package kaggle

import (
	"testing"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/batchtest"
)

// TestSuite is the suite of all batch services.
func TestSuite(t *testing.T) {
	w := newWorld(t, false)
	batchtest.Run(t, func(t testing.TB) batch.Service {
		s, err := New(w.opts)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

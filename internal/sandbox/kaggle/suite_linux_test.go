package kaggle

import (
	"testing"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/sandboxtest"
)

// TestSuite is the suite of all engines, for one without a channel.
func TestSuite(t *testing.T) {
	w := newWorld(t, false)
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: "kaggle", HostPython: hostPython(),
		New: func(t testing.TB) sandbox.Backend {
			b, err := New(w.opts)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	})
}

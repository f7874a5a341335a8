package app

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestWasmKey: a state directory keeps the key of compiled code; where it cannot, the
// runtime directory does.
func TestWasmKey(t *testing.T) {
	env := Environment{"XDG_RUNTIME_DIR": t.TempDir()}
	key := func(state string) []byte {
		t.Helper()
		key, err := (&App{Env: env, Settings: &settings.Settings{StateDir: state}}).wasmKey()
		if err != nil {
			t.Fatalf("state directory %q: %v", state, err)
		}
		return key
	}
	own, none, unusable := key(filepath.Join(t.TempDir(), "state")), key(""), key("/proc/nowhere")
	if bytes.Equal(own, none) {
		t.Error("the key of a state directory is that of the runtime directory")
	}
	if !bytes.Equal(none, unusable) {
		t.Errorf("got %x with a state directory that cannot be written, want that of the runtime directory, %x", unusable, none)
	}
}

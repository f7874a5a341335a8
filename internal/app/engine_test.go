package app

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// Nothing builds packages where the policy does not accept the engine that does.
func TestPackageBuilderAsksThePolicy(t *testing.T) {
	a := appWith(t, "engine: wasm\npolicy: {minIsolation: kernel}\n", nil)
	_, end, err := a.packageBuilder(t.Context(), a.ImageStore())
	if err == nil {
		end()
	}
	if err == nil || !strings.HasPrefix(err.Error(), "packages are built in the engine wasm, which cannot be used: ") {
		t.Errorf("got %v, want what the engine wasm lacks", err)
	}
}

// With the engine auto, the default environment is part of what the settings ask for.
func TestWasmLacksTheDefaultEnvironment(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{"environment: e\nenvironments: {e: {image: x}}\n", "environments.e.image"},
		{"environment: e\nenvironments: {e: {python: \"3.12\"}}\n", "environments.e.python"},
		{"environment: e\nenvironments: {e: {python: \"3.13\"}}\n", ""},
		{"environment: e\nenvironments: {e: {packages: [six]}}\n", ""},
		{"environments: {e: {image: x}}\n", ""},
		{"engine: wasm\nenvironment: e\nenvironments: {e: {image: x}}\n", ""},
	} {
		a := appWith(t, tt.config, nil)
		a.Env["XDG_CACHE_HOME"] = t.TempDir()
		e, err := a.wasm()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if u, ok := e.(*sandbox.Unusable); ok {
			got = u.Why.Title
		}
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: it lacks %q, want %q", tt.config, got, tt.want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

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

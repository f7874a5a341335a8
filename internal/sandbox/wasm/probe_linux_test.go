//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestProbe(t *testing.T) {
	e := newEngine(t, t.TempDir())
	e.opts.Program = program("hello")
	probe := func() *sandbox.Report {
		t.Helper()
		r, err := e.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	slow := func(r *sandbox.Report) bool {
		return len(r.Findings) == 1 && !r.Findings[0].Fatal && strings.Contains(r.Findings[0].Title, "first start")
	}
	r := probe()
	if !r.Usable || r.Isolation != sandbox.WasmIsolation || !r.Single || !slow(r) {
		t.Errorf("before the first start: got %+v, want usable, with a finding about the first start", r)
	}
	if again := probe(); !reflect.DeepEqual(r, again) {
		t.Errorf("once more: got %+v, want %+v", again, r)
	}
	if entries, err := os.ReadDir(e.opts.CacheDir); err != nil || len(entries) > 0 {
		t.Errorf("it has left %v, %v", entries, err)
	}
	if err := e.Prepare(t.Context(), e.opts.Program); err != nil {
		t.Fatal(err)
	}
	if r := probe(); !r.Usable || len(r.Findings) > 0 {
		t.Errorf("when all is prepared: got %+v, want no findings", r.Findings)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: got %v, want Canceled", err)
	}
}

// TestKey: without a key nothing starts, and what another key has sealed is made anew,
// and stays.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	first := newEngine(t, dir)
	if err := first.Prepare(t.Context(), program("hello")); err != nil {
		t.Fatal(err)
	}
	seals := func() map[string]string {
		files, err := filepath.Glob(filepath.Join(dir, imagePrefix+"*"+sealSuffix))
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[f] = string(data)
		}
		return all
	}
	before := seals()
	second := newEngine(t, dir)
	if err := second.Prepare(t.Context(), program("hello")); err != nil || len(before) != 1 || !maps.Equal(seals(), before) {
		t.Errorf("the same key: got %v and the seals %v, want %v alone", err, seals(), before)
	}
	other := newEngine(t, dir)
	other.images.key = func() ([]byte, error) { return make([]byte, 32), nil }
	if err := other.Prepare(t.Context(), program("hello")); err != nil {
		t.Errorf("another key: got %v", err)
	}
	after := seals()
	for name, data := range before {
		if len(after) != 2 || after[name] != data {
			t.Errorf("another key: got the seals %v, want %v and another", after, before)
		}
	}
	lost := errors.New("the key is lost")
	for _, key := range []func() ([]byte, error){
		func() ([]byte, error) { return nil, lost },
		func() ([]byte, error) { return make([]byte, 31), nil },
	} {
		e := newEngine(t, t.TempDir())
		e.opts.Key, e.images.key, e.code.key = key, key, key
		if err := e.Prepare(t.Context(), program("hello")); err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("got %v, want an error about the key", err)
		}
	}
}

func TestBinding(t *testing.T) {
	e := newEngine(t, t.TempDir())
	binding := func(change func(*sandbox.Spec)) string {
		t.Helper()
		s := spec("one")
		change(s)
		text, err := e.Binding(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	plain := binding(func(*sandbox.Spec) {})
	if same := binding(func(s *sandbox.Spec) { s.ID, s.Owner = "two", "another" }); same != plain {
		t.Errorf("another name: got %q, want %q", same, plain)
	}
	for what, change := range map[string]func(*sandbox.Spec){
		"program":     func(s *sandbox.Spec) { s.Program = program("another") },
		"memory":      func(s *sandbox.Spec) { s.Limits.MemoryBytes = 256 << 20 },
		"environment": func(s *sandbox.Spec) { s.Env = map[string]string{"A": "b"} },
		"files":       func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "a"}} },
		"their modes": func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "a", Mode: 0o600}} },
	} {
		if binding(change) == plain {
			t.Errorf("another %s: got the same binding, want another", what)
		}
	}
	if _, err := e.Binding(t.Context(), &sandbox.Spec{ID: "one"}); err == nil {
		t.Error("a spec without a program has a binding")
	}
}

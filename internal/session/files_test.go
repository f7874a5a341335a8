package session

import (
	"encoding/json"
	"testing"

	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

func sent(t *testing.T, f wire.TaskFile) wire.Call {
	t.Helper()
	params, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Call{Method: wire.MethodTaskFile, Params: params}
}

// What a guest answers to a request for files is hostile.
func TestCollectorRefuses(t *testing.T) {
	next := wire.Call{Method: wire.MethodTaskNext}
	for _, tt := range []struct {
		name  string
		parts []wire.TaskFile
	}{
		{"another file", []wire.TaskFile{{Path: "b", Data: []byte("x")}}},
		{"more than it was", []wire.TaskFile{{Path: "a", Data: []byte("1234")}}},
		{"more than it was, in parts", []wire.TaskFile{{Path: "a", Data: []byte("12"), More: true}, {Path: "a", Data: []byte("34")}}},
	} {
		c := &collector{wanted: []wire.Artifact{{Path: "a", Size: 3}}}
		if v, err := c.take(next); err != nil || v.(wire.TaskFile).Path != "a" {
			t.Fatal(v, err)
		}
		var err error
		for _, p := range tt.parts {
			_, err = c.take(sent(t, p))
		}
		if err == nil || len(c.got) != 0 {
			t.Errorf("%s: %v, %v", tt.name, err, c.got)
		}
	}
	// The same file again, with nothing more in it, would be kept without end.
	again := &collector{wanted: []wire.Artifact{{Path: "a", Size: 3}}}
	_, err := again.take(next)
	for _, p := range []wire.TaskFile{{Path: "a", Data: []byte("123")}, {Path: "a"}, {}} {
		_, err = again.take(sent(t, p))
	}
	if err == nil || len(again.got) != 1 {
		t.Errorf("%v, %v", err, again.got)
	}
	c := &collector{wanted: []wire.Artifact{{Path: "a", Size: 3}}}
	if _, err := c.take(sent(t, wire.TaskFile{Path: "a", Data: []byte("x")})); err == nil {
		t.Error("a file before it was asked for")
	}
	if _, err := c.take(wire.Call{Method: "memory_get"}); err == nil {
		t.Error("another method")
	}
	if _, err := c.take(wire.Call{Method: wire.MethodTaskFile, Params: json.RawMessage("7")}); err == nil {
		t.Error("no file at all")
	}
}

func TestCollectorTakes(t *testing.T) {
	c := &collector{wanted: []wire.Artifact{{Path: "a", Size: 4}, {Path: "gone", Size: 1}, {Path: "b", Size: 0}}}
	next := wire.Call{Method: wire.MethodTaskNext}
	for _, step := range []wire.Call{
		next, sent(t, wire.TaskFile{Path: "a", Data: []byte("12"), More: true}), sent(t, wire.TaskFile{Path: "a", Data: []byte("3"), Mode: 0o4755}),
		next, sent(t, wire.TaskFile{Path: "gone", LeftOut: "it is not there"}),
		next, sent(t, wire.TaskFile{Path: "b"}),
	} {
		if _, err := c.take(step); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := c.take(next); v != nil || err != nil {
		t.Error(v, err)
	}
	if len(c.got) != 2 || c.got[0].Path != "a" || string(c.got[0].Data) != "123" || c.got[0].Mode != 0o755 || c.got[1].Path != "b" {
		t.Errorf("%+v", c.got)
	}
}

func TestPlacer(t *testing.T) {
	p := &placer{made: map[string]bool{}, files: []sandbox.File{
		{Path: "a/b/c", Data: make([]byte, partSize+1), Mode: 0o4700}, {Path: "a/d"},
	}}
	type step struct {
		path  string
		bytes int
		mode  uint32
		dir   bool
		more  bool
	}
	for _, want := range []step{
		{"a", 0, 0o755, true, false}, {"a/b", 0, 0o755, true, false},
		{"a/b/c", partSize, 0o700, false, true}, {"a/b/c", 1, 0o700, false, false}, {"a/d", 0, 0o644, false, false},
	} {
		v, err := p.give(wire.Call{Method: wire.MethodTaskNext})
		if err != nil {
			t.Fatal(err)
		}
		f := v.(wire.TaskFile)
		if got := (step{f.Path, len(f.Data), f.Mode, f.Directory, f.More}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if v, err := p.give(wire.Call{Method: wire.MethodTaskNext}); v != nil || err != nil {
		t.Error(v, err)
	}
	if _, err := p.give(wire.Call{Method: wire.MethodTaskFile}); err == nil {
		t.Error("another method")
	}
}

package session

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sallyport/sallyport/internal/wire"
)

// What a guest answers to a request for files is hostile.
func TestTakerRefuses(t *testing.T) {
	part := make([]byte, wire.MinTaskPart)
	for _, tt := range []struct {
		name  string
		asked string
		sends []wire.TaskFile
		fails bool
		gives int
	}{
		{"a file", "a", []wire.TaskFile{{Path: "a", Data: part, More: true}, {Path: "a"}}, false, 2},
		{"files of a directory", "a", []wire.TaskFile{{Path: "a/b", Directory: true}, {Path: "a/b/c"}}, false, 2},
		{"the workspace", ".", []wire.TaskFile{{Path: "b"}}, false, 1},
		{"another file", "a", []wire.TaskFile{{Path: "ab"}}, true, 0},
		{"a way up", "a", []wire.TaskFile{{Path: "a/../../b"}}, true, 0},
		{"a way up from the workspace", ".", []wire.TaskFile{{Path: "../b"}}, true, 0},
		{"another file in the middle", "a", []wire.TaskFile{{Path: "a/b", Data: part, More: true}, {Path: "a/c"}}, true, 1},
		{"a directory in parts", "a", []wire.TaskFile{{Path: "a", Directory: true, Data: part, More: true}}, true, 0},
		{"more than a workspace holds", "a", []wire.TaskFile{{Path: "a", Data: part, More: true}, {Path: "a", Data: part, More: true}, {Path: "a", Data: part}}, true, 2},
		{"half a file", "a", []wire.TaskFile{{Path: "a", Data: part, More: true}}, true, 1},
	} {
		gives := 0
		k := &taker{paths: []string{tt.asked}, room: 2 * wire.MinTaskPart, give: func(wire.TaskFile) error { gives++; return nil }}
		next := wire.Call{Method: wire.MethodTaskNext}
		_, err := k.take(next)
		for _, f := range tt.sends {
			if err == nil {
				_, err = k.take(sent(t, f))
			}
		}
		if err == nil {
			_, err = k.take(next)
		}
		if (err != nil) != tt.fails || gives != tt.gives {
			t.Errorf("%s: %v, %d parts; want failure %v, %d parts", tt.name, err, gives, tt.fails, tt.gives)
		}
	}
	k := &taker{}
	if _, err := k.take(sent(t, wire.TaskFile{Path: "a"})); err == nil {
		t.Error("a file before any was asked for")
	}
}

// Files go into a session that is running, and into one that is suspended, whose state
// is kept.
func TestPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, _ := sets(t, nil)
		set := open(newSaving())
		defer set.Close()
		s := get(t, set, "work")
		put := func(files ...*wire.TaskFile) error {
			return s.Put(t.Context(), func() (*wire.TaskFile, error) {
				if len(files) == 0 {
					return nil, nil
				}
				f := files[0]
				files = files[1:]
				return f, nil
			})
		}
		if err := put(&wire.TaskFile{Path: "f"}); err == nil {
			t.Error("a session without state took a file")
		}
		exec(t, s, "set x 1")
		if err := put(&wire.TaskFile{Path: "f", Data: []byte("on")}, &wire.TaskFile{Path: "f", Data: []byte("e")}); err != nil {
			t.Fatal(err)
		}
		if err := set.Suspend(t.Context(), "work"); err != nil {
			t.Fatal(err)
		}
		if err := put(&wire.TaskFile{Path: "g", Data: []byte("two")}); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"x": "1", "f": "one", "g": "two"} {
			if out := exec(t, s, "get "+key); out.Stdout.Head != want || out.Lost != "" {
				t.Errorf("%s: %+v, want %q", key, out, want)
			}
		}
		for _, path := range []string{"../up", "/root", ".", ""} {
			if err := put(&wire.TaskFile{Path: path}); err == nil || !strings.Contains(err.Error(), "not a place below /workspace") {
				t.Errorf("%q: %v", path, err)
			}
		}
		broken := errors.New("unreadable")
		if err := s.Put(t.Context(), func() (*wire.TaskFile, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		if out := exec(t, s, "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
	})
}

package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

func sent(t *testing.T, f wire.TaskFile) wire.Call {
	t.Helper()
	params, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Call{Method: wire.MethodTaskFile, Params: params}
}

func newCollector(room int64, wanted ...wire.Artifact) *collector {
	return &collector{wanted: wanted, room: room}
}

// What a guest answers to a request for files is hostile.
func TestCollectorRefuses(t *testing.T) {
	next := wire.Call{Method: wire.MethodTaskNext}
	part := make([]byte, wire.MinTaskPart)
	for _, tt := range []struct {
		name  string
		size  int64 // as the guest says
		parts []wire.TaskFile
		left  string // why the file is left out; empty: the task fails
	}{
		{"another file", 3, []wire.TaskFile{{Path: "b", Data: []byte("x")}}, ""},
		{"more than it was", 3, []wire.TaskFile{{Path: "a", Data: []byte("1234")}}, "larger than it was"},
		{"more than it was, in parts", wire.MinTaskPart + 1, []wire.TaskFile{{Path: "a", Data: part, More: true}, {Path: "a", Data: part}}, "larger than it was"},
		{"more than a workspace holds", 2 * wire.MinTaskPart, []wire.TaskFile{{Path: "a", Data: part, More: true}, {Path: "a", Data: part, More: true}, {Path: "a", Data: part, More: true}}, ""},
		{"a negative size", -1, []wire.TaskFile{{Path: "a", Data: []byte("1")}}, "larger than it was"},
		{"drops", 2 * wire.MinTaskPart, []wire.TaskFile{{Path: "a", Data: []byte("1"), More: true}}, ""},
		{"nothing, for ever", 2 * wire.MinTaskPart, []wire.TaskFile{{Path: "a", More: true}}, ""},
	} {
		c := newCollector(2*wire.MinTaskPart+10, wire.Artifact{Path: "a", Size: tt.size})
		if v, err := c.take(next); err != nil || v.(wire.TaskFile).Path != "a" {
			t.Fatal(v, err)
		}
		var err error
		for _, p := range tt.parts {
			_, err = c.take(sent(t, p))
		}
		if (err == nil) != (tt.left != "") || len(c.got) != 0 {
			t.Errorf("%s: %v, %v", tt.name, err, c.got)
		}
		c.end(err)
		if len(c.left) != 1 || !strings.Contains(c.left[0].Why, tt.left) || err != nil && c.left[0].Why != err.Error() {
			t.Errorf("%s: left out %q, want %q", tt.name, c.left, tt.left)
		}
	}
	// What cannot be true is not asked for.
	vast := newCollector(10, wire.Artifact{Path: "vast", Size: 11}, wire.Artifact{Path: "a", Size: 10})
	if v, err := vast.take(next); err != nil || v.(wire.TaskFile).Path != "a" || len(vast.left) != 1 || vast.left[0].Why != errTooLarge.Error() {
		t.Errorf("%+v, %v, left out %q", v, err, vast.left)
	}
	// The same file again, with nothing more in it, would be kept without end.
	again := newCollector(10, wire.Artifact{Path: "a", Size: 3})
	_, err := again.take(next)
	for _, p := range []wire.TaskFile{{Path: "a", Data: []byte("123")}, {Path: "a"}, {}} {
		_, err = again.take(sent(t, p))
	}
	if err == nil || len(again.got) != 1 {
		t.Errorf("%v, %v", err, again.got)
	}
	c := newCollector(10, wire.Artifact{Path: "a", Size: 3})
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
	big := bytes.Repeat([]byte("12"), wire.MinTaskPart/2)
	c := newCollector(1<<20,
		wire.Artifact{Path: "a", Size: wire.MinTaskPart + 1}, wire.Artifact{Path: "gone", Size: 1}, wire.Artifact{Path: "unsent", Size: 1}, wire.Artifact{Path: "b", Size: 0}, wire.Artifact{Path: "late"})
	next := wire.Call{Method: wire.MethodTaskNext}
	for _, step := range []wire.Call{
		next, sent(t, wire.TaskFile{Path: "a", Data: big, Mode: 0o4755, More: true}), sent(t, wire.TaskFile{Path: "a", Data: []byte("3"), Mode: 0o4755}),
		next, sent(t, wire.TaskFile{Path: "gone", LeftOut: "it is not there"}),
		next,
		next, sent(t, wire.TaskFile{Path: "b"}),
	} {
		if _, err := c.take(step); err != nil {
			t.Fatal(err)
		}
	}
	c.end(nil)
	if len(c.got) != 2 || c.got[0].Path != "a" || string(c.got[0].Data) != string(big)+"3" || c.got[0].Mode != 0o755 || c.got[1].Path != "b" {
		t.Errorf("%d files, not a of %d bytes and b", len(c.got), len(big)+1)
	}
	want := []LeftOut{{"gone", "it is not there"}, {"unsent", "the sandbox did not send it"}, {"late", "the sandbox did not send it"}}
	if !slices.Equal(c.left, want) {
		t.Errorf("left out %q, want %q", c.left, want)
	}
}

// Files go where they are wanted as they come, and are given up where they do not
// come whole or cannot be written.
func TestCollectorWrites(t *testing.T) {
	var ends []string
	c := newCollector(1<<20, wire.Artifact{Path: "a", Size: 3}, wire.Artifact{Path: "refused", Size: 9, About: "all"}, wire.Artifact{Path: "full", Size: 3}, wire.Artifact{Path: "half", Size: 1 << 19})
	c.create = func(path string, size int64, about string) (io.Writer, func(bool) error, error) {
		var w io.Writer = io.Discard
		if path == "refused" { // it is never asked for
			return nil, nil, fmt.Errorf("%d bytes of %s", size, about)
		}
		if path == "full" {
			w = errWriter{}
		}
		return w, func(whole bool) error {
			ends = append(ends, fmt.Sprint(path, " ", whole))
			return nil
		}, nil
	}
	next := wire.Call{Method: wire.MethodTaskNext}
	for _, step := range []wire.Call{
		next, sent(t, wire.TaskFile{Path: "a", Data: []byte("123")}),
		next, sent(t, wire.TaskFile{Path: "full", Data: []byte("123")}),
		next, sent(t, wire.TaskFile{Path: "half", Data: make([]byte, wire.MinTaskPart), More: true}),
	} {
		if _, err := c.take(step); err != nil {
			t.Fatal(err)
		}
	}
	c.end(errSlow)
	if want := []string{"a true", "full false", "half false"}; !slices.Equal(ends, want) || len(c.got) != 0 {
		t.Errorf("%q, want %q; in memory %v", ends, want, c.got)
	}
	if want := []LeftOut{{"refused", "9 bytes of all"}, {"full", "no room"}, {"half", errSlow.Error()}}; !slices.Equal(c.left, want) {
		t.Errorf("left out %q, want %q", c.left, want)
	}
}

type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

// The time in which files are taken out is the execution's, whatever its guest
// does meanwhile.
func TestCollectingIsCharged(t *testing.T) {
	for _, tt := range []struct {
		name     string
		during   func(*guestEnd, frame) bool
		deaf     bool
		survives bool
	}{
		{"never answers", func(g *guestEnd, f frame) bool { <-g.run.killed; return false }, false, false},
		{"cannot be interrupted", func(g *guestEnd, f frame) bool { <-g.run.killed; return false }, true, false},
		{"ends when it is interrupted", func(g *guestEnd, f frame) bool {
			<-g.run.interrupts
			g.done(f, "interrupted", 130)
			return true
		}, false, true},
		{"asks for ever", func(g *guestEnd, f frame) bool {
			for {
				select {
				case <-g.run.killed:
					return false
				case <-time.After(10 * time.Millisecond):
				}
				g.control(`{"type":"call","id":1,"run":%d,"method":"task_next","params":{}}`, f.ID)
				if _, ok := g.next(); !ok {
					return false
				}
			}
		}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{deaf: tt.deaf, guest: each(func(g *guestEnd, f frame) bool {
					if f.Task != "" {
						return tt.during(g, f)
					}
					g.output(wire.KindStdout, "said")
					g.output(wire.KindNonce, f.Nonce)
					g.control(`{"type":"done","id":%d,"status":"ok","exitCode":0,"artifacts":[{"path":"a.png","size":1}]}`, f.ID)
					return true
				})}
				s := newSingle(t, e, nil)
				began := time.Now()
				out, err := s.Exec(t.Context(), s.Enter(), Request{Collect: func(out *Outcome) ([]wire.Artifact, Create) { return out.Artifacts, nil }, Submission: Submission{Code: "x", Timeout: 2 * time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if out.End != TimedOut || !out.Fetching || out.Survived != tt.survives || out.Stdout.Head != "said" {
					t.Errorf("%+v", out)
				}
				if most := taskTime(1) + 3*time.Second; took > most || out.Own < 2*time.Second {
					t.Errorf("%v, of which %v were charged; want less than %v", took, out.Own, most)
				}
				if len(out.LeftOut) != 1 {
					t.Errorf("left out: %q", out.LeftOut)
				}
				if lost := out.Lost != ""; lost == tt.survives {
					t.Errorf("lost %q", out.Lost)
				}
			})
		})
	}
}

func TestParts(t *testing.T) {
	content := func(size int) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(make([]byte, size))), nil }
	}
	p := NewParts([]Outgoing{{"a/b/c", 0o4700, content(wire.TaskPartSize + 1)}, {"a/d", 0, content(0)}, {"a/e", 0, content(wire.TaskPartSize)}})
	give := giving(p.Next)
	type step struct {
		path  string
		bytes int
		mode  uint32
		dir   bool
		more  bool
	}
	for _, want := range []step{
		{"a", 0, 0o755, true, false}, {"a/b", 0, 0o755, true, false},
		{"a/b/c", wire.TaskPartSize, 0o700, false, true}, {"a/b/c", 1, 0o700, false, false}, {"a/d", 0, 0o644, false, false},
		{"a/e", wire.TaskPartSize, 0o644, false, false},
	} {
		v, err := give(wire.Call{Method: wire.MethodTaskNext})
		if err != nil {
			t.Fatal(err)
		}
		f := v.(*wire.TaskFile)
		if got := (step{f.Path, len(f.Data), f.Mode, f.Directory, f.More}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if v, err := give(wire.Call{Method: wire.MethodTaskNext}); v.(*wire.TaskFile) != nil || err != nil {
		t.Error(v, err)
	}
	if _, err := give(wire.Call{Method: wire.MethodTaskFile}); err == nil {
		t.Error("another method")
	}
}

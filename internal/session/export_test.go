package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/wire"
)

// unpacked is what an archive has, in short.
func unpacked(t *testing.T, data []byte) map[string]string {
	t.Helper()
	a, err := archive.NewReader(bytes.NewReader(data), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"": fmt.Sprintf("%s %d", a.Facts.Name, a.Facts.Executions)}
	for {
		i, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}
		if i == nil {
			return found
		}
		content, err := io.ReadAll(i.Content)
		if err != nil {
			t.Fatal(err)
		}
		found[i.Name] = string(content)
	}
}

func TestExportAndImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, logged(1<<20))
		set := open(e)
		s := get(t, set, "work")
		exec(t, s, "set f one")
		var running, suspended bytes.Buffer
		if err := set.Export(t.Context(), "work", &running); err != nil {
			t.Fatal(err)
		}
		if err := set.Suspend(t.Context(), "work"); err != nil {
			t.Fatal(err)
		}
		if err := set.Export(t.Context(), "work", &suspended); err != nil {
			t.Fatal(err)
		}
		for _, b := range []*bytes.Buffer{&running, &suspended} {
			found := unpacked(t, b.Bytes())
			if found[""] != "work 1" || found["workspace/f"] != "one" || found["code/00001.py"] != "set f one\n" || !strings.Contains(found["left-out.txt"], "variables") || len(found) != 4 {
				t.Errorf("%q", found)
			}
		}
		// It sleeps on, and was not even noted to be used.
		if got := names(set.List()); got != "default unused 0" {
			t.Error(got)
		}
		set.Close()
		set = open(e)
		a, err := archive.NewReader(&suspended, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Import(t.Context(), "again", a); err != nil {
			t.Fatal(err)
		}
		if out := exec(t, get(t, set, "again"), "get f"); out.Stdout.Head != "one" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		if out := exec(t, get(t, set, "work"), "get f"); out.Stdout.Head != "one" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
		for _, name := range []string{"again", "work", DefaultName, "no name"} {
			a, err := archive.NewReader(bytes.NewReader(running.Bytes()), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := set.Import(t.Context(), name, a); err == nil {
				t.Errorf("imported as %q", name)
			}
		}
		set.Close()
	})
}

func TestExportRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set := open(e)
		defer set.Close()
		if err := set.Export(t.Context(), "nobody", io.Discard); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if err := set.Export(t.Context(), DefaultName, io.Discard); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		exec(t, get(t, set, "work"), "set x 1")
		if err := set.Reset(t.Context(), "work"); err != nil {
			t.Fatal(err)
		}
		if err := set.Export(t.Context(), "work", io.Discard); err == nil || !strings.Contains(err.Error(), "nothing in it") {
			t.Error(err)
		}
	})
}

// What a guest says of its files is checked, and whatever it says the session
// goes on.
func TestExportOfAHostileGuest(t *testing.T) {
	file := func(f wire.TaskFile) string {
		data, err := json.Marshal(f)
		if err != nil {
			panic(err)
		}
		return string(data)
	}
	part := strings.Repeat("1", wire.MinTaskPart)
	whole := file(wire.TaskFile{Path: "good", Mode: 0o7777, Data: []byte("1")})
	tests := []struct {
		name  string
		sends []string
		want  string // of the error; empty: there is none
		has   map[string]string
	}{
		{"paths", []string{
			whole, file(wire.TaskFile{Path: "../up"}), file(wire.TaskFile{Path: "/root"}), file(wire.TaskFile{Path: "a//b"}), file(wire.TaskFile{Path: "."}),
			file(wire.TaskFile{Path: "a\\b"}), file(wire.TaskFile{Path: "a\x1b[2J"}), file(wire.TaskFile{Path: strings.Repeat("x", 2000)}), file(wire.TaskFile{}),
			file(wire.TaskFile{Path: "C:/x/../../y", Directory: true}),
		}, "", map[string]string{"workspace/good": "1"}},
		{"twice", []string{whole, file(wire.TaskFile{Path: "good", Data: []byte("2")})}, "", map[string]string{"workspace/good": "1"}},
		{"half", []string{file(wire.TaskFile{Path: "a", Data: []byte(part), More: true}), whole}, "", map[string]string{"workspace/a": part, "workspace/good": "1"}},
		{"half at the end", []string{whole, file(wire.TaskFile{Path: "a", Data: []byte(part), More: true})}, "", map[string]string{"workspace/a": part, "workspace/good": "1"}},
		{"parts", []string{file(wire.TaskFile{Path: "a", Data: []byte(part), More: true}), file(wire.TaskFile{Path: "a", Data: []byte("2")})}, "", map[string]string{"workspace/a": part + "2"}},
		{"too large", []string{file(wire.TaskFile{Path: "a", Data: make([]byte, 60<<10), More: true}), file(wire.TaskFile{Path: "a", Data: make([]byte, 60<<10)})}, "larger than the workspace", nil},
		{"drops", []string{file(wire.TaskFile{Path: "a", Data: []byte("1"), More: true})}, "in parts of less than", nil},
		{"no part", []string{`[1]`}, "not part of a file", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newSaving()
				open, _ := sets(t, func(c *setup) { c.Limits.WorkspaceBytes = 100 << 10 })
				set := open(e)
				defer set.Close()
				exec(t, get(t, set, "work"), "set x 1")
				e.sends = tt.sends
				var b bytes.Buffer
				err := set.Export(t.Context(), "work", &b)
				switch {
				case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Fatal(err)
				case err == nil:
					found := unpacked(t, b.Bytes())
					for name, want := range tt.has {
						if found[name] != want {
							t.Errorf("%s: %q", name, found[name])
						}
					}
					if len(found) != len(tt.has)+2 { // and the facts, and what is left out
						t.Errorf("%q", found)
					}
				}
				if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "1" || out.Lost != "" {
					t.Errorf("%+v", out)
				}
			})
		})
	}
}

// A guest that does not answer is waited for until the time is up, also where
// whoever asked has gone; then it is lost, and that is said.
func TestExportOfASilentGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(func(g *guestEnd, f frame) bool {
			if f.Task != "" {
				<-g.run.killed
				return false
			}
			return words(g, f)
		})}
		set := newTestSet(setup{Template: Template{Engine: e}})
		defer set.Close()
		exec(t, get(t, set, "work"), "say x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := set.Export(ctx, "work", io.Discard)
		limit := taskTime(sandbox.DefaultLimits.WorkspaceBytes)
		if took := time.Since(began); !errors.Is(err, errSlow) || took < limit || took > limit+10*time.Second {
			t.Errorf("%v after %v, want %v after %v", err, took, errSlow, limit)
		}
		if out := exec(t, get(t, set, "work"), "say x"); !strings.Contains(out.Lost, "files were exported") {
			t.Errorf("%+v", out)
		}
	})
}

// A guest that is late fails at its next call, and lives.
func TestExportIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(func(g *guestEnd, f frame) bool {
			if f.Task == "" {
				return words(g, f)
			}
			time.Sleep(10 * time.Second)
			g.control(`{"type":"call","id":1,"run":%d,"method":"task_file","params":{"path":"a"}}`, f.ID)
			reply, ok := g.next()
			if ok && reply.OK {
				g.done(f, "ok", 0)
			} else if ok {
				g.done(f, "error", 1)
			}
			return ok
		})}
		set := newTestSet(setup{Template: Template{Engine: e}})
		defer set.Close()
		exec(t, get(t, set, "work"), "say x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := set.Export(ctx, "work", io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if out := exec(t, get(t, set, "work"), "say x"); out.Lost != "" {
			t.Errorf("%+v", out)
		}
	})
}

// Where sandboxes cannot be saved, the files of a session still can.
func TestMoveWithoutSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e saving
		engine := &scripted{guest: each(func(g *guestEnd, f frame) bool {
			memory := map[string]string{}
			switch f.Task {
			case wire.TaskTakeOut:
				memory["f"] = "one"
				e.takeOut(g, f, memory)
				return true
			case wire.TaskPutIn:
				return putIn(g, f, memory) && memory["f"] == "one"
			}
			return words(g, f)
		})}
		set := newTestSet(setup{Template: Template{Engine: engine}})
		defer set.Close()
		exec(t, get(t, set, "work"), "say x")
		var b bytes.Buffer
		if err := set.Export(t.Context(), "work", &b); err != nil {
			t.Fatal(err)
		}
		if found := unpacked(t, b.Bytes()); found["workspace/f"] != "one" || !strings.Contains(found["left-out.txt"], "sessions.logs") {
			t.Errorf("%q", found)
		}
		a, err := archive.NewReader(&b, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Import(t.Context(), "again", a); err != nil {
			t.Fatal(err)
		}
		if got := names(set.List()); got != "again running 0, default unused 0, work running 1" {
			t.Error(got)
		}
		if err := set.Suspend(t.Context(), "work"); err == nil || !strings.Contains(err.Error(), "cannot save") {
			t.Error(err)
		}
		if err := set.Reset(t.Context(), "work"); err != nil {
			t.Error(err)
		}
		if got := names(set.List()); got != "again running 0, default unused 0" {
			t.Error(got)
		}
	})
}

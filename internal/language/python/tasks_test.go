//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// taken collects what a guest sends of its workspace.
func taken(t *testing.T, p *process) (files map[string]wire.TaskFile, r result) {
	files = map[string]wire.TaskFile{}
	r = p.run(t, wire.Exec{Task: wire.TaskTakeOut}, func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		var part wire.TaskFile
		if err := json.Unmarshal(c.Params, &part); err != nil || c.Method != wire.MethodTaskFile {
			t.Errorf("%s: %v", c.Method, err)
		}
		if before, ok := files[part.Path]; ok {
			part.Data = append(before.Data, part.Data...)
		}
		files[part.Path] = part
		return nil, nil
	})
	return files, r
}

func TestTakeOut(t *testing.T) {
	p := launch(t)
	r := p.exec(t, `import os, pathlib
pathlib.Path("a/b").mkdir(parents=True)
pathlib.Path("a/b/large").write_bytes(b"x" * 2_000_000)
pathlib.Path("empty").touch()
os.chmod("empty", 0o700)
os.symlink("/etc/passwd", "link")
os.mkfifo("fifo")
pathlib.Path("__pycache__").mkdir()
open(b"no\xfftext", "w").close()
x = 1; _ = 5;`)
	if r.err != nil || r.Status != wire.StatusOK {
		t.Fatal(r.err, r.stderr)
	}
	if err := os.WriteFile(filepath.Join(p.workspace, "later"), []byte("l"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, r := taken(t, p)
	if r.err != nil || r.Status != wire.StatusOK || r.stdout != "" || r.Artifacts != nil {
		t.Fatalf("%+v", r)
	}
	for path, want := range map[string]string{
		"a":              "directory 755",
		"a/b":            "directory 755",
		"a/b/large":      "2000000 bytes 644",
		"empty":          "0 bytes 700",
		"later":          "1 bytes 644",
		"link":           "a symbolic link",
		"fifo":           "not a file",
		`'no\udcfftext'`: "its name is not valid text",
	} {
		f, ok := files[path]
		got := fmt.Sprintf("%d bytes %o", len(f.Data), f.Mode)
		switch {
		case f.LeftOut != "":
			got = f.LeftOut
		case f.Directory:
			got = fmt.Sprintf("directory %o", f.Mode)
		}
		if !ok || got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		delete(files, path)
	}
	if len(files) != 0 {
		t.Errorf("more than that: %v", files)
	}
	// The session is as it was: its variables, and what is new to the next
	// execution.
	r = p.exec(t, "print(x, _)")
	if r.stdout != "1 5\n" || !slices.ContainsFunc(r.Artifacts, func(a wire.Artifact) bool { return a.Path == "later" }) {
		t.Errorf("%q %+v", r.stdout, r.Artifacts)
	}
}

func TestPutIn(t *testing.T) {
	p := launch(t)
	parts := []wire.TaskFile{
		{Path: "d", Directory: true, Mode: 0o755},
		{Path: "d/f", Mode: 0o640, Data: []byte("one "), More: true},
		{Path: "d/f", Mode: 0o640, Data: []byte("two")},
		{Path: "empty", Mode: 0o600},
	}
	give := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method != wire.MethodTaskNext || len(parts) == 0 {
			return nil, nil
		}
		part := parts[0]
		parts = parts[1:]
		return json.Marshal(part)
	}
	if r := p.run(t, wire.Exec{Task: wire.TaskPutIn}, give); r.err != nil || r.Status != wire.StatusOK || r.Artifacts != nil {
		t.Fatalf("%+v", r)
	}
	r := p.exec(t, `import os
print(open("d/f").read(), oct(os.stat("d/f").st_mode), os.stat("empty").st_size)`)
	if r.stdout != "one two 0o100640 0\n" || r.Artifacts != nil {
		t.Errorf("%q %+v %s", r.stdout, r.Artifacts, r.stderr)
	}
	// One that does not come whole changes nothing.
	parts = []wire.TaskFile{{Path: "d/f", Mode: 0o600, Data: []byte("ha"), More: true}}
	cut := func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		if len(parts) == 0 {
			return nil, &wire.CallError{Kind: wire.KindCancelled, Message: "the host gave up"}
		}
		return give(ctx, c)
	}
	if r := p.run(t, wire.Exec{Task: wire.TaskPutIn}, cut); r.Status != wire.StatusError {
		t.Errorf("%+v", r)
	}
	r = p.exec(t, `print(open("d/f").read(), os.listdir("d"))`)
	if r.stdout != "one two ['f']\n" || r.Artifacts != nil {
		t.Errorf("%q %+v %s", r.stdout, r.Artifacts, r.stderr)
	}
	parts = []wire.TaskFile{{Path: "not/there", Mode: 0o600}}
	r = p.run(t, wire.Exec{Task: wire.TaskPutIn}, give)
	if r.Status != wire.StatusError || r.Error == nil || !strings.Contains(r.Error.Type, "FileNotFoundError") {
		t.Errorf("%+v", r)
	}
}

// Only a task's calls are served: user code that makes them is refused like any
// other unknown method, by whoever answers.
func TestTaskUnknown(t *testing.T) {
	p := launch(t)
	if r := p.run(t, wire.Exec{Task: "dance"}, nil); r.Status != wire.StatusError || r.Error == nil || r.Error.Type != "KeyError" {
		t.Errorf("%+v", r)
	}
	if r := p.exec(t, "1"); r.stdout != "1\n" {
		t.Errorf("%+v", r)
	}
}

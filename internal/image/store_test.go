package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// holdVariable makes the test executable hold an image, say so, and wait to be
// killed.
const holdVariable = "SALLYPORT_TEST_HOLD_IMAGE_IN"

// addVariable makes it add an image, which it stops in the middle of.
const addVariable = "SALLYPORT_TEST_ADD_IMAGE_IN"

func TestMain(m *testing.M) {
	forever := func() { <-make(chan struct{}) }
	if dir := os.Getenv(holdVariable); dir != "" {
		root, _, err := At(dir, flatten.Limits{}).Open(context.Background(), "one")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("holds", root.ID)
		go forever()
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the test ends, however
		os.Exit(0)
	}
	if dir := os.Getenv(addVariable); dir != "" {
		reads := 0
		c := content(func(r io.Reader) io.Reader {
			if reads++; reads == 2 { // the tree is known and is being written
				fmt.Println("adds")
				_, _ = bufio.NewReader(os.Stdin).ReadByte()
				os.Exit(0)
			}
			return r
		}, "file", "content")
		_, err := At(dir, flatten.Limits{}).Add(context.Background(), c, nil)
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// content is an image of one layer with these files, names and contents by
// turns.
func content(through func(io.Reader) io.Reader, files ...string) *Content {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o755, Size: int64(len(files[i+1]))})
		_, _ = io.WriteString(w, files[i+1])
	}
	_ = w.Close()
	sum := sha256.Sum256(b.Bytes())
	config, _ := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Env": []string{"PATH=/opt/x/bin:/usr/bin", "LANG=C.UTF-8", "LD_PRELOAD=/evil.so", "PYTHONSTARTUP=/evil.py"}, "Entrypoint": []string{"/evil"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	return &Content{Config: config, Passing: true, Layers: []flatten.Layer{{Name: "x", Size: int64(b.Len()), Open: func() (io.ReadCloser, error) {
		r := io.Reader(bytes.NewReader(b.Bytes()))
		if through != nil {
			r = through(r)
		}
		return io.NopCloser(r), nil
	}}}}
}

func parse(t *testing.T, text string) Name {
	t.Helper()
	n, err := ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func notBound(string) (bool, error) { return false, nil }

// add puts an image into the store under a name.
func add(t *testing.T, s *Store, name string, c *Content) string {
	t.Helper()
	root, err := s.Add(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Release()
	if name != "" {
		if _, err := s.Tag(parse(t, name).Here(), root, "", SourceLoad); err != nil {
			t.Fatal(err)
		}
	}
	return root.ID
}

func TestStore(t *testing.T) {
	s := At(t.TempDir(), flatten.Limits{})
	if _, _, err := s.Open(t.Context(), "one"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "sallyport image pull one") {
		t.Error(err)
	}
	id := add(t, s, "one", content(nil, "a", "1"))
	root, record, err := s.Open(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root.Dir, "a")); string(b) != "1" || err != nil || root.ID != id || record.Name != "localhost/one:latest" {
		t.Error(string(b), err, root.ID, record)
	}
	if got := strings.Join(root.Env, " "); got != "PATH=/opt/x/bin:/usr/bin LANG=C.UTF-8" {
		t.Errorf("environment %s", got)
	}
	if root.Python != nil || !strings.Contains(root.Trouble, "no CPython 3.9 or newer") {
		t.Errorf("%+v: %s", root.Python, root.Trouble)
	}
	root.Release()
	root.Release() // idempotent
	if again := add(t, s, "two", content(nil, "a", "1")); again != id {
		t.Errorf("the same image is there twice: %s and %s", id, again)
	}
	for _, text := range []string{id, id[7:], id[7:19], "localhost/two", "two:latest", "docker.io/library/three"} {
		r, err := s.Find(text)
		if missing := text == "docker.io/library/three"; missing != errors.Is(err, ErrMissing) || !missing && r.ID != id {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	var none Store
	if _, err := none.Add(t.Context(), content(nil), nil); err == nil {
		t.Error("added without a place")
	}
	if removed, err := none.Prune("", notBound); len(removed) > 0 || err != nil {
		t.Error(removed, err)
	}
}

// TestNames: what a person calls an image leads to one place.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"python":                              "docker.io/library/python:latest",
		"python:3.13-slim":                    "docker.io/library/python:3.13-slim",
		"docker.io/library/python":            "docker.io/library/python:latest",
		"index.docker.io/library/a:b":         "docker.io/library/a:b",
		"team/tools":                          "docker.io/team/tools:latest",
		"quay.io/team/tools:v1":               "quay.io/team/tools:v1",
		"localhost/mine":                      "localhost/mine:latest",
		"localhost:5000/mine":                 "localhost:5000/mine:latest",
		"127.0.0.1:5000/a/b:c":                "127.0.0.1:5000/a/b:c",
		"a@sha256:" + strings.Repeat("a", 64): "docker.io/library/a@sha256:" + strings.Repeat("a", 64),
	} {
		if n, err := ParseName(text); err != nil || n.Full != want {
			t.Errorf("%s: %s, %v", text, n.Full, err)
		}
	}
	for _, text := range []string{"", "Capital", "a b", "../x", "a:b:c", "-t", "sha256:abc"} {
		if n, err := ParseName(text); err == nil {
			t.Errorf("%q is %s", text, n.Full)
		}
	}
	if n := parse(t, "mine").Here(); n.Full != "localhost/mine:latest" || !n.Local() {
		t.Errorf("%+v", n)
	}
	if n := parse(t, "quay.io/x/y").Here(); n.Full != "quay.io/x/y:latest" || n.Local() {
		t.Errorf("%+v", n)
	}
}

// TestNotAdded: what is not in order leaves nothing.
func TestNotAdded(t *testing.T) {
	other := content(nil, "a", "1")
	other.Config = bytes.Replace(other.Config, []byte(runtime.GOARCH), []byte("s390x"), 1)
	torn := content(func(r io.Reader) io.Reader { return io.LimitReader(r, 600) }, "a", "1")
	more := content(nil, "a", "1")
	more.Layers = append(more.Layers, more.Layers...)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		c    *Content
		want error
	}{
		"for another machine":     {t.Context(), other, ErrUnusable},
		"no configuration":        {t.Context(), &Content{Config: []byte("{")}, flatten.ErrLayer},
		"torn":                    {t.Context(), torn, flatten.ErrLayer},
		"more layers than it has": {t.Context(), more, flatten.ErrLayer},
		"given up":                {cancelled, content(nil, "a", "1"), context.Canceled},
	} {
		s := At(t.TempDir(), flatten.Limits{})
		if _, err := s.Add(tt.ctx, tt.c, nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, dir := range []string{"roots", "scratch"} {
			if left, _ := os.ReadDir(filepath.Join(s.path, dir)); len(left) > 0 {
				t.Errorf("%s: %s is left", name, left[0].Name())
			}
		}
	}
}

func TestPrune(t *testing.T) {
	s := At(t.TempDir(), flatten.Limits{})
	id := add(t, s, "one", content(nil, "a", "1"))
	kept := func(want string, bound func(string) (bool, error)) {
		t.Helper()
		removed, err := s.Prune("", bound)
		if err != nil || len(removed) != 1 || removed[0].Kept != want {
			t.Errorf("%+v, %v, want %q", removed, err, want)
		}
	}
	kept(KeptNamed, notBound)
	record, err := s.Find("one")
	if err != nil {
		t.Fatal(err)
	}
	root, _, err := s.Open(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Untag(record); err != nil {
		t.Fatal(err)
	}
	if err := s.Untag(record); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	kept(KeptUsed, notBound)
	root.Release()
	kept(KeptBound, func(asked string) (bool, error) { return asked == id, nil })
	if _, err := s.Prune("", func(string) (bool, error) { return false, os.ErrPermission }); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
	// A record that cannot be read may lead to it.
	torn := s.names().Path("torn.json")
	if err := os.WriteFile(torn, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune("", notBound); err == nil {
		t.Error("removed beside a record that cannot be read")
	}
	if err := os.Remove(torn); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Find(id); err != nil || r.ID != id { // by its ID it is still found
		t.Error(r, err)
	}
	kept("", notBound)
	if removed, err := s.Prune("", notBound); len(removed) > 0 || err != nil {
		t.Error(removed, err)
	}
	if _, err := s.Find(id); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	if again := add(t, s, "one", content(nil, "a", "1")); again != id {
		t.Error("it cannot come back")
	}
}

// other starts this executable in another part.
func other(t *testing.T, variable, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // closes when this test ends
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

// TestPruneBesideAnother: a root that another process holds is not removed; when
// that process has been killed, it is.
func TestPruneBesideAnother(t *testing.T) {
	s := At(t.TempDir(), flatten.Limits{})
	id := add(t, s, "one", content(nil, "a", "1"))
	cmd, said := other(t, holdVariable, s.path)
	if said != "holds "+id {
		t.Fatal(said)
	}
	record, err := s.Find("one")
	if err == nil {
		err = s.Untag(record)
	}
	if err != nil {
		t.Fatal(err)
	}
	removed, err := s.Prune("", notBound)
	if err != nil || len(removed) != 1 || removed[0].Kept != KeptUsed {
		t.Fatalf("%+v, %v", removed, err)
	}
	if _, err := os.Stat(filepath.Join(s.rootDir(id), rootFolder, "a")); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	removed, err = s.Prune("", notBound)
	if err != nil || len(removed) != 1 || removed[0].Kept != "" {
		t.Errorf("%+v, %v", removed, err)
	}
}

// TestKilledWhileAdding: what a process leaves that is killed while it unpacks is
// no image, is not taken from it while it lives, and is removed afterwards.
func TestKilledWhileAdding(t *testing.T) {
	s := At(t.TempDir(), flatten.Limits{})
	cmd, said := other(t, addVariable, s.path)
	if said != "adds" {
		t.Fatal(said)
	}
	scratch := filepath.Join(s.path, "scratch")
	aged := func() int {
		t.Helper()
		entries, err := os.ReadDir(scratch)
		if err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-time.Hour)
		for _, e := range entries {
			if err := os.Chtimes(filepath.Join(scratch, e.Name()), long, long); err != nil {
				t.Fatal(err)
			}
		}
		return len(entries)
	}
	if n := aged(); n != 2 { // a folder and its lock
		t.Fatalf("%d entries", n)
	}
	s.sweep()
	if n := aged(); n != 2 {
		t.Fatalf("the folder of a living process was removed: %d entries", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if records, err := s.Records(); len(records) > 0 || err != nil {
		t.Error(records, err)
	}
	if roots, _ := os.ReadDir(filepath.Join(s.path, "roots")); len(roots) > 0 {
		t.Error("half an image is among the roots")
	}
	s.sweep()
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("%d entries are left", len(left))
	}
}

// TestTogether: several add, open, name and remove the same image at the same
// time. Whoever holds it finds it whole.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s := At(dir, flatten.Limits{})
			for range 15 {
				root, err := s.Add(t.Context(), content(nil, "a", "1"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := os.ReadFile(filepath.Join(root.Dir, "a")); string(b) != "1" || err != nil {
					t.Errorf("%q, %v", b, err)
				}
				root.Release()
				if _, err := s.Prune("", notBound); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

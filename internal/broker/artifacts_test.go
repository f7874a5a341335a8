//go:build unix

package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/picture"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// newKeeper returns a broker that keeps files in dir.
func newKeeper(t testing.TB, dir string, most int64) (*desk, *artifact.Store) {
	t.Helper()
	kept := artifact.NewStore(store.At(dir), artifact.Options{MaxDisk: most, Log: slog.New(slog.DiscardHandler)})
	b, _ := newBroker(t, func(p *parts) { p.Artifacts = kept })
	return b, kept
}

func code(text string, files ...sandbox.File) Request {
	return Request{Principal: user, Submission: Submission{Code: text, Files: files, Timeout: 2 * time.Minute}}
}

// uris are the paths of a result's artifacts, with a * where they are kept.
func uris(r *Result) string {
	var names []string
	for _, a := range r.Artifacts {
		name := a.Path
		if a.URI != "" {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// contents reads what is kept of the one record of a result.
func contents(t *testing.T, kept *artifact.Store, r *Result) map[string]string {
	t.Helper()
	record, err := kept.Get(r.Kept())
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	out := map[string]string{}
	for _, file := range record.Files {
		f, err := kept.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(artifact.NewVerifier(file, f))
		if err != nil {
			t.Error(err)
		}
		_ = f.Close()
		out[file.Path] = string(data)
	}
	return out
}

// TestKeeps: what executions leave is kept before their results name it.
func TestKeeps(t *testing.T) {
	t.Parallel()
	b, kept := newKeeper(t, t.TempDir(), 1<<30)
	req := code("import os; os.mkdir('d e'); open('d e/ü.csv', 'w').write('a,b'); open('p.png', 'wb').write("+pyBytes(png)+") and None",
		sandbox.File{Path: "given", Data: []byte("1")})
	req.RequestID = "req"
	r := b.Execute(t.Context(), req)
	if got, want := uris(r), "p.png* d e/ü.csv*"; got != want || len(r.Notes) != 0 || len(r.Images) != 1 {
		t.Fatalf("%q, want %q; notes %q, %d pictures", got, want, r.Notes, len(r.Images))
	}
	record, err := kept.Get(r.Kept())
	if err != nil {
		t.Fatal(err)
	}
	if want := (artifact.Origin{Client: "test", Session: "default", Own: true, Execution: r.Cell, Request: "req"}); record.Origin != want {
		t.Errorf("origin %+v, want %+v", record.Origin, want)
	}
	first := r.Artifacts[1]
	if want := "sallyport://artifacts/" + record.ID + "/d%20e/%C3%BC.csv"; first.URI != want || first.MIMEType != "text/csv" || first.Size != 3 {
		t.Errorf("%+v, want the URI %s", first, want)
	}
	if got, want := contents(t, kept, r), map[string]string{"d e/ü.csv": "a,b", "p.png": string(png)}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	if strings.Contains(r.Text(), "sallyport:") {
		t.Errorf("a model pays for addresses: %s", r.Text())
	}
	// Nothing left, nothing kept, and files that go elsewhere are not kept twice.
	for _, req := range []Request{code("1;"), {Principal: user, TakeFiles: func(string) (io.Writer, func(bool) error, error) {
		return io.Discard, func(bool) error { return nil }, nil
	}, Submission: Submission{Code: "open('x', 'w').write('x') and None"}}} {
		if r := b.Execute(t.Context(), req); r.Kept() != "" || r.Status != Success || len(r.Notes) != 0 {
			t.Errorf("%q: %+v", req.Code, r)
		}
	}
	named := code("open('n', 'w').write('n') and None")
	named.Session = "work"
	if record, err = kept.Get(b.Execute(t.Context(), named).Kept()); err != nil || record.Own || record.Session != "work" {
		t.Errorf("of a named session: %+v, %v", record, err)
	}
	if list, err := kept.List(); err != nil || len(list) != 2 {
		t.Errorf("%d records, want 2: %v", len(list), err)
	}
}

// TestKeepsOfFailures: how an execution ends does not matter while its sandbox lives.
func TestKeepsOfFailures(t *testing.T) {
	t.Parallel()
	b, kept := newKeeper(t, t.TempDir(), 1<<30)
	const left = "open('left', 'w').write('1'); "
	for _, tt := range []struct {
		code   string
		status Status
		within time.Duration
		keeps  bool
	}{
		{left + "1/0", Failed, 0, true},
		{left + "exit(3)", Failed, 0, true},
		{left + "import time; time.sleep(600)", Timeout, 0, true},
		{left + "import time; time.sleep(0.2)", Success, time.Millisecond, true},
		{left + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Failed, 0, false},
	} {
		req := code(tt.code)
		req.Timeout, req.Within = 2*time.Second, tt.within
		r := b.Execute(t.Context(), req)
		for r.Status == Running {
			r = b.Execute(t.Context(), Request{Principal: user, Within: time.Minute})
		}
		if got := r.Kept() != ""; got != tt.keeps || r.Status != tt.status {
			t.Errorf("%s: kept %v, %s; want %v, %s: %+v", tt.code, got, r.Status, tt.keeps, tt.status, r)
			continue
		}
		if tt.keeps && contents(t, kept, r)["left"] != "1" {
			t.Errorf("%s: %q", tt.code, contents(t, kept, r))
		}
	}
}

// TestNotKept: files that cannot be kept cost a note, and never a result.
func TestNotKept(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "contents"), nil, 0o600); err != nil { // where a directory belongs
		t.Fatal(err)
	}
	const large = "open('large', 'wb').write(bytes(3 << 20)); open('small', 'w').write('1'); "
	shows := "open('p.png', 'wb').write(" + pyBytes(png) + "); "
	for _, tt := range []struct {
		name, dir, code, left, note string
		pictures                    int
	}{
		{"too large", t.TempDir(), large + "_ = None", "large small*", "not kept: large: more than artifacts.maxDisk (2 MB)", 0},
		{"no place", full, shows + large + "_ = 1", "p.png large small", "not kept: large, small, p.png: ", 1},
		{"lies", t.TempDir(), shows + "[open(f'{i:03}', 'w').truncate(1 << 40) for i in range(990)]; _ = None", "", "not kept: 000, 001, 002, 003, 004, 005, 006, 007, 008, 009, 980 more: ", 1},
	} {
		b, _ := newKeeper(t, tt.dir, 2<<20)
		r := b.Execute(t.Context(), code(tt.code+"; print('said')"))
		if notes := strings.Join(r.Notes, "|"); r.Status != Success || strings.Join(r.Stdout, "") != "said" || len(r.Images) != tt.pictures ||
			!strings.Contains(notes, tt.note) || strings.Contains(notes, tt.dir) {
			t.Errorf("%s: %s, %d pictures, notes %q; want %d, %q", tt.name, r.Status, len(r.Images), notes, tt.pictures, tt.note)
		}
		if got := uris(r); tt.left != "" && got != tt.left {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.left)
		}
	}
}

// TestKeepsWholeFiles: of a file that changes while it is taken out, what is kept is
// what was read, or nothing.
func TestKeepsWholeFiles(t *testing.T) {
	t.Parallel()
	b, kept := newKeeper(t, t.TempDir(), 1<<30)
	r := b.Execute(t.Context(), code(`
import os, threading
def write(n):
    while True:
        with open("new", "wb") as f: f.write(bytes([n % 250]) * (1 << 20))
        os.replace("new", "changes")
        n += 1
open("changes", "wb").write(bytes(1 << 20))
threading.Thread(target=write, args=(1,), daemon=True).start()
for i in range(300): open(f"other{i}", "w").close()
`))
	if r.Kept() == "" {
		t.Fatalf("%+v", r)
	}
	for path, data := range contents(t, kept, r) {
		whole := len(data) == 1<<20 || strings.HasPrefix(path, "other") && data == "" || path == "new"
		if !whole || path == "changes" && strings.Trim(data, data[:1]) != "" {
			t.Errorf("%s: %d bytes", path, len(data))
		}
	}
	for _, a := range r.Artifacts {
		if a.Path == "changes" && a.URI != "" && a.Size != 1<<20 {
			t.Errorf("%+v", a)
		}
	}
}

// TestLargePicture: an answer has a small copy, and what is kept stays whole.
func TestLargePicture(t *testing.T) {
	t.Parallel()
	b, kept := newKeeper(t, t.TempDir(), 1<<30)
	// A picture of noise, which no PNG makes smaller: 3.6 MB, more than is held.
	const noise = `
import os, struct, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\0" + os.urandom(3600) for _ in range(1000))
open("noise.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1200, 1000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))
open("cut.png", "wb").write(open("noise.png", "rb").read()[:3 << 20]) and None
import hashlib; print(hashlib.sha256(open("noise.png", "rb").read()).hexdigest())
`
	r := b.Execute(t.Context(), code(noise))
	if len(r.Images) != 1 || r.Images[0].Name() != "noise.png (scaled from 1200×1000)" || len(r.Images[0].Data) > picture.MaxBytes || r.Images[0].MIMEType != "image/jpeg" {
		t.Fatalf("%+v", r)
	}
	if got, want := r.MorePictures(), "1 more not shown: cut.png (incomplete)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	sum := sha256.Sum256([]byte(contents(t, kept, r)["noise.png"]))
	if got := hex.EncodeToString(sum[:]); !slices.Contains(r.Stdout, got) {
		t.Errorf("kept %s, want %s", got, r.Stdout)
	}
	if r := b.Execute(t.Context(), code("open('huge.png', 'wb').truncate(33 << 20) and None")); !strings.Contains(r.MorePictures(), "huge.png (larger than 32 MB)") {
		t.Errorf("%q", r.MorePictures())
	}
}

// TestStreams: a file passes through in parts, and is never held.
func TestStreams(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	const size = 64 << 20
	var largest, total int
	sum := sha256.New()
	r := b.Execute(t.Context(), Request{
		Principal: user,
		TakeFiles: func(string) (io.Writer, func(bool) error, error) {
			return writerFunc(func(p []byte) (int, error) {
				largest, total = max(largest, len(p)), total+len(p)
				return sum.Write(p)
			}), func(bool) error { return nil }, nil
		},
		Submission: Submission{Code: "with open('large', 'wb') as f:\n    for i in range(64): f.write(bytes([i]) * (1 << 20))\n", Timeout: 2 * time.Minute},
	})
	want := sha256.New()
	for i := range 64 {
		want.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	if r.NotTaken || total != size || largest > 1<<20 || !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes in parts of up to %d, want %d in parts of up to %d; %+v", total, largest, size, 1<<20, r)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

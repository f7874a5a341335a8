package artifact

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/store"
)

// TestMain lets the test program keep files until it is killed: see TestKill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ARTIFACT_TEST_DIR"); dir != "" {
		s := open(dir, 1<<20)
		for n := 0; ; n++ {
			r, err := keep(s, Origin{Session: "s"}, file{"a.txt", fmt.Sprint(os.Getpid(), n)}, file{"b.txt", "always the same"})
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(r.ID)
		}
	}
	os.Exit(m.Run())
}

type file struct{ path, content string }

func open(dir string, most int64) *Store {
	return NewStore(store.At(dir), Options{Keep: time.Hour, MaxDisk: most, Log: slog.New(slog.DiscardHandler)})
}

func keep(s *Store, o Origin, files ...file) (*Record, error) {
	in := s.Begin(o)
	defer in.Close()
	for _, f := range files {
		content, done, err := in.Create(f.path, int64(len(f.content)), "")
		if err != nil {
			return nil, err
		}
		_, err = io.WriteString(content, f.content)
		if err := errors.Join(err, done(err == nil)); err != nil {
			return nil, err
		}
	}
	return in.Commit()
}

// contents returns the contents of all files of all records, which have to be whole, by
// record and path, and the number of files on disk that hold them.
func contents(t *testing.T, s *Store) (all map[string]string, onDisk int) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]string{}
	for _, r := range list {
		for _, f := range r.Files {
			content, err := s.Open(f)
			if err != nil {
				t.Fatalf("%s/%s: %v", r.ID, f.Path, err)
			}
			data, err := io.ReadAll(NewVerifier(f, content))
			if err != nil {
				t.Fatalf("%s/%s: %v", r.ID, f.Path, err)
			}
			_ = content.Close()
			all[r.ID+"/"+f.Path] = string(data)
		}
	}
	names, err := s.contents.List()
	if err != nil {
		t.Fatal(err)
	}
	return all, len(names)
}

func TestKeep(t *testing.T) {
	s := open(t.TempDir()+"/artifacts", 1<<20)
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("an empty store has %v, %v", list, err)
	}
	origin := Origin{Client: "editor", Session: "work", Execution: 3, Request: "r1"}
	r, err := keep(s, origin, file{"plots/../é#?%.png", "\x89PNG\r\n\x1a\n"}, file{"data.csv", "a,b\n"}, file{"copy.csv", "a,b\n"})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("a,b\n"))
	digest := hex.EncodeToString(sum[:])
	got, err := s.Get(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	pic := sha256.Sum256([]byte("\x89PNG\r\n\x1a\n"))
	want := &Record{Version: 1, ID: r.ID, Created: r.Created, Origin: origin, Files: []File{
		{Path: "plots/../é#?%.png", Type: "image/png", Size: 8, Digest: hex.EncodeToString(pic[:])},
		{Path: "data.csv", Type: "text/csv", Size: 4, Digest: digest}, {Path: "copy.csv", Type: "text/csv", Size: 4, Digest: digest},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	all, onDisk := contents(t, s)
	if len(all) != 3 || all[r.ID+"/copy.csv"] != "a,b\n" || onDisk != 2 {
		t.Errorf("got %q in %d files", all, onDisk)
	}
	for _, f := range r.Files {
		id, path, ok := ParseURI(URI(r.ID, f.Path))
		if id != r.ID || path != f.Path || !ok {
			t.Errorf("ParseURI(%q) = %q, %q, %v", URI(r.ID, f.Path), id, path, ok)
		}
	}
	if err := s.Remove(r.ID, "nothing"); !errors.Is(err, ErrUnknown) {
		t.Errorf("removing what is not there: %v", err)
	}
	if err := s.Remove(r.ID, "data.csv"); err != nil {
		t.Fatal(err)
	}
	if all, onDisk := contents(t, s); len(all) != 2 || onDisk != 2 {
		t.Errorf("after the removal of one of two copies: %q in %d files", all, onDisk)
	}
	if err := s.Remove(r.ID); err != nil {
		t.Fatal(err)
	}
	if all, onDisk := contents(t, s); len(all) != 0 || onDisk != 0 {
		t.Errorf("after the removal: %q in %d files", all, onDisk)
	}
	if err := s.Remove(r.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("removing it again: %v", err)
	}
}

// TestRefused keeps nothing of what is too much, not whole, or has no usable name.
func TestRefused(t *testing.T) {
	s := open(t.TempDir(), 100)
	for _, test := range []struct {
		name  string
		files []file
		want  string
	}{
		{"too large", []file{{"a", strings.Repeat("x", 101)}}, "artifacts.maxDisk"},
		{"together", []file{{"a", strings.Repeat("x", 60)}, {"b", strings.Repeat("y", 60)}}, "artifacts.maxDisk"},
		{"twice", []file{{"a", "x"}, {"a", "y"}}, "twice"},
		{"no name", []file{{"", "x"}}, "a path of 0 bytes"},
		{"a long name", []file{{strings.Repeat("x", maxPath+1), "x"}}, "a path of 4097 bytes"},
		{"a zero", []file{{"a\x00b", "x"}}, "is not a path"},
		{"not text", []file{{"\xff", "x"}}, "is not a path"},
		{"nothing", nil, ""},
	} {
		r, err := keep(s, Origin{}, test.files...)
		if r != nil || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want the error %q", test.name, r, err, test.want)
		}
	}
	in := s.Begin(Origin{})
	content, done, err := in.Create("liar", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := content.Write(make([]byte, 200)); err == nil {
		t.Error("more than was announced, and more than fits, was written")
	}
	if err := done(false); err != nil {
		t.Error(err)
	}
	_, _, _ = in.Create("open", 1, "")
	in.Close()
	entries, _ := os.ReadDir(s.contents.Path(""))
	if len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

// TestRoom removes the oldest records where new files need their room.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t.TempDir(), 1000)
		other := open(s.dir.Path(""), 1000) // another process
		var ids []string
		for n := range 30 {
			time.Sleep(time.Second)
			by := s
			if n%3 == 0 {
				by = other
			}
			r, err := keep(by, Origin{}, file{"new", strings.Repeat(string(rune('a'+n)), 100)}, file{"same", "same"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID)
		}
		_ = s.Sweep()
		all, onDisk := contents(t, s)
		var kept []string
		for _, id := range ids {
			if all[id+"/new"] != "" && all[id+"/same"] == "same" {
				kept = append(kept, id)
			}
		}
		if n := len(kept); n < 6 || n > 12 || !slices.Equal(kept, ids[len(ids)-n:]) || onDisk != n+1 || len(all) != 2*n {
			t.Errorf("kept %d of %d records in %d files", n, len(ids), onDisk)
		}
		if r, err := keep(s, Origin{}, file{"all", strings.Repeat("x", 1000)}); err != nil {
			t.Errorf("what takes all of the room: %v", err)
		} else if all, onDisk := contents(t, s); len(all) != 1 || onDisk != 1 {
			t.Errorf("besides %s, %d files are kept in %d", r.ID, len(all)-1, onDisk)
		}
		time.Sleep(time.Hour + time.Second)
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		if all, onDisk := contents(t, s); len(all) != 0 || onDisk != 0 {
			t.Errorf("after their time, %d files are kept in %d", len(all), onDisk)
		}
	})
}

// TestDamaged: what a power failure leaves is removed, what a newer program wrote stays,
// and a content that is not what was kept is not passed on.
func TestDamaged(t *testing.T) {
	s := open(t.TempDir(), 1000)
	r, err := keep(s, Origin{}, file{"a", "content"})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.OpenFile(s.contents.Path(r.Files[0].Digest), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	for _, damage := range []string{"CONTENT", "content and more"} {
		if _, err := content.WriteAt([]byte(damage), 0); err != nil {
			t.Fatal(err)
		}
		f, err := s.Open(r.Files[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, NewVerifier(r.Files[0], f)); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q instead of content: %v", damage, err)
		}
		_ = f.Close()
	}
	write := func(name, data string) {
		if err := os.WriteFile(s.dir.Path(name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("aaaaaaaaaa.json", "")
	if _, err := s.List(); err == nil {
		t.Error("an empty record is listed without an error")
	}
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	if list, err := s.List(); len(list) != 1 || err != nil {
		t.Errorf("after the sweep: %v, %v", list, err)
	}
	write("bbbbbbbbbb.json", `{"version":99,"id":"bbbbbbbbbb"}`)
	write(r.ID+".json", "")
	if err := s.Sweep(); !errors.Is(err, errNewer) {
		t.Errorf("a sweep beside a newer program: %v", err)
	}
	if names, _ := s.contents.List(); len(names) != 1 {
		t.Errorf("a sweep beside a newer program left %v", names)
	}
}

// TestKill kills a process that keeps files: what it has named is there, whole, and what
// it has not is removed.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	s := open(dir, 1<<20)
	var named []string
	for n := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ARTIFACT_TEST_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range n + 1 {
			if !lines.Scan() {
				t.Fatal("the process ended by itself")
			}
			named = append(named, lines.Text())
		}
		_ = cmd.Process.Kill()
		for lines.Scan() { // what it said before it died
			named = append(named, lines.Text())
		}
		_ = cmd.Wait()
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	all, onDisk := contents(t, s)
	for _, id := range named {
		if all[id+"/a.txt"] == "" || all[id+"/b.txt"] != "always the same" {
			t.Errorf("%s was named, and is kept as %q, %q", id, all[id+"/a.txt"], all[id+"/b.txt"])
		}
	}
	if records := len(all) / 2; onDisk != records+1 {
		t.Errorf("%d files on disk for %d records", onDisk, records)
	}
}

func TestTypeOf(t *testing.T) {
	for _, test := range []struct{ name, head, want string }{
		{"a.png", "\x89PNG\r\n\x1a\n", "image/png"},
		{"a.png", "text", "text/plain"},
		{"a.txt", "\x89PNG\r\n\x1a\n", "image/png"},
		{"a.csv", "a,b\n", "text/csv"},
		{"a.csv", "\x00\x01\xff", "application/octet-stream"},
		{"A.JSON", "{}", "application/json"},
		{"a.svg", "<svg", "image/svg+xml"},
		{"a.html", "<div>", "text/html"},
		{"a", "<html>", "text/html"},
		{"a.py", "é", "text/x-python"},
		{"a.xlsx", "PK\x03\x04", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
		{"a.bin", "PK\x03\x04", "application/zip"},
		{"a.parquet", "PAR1\x00\xff", "application/vnd.apache.parquet"},
		{"cut.txt", strings.Repeat("x", 511) + "\xc3", "text/plain"},
		{"latin1.txt", "caf\xe9", "application/octet-stream"},
		{"empty.csv", "", "text/csv"},
	} {
		if got := TypeOf(test.name, []byte(test.head)); got != test.want {
			t.Errorf("TypeOf(%q, %q) = %q, want %q", test.name, test.head, got, test.want)
		}
	}
}

// FuzzRecord reads records: what is accepted is the same after it was written.
func FuzzRecord(f *testing.F) {
	r := Record{Version: 1, ID: "abcdefghij", Files: []File{{Path: "a", Type: "text/plain", Digest: strings.Repeat("0", 64)}}}
	data, _ := json.Marshal(r)
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte(`"a"`), []byte(`""`)))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode("abcdefghij", data)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		second, err := decode("abcdefghij", again)
		if err != nil {
			t.Fatalf("%q was read from %q: %v", again, data, err)
		}
		if diff := cmp.Diff(got, second); diff != "" {
			t.Errorf("%q (-first +second):\n%s", data, diff)
		}
	})
}

// FuzzURI: no address leads to a path that has another address.
func FuzzURI(f *testing.F) {
	f.Add("sallyport://artifacts/abcdefghij/a%20b/c.png")
	f.Add("sallyport://artifacts/abcdefghij/../../x")
	f.Fuzz(func(t *testing.T, uri string) {
		id, path, ok := ParseURI(uri)
		if !ok {
			return
		}
		if id2, path2, ok := ParseURI(URI(id, path)); id2 != id || path2 != path || !ok {
			t.Errorf("%q is %q and %q, and its address %q is %q and %q", uri, id, path, URI(id, path), id2, path2)
		}
	})
}

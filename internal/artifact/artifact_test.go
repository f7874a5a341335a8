package artifact

import (
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
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/store"
)

// TestMain lets the test program change a store until it is killed: see TestKill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ARTIFACT_TEST_DIR"); dir != "" {
		steps, _ := strconv.Atoi(os.Getenv("ARTIFACT_TEST_STEPS"))
		if err := doomed(dir, steps); err != nil {
			fmt.Println("!", err)
		}
		return
	}
	os.Exit(m.Run())
}

// doomed changes the store in dir in each way, until the process is killed after so many
// steps. It says with "+" which files are kept, and with "-" which it is about to remove.
func doomed(dir string, steps int) error {
	s := open(dir, 8*block)
	s.step = func(string) {
		if steps--; steps < 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			fmt.Println("!", err)
			select {}
		}
	}
	says := func(sign string, r *Record, paths ...string) {
		for _, path := range paths {
			fmt.Println(sign + r.ID + "/" + path)
		}
	}
	same := file{"same", "always the same"}
	first, err := keep(s, Origin{}, file{"a", fmt.Sprint(steps)}, same)
	if err != nil {
		return err
	}
	says("+", first, "a", "same")
	second, err := keep(s, Origin{}, file{"b", fmt.Sprint(steps, "b")}, same)
	if err != nil {
		return err
	}
	says("+", second, "b", "same")
	says("-", first, "a", "same") // for the next one's room
	third, err := keep(s, Origin{}, file{"c", strings.Repeat("c", 3*block-1)}, same, file{"again", same.content})
	if err != nil {
		return err
	}
	says("+", third, "c", "same", "again")
	says("-", third, "c")
	if err := s.Remove(third.ID, "c"); err != nil {
		return err
	}
	says("-", third, "same", "again")
	if err := s.Remove(third.ID); err != nil {
		return err
	}
	says("-", second, "b", "same")
	if err := s.Remove(second.ID); err != nil {
		return err
	}
	fmt.Println("all done")
	return nil
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
	s := open(t.TempDir(), 4*block)
	for _, test := range []struct {
		name  string
		files []file
		want  string
	}{
		{"too large", []file{{"a", strings.Repeat("x", 4*block)}}, "artifacts.maxDisk"},
		{"together", []file{{"a", strings.Repeat("x", block)}, {"b", strings.Repeat("y", block)}}, "artifacts.maxDisk"},
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
	if _, err := content.Write(make([]byte, 4*block)); err == nil {
		t.Error("more than was announced, and more than fits, was written")
	}
	if err := done(true); err == nil {
		t.Error("a file that was not written whole is kept")
	}
	if _, done, err = in.Create("half", 1, ""); err != nil {
		t.Fatal(err)
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

// TestRoom removes the oldest records where new files need their room, whichever of two
// processes keeps them.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50 * block
		s := open(t.TempDir(), most)
		other := open(s.dir.Path(""), most)
		var ids []string
		for n := range 30 {
			time.Sleep(time.Second)
			by := s
			if n%3 == 0 {
				by = other
			}
			// A record takes 4 blocks.
			r, err := keep(by, Origin{}, file{"new", strings.Repeat(string(rune('a'+n)), 3*block-1)}, file{"same", "same"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID)
			all, onDisk := contents(t, s)
			var kept []string
			for _, id := range ids {
				if all[id+"/new"] != "" && all[id+"/same"] == "same" {
					kept = append(kept, id)
				}
			}
			k := len(kept)
			if k < min(n+1, 11) || k > 12 || !slices.Equal(kept, ids[len(ids)-k:]) || onDisk != k+1 || len(all) != 2*k {
				t.Fatalf("of %d records, %d are kept, %d files in %d", len(ids), k, len(all), onDisk)
			}
		}
		if r, err := keep(s, Origin{}, file{"all", strings.Repeat("x", 48*block-1)}); err != nil {
			t.Errorf("what takes all of the room: %v", err)
		} else if all, onDisk := contents(t, s); len(all) != 1 || onDisk != 1 {
			t.Errorf("besides %s, %d files are kept in %d", r.ID, len(all)-1, onDisk)
		}
		if _, err := keep(s, Origin{}, file{"again", strings.Repeat("x", 48*block-1)}); err != nil {
			t.Error(err)
		} else if all, _ := contents(t, s); len(all) != 2 {
			t.Errorf("the same content in two records has %d files, want 2", len(all))
		}
		if err := open(s.dir.Path(""), 8*block).Sweep(); err != nil {
			t.Fatal(err)
		}
		if all, onDisk := contents(t, s); len(all) != 0 || onDisk != 0 {
			t.Errorf("after a sweep with less room, %d files are kept in %d", len(all), onDisk)
		}
		if _, err := keep(s, Origin{}, file{"old", "old"}); err != nil {
			t.Fatal(err)
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
	s := open(t.TempDir(), 1<<20)
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
	if _, err := keep(s, Origin{}, file{"b", "content"}); err != nil {
		t.Fatal(err)
	}
	if all, _ := contents(t, s); all[r.ID+"/a"] != "content" {
		t.Errorf("after it was kept again, the damaged content is %q", all[r.ID+"/a"])
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
	if list, err := s.List(); len(list) != 2 || err != nil {
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

// TestKill kills a process at each step of its changes: what it has named is there,
// whole, and what it has not is removed.
func TestKill(t *testing.T) {
	for steps := 0; ; steps++ {
		s := open(t.TempDir(), 1<<20)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ARTIFACT_TEST_DIR="+s.dir.Path(""), fmt.Sprint("ARTIFACT_TEST_STEPS=", steps))
		out, _ := cmd.Output()
		named := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSpace(line)
			switch line[0] {
			case '+':
				named[line[1:]] = true
			case '-':
				delete(named, line[1:])
			case '!':
				t.Fatalf("after %d steps: %s", steps, line)
			}
		}
		for _, when := range []string{"at once", "after a commit", "after a sweep"} {
			switch when {
			case "after a commit":
				r, err := keep(s, Origin{}, file{"new", ""})
				if err != nil {
					t.Fatal(err)
				}
				named[r.ID+"/new"] = true
			case "after a sweep":
				if err := s.Sweep(); err != nil {
					t.Fatal(err)
				}
			}
			all, onDisk := contents(t, s)
			for path := range named {
				if _, ok := all[path]; !ok {
					t.Errorf("killed after %d steps, %s: %s was named, and %q are kept", steps, when, path, all)
				}
			}
			whole := map[string]bool{}
			for _, content := range all {
				whole[content] = true
			}
			if when != "at once" && onDisk != len(whole) {
				t.Errorf("killed after %d steps, %s: %d files on disk for %d contents", steps, when, onDisk, len(whole))
			}
		}
		if strings.HasSuffix(string(out), "all done\n") {
			if steps < 20 {
				t.Errorf("the process takes %d steps, want more", steps)
			}
			return
		}
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

package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/store/keyed"
)

// countVariable makes the test executable add to a counter and end.
const countVariable = "MEMORY_TEST_COUNT_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(countVariable); dir != "" {
		if err := count(Open(store.At(dir), Limits{}), 50); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// count adds to a counter as update_memory does: read, change, swap, again.
func count(s *Store, times int) error {
	for n := 0; n < times; {
		var value int
		e, err := s.Get("counter")
		if err == nil {
			err = json.Unmarshal(e.Value, &value)
		}
		if err != nil && !errors.Is(err, keyed.ErrMissing) {
			return err
		}
		_, err = s.Swap("counter", fmt.Appendf(nil, "%d", value+1), e.Version)
		switch {
		case err == nil:
			n++
		case !errors.Is(err, keyed.ErrConflict):
			return err
		}
	}
	return nil
}

func open(t *testing.T, limits Limits) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "memory")
	return Open(store.At(dir), limits), dir
}

func TestPutAndGet(t *testing.T) {
	s, dir := open(t, Limits{})
	var now time.Time
	s.now = func() time.Time { now = now.Add(time.Second); return now }
	if _, err := s.Get("k"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
	values := []string{
		`null`, `true`, `9007199254740993123456789`, `1.5e300`, `"text"`, `""`, `[]`, `{}`, `"\ud800"`, `"\u0000\u001f\"\\"`,
		`{"z":1,"a":{"b":[1,2,{"c":null}]}}`, `"grün 😀"`, `[[[[1]]]]`,
	}
	for _, key := range []string{"k", "K", "a/b", "..", "grün", strings.Repeat("long ", 200), " ", "con", "\n"} {
		for _, value := range values {
			version, err := s.Put(key, json.RawMessage(value), json.RawMessage(`{"tag":"x"}`))
			if err != nil {
				t.Fatalf("%q: %s: %v", key, value, err)
			}
			e, err := s.Get(key)
			if err != nil || compact(t, e.Value) != value || e.Version != version || e.Key != key || compact(t, e.Metadata) != `{"tag":"x"}` {
				t.Fatalf("%q: %s became %s (%v)", key, value, e.Value, err)
			}
		}
	}
	first, err := s.Get("k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put("k", json.RawMessage(`1`), nil); err != nil {
		t.Fatal(err)
	}
	again, err := s.Get("k")
	if err != nil || again.CreatedAt != first.CreatedAt || again.UpdatedAt == first.UpdatedAt || string(again.Metadata) != "{}" {
		t.Errorf("%+v then %+v, %v", first, again, err)
	}
	info, err := os.Stat(filepath.Join(dir, "k.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b strings.Builder
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	// The bytes between the white space are what counts, so that a lone
	// surrogate is seen.
	quoted := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '"' && (i == 0 || raw[i-1] != '\\' || i > 1 && raw[i-2] == '\\' && raw[i-1] == '\\') {
			quoted = !quoted
		}
		if quoted || c > ' ' {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// TestFile: a person can read a memory, and write one.
func TestFile(t *testing.T) {
	s, dir := open(t, Limits{})
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC) }
	if _, err := s.Put("Notes <1>", json.RawMessage(`{"b":"gr\u00fcn \ud83d\ude00 \u0007 & \\u00e9","a":[1,2]}`), nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "+notes%20%3c1%3e.json"))
	want := `{
  "key": "Notes <1>",
  "metadata": {},
  "created_at": "2026-01-02T03:04:05.000006+00:00",
  "updated_at": "2026-01-02T03:04:05.000006+00:00",
  "value": {
    "b": "grün 😀 \u0007 & \\u00e9",
    "a": [
      1,
      2
    ]
  }
}
`
	if err != nil || string(got) != want {
		t.Errorf("%s\nwant %s (%v)", got, want, err)
	}
	edited := `{"key": "mine", "value": {"n": 10000000000000000000001}}`
	if err := os.WriteFile(filepath.Join(dir, "mine.json"), []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := s.Get("mine")
	if err != nil || compact(t, e.Value) != `{"n":10000000000000000000001}` || string(e.Metadata) != "{}" {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := s.Swap("mine", json.RawMessage(`2`), e.Version); err != nil {
		t.Error(err)
	}
}

// TestDeepValue: white space does not make much out of little.
func TestDeepValue(t *testing.T) {
	s, dir := open(t, Limits{})
	value := `["` + strings.Repeat("]", 9000) + `",` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "]"
	if _, err := s.Put("deep", json.RawMessage(value), nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "deep.json"))
	if err != nil || info.Size() > int64(len(value))+1000 {
		t.Errorf("%d bytes became %d, %v", len(value), info.Size(), err)
	}
}

func TestRefusals(t *testing.T) {
	s, dir := open(t, Limits{Value: 100, Keys: 3, Total: 1500})
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	put := func(key string, value, metadata json.RawMessage) error {
		_, err := s.Put(key, value, metadata)
		return err
	}
	tests := []struct {
		name string
		do   func() error
		want error
	}{
		{"no key", func() error { return put("", text(5), nil) }, ErrKey},
		{"no key to read", func() error { _, err := s.Get(""); return err }, ErrKey},
		{"no key to delete", func() error { return s.Delete("") }, ErrKey},
		{"long key", func() error { return put(strings.Repeat("k", MaxKey+1), text(5), nil) }, keyed.ErrLimit},
		{"longest key", func() error { return put(strings.Repeat("k", 300), text(5), nil) }, nil},
		{"a key that is no text", func() error { return put("\xff", text(5), nil) }, ErrInvalid},
		{"no JSON", func() error { return put("k", json.RawMessage(`{`), nil) }, ErrInvalid},
		{"no UTF-8", func() error { return put("k", json.RawMessage("\"\xff\""), nil) }, ErrInvalid},
		{"metadata that are no UTF-8", func() error { return put("k", text(5), json.RawMessage("{\"\xff\":1}")) }, ErrInvalid},
		{"nothing", func() error { return put("k", nil, nil) }, ErrInvalid},
		{"metadata that are a list", func() error { return put("k", text(5), json.RawMessage(`[]`)) }, ErrInvalid},
		{"metadata that are no JSON", func() error { return put("k", text(5), json.RawMessage(`{`)) }, ErrInvalid},
		{"large metadata", func() error {
			return put("k", text(5), json.RawMessage(`{"x":"`+strings.Repeat("x", MaxMetadata)+`"}`))
		}, keyed.ErrLimit},
		{"too large", func() error { return put("k", text(101), nil) }, keyed.ErrLimit},
		{"letters count as they are written", func() error { return put("k", json.RawMessage(`"`+strings.Repeat(`\u00e9`, 40)+`"`), nil) }, nil},
		{"a third", func() error { return put("k3", text(100), nil) }, nil},
		{"a fourth", func() error { return put("k4", text(5), nil) }, keyed.ErrLimit},
		{"one of the three", func() error { return put("k3", text(90), nil) }, nil},
		{"swapped into being", func() error { _, err := s.Swap("k4", text(5), ""); return err }, keyed.ErrLimit},
		{"too much together", func() error { return put("k3", text(100), json.RawMessage(`{"x":"`+strings.Repeat("x", 1000)+`"}`)) }, keyed.ErrLimit},
	}
	for _, tt := range tests {
		if err := tt.do(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if e, err := s.Get("k3"); err != nil || len(e.Value) != 90 {
		t.Errorf("what was refused has changed the value: %s %v", e.Value, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 { // three, and the lock
		t.Errorf("%v %v", entries, err)
	}
	none := Open(store.At(""), Limits{})
	if _, err := none.Put("k", text(5), nil); !errors.Is(err, store.ErrNoPlace) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestSwap(t *testing.T) {
	s, _ := open(t, Limits{})
	one := json.RawMessage(`1`)
	if _, err := s.Swap("k", one, "0123"); !errors.Is(err, keyed.ErrConflict) {
		t.Errorf("of what is not there: %v", err)
	}
	version, err := s.Swap("k", one, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap("k", one, ""); !errors.Is(err, keyed.ErrConflict) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := s.Put("k", one, json.RawMessage(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap("k", one, version); !errors.Is(err, keyed.ErrConflict) {
		t.Errorf("of an older version: %v", err)
	}
	e, err := s.Get("k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap("k", json.RawMessage(`2`), e.Version); err != nil {
		t.Fatal(err)
	}
	if e, err = s.Get("k"); err != nil || string(e.Value) != "2" || compact(t, e.Metadata) != `{"a":1}` {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestDelete(t *testing.T) {
	s, dir := open(t, Limits{})
	if err := s.Delete("k"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleting nothing has made a directory: %v", err)
	}
	if _, err := s.Put("k", json.RawMessage(`1`), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("K"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
	if err := s.Delete("k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("k"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
	if err := s.Delete("k"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	s, dir := open(t, Limits{})
	if items, err := s.List(); err != nil || len(items) != 0 || items == nil {
		t.Fatalf("%v %v", items, err)
	}
	for _, key := range []string{"b", "a", "C", "ä"} {
		if _, err := s.Put(key, json.RawMessage(`"secret"`), json.RawMessage(`{"of":"`+key+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	broken := map[string]string{
		"aa.json":       `{"key": "aa", "value"`,
		"Other+name":    `{}`, // not ours
		"moved.json":    `{"key": "b", "value": 1}`,
		"bb.json":       `{"key": "bb"}`,
		"%zz+q.json":    ``,
		"listed.json":   `{"key": "listed", "value": 1, "metadata": []}`,
		"numbered.json": `{"key": 5, "value": 1}`,
	}
	for name, text := range broken {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	items, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range items {
		line := i.Key
		if i.Error != "" {
			line += ": " + i.Error
		}
		got = append(got, line)
	}
	want := "%zzQ: Failed to read|C|a|aa: Failed to read|b|bb: Failed to read|listed: Failed to read|moved: Failed to read|numbered: Failed to read|ä"
	if strings.Join(got, "|") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, "|"), want)
	}
	if _, err := s.Get("moved"); !errors.Is(err, keyed.ErrBroken) {
		t.Errorf("another's key: %v", err)
	}
	if _, err := s.Swap("aa", json.RawMessage(`1`), ""); !errors.Is(err, keyed.ErrBroken) {
		t.Errorf("a broken file is taken for none: %v", err)
	}
	if _, err := s.Put("aa", json.RawMessage(`1`), nil); err != nil {
		t.Errorf("a broken file cannot be replaced: %v", err)
	}
	var exported []string
	left, err := s.Export(func(e Entry) error { exported = append(exported, e.Key); return nil })
	if err != nil || strings.Join(exported, "|") != "C|a|aa|b|ä" || len(left) != 5 {
		t.Errorf("%v, %v, %v", exported, left, err)
	}
}

// TestCounting: nothing is lost, whoever counts.
func TestCounting(t *testing.T) {
	s, dir := open(t, Limits{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := count(s, 50); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), countVariable+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	e, err := s.Get("counter")
	if err != nil || string(e.Value) != "200" {
		t.Errorf("counted to %s, %v", e.Value, err)
	}
}

// FuzzDecode: whatever lies in the directory, reading it ends, and what was read
// is what is written again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"key":"k","value":1}`))
	f.Add([]byte(`{"key":"k","value":null,"metadata":null,"created_at":"x"}`))
	f.Add([]byte(`{"key":"k","value":"\ud83d\ude00\ud800\\u00e9"}`))
	f.Add([]byte(`{"key":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decode(data)
		if err != nil {
			return
		}
		text, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var a, b any
		if json.Unmarshal(e.Value, &a) != nil || json.Unmarshal(again.Value, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) || e.Key != again.Key {
			t.Fatalf("%s became %s", data, text)
		}
	})
}

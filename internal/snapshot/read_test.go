package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// large are files of several chunks: what packs well, what does not, what does in
// part, and what ends where a chunk does.
func large() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 3*chunkSize+17)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	mixed := bytes.Clone(noise)
	clear(mixed[chunkSize/2 : 2*chunkSize])
	return map[string][]byte{
		"empty": {}, "noise": noise, "mixed": mixed,
		"text": bytes.Repeat([]byte("the same again and again "), 100_000), "zero": make([]byte, 2*chunkSize),
	}
}

func fillWith(files map[string][]byte) func(string) error {
	return func(dir string) error {
		var errs []error
		for name, data := range files {
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		return errors.Join(errs...)
	}
}

var forms = map[string]Form{"plain": Plain, "packed": Packed}

func TestForms(t *testing.T) {
	files := large()
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			s := At(t.TempDir())
			if err := s.Write("a", binding, form, nil, fillWith(files)); err != nil {
				t.Fatal(err)
			}
			got, err := read(t, s, "a", binding)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Files()) != len(files) {
				t.Error(len(got.Files()))
			}
			var plain int64
			for name, want := range files {
				plain += int64(len(want))
				if !bytes.Equal(content(t, got, name), want) {
					t.Errorf("%s came back as something else", name)
				}
			}
			if form == Plain && got.Size != plain || form == Packed && got.Size > plain*3/4 {
				t.Errorf("%d bytes take %d", plain, got.Size)
			}
			if on := s.Size("a"); on < got.Size || on > got.Size+16<<10 {
				t.Errorf("%d on disk, %d of them files", on, got.Size)
			}
		})
	}
}

// What was opened stays what it was when another takes its name, or it goes.
func TestOpenedFilesStay(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			s := At(t.TempDir())
			put := func(text string) {
				if err := s.Write("a", binding, form, nil, fillWith(map[string][]byte{"one": []byte(text), "two": []byte(text)})); err != nil {
					t.Fatal(err)
				}
			}
			put("before")
			got, err := s.Open("a", binding)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			put("after!")
			if err := s.Remove("a"); err != nil {
				t.Fatal(err)
			}
			if err := got.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if one, two := content(t, got, "one"), content(t, got, "two"); string(one) != "before" || string(two) != "before" {
				t.Errorf("%s %s", one, two)
			}
		})
	}
}

func TestCheckIsCancelled(t *testing.T) {
	s := At(t.TempDir())
	write(t, s, "a", "one")
	got, err := s.Open("a", binding)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	why := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := got.Check(ctx); !errors.Is(err, why) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// resealed changes a manifest and seals it again, as only the key's owner can.
func resealed(t *testing.T, s *Store, change func(*manifest)) error {
	t.Helper()
	path := filepath.Join(s.path, "a", manifestName)
	data, err := os.ReadFile(path)
	var on sealed
	var m manifest
	if err := errors.Join(err, json.Unmarshal(data, &on), json.Unmarshal(on.Manifest, &m)); err != nil {
		t.Fatal(err)
	}
	change(&m)
	on.Manifest, err = json.Marshal(m)
	on.Seal = seal(s.key, on.Manifest)
	data, err2 := json.Marshal(on)
	return errors.Join(err, err2, os.WriteFile(path, data, 0o600))
}

func TestWhatIsRefused(t *testing.T) {
	in := func(s *Store, elem ...string) string { return filepath.Join(append([]string{s.path}, elem...)...) }
	// edit changes a file's bytes.
	edit := func(s *Store, name string, change func([]byte) []byte) error {
		data, err := os.ReadFile(in(s, "a", name))
		return errors.Join(err, os.WriteFile(in(s, "a", name), change(data), 0o600))
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	tests := map[string]struct {
		harm func(t *testing.T, s *Store) error
		want error
		say  string
	}{
		"other content": {func(_ *testing.T, s *Store) error { return edit(s, "mixed", flip(0)) }, ErrCorrupt, "mixed has other content"},
		"the last byte": {func(_ *testing.T, s *Store) error {
			return edit(s, "mixed", func(b []byte) []byte { return flip(len(b) - 1)(b) })
		}, ErrCorrupt, "mixed has other content"},
		"truncated": {func(_ *testing.T, s *Store) error {
			return edit(s, "mixed", func(b []byte) []byte { return b[:len(b)-1] })
		}, ErrCorrupt, "mixed has other content"},
		"truncated to nothing": {func(_ *testing.T, s *Store) error { return os.Truncate(in(s, "a", "noise"), 0) }, ErrCorrupt, "noise has other content"},
		"longer": {func(_ *testing.T, s *Store) error {
			return edit(s, "empty", func([]byte) []byte { return []byte("x") })
		}, ErrCorrupt, "empty has other content"},
		// Of noise, chunks lie as they are in either form.
		"a chunk moved": {func(_ *testing.T, s *Store) error {
			return edit(s, "noise", func(b []byte) []byte {
				return append(append(bytes.Clone(b[chunkSize:2*chunkSize]), b[:chunkSize]...), b[2*chunkSize:]...)
			})
		}, ErrCorrupt, "noise has other content"},
		"a chunk twice": {func(_ *testing.T, s *Store) error {
			return edit(s, "noise", func(b []byte) []byte { copy(b[chunkSize:], b[:chunkSize]); return b })
		}, ErrCorrupt, "noise has other content"},
		"a chunk dropped": {func(_ *testing.T, s *Store) error {
			return edit(s, "noise", func(b []byte) []byte { return b[chunkSize:] })
		}, ErrCorrupt, "noise has other content"},
		"two files swapped": {func(_ *testing.T, s *Store) error {
			return errors.Join(os.Rename(in(s, "a", "text"), in(s, "t")), os.Rename(in(s, "a", "text2"), in(s, "a", "text")), os.Rename(in(s, "t"), in(s, "a", "text2")))
		}, ErrCorrupt, "has other content"},
		"a file of another snapshot": {func(_ *testing.T, s *Store) error { return os.Rename(in(s, "b", "noise"), in(s, "a", "noise")) }, ErrCorrupt, "noise has other content"},
		"a file missing":             {func(_ *testing.T, s *Store) error { return os.Remove(in(s, "a", "empty")) }, ErrCorrupt, "empty is missing"},
		"a link in its place": {func(_ *testing.T, s *Store) error {
			return errors.Join(os.Rename(in(s, "a", "noise"), in(s, "noise")), os.Symlink("../noise", in(s, "a", "noise")))
		}, nil, "not a regular file"},
		"no manifest":     {func(_ *testing.T, s *Store) error { return os.Remove(in(s, "a", manifestName)) }, ErrCorrupt, "no manifest"},
		"half a manifest": {func(_ *testing.T, s *Store) error { return os.Truncate(in(s, "a", manifestName), 20) }, ErrCorrupt, ""},
		"a huge manifest": {func(_ *testing.T, s *Store) error { return os.Truncate(in(s, "a", manifestName), maxManifest+1) }, ErrCorrupt, "too large"},
		"another name": {func(_ *testing.T, s *Store) error {
			return errors.Join(os.RemoveAll(in(s, "a")), os.Rename(in(s, "b"), in(s, "a")))
		}, ErrForeign, `taken as "b"`},
		"another key": {func(_ *testing.T, s *Store) error { s.key = []byte(strings.Repeat("k", 32)); return nil }, ErrForeign, "key"},
		"another manifest": {func(_ *testing.T, s *Store) error {
			return os.WriteFile(in(s, "a", manifestName), []byte(`{"version":2,"manifest":{"name":"a","binding":"x"},"seal":"00"}`), 0o600)
		}, ErrForeign, "changed since"},
		"the manifest of another's content": {func(_ *testing.T, s *Store) error {
			data, err := os.ReadFile(in(s, "b", manifestName))
			return errors.Join(err, os.WriteFile(in(s, "a", manifestName), data, 0o600))
		}, ErrForeign, `taken as "b"`},
		"an older version": {func(_ *testing.T, s *Store) error {
			return os.WriteFile(in(s, "a", manifestName), []byte(`{"manifest":{"version":1,"name":"a"},"seal":"00"}`), 0o600)
		}, ErrForeign, "another version"},
		// What follows nobody can do without the key; it must not be worse all
		// the same.
		"a file outside": {func(t *testing.T, s *Store) error {
			return resealed(t, s, func(m *manifest) { m.Files[0].Name = "../b/empty" })
		}, ErrCorrupt, "a file"},
		"a file twice": {func(t *testing.T, s *Store) error {
			return resealed(t, s, func(m *manifest) { m.Files[1] = m.Files[0] })
		}, ErrCorrupt, "a file"},
		"a negative size": {func(t *testing.T, s *Store) error { return resealed(t, s, func(m *manifest) { m.Files[0].Size = -1 }) }, ErrCorrupt, "a file"},
		"an absurd size": {func(t *testing.T, s *Store) error {
			return resealed(t, s, func(m *manifest) { m.Files[0].Size = 1 << 62 })
		}, ErrCorrupt, "a file"},
		"too few tags": {func(t *testing.T, s *Store) error { return resealed(t, s, func(m *manifest) { m.Files[1].Tags = nil }) }, ErrCorrupt, "a file"},
		"too large a chunk": {func(t *testing.T, s *Store) error {
			return resealed(t, s, func(m *manifest) { m.Files[1].Stored = []int{chunkSize + 1, 1, 1, 1} })
		}, ErrCorrupt, "a file"},
		"another salt": {func(t *testing.T, s *Store) error { return resealed(t, s, func(m *manifest) { m.Salt[0] ^= 1 }) }, ErrCorrupt, "has other content"},
	}
	noise := large()["noise"]
	files := map[string][]byte{
		"empty": {}, "noise": noise, "mixed": append(make([]byte, 1000), noise[:1000]...),
		"text":  bytes.Repeat([]byte("the same again and again "), 1000),
		"text2": bytes.Repeat([]byte("the same again and agaim "), 1000),
	}
	others := map[string][]byte{"empty": {}, "noise": append([]byte{^noise[0]}, noise[1:]...)}
	for name, test := range tests {
		for formName, form := range forms {
			t.Run(name+", "+formName, func(t *testing.T) {
				s := At(t.TempDir())
				for name, files := range map[string]map[string][]byte{"a": files, "b": others} {
					if err := s.Write(name, binding, form, nil, fillWith(files)); err != nil {
						t.Fatal(err)
					}
				}
				if err := test.harm(t, s); err != nil {
					t.Fatal(err)
				}
				_, err := read(t, s, "a", binding)
				if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.say) {
					t.Error(err)
				}
				// It can be replaced all the same.
				s = At(s.path)
				write(t, s, "a", "new")
				if _, err := read(t, s, "a", binding); err != nil {
					t.Error(err)
				}
			})
		}
	}
	s := At(t.TempDir())
	write(t, s, "a", "one")
	if _, err := s.Open("a", "program: b\nmemory: 512\nuser: 1"); !errors.Is(err, ErrForeign) || !strings.HasSuffix(err.Error(), "changed since: program, user") {
		t.Error(err)
	}
	for _, name := range []string{"", "..", ".a", "a/b", "-"} {
		_, err := s.Open(name, binding)
		if err == nil || s.Write(name, binding, Plain, nil, fill("")) == nil || s.Remove(name) == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// A tag is of its key, file, place and content alone.
func TestTagsDiffer(t *testing.T) {
	seen := map[[tagSize]byte]string{}
	key, salt := make([]byte, 32), make([]byte, saltSize)
	other := bytes.Repeat([]byte{1}, 32)
	for _, keys := range [][2][]byte{{key, salt}, {other, salt}, {key, other}} {
		tags, err := newTagger(keys[0], keys[1])
		if err != nil {
			t.Fatal(err)
		}
		for file := range 3 {
			for chunk := range 3 {
				for _, data := range []string{"", "x", "x\x00"} {
					what := fmt.Sprintf("%x %d %d %q", keys, file, chunk, data)
					tag := tags.tag(file, chunk, []byte(data))
					if before, there := seen[tag]; there {
						t.Errorf("%s has the tag of %s", what, before)
					}
					seen[tag] = what
				}
			}
		}
	}
}

// FuzzManifest reads manifests that the key's owner never wrote, with and without
// a seal that is right.
func FuzzManifest(f *testing.F) {
	s := At(f.TempDir())
	if err := s.Write("a", binding, Packed, nil, fillWith(map[string][]byte{"state": []byte("state"), "pages": make([]byte, chunkSize+1)})); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.path, "a", manifestName))
	var on sealed
	if err := errors.Join(err, json.Unmarshal(data, &on)); err != nil {
		f.Fatal(err)
	}
	f.Add(data, false)
	f.Add([]byte(on.Manifest), true)
	f.Add([]byte(strings.Replace(string(on.Manifest), `"size":5`, `"size":4611686018427387904`, 1)), true)
	f.Add([]byte(`{"salt":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","files":[{"name":"..","size":1,"stored":[1],"tags":"AAAAAAAAAAAAAAAAAAAAAA=="}]}`), true)
	f.Fuzz(func(t *testing.T, raw []byte, rightly bool) {
		if rightly {
			if !json.Valid(raw) {
				return
			}
			var compact bytes.Buffer
			_ = json.Compact(&compact, raw)
			var err error
			raw, err = json.Marshal(sealed{Version: version, Manifest: compact.Bytes(), Seal: seal(s.key, compact.Bytes())})
			if err != nil {
				t.Fatal(err)
			}
		}
		m, err := unseal(s.key, raw)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrForeign) {
				t.Errorf("%v", err)
			}
			return
		}
		if !rightly && !bytes.Contains(raw, []byte(on.Seal)) {
			t.Errorf("accepted: %s", raw)
		}
		for _, f := range m.Files {
			if f.room() < 0 || f.room() > f.Size || f.Name != filepath.Base(f.Name) {
				t.Errorf("%+v", f)
			}
			for c := range f.pieces() {
				if f.stored(c) > chunkSize || f.plain(c) > chunkSize || len(f.tag(c)) != tagSize {
					t.Errorf("%+v", f)
				}
			}
		}
	})
}

// FuzzUnpack unpacks what was never packed.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{5, 16, 'h', 'e', 'l', 'l', 'o'}, 5)
	f.Add([]byte{}, 0)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, chunkSize)
	f.Fuzz(func(t *testing.T, stored []byte, size int) {
		if size < 0 || size > chunkSize || len(stored) > size {
			return
		}
		var w worker
		if plain, err := w.unpack(stored, size); err == nil && len(plain) != size {
			t.Errorf("%d bytes, not %d", len(plain), size)
		}
	})
}

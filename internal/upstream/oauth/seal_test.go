package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/store"
)

func testRecord() *record {
	return &record{
		Server: "docs", URL: resource, Access: "s3cret-access", Refresh: "s3cret-refresh", DPoP: true, Expires: time.Unix(2e9, 0).UTC(), Scopes: []string{"read"},
		Wanted: []string{"write"}, Account: "ann", Since: time.Unix(1e9, 0).UTC(), Party: party{Issuer: "https://as.example", Token: "https://as.example/token", ID: "client", Secret: "s3cret-client", Method: "none", ProofKey: []byte{1, 2}},
	}
}

// places are the two places for the key.
func places() map[string]Keyring {
	return map[string]Keyring{"in a file": nil, "in a keyring": &memoryKeyring{}, "in a file, for want of a keyring": &memoryKeyring{err: fmt.Errorf("none: %w", errors.ErrUnsupported)}}
}

func TestSaved(t *testing.T) {
	for name, keyring := range places() {
		path := t.TempDir()
		dir := store.At(path).Area(store.Logins)
		l := New(dir, Options{})
		if got, err := l.load(t.Context(), keyring, "a"); got != nil || err != nil {
			t.Errorf("key %s, nothing saved: got %v, %v, want nothing", name, got, err)
		}
		if _, err := os.Lstat(dir.Path("")); err == nil {
			t.Errorf("key %s: reading made the directory", name)
		}
		want := testRecord()
		if err := l.save(t.Context(), keyring, "a", want); err != nil {
			t.Fatalf("key %s: %v", name, err)
		}
		registered := &party{Issuer: "https://as.example", ID: "us", Secret: "s3cret-client", Redirect: "http://127.0.0.1/"}
		if err := l.keep(t.Context(), keyring, registered.Issuer, registered); err != nil {
			t.Fatalf("key %s: %v", name, err)
		}
		for who, l := range map[string]*Logins{"the same": l, "another": New(dir, Options{})} {
			got, err := l.load(t.Context(), keyring, "a")
			if err != nil {
				t.Fatalf("key %s, %s process: %v", name, who, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("key %s, %s process: record (-want +got):\n%s", name, who, diff)
			}
			client, err := l.registration(t.Context(), keyring, registered.Issuer)
			if err != nil {
				t.Fatalf("key %s, %s process: %v", name, who, err)
			}
			if diff := cmp.Diff(registered, client); diff != "" {
				t.Errorf("key %s, %s process: registration (-want +got):\n%s", name, who, diff)
			}
		}
		err := filepath.WalkDir(dir.Path(""), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if got := info.Mode().Perm(); got != want && runtime.GOOS != "windows" && !strings.HasSuffix(path, ".lock") {
				t.Errorf("%s: got mode %o, want %o", path, got, want)
			}
			data, _ := os.ReadFile(path)
			if bytes.Contains(data, []byte("s3cret")) || strings.Contains(path, "as.example") {
				t.Errorf("%s has a secret that can be read", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if report, err := store.At(path).Check(nil); err != nil || len(report.Problems) > 0 {
			t.Errorf("key %s: state check: got %+v, %v, want no problems", name, report.Problems, err)
		}
		if err := errors.Join(l.save(t.Context(), keyring, "a", nil), l.keep(t.Context(), keyring, registered.Issuer, nil), l.save(t.Context(), keyring, "a", nil)); err != nil {
			t.Errorf("key %s: removing: %v", name, err)
		}
		got, err := l.load(t.Context(), keyring, "a")
		client, err2 := l.registration(t.Context(), keyring, registered.Issuer)
		if got != nil || client != nil || err != nil || err2 != nil {
			t.Errorf("key %s, removed: got %v, %v, %v, %v, want nothing", name, got, client, err, err2)
		}
	}
}

// TestChanged: what another process writes is noticed.
func TestChanged(t *testing.T) {
	dir := store.At(t.TempDir())
	one, two := New(dir, Options{}), New(dir, Options{})
	for i := range 3 {
		r := testRecord()
		r.Access = fmt.Sprint("access-", i)
		if err := one.save(t.Context(), nil, "a", r); err != nil {
			t.Fatal(err)
		}
		got, err := two.load(t.Context(), nil, "a")
		if err != nil || got.Access != r.Access {
			t.Errorf("got %+v, %v, want %s", got, err, r.Access)
		}
	}
}

// TestDamaged: a file that is not what we wrote under its name is refused.
func TestDamaged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(dir store.Dir, l *Logins) error
		want   string
	}{
		{"tampered with", edit("a.login", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), "a.login was changed, or is damaged: remove it and sign in again"},
		{"truncated", edit("a.login", func(b []byte) []byte { return b[:len(b)-1] }), "a.login was changed"},
		{"truncated to its beginning", edit("a.login", func(b []byte) []byte { return b[:len(begin)+5] }), "a.login was changed"},
		{"empty", edit("a.login", func([]byte) []byte { return nil }), "a.login was changed"},
		{"huge", edit("a.login", func(b []byte) []byte { return append(b, make([]byte, maxSealed)...) }), "a.login was changed"},
		{"swapped", func(dir store.Dir, _ *Logins) error { return os.Rename(dir.Path("b.login"), dir.Path("a.login")) }, "a.login was changed"},
		{"of a newer version", edit("a.login", func(b []byte) []byte { b[len(family)] = '2'; return b }), "is from a newer sallyport"},
		{"sealed, without a token", func(_ store.Dir, l *Logins) error { return l.save(context.Background(), nil, "a", &record{}) }, "a.login was changed"},
		{"without its key", func(dir store.Dir, _ *Logins) error { return dir.Remove(keyFile) }, "the key of the logins is gone"},
		{"with half of its key", edit(keyFile, func(b []byte) []byte { return b[:16] }), "the key of the logins is gone"},
		{"with another key", edit(keyFile, func(b []byte) []byte { b[0] ^= 1; return b }), "another key than the one in the file: remove the folder"},
		{"without the place of the key", func(dir store.Dir, _ *Logins) error { return dir.Remove(placeFile) }, "sign in again"},
		{"with a broken place of the key", edit(placeFile, func(b []byte) []byte { return b[1:] }), "remove it and sign in again"},
	} {
		dir := store.At(t.TempDir())
		l := New(dir, Options{})
		for _, key := range []string{"a", "b"} {
			if err := l.save(t.Context(), nil, key, testRecord()); err != nil {
				t.Fatal(err)
			}
		}
		if err := tt.damage(dir, l); err != nil {
			t.Fatal(err)
		}
		got, err := New(dir, Options{}).load(t.Context(), nil, "a")
		if got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("a file %s: got %v, %v, want an error with %q", tt.name, got, err, tt.want)
		}
	}
}

func edit(name string, change func([]byte) []byte) func(store.Dir, *Logins) error {
	return func(dir store.Dir, _ *Logins) error {
		data, err := os.ReadFile(dir.Path(name))
		if err != nil {
			return err
		}
		return os.WriteFile(dir.Path(name), change(data), 0o600)
	}
}

// TestKeyrings: a keyring that is there but cannot be used is an error, and never
// leads to a second key.
func TestKeyrings(t *testing.T) {
	dir := store.At(t.TempDir())
	locked := &memoryKeyring{err: errLocked}
	if err := New(dir, Options{}).save(t.Context(), locked, "a", testRecord()); !errors.Is(err, errLocked) {
		t.Errorf("a first login with a locked keyring: got %v, want %v", err, errLocked)
	}
	if names, _ := dir.List(); len(names) > 0 {
		t.Errorf("a first login with a locked keyring: left %q", names)
	}
	open := &memoryKeyring{}
	if err := New(dir, Options{}).save(t.Context(), open, "a", testRecord()); err != nil {
		t.Fatal(err)
	}
	key := open.entries[keyAccount]
	for _, tt := range []struct {
		name    string
		keyring Keyring
		want    string
	}{
		{"no keyring", nil, "this client has no keyring"},
		{"a keyring on another system", &memoryKeyring{err: errors.ErrUnsupported}, "unsupported"},
		{"a locked keyring", locked, "it was not unlocked; unlock it"},
		{"a keyring without the entry", &memoryKeyring{}, "the key of the logins is gone"},
		{"a keyring with a broken entry", &memoryKeyring{entries: map[string]string{keyAccount: "x"}}, "is broken, remove it"},
		{"a keyring with another key", &memoryKeyring{entries: map[string]string{keyAccount: strings.Repeat("A", 43) + "="}}, "another key than the one in the keyring"},
	} {
		l := New(dir, Options{})
		_, err := l.load(t.Context(), tt.keyring, "a")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("reading with %s: got %v, want %q", tt.name, err, tt.want)
		}
		if err := l.save(t.Context(), tt.keyring, "b", testRecord()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("saving with %s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := os.Lstat(dir.Path(keyFile)); err == nil || open.entries[keyAccount] != key {
		t.Error("there is a second key")
	}
	// Another state directory of the user shares the entry.
	if err := New(store.At(t.TempDir()), Options{}).save(t.Context(), open, "a", testRecord()); err != nil || open.entries[keyAccount] != key {
		t.Errorf("another directory: got %v, and another key", err)
	}
	l := New(dir, Options{})
	open.gets = 0
	for _, key := range []string{"c", "d"} {
		if err := l.save(t.Context(), open, key, testRecord()); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := l.List(t.Context(), open); err != nil || len(list) != 3 || open.gets != 1 {
		t.Errorf("got %d logins, %v, with %d visits to the keyring; want 3 with 1", len(list), err, open.gets)
	}
}

// TestOneKey: many that save a first login create one key.
func TestOneKey(t *testing.T) {
	for name, keyring := range places() {
		dir := store.At(t.TempDir())
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				if err := New(dir, Options{}).save(t.Context(), keyring, fmt.Sprint("login", i), testRecord()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		list, err := New(dir, Options{}).List(t.Context(), keyring)
		if len(list) != 8 || err != nil {
			t.Errorf("key %s: got %d logins, %v, want 8", name, len(list), err)
		}
	}
}

// TestNoPlace: without a state directory there are no logins, and that stops no
// request to a server that needs none.
func TestNoPlace(t *testing.T) {
	t.Chdir(t.TempDir())
	l := New(store.At(""), Options{})
	got, err := l.load(t.Context(), nil, "a")
	if got != nil || err != nil {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
	if err := l.save(t.Context(), nil, "a", testRecord()); !errors.Is(err, store.ErrNoPlace) {
		t.Errorf("got %v, want %v", err, store.ErrNoPlace)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"access":"a","refresh":"b","expires":"2026-01-01T00:00:00Z","party":{"issuer":"i","token":"t"}}`))
	f.Add([]byte(`{"access":"a\nb","party":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err == nil && (strings.ContainsAny(r.Access+r.Refresh, "\r\n \x00") || r.Access == "" || r.Party.Token == "") {
			t.Errorf("accepted %q: %+v", data, r)
		}
		_, _ = decodeParty(data)
	})
}

// FuzzOpen: what was not sealed is never opened.
func FuzzOpen(f *testing.F) {
	l := New(store.At(f.TempDir()), Options{})
	sealed, err := l.seal(f.Context(), nil, "a.login", []byte("content"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a.login", sealed)
	f.Add("b.login", sealed)
	f.Add("a.login", sealed[:20])
	f.Add("a.login", []byte(begin))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		plain, err := l.open(t.Context(), nil, name, data)
		if err == nil && (name != "a.login" || string(plain) != "content") {
			t.Errorf("opened %q as %q: %q", data, name, plain)
		}
	})
}

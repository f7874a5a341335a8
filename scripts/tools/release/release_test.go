package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"aead.dev/minisign"
)

func TestParseVersion(t *testing.T) {
	for _, tt := range []struct{ tag, version, python, prerelease string }{
		{"v1.2.3", "1.2.3", "1.2.3", ""},
		{"v0.10.0", "0.10.0", "0.10.0", ""},
		{"v1.2.3-alpha.0", "1.2.3-alpha.0", "1.2.3a0", "alpha0"},
		{"v1.2.3-beta.2", "1.2.3-beta.2", "1.2.3b2", "beta2"},
		{"v1.2.3-rc.1", "1.2.3-rc.1", "1.2.3rc1", "rc1"},
		{"v0.0.0-pre.20260102030405", "0.0.0-pre.20260102030405", "0.0.0.dev20260102030405", "pre20260102030405"},
	} {
		v, err := parseVersion(tt.tag)
		if err != nil || v.String() != tt.version || v.python() != tt.python || v.prerelease() != tt.prerelease {
			t.Errorf("%s: got %s, %s, %s, %v; want %s, %s, %s", tt.tag, v, v.python(), v.prerelease(), err, tt.version, tt.python, tt.prerelease)
		}
	}
	for _, tag := range []string{"", "1.2.3", "v1.2", "v01.2.3", "v1.2.3-rc1", "v1.2.3-rc.01", "v1.2.3+build", "v1.2.3-rc.1/../x", "v1.2.3\n"} {
		if v, err := parseVersion(tag); err == nil {
			t.Errorf("%q: got %s, want an error", tag, v)
		}
	}
}

func TestAbsolute(t *testing.T) {
	const at = "https://github.com/sallyport/sallyport"
	for in, want := range map[string]string{
		"[a b](docs/A.md#c).":     "[a b](" + at + "/blob/v1.2.3/docs/A.md#c).",
		"![a\nb](docs/a.svg)":     "![a\nb](" + at + "/raw/v1.2.3/docs/a.svg)",
		"[a](https://a.example/)": "[a](https://a.example/)",
		"[a](#b), [c][d] (e)":     "[a](#b), [c][d] (e)",
	} {
		if got := string(version{number: "1.2.3"}.absolute([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestNotes(t *testing.T) {
	v := version{number: "1.2.3"}
	folder := fstest.MapFS{
		"b.md": {Data: []byte("Fix: Do not lose it\n\nIt was lost.\n")},
		"a.md": {Data: []byte("Fix: Find it\n\nIt was not found.\n")},
		"c.md": {Data: []byte("Security: Keep it secret\n\nIt was not.\n")},
	}
	got, err := notes(folder, v)
	want := "# Sallyport 1.2.3\n\n## Security\n\n### Keep it secret\n\nIt was not.\n\n## Fix\n\n### Find it\n\nIt was not found.\n\n### Do not lose it\n\nIt was lost.\n"
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("got %v:\n%s\nwant:\n%s", err, got, want)
	}
	for name, folder := range map[string]fstest.MapFS{
		"empty": {}, "no kind": {"a.md": {Data: []byte("Something\n")}}, "unknown kind": {"a.md": {Data: []byte("Chore: x\n\ny\n")}},
	} {
		if got, err := notes(folder, v); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
}

// TestArchivesAreReproducible: the order of files does not matter, and nothing
// but their names, modes and data and the time given is in an archive.
func TestArchivesAreReproducible(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	files := []file{{"b", 0o755, []byte("2")}, {"a/c", 0o644, []byte("1")}}
	reversed := slices.Clone(files)
	slices.Reverse(reversed)
	for name, pack := range map[string]func([]file, time.Time) ([]byte, error){"tar": tarred, "zip": zipped} {
		one, err := pack(files, at)
		if err != nil {
			t.Fatal(err)
		}
		two, err := pack(reversed, at)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s: another order gave other bytes", name)
		}
	}
	packed, err := tarred(files, at)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if !z.ModTime.IsZero() || z.Name != "" {
		t.Errorf("gzip's header: got %v %q, want nothing", z.ModTime, z.Name)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(at) {
			t.Errorf("%s: got owner %d:%d %q %q, time %v; want root's, %v", h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime, at)
		}
	}
}

func TestEmptyDirectory(t *testing.T) {
	top := t.TempDir()
	foreign := filepath.Join(top, "foreign")
	write(t, filepath.Join(foreign, "thesis.txt"), "")
	if err := emptyDirectory(foreign); err == nil {
		t.Error("a directory with other files: got no error")
	}
	for _, name := range []string{marker, unfinished} {
		own := filepath.Join(top, "own")
		write(t, filepath.Join(own, name), "")
		write(t, filepath.Join(own, "old.deb"), "")
		if err := emptyDirectory(own); err != nil {
			t.Errorf("with %s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(own, "old.deb")); err == nil {
			t.Errorf("with %s: the files of the last release are still there", name)
		}
	}
}

// TestSign: the signature is minisign's prehashed kind and names the version; a
// release with a key that the executable does not trust is refused.
func TestSign(t *testing.T) {
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := private.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	write(t, filepath.Join(top, "key"), string(text))
	write(t, filepath.Join(top, "other"), "untrusted comment: x\n"+strings.Repeat("A", 40))
	// One with a password takes seconds and 1 GB: test/release/run has it.
	read := func(file string) (*key, error) {
		return readKey(func(name string) string {
			if name == "RELEASE_KEY_FILE" && file != "" {
				return filepath.Join(top, file)
			}
			return ""
		})
	}
	for _, tt := range []struct{ file, want string }{{"other", "no secret key"}, {"absent", "no such file"}} {
		if _, err := read(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s: got %v, want %q and nothing of the file", tt.file, err, tt.want)
		}
	}
	if k, err := read(""); k != nil || err != nil {
		t.Errorf("no file: got %v, %v, want no key", k, err)
	}
	k, err := read("key")
	if err != nil || !k.private.Equal(private) {
		t.Fatalf("got %v, %v", k, err)
	}

	r := &release{top: top, out: filepath.Join(top, "dist"), key: k, version: version{number: "1.2.3"}}
	write(t, filepath.Join(r.out, "one"), "1")
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	if want := "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  one\n"; string(sums) != want {
		t.Errorf("got %q, want %q", sums, want)
	}
	signature, err := minisign.SignatureFromFile(filepath.Join(r.out, signatureName))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(r.out, signatureName))
	if err != nil {
		t.Fatal(err)
	}
	if signature.Algorithm != minisign.HashEdDSA || signature.TrustedComment != "sallyport 1.2.3" || !minisign.Verify(public, sums, raw) {
		t.Errorf("got algorithm %x, comment %q", signature.Algorithm, signature.TrustedComment)
	}

	for _, tt := range []struct {
		name, trusted, want string
		key                 *key
		unsigned            bool
	}{
		{"trusted", "untrusted comment: ours\n" + k.public() + "\n", "", k, false},
		{"unknown key", "untrusted comment: none yet\n", "users could not upgrade", k, false},
		{"no key", k.public(), "no key: set", nil, false},
		{"unsigned", "", "", nil, true},
	} {
		write(t, filepath.Join(top, trusted), tt.trusted)
		err := (&release{top: top, key: tt.key, unsigned: tt.unsigned}).checkKey()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

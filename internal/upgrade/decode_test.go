package upgrade

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
)

func TestKeysOfThisBuild(t *testing.T) {
	keys, err := parseKeys(released)
	if err != nil {
		t.Fatalf("sallyport.pub: %v", err)
	}
	if _, test, err := Keys(); test || len(keys) == 0 && err != ErrNoKey {
		t.Errorf("got test build %v, %v; want %v", test, err, ErrNoKey)
	}
	public, _, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	linked = public.String()
	t.Cleanup(func() { linked = "" })
	got, test, err := Keys()
	if err != nil || !test || len(got) != 1 || !got[0].Equal(public) {
		t.Errorf("linked: got %v, test build %v, %v; want the linked key", got, test, err)
	}
	linked = "damaged"
	if _, _, err := Keys(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		version string
		want    bool
	}{
		{"1.2.3", true}, {"0.0.1", true}, {"1.2.3-rc.1", true},
		{"v1.2.3", false}, {"1.2", false}, {"", false}, {"1.2.3+dirty", false}, {"01.2.3", false},
		{"1.2.3/..", false}, {"1.2.3-" + strings.Repeat("a", 99), false}, {"devel", false},
	} {
		if got := Valid(tt.version); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.version, got, tt.want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"1.2.3", "1.2.3", 0}, {"1.10.0", "1.9.9", 1}, {"1.0.0-rc.1", "1.0.0", -1},
		{"1.2.3", "1.2.3+dirty", 0}, {"0.1.0", "0.0.0-20261121195813-ac48fa8c10ef", 1}, {"0.1.0", "devel", 1},
	} {
		if got := Compare(tt.a, tt.b); got != tt.want {
			t.Errorf("%s and %s: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestDecodeSums(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for _, tt := range []struct {
		text, want string
		n          int
	}{
		{hash + "  a.tar.gz\n" + hash + " *b.zip\n", "", 2},
		{hash + "  a.tar.gz", "", 1},
		{"", "line 1: want a checksum", 0},
		{hash + " a.tar.gz\n", "want a checksum", 0},
		{hash + "  a\n\n" + hash + "  b\n", "line 2", 0},
		{strings.Repeat("x", 64) + "  a\n", "hexadecimal", 0},
		{hash + "  ../a\n", "characters", 0},
		{hash + "  a/b\n", "characters", 0},
		{hash + "  .a\n", "characters", 0},
		{hash + "  a\r\n", "characters", 0},
		{hash + "  a\n" + hash + "  a\n", "twice", 0},
	} {
		got, err := decodeSums([]byte(tt.text))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || len(got) != tt.n {
			t.Errorf("%q: got %d, %v; want %d, %q", tt.text, len(got), err, tt.n, tt.want)
		}
	}
}

func zipped(t testing.TB, header *zip.FileHeader, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestZip(t *testing.T) {
	link := &zip.FileHeader{Name: "sallyport.exe"}
	link.SetMode(os.ModeSymlink | 0o777)
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"good", zipped(t, &zip.FileHeader{Name: "sallyport.exe"}, "MZ"), ""},
		{"link", zipped(t, link, "C:/x"), "not a regular file"},
		{"path", zipped(t, &zip.FileHeader{Name: "../sallyport.exe"}, "MZ"), "no executable"},
		{"not a zip", []byte("MZ"), "cannot be read"},
	} {
		var out bytes.Buffer
		err := extractZip(bytes.NewReader(tt.data), int64(len(tt.data)), "sallyport.exe", &out)
		if tt.want == "" && (err != nil || out.String() != "MZ") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %q, %v; want %q", tt.name, out.String(), err, tt.want)
		}
	}
}

func FuzzDecodeSums(f *testing.F) {
	f.Add([]byte(strings.Repeat("0a", 32) + "  a.tar.gz\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := decodeSums(data)
		if err != nil {
			return
		}
		for name := range sums {
			if filepath.Base(name) != name || strings.HasPrefix(name, ".") {
				t.Errorf("name %q leaves its folder", name)
			}
		}
	})
}

func FuzzVerify(f *testing.F) {
	public, private, err := minisign.GenerateKey(zeros{})
	if err != nil {
		f.Fatal(err)
	}
	sums := []byte(strings.Repeat("0a", 32) + "  a.tar.gz\n")
	r := minisign.NewReader(bytes.NewReader(sums))
	_, _ = io.Copy(io.Discard, r)
	good := r.SignWithComments(private, comment("1.2.3"), "")
	f.Add(good)
	f.Add([]byte("untrusted comment: \n\ntrusted comment: sallyport 1.2.3\n"))
	f.Fuzz(func(t *testing.T, signature []byte) {
		got, err := verify([]minisign.PublicKey{public}, sums, signature)
		if err == nil && got.Version != "1.2.3" {
			t.Errorf("a signature of 1.2.3 is accepted for %s", got.Version)
		}
	})
}

// zeros is a source of keys for a test that must be the same every time.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// FuzzExtract: whatever the archive is, no more is written than its limits allow.
func FuzzExtract(f *testing.F) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	_ = w.WriteHeader(&tar.Header{Name: "sallyport", Typeflag: tar.TypeReg, Size: 2})
	_, _ = io.WriteString(w, "MZ")
	_ = w.Close()
	_ = z.Close()
	f.Add(b.Bytes())
	f.Add(zipped(f, &zip.FileHeader{Name: "sallyport.exe", Method: zip.Deflate}, "MZ"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n counter
		_ = extractTar(bytes.NewReader(data), "sallyport", &n)
		_ = extractZip(bytes.NewReader(data), int64(len(data)), "sallyport.exe", &n)
		if n > 2*(maxExecutable+1) {
			t.Errorf("%d bytes were written", n)
		}
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

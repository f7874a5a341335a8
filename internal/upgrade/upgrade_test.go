//go:build !windows

package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var here = Platform{"linux", "amd64"}

type keys struct {
	public  minisign.PublicKey
	private minisign.PrivateKey
}

func newKeys(t testing.TB) keys {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys{public, private}
}

// sign makes a prehashed signature.
func (k keys) sign(data []byte, trusted string) []byte {
	r := minisign.NewReader(bytes.NewReader(data))
	_, _ = io.Copy(io.Discard, r)
	return r.SignWithComments(k.private, trusted, "of a test")
}

// program is an executable that reports a version and a platform.
func program(version, platform string) string {
	return fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'version --json' ] || exit 9\necho '{\"version\": \"%s\", \"platform\": \"%s\"}'\n", version, platform)
}

type entry struct {
	header  tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}, content}
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// files are the files of a place, by path.
type files map[string][]byte

// add adds a release with one archive.
func (f files) add(k keys, version string, archive []byte) {
	name := "sallyport_" + version + "_linux_amd64.tar.gz"
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(archive), name)
	at := "download/v" + version + "/"
	f[at+name], f[at+sumsName], f[at+signatureName] = archive, sums, k.sign(sums, comment(version))
}

// newest makes a release the newest one.
func (f files) newest(version string) { f["latest"] = []byte(version) }

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/releases/")
	if name, ok := strings.CutPrefix(path, "latest/download/"); ok { // as GitHub does
		http.Redirect(w, r, "/releases/download/v"+string(f["latest"])+"/"+name, http.StatusFound)
		return
	}
	content, ok := f[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content)
}

const old = "#!/bin/sh\necho '{\"version\": \"1.2.3\", \"platform\": \"linux/amd64\"}'\n"

// upgrader returns an Upgrader of an executable in a folder of its own.
func upgrader(t testing.TB, from string, trusted ...keys) *Upgrader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sallyport")
	if err := os.WriteFile(path, []byte(old), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o751); err != nil {
		t.Fatal(err)
	}
	u := &Upgrader{Path: path, Platform: here, From: from, Agent: "sallyport/test", Environ: []string{"PATH=/usr/bin:/bin"}, Progress: func(string, int64, int64) {}}
	for _, k := range trusted {
		u.Keys = append(u.Keys, k.public)
	}
	return u
}

func (u *Upgrader) run(ctx context.Context, version string) (*Release, error) {
	r, err := u.Find(ctx, version)
	if err != nil {
		return nil, err
	}
	return r, u.Install(ctx, r)
}

// content reads the executable, and checks that the folder has nothing besides
// what want names.
func content(t *testing.T, u *Upgrader, want ...string) string {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(u.Path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("files: got %q, want %q", got, want)
	}
	data, err := os.ReadFile(u.Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return s.URL + "/releases"
}

func TestUpgradeAndUndo(t *testing.T) {
	k, place := newKeys(t), files{}
	fresh := program("1.3.0", "linux/amd64")
	place.add(k, "1.2.0", pack(t, file("sallyport", program("1.2.0", "linux/amd64"))))
	place.add(k, "1.3.0", pack(t, file("LICENSE", "free"), file("./sallyport", fresh), file("man/sallyport.1", "")))
	place.newest("1.3.0")
	u := upgrader(t, serve(t, place), newKeys(t), k)
	var done int64
	u.Progress = func(stage string, n, total int64) {
		if stage == "downloading" {
			if done = n; total != int64(len(place["download/v1.3.0/sallyport_1.3.0_linux_amd64.tar.gz"])) {
				t.Errorf("total: got %d, want the archive's size", total)
			}
		}
	}
	r, err := u.run(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "1.3.0" || done == 0 {
		t.Errorf("got version %s after %d bytes, want 1.3.0 and some", r.Version, done)
	}
	if got := content(t, u, ".sallyport-previous", "sallyport"); got != fresh {
		t.Errorf("got %q, want %q", got, fresh)
	}
	info, err := os.Stat(u.Path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), os.FileMode(0o751); got != want {
		t.Errorf("mode: got %v, want %v", got, want)
	}
	for _, want := range []struct{ version, content string }{{"1.2.3", old}, {"1.3.0", fresh}} {
		got, err := u.Undo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now := content(t, u, ".sallyport-previous", "sallyport"); got != want.version || now != want.content {
			t.Errorf("undo: got %s: %q, want %s: %q", got, now, want.version, want.content)
		}
	}
	u.Progress = func(string, int64, int64) {}
	if r, err = u.run(t.Context(), "1.2.0"); err != nil || r.Version != "1.2.0" {
		t.Errorf("a named version: got %+v, %v", r, err)
	}
}

func TestUndoWithoutUpgrade(t *testing.T) {
	u := upgrader(t, "")
	if _, err := u.Undo(t.Context()); err == nil || !strings.Contains(err.Error(), "no upgrade to undo") {
		t.Errorf("got %v, want an error that there is nothing to undo", err)
	}
	if err := os.Symlink("sallyport", previousOf(u.Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Undo(t.Context()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a link: got %v, want a refusal", err)
	}
}

func TestFolder(t *testing.T) {
	k, place, dir := newKeys(t), files{}, t.TempDir()
	fresh := program("1.3.0", "linux/amd64")
	place.add(k, "1.3.0", pack(t, file("sallyport", fresh)))
	for path, data := range place {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u := upgrader(t, dir, k)
	if _, err := u.run(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := content(t, u, ".sallyport-previous", "sallyport"); got != fresh {
		t.Errorf("got %q, want %q", got, fresh)
	}
}

// TestAttacks: a place that is hostile or damaged changes nothing.
func TestAttacks(t *testing.T) {
	k, stranger := newKeys(t), newKeys(t)
	good := pack(t, file("sallyport", program("1.3.0", "linux/amd64")))
	const at, archive = "download/v1.3.0/", "download/v1.3.0/sallyport_1.3.0_linux_amd64.tar.gz"
	link := func(kind byte, name, to string) entry {
		return entry{tar.Header{Name: name, Typeflag: kind, Linkname: to}, ""}
	}
	huge := bytes.Repeat([]byte("a"), maxSmall+1)
	tests := []struct {
		name   string
		change func(place files)
		want   string
	}{
		{"another key", func(p files) { p.add(stranger, "1.3.0", good) }, "does not trust"},
		{"another key with the ID of ours", func(p files) {
			var s minisign.Signature
			_ = s.UnmarshalText(stranger.sign(p[at+sumsName], comment("1.3.0")))
			s.KeyID = k.public.ID()
			p[at+signatureName], _ = s.MarshalText()
		}, "was altered"},
		{"altered archive", func(p files) { p[archive][len(p[archive])-9] ^= 1 }, "does not match its checksum"},
		{"truncated archive", func(p files) { p[archive] = p[archive][:len(p[archive])/2] }, "does not match its checksum"},
		{"missing archive", func(p files) { delete(p, archive) }, "not found"},
		{"altered checksums", func(p files) { p[at+sumsName][0] ^= 1 }, "was altered"},
		{"more checksums", func(p files) { p[at+sumsName] = append(p[at+sumsName], '\n') }, "was altered"},
		{"altered trusted comment", func(p files) {
			p.add(k, "1.2.0", good)
			p[at+sumsName] = p["download/v1.2.0/"+sumsName]
			p[at+signatureName] = bytes.Replace(p["download/v1.2.0/"+signatureName], []byte("sallyport 1.2.0"), []byte("sallyport 1.3.0"), 1)
		}, "was altered"},
		{"signature without version", func(p files) { p[at+signatureName] = k.sign(p[at+sumsName], "timestamp:1") }, "trusted comment"},
		{"version that leaves the folder", func(p files) { p[at+signatureName] = k.sign(p[at+sumsName], "sallyport ../1.3.0") }, "trusted comment"},
		{"signature of the old kind", func(p files) {
			p[at+signatureName] = minisign.SignWithComments(k.private, p[at+sumsName], comment("1.3.0"), "")
		}, "old kind"},
		{"checksums of another release", func(p files) {
			sums := fmt.Appendf(nil, "%x  sallyport_1.2.0_linux_amd64.tar.gz\n", sha256.Sum256(good))
			p[at+sumsName], p[at+signatureName] = sums, k.sign(sums, comment("1.3.0"))
		}, "no archive for linux/amd64"},
		{"old executable as the newest", func(p files) {
			p.add(k, "1.3.0", pack(t, file("sallyport", program("1.2.0", "linux/amd64"))))
		}, "has sallyport 1.2.0"},
		{"executable of another platform", func(p files) {
			p.add(k, "1.3.0", pack(t, file("sallyport", program("1.3.0", "linux/arm64"))))
		}, "linux/arm64"},
		{"executable that does not run", func(p files) { p.add(k, "1.3.0", pack(t, file("sallyport", "#!/bin/sh\necho broken >&2; exit 3\n"))) }, "broken"},
		{"not an executable", func(p files) { p.add(k, "1.3.0", pack(t, file("sallyport", "\x7fELF"))) }, "does not run"},
		{"no executable", func(p files) { p.add(k, "1.3.0", pack(t, file("../sallyport", "x"), file("bin/sallyport", "x"))) }, "no executable"},
		{"symbolic link", func(p files) { p.add(k, "1.3.0", pack(t, link(tar.TypeSymlink, "sallyport", "/bin/sh"))) }, "not a regular file"},
		{"hard link", func(p files) { p.add(k, "1.3.0", pack(t, link(tar.TypeLink, "sallyport", "/bin/sh"))) }, "not a regular file"},
		{"huge executable", func(p files) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_ = tar.NewWriter(z).WriteHeader(&tar.Header{Name: "sallyport", Typeflag: tar.TypeReg, Size: maxExecutable + 1})
			_ = z.Close()
			p.add(k, "1.3.0", b.Bytes())
		}, "larger than"},
		{"too many entries", func(p files) {
			entries := make([]entry, maxEntries+1)
			for i := range entries {
				entries[i] = file(fmt.Sprint(i), "")
			}
			p.add(k, "1.3.0", pack(t, entries...))
		}, "entries"},
		{"not an archive", func(p files) { p.add(k, "1.3.0", []byte("<html>")) }, "cannot be read"},
		{"huge signature", func(p files) { p[at+signatureName] = huge }, "larger than"},
		{"huge checksums", func(p files) { p[at+sumsName] = huge }, "larger than"},
		{"page instead of a signature", func(p files) { p[at+signatureName] = []byte("<html>") }, "not a minisign signature"},
		{"no release", func(p files) { clear(p) }, "no release was found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			place := files{}
			place.add(k, "1.3.0", bytes.Clone(good))
			place.newest("1.3.0")
			tt.change(place)
			u := upgrader(t, serve(t, place), k)
			if _, err := u.run(t.Context(), ""); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if got := content(t, u, "sallyport"); got != old {
				t.Errorf("the executable is now %q", got)
			}
		})
	}
}

// TestAnotherVersion: an older release in the place of the one that was asked for.
func TestAnotherVersion(t *testing.T) {
	k, place := newKeys(t), files{}
	place.add(k, "1.2.0", pack(t, file("sallyport", program("1.2.0", "linux/amd64"))))
	for path, data := range place {
		place[strings.ReplaceAll(path, "1.2.0", "1.3.0")] = data
	}
	u := upgrader(t, serve(t, place), k)
	if _, err := u.run(t.Context(), "1.3.0"); err == nil || !strings.Contains(err.Error(), "the signature is of 1.2.0") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := u.run(t.Context(), "9.9.9"); err == nil || !strings.Contains(err.Error(), "9.9.9 was not found") {
		t.Errorf("got %v, want that there is no such release", err)
	}
	content(t, u, "sallyport")
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct{ from, want string }{
		{"https://example.org/releases", ""},
		{"http://127.0.0.1:1/releases", ""},
		{"http://[::1]:1/releases", ""},
		{"http://localhost/releases", ""},
		{"http://example.org/releases", "plain http"},
		{"http://localhost.example.org/", "plain http"},
		{"ftp://example.org/", "not usable"},
		{"file:///etc", "not usable"},
		{"https:///releases", "not usable"},
		{"https://user:hunter2@[bad", "not a URL"},
	} {
		_, err := newSource(tt.from, "", nil)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got %v, want an error with %q", tt.from, err, tt.want)
		}
	}
}

// TestRedirects: to plain http, to other schemes, and without an end.
func TestRedirects(t *testing.T) {
	k, place := newKeys(t), files{}
	place.add(k, "1.3.0", pack(t, file("sallyport", program("1.3.0", "linux/amd64"))))
	place.newest("1.3.0")
	plain := serve(t, place)
	for _, tt := range []struct {
		name, to string
		tls      bool
		want     string
	}{
		{"from https to http", plain, true, "from https to http"},
		{"from http to a network", "http://example.org", false, "plain http"},
		{"to a file", "file:///etc", false, "not usable"},
		{"in a circle", "/releases", false, "redirects"},
		{"within this machine", plain, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := httptest.NewServer
			if tt.tls {
				start = httptest.NewTLSServer
			}
			server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, tt.to+strings.TrimPrefix(r.URL.Path, "/releases"), http.StatusFound)
			}))
			defer server.Close()
			s, err := newSource(server.URL+"/releases", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			web := s.(*site)
			defer web.client.CloseIdleConnections()
			if tt.tls {
				transport := server.Client().Transport
				web.client.Transport = transport
			}
			_, err = fetch(t.Context(), web, "", signatureName)
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestCanceled: Ctrl-C in the middle of the download leaves the old executable
// and nothing else.
func TestCanceled(t *testing.T) {
	k, place := newKeys(t), files{}
	place.add(k, "1.3.0", pack(t, file("sallyport", program("1.3.0", "linux/amd64"))))
	place.newest("1.3.0")
	from := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".tar.gz") {
			place.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	u := upgrader(t, from, k)
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	u.Progress = func(stage string, n, _ int64) {
		if n > 0 {
			cancel(interrupted)
		}
	}
	if _, err := u.run(ctx, ""); !errors.Is(err, interrupted) {
		t.Errorf("got %v, want %v", err, interrupted)
	}
	if got := content(t, u, "sallyport"); got != old {
		t.Errorf("the executable is now %q", got)
	}
}

// TestStalled: a server that stops sending.
func TestStalled(t *testing.T) {
	from := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	base, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{base: base, client: &http.Client{}, stall: 1}
	if _, err := fetch(t.Context(), s, "", signatureName); err == nil || !strings.Contains(err.Error(), "sent nothing") {
		t.Errorf("got %v, want that the server sent nothing", err)
	}
}

func TestNotWritable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can write everywhere")
	}
	k, place := newKeys(t), files{}
	place.add(k, "1.3.0", pack(t, file("sallyport", program("1.3.0", "linux/amd64"))))
	place.newest("1.3.0")
	u := upgrader(t, serve(t, place), k)
	if err := os.Chmod(filepath.Dir(u.Path), 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(u.Path), 0o700) })
	var readOnly *NotWritableError
	if _, err := u.run(t.Context(), ""); !errors.As(err, &readOnly) {
		t.Errorf("got %v, want %T", err, readOnly)
	}
}

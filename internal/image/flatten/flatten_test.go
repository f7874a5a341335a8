package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// e is an entry of a layer: what its name ends with says what it is.
func dirEntry(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func fileEntry(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), PAXRecords: map[string]string{"TEST.content": content}}
}

func symlinkEntry(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
}

func linkEntry(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func of(h tar.Header, change func(*tar.Header)) tar.Header {
	change(&h)
	return h
}

// archive writes entries as a tar archive.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["TEST.content"]
		delete(h.PAXRecords, "TEST.content")
		if len(h.PAXRecords) == 0 {
			h.PAXRecords = nil
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1700000000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func layerOf(plain, packed []byte) Layer {
	sum := sha256.Sum256(plain)
	return Layer{
		Name: "x", DiffID: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(packed)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
	}
}

func layer(t testing.TB, entries ...tar.Header) Layer {
	raw := archive(t, entries...)
	return layerOf(raw, raw)
}

// listing describes a directory, a line for each name.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	first := map[inode]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if rel == "." {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch info.Mode().Type() {
		case fs.ModeDir:
			out = append(out, fmt.Sprintf("%s/ %o", rel, info.Mode().Perm()))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			out = append(out, rel+" -> "+target)
		case 0:
			id, several := inodeOf(info)
			if before, ok := first[id]; ok && several {
				out = append(out, rel+" = "+before)
				break
			}
			first[id] = rel
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if info.Mode()&^fs.ModePerm != 0 {
				t.Errorf("%s has mode %s", rel, info.Mode())
			}
			out = append(out, fmt.Sprintf("%s %o %s", rel, info.Mode().Perm(), b))
		default:
			t.Errorf("%s: %s", rel, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnpack(t *testing.T) {
	base := layer(t, dirEntry("./"), dirEntry("bin/"), fileEntry("bin/sh", "sh"), dirEntry("etc"), fileEntry("etc/a", "a"), fileEntry("etc/b", "b"),
		dirEntry("usr/lib"), symlinkEntry("lib", "usr/lib"), symlinkEntry("abs", "/usr/lib"))
	tests := []struct {
		name    string
		layers  []Layer
		want    string
		dropped string
	}{
		{"plain", []Layer{base}, "abs -> /usr/lib|bin/ 755|bin/sh 644 sh|etc/ 755|etc/a 644 a|etc/b 644 b|lib -> usr/lib|usr/ 755|usr/lib/ 755", ""},
		{"whiteout", []Layer{base, layer(t, fileEntry("etc/.wh.a", ""), fileEntry(".wh.bin", ""), fileEntry(".wh.lib", ""), fileEntry("no/such/.wh.x", ""))},
			"abs -> /usr/lib|etc/ 755|etc/b 644 b|usr/ 755|usr/lib/ 755", ""},
		{"opaque", []Layer{base, layer(t, fileEntry("etc/new", "n"), fileEntry("etc/.wh..wh..opq", ""), fileEntry("etc/newer", "r"), fileEntry(".wh.usr", ""), fileEntry(".wh.abs", ""), fileEntry(".wh.lib", ""), fileEntry("bin/.wh..wh..opq", ""))},
			"bin/ 755|etc/ 755|etc/new 644 n|etc/newer 644 r", ""},
		{"a whiteout hides lower layers only", []Layer{layer(t, fileEntry("a", "1"), fileEntry("d/a", "1")), layer(t, fileEntry("a", "2"), fileEntry(".wh.a", ""), fileEntry("d/b", "2"), fileEntry(".wh.d", ""))},
			"a 644 2|d/ 755|d/b 644 2", ""},
		{"a whiteout below an opaque directory", []Layer{layer(t, fileEntry("d/e/f", "1")), layer(t, dirEntry("d/e"), fileEntry("d/.wh..wh..opq", ""))},
			"d/ 755|d/e/ 755", ""},
		{"whiteouts of a file system's own", []Layer{layer(t, fileEntry("a", "1"), fileEntry(".wh..wh.plnk", ""), fileEntry(".wh..wh.aufs", ""))}, "a 644 1", ""},
		{"through a link of a lower layer", []Layer{base, layer(t, fileEntry("lib/x", "x"), fileEntry("abs/y", "y"), fileEntry(".wh.bin", ""), fileEntry("etc/.wh..wh..opq", ""))},
			"abs -> /usr/lib|etc/ 755|lib -> usr/lib|usr/ 755|usr/lib/ 755|usr/lib/x 644 x|usr/lib/y 644 y", ""},
		{"kinds replace each other", []Layer{base, layer(t, dirEntry("lib"), fileEntry("lib/x", "x"), fileEntry("etc", "now a file"), symlinkEntry("bin", "/"), dirEntry("abs"))},
			"abs/ 755|bin -> /|etc 644 now a file|lib/ 755|lib/x 644 x|usr/ 755|usr/lib/ 755", ""},
		{"the last of several wins", []Layer{layer(t, fileEntry("a", "1"), fileEntry("./a", "2"), fileEntry("/a", "3"), fileEntry("b/../a", "4"))}, "a 644 4", ""},
		{"absolute names", []Layer{layer(t, fileEntry("/etc/x", "x"), dirEntry("//srv//"), linkEntry("/y", "/etc/x"))}, "etc/ 755|etc/x 644 x|srv/ 755|y = etc/x", ""},
		{"hard links", []Layer{layer(t, fileEntry("a", "1"), linkEntry("b", "a"), symlinkEntry("s", "nowhere"), linkEntry("s2", "s"), linkEntry("a", "a")), layer(t, linkEntry("c", "b"), fileEntry("a", "2"))},
			"a 644 2|b 644 1|c = b|s -> nowhere|s2 -> nowhere", ""},
		{"links that lead out stay inside", []Layer{layer(t, symlinkEntry("up", "../../../.."), symlinkEntry("root", "/"), fileEntry("up/x", "x"), fileEntry("root/y", "y"), linkEntry("z", "up/x"))},
			"root -> /|up -> ../../../..|x 644 x|y 644 y|z = x", ""},
		{"a link to what is not there is made real", []Layer{layer(t, symlinkEntry("l", "/a/b"), fileEntry("l/x", "x"))}, "a/ 755|a/b/ 755|a/b/x 644 x|l -> /a/b", ""},
		{"left out", []Layer{layer(t,
			of(fileEntry("su", "su"), func(h *tar.Header) { h.Mode = 0o6755; h.Uid, h.Gid = 1000, 1000 }),
			of(dirEntry("tmp"), func(h *tar.Header) { h.Mode = 0o1777 }),
			of(fileEntry("secret", "s"), func(h *tar.Header) { h.Mode = 0 }),
			of(dirEntry("closed"), func(h *tar.Header) { h.Mode = 0 }), fileEntry("closed/in", "i"),
			of(fileEntry("null", ""), func(h *tar.Header) { h.Typeflag = tar.TypeChar }),
			of(fileEntry("sda", ""), func(h *tar.Header) { h.Typeflag = tar.TypeBlock }),
			of(fileEntry("pipe", ""), func(h *tar.Header) { h.Typeflag = tar.TypeFifo }),
			of(fileEntry("attr", "x"), func(h *tar.Header) {
				h.PAXRecords["SCHILY.xattr.security.capability"] = "\x01\x00"
				h.Uid = 1 << 40
			}),
		)}, "attr 644 x|closed/ 700|closed/in 644 i|secret 400 s|su 755 su|tmp/ 777", "2 device nodes, 1 fifos, 1 setuid or setgid bits"},
		{"long names", []Layer{layer(t, fileEntry(strings.Repeat("d/", 100)+strings.Repeat("f", 255), "x"), of(fileEntry(".wh."+strings.Repeat("f", 251), ""), func(*tar.Header) {}))},
			"", ""},
		{"nothing", []Layer{layer(t)}, "", ""},
		{"no layers", nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			report, err := Unpack(t.Context(), dir, tt.layers, Limits{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := listing(t, dir)
			if tt.name == "long names" {
				if len(got) != 101 {
					t.Errorf("%d names", len(got))
				}
				return
			}
			if text := strings.Join(got, "|"); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if report.Notes() != tt.dropped {
				t.Errorf("left out: %s", report.Notes())
			}
			if report.Entries != len(got) {
				t.Errorf("%d entries of %d", report.Entries, len(got))
			}
		})
	}
}

// TestUnpackRefuses: what is hostile or broken is refused before anything is
// written.
func TestUnpackRefuses(t *testing.T) {
	good := archive(t, fileEntry("a", strings.Repeat("a", 5000)))
	raw := func(b []byte) Layer { return layerOf(b, b) }
	packed := func(plain []byte, w func(io.Writer) io.WriteCloser) Layer {
		var b bytes.Buffer
		z := w(&b)
		_, err := z.Write(plain)
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		return layerOf(plain, b.Bytes())
	}
	gz := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	tests := []struct {
		name, want string
		layer      Layer
	}{
		{"climbs out", "leads out of the image", layer(t, fileEntry("../../etc/cron.d/x", "x"))},
		{"climbs out in the middle", "leads out of the image", layer(t, fileEntry("a/../../x", "x"))},
		{"a whiteout that climbs out", "leads out of the image", layer(t, fileEntry("../.wh.x", ""))},
		{"a hard link that climbs out", "leads out of the image", layer(t, linkEntry("x", "../../../etc/passwd"))},
		{"a hard link to the host", `"etc/shadow", which is not there`, layer(t, linkEntry("x", "/etc/shadow"))},
		{"a hard link through a symbolic link to the host", "which is not there", layer(t, symlinkEntry("s", "/etc"), linkEntry("x", "s/passwd"))},
		{"a hard link to a directory", "to a directory", layer(t, dirEntry("d"), linkEntry("x", "d"))},
		{"a hard link to the root", "to its root", layer(t, linkEntry("x", "/"))},
		{"a root that is a link", "its root is not a directory", layer(t, symlinkEntry("./", "/etc"))},
		{"links in a circle", "too many symbolic links", layer(t, symlinkEntry("a", "b"), symlinkEntry("b", "a"), fileEntry("a/x", "x"))},
		{"links that multiply", "too", layer(t, symlinkEntry("a", strings.Repeat("a/", 2000)), fileEntry("a/x", "x"))},
		{"below a file", "lies below a file", layer(t, fileEntry("a", "a"), fileEntry("a/b", "b"))},
		{"a long name", "longer than 255 bytes", layer(t, fileEntry(strings.Repeat("a", 256), "x"))},
		{"a long name of a directory on the way", "longer than 255 bytes", layer(t, fileEntry(strings.Repeat("a", 256)+"/x", "x"))},
		{"a long path", "a name of", layer(t, fileEntry(strings.Repeat("abcdefg/", 600)+"x", "x"))},
		{"deep", "nested too deeply", layer(t, fileEntry(strings.Repeat("a/", 201)+"x", "x"))},
		{"deeper through links", "nested too deeply", layer(t, dirEntry(strings.Repeat("a/", 150)), symlinkEntry("s", strings.Repeat("a/", 150)), fileEntry("s/"+strings.Repeat("b/", 100)+"x", "x"))},
		{"an endless target", "has an invalid target", layer(t, symlinkEntry("x", strings.Repeat("x", 5000)))},
		{"truncated", "unexpected EOF", raw(good[:3000])},
		{"no archive", "archive/tar", raw(bytes.Repeat([]byte("no archive "), 200))},
		{"truncated gzip", "", func() Layer { l := packed(good, gz); return cut(l, 20) }()},
		{"garbage after gzip", "unexpected EOF", func() Layer { l := packed(good, gz); return append2(l, "garbage") }()},
		{"another compression", "compressed with xz", raw([]byte("\xfd7zXZ\x00 and so on"))},
		{"a zstd window past all measure", "", raw([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0, 0, 0, 0})},
		{"wrong digest", "and should have sha256:00", func() Layer { l := raw(good); l.DiffID = "sha256:00"; return l }()},
		{"no digest", "and should have", func() Layer { l := raw(good); l.DiffID = ""; return l }()},
		{"a bomb", "larger than 1 MiB", packed(archive(t, fileEntry("x", strings.Repeat("\x00", 2<<20))), gz)},
		{"a bomb of many layers' worth", "larger than 1 MiB", packed(archive(t, fileEntry("x", strings.Repeat("\x00", 600<<10)), fileEntry("x", strings.Repeat("\x00", 600<<10))), gz)},
		{"a bomb behind the archive's end", "far more than the limit", packed(append(archive(t), make([]byte, 4<<20)...), gz)},
		{"a bomb of zstd", "larger than 1 MiB", packed(archive(t, fileEntry("x", strings.Repeat("\x00", 2<<20))), func(w io.Writer) io.WriteCloser {
			z, _ := zstd.NewWriter(w)
			return z
		})},
		{"directories without entries", "too many directories", layer(t, names(6, func(i int) tar.Header {
			return fileEntry(fmt.Sprintf("%d/", i)+strings.Repeat("a/", 100)+"x", "")
		})...)},
		{"long targets", "targets of its symbolic links are too long", layer(t, names(20, func(i int) tar.Header {
			return symlinkEntry(fmt.Sprint(i), strings.Repeat("x/", 2000))
		})...)},
		{"too many entries", "more than 500 entries", layer(t, slices.Repeat([]tar.Header{dirEntry("a")}, 501)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Unpack(t.Context(), dir, []Layer{tt.layer}, Limits{Bytes: 1 << 20, Entries: 500}, nil)
			if !errors.Is(err, ErrLayer) || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if got := listing(t, dir); len(got) > 0 {
				t.Errorf("written: %q", got)
			}
		})
	}
}

// names are n entries.
func names(n int, of func(i int) tar.Header) []tar.Header {
	var out []tar.Header
	for i := range n {
		out = append(out, of(i))
	}
	return out
}

// TestLayersTogether: what layers may unpack to holds for all of them together,
// also for what no file is made of.
func TestLayersTogether(t *testing.T) {
	padded := append(archive(t, fileEntry("a", "a")), make([]byte, 1<<20)...)
	layers := slices.Repeat([]Layer{layerOf(padded, padded)}, 3)
	if _, err := Unpack(t.Context(), t.TempDir(), layers[:2], Limits{Bytes: 1 << 20, Entries: 500}, nil); err != nil {
		t.Error(err)
	}
	if _, err := Unpack(t.Context(), t.TempDir(), layers, Limits{Bytes: 1 << 20, Entries: 500}, nil); !errors.Is(err, ErrLayer) {
		t.Errorf("three layers of 1 MiB of nothing passed: %v", err)
	}
}

func cut(l Layer, n int) Layer {
	inner := l.Open
	l.Open = func() (io.ReadCloser, error) {
		r, err := inner()
		return io.NopCloser(io.LimitReader(r, l.Size-int64(n))), err
	}
	return l
}

func append2(l Layer, more string) Layer {
	inner := l.Open
	l.Open = func() (io.ReadCloser, error) {
		r, err := inner()
		return io.NopCloser(io.MultiReader(r, strings.NewReader(more))), err
	}
	return l
}

// TestSparse: a sparse file of the GNU format has the size that it says, and
// counts with it.
func TestSparse(t *testing.T) {
	raw, err := os.ReadFile("testdata/sparse.tar")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Unpack(t.Context(), t.TempDir(), []Layer{layerOf(raw, raw)}, Limits{Bytes: 1 << 20}, nil)
	if !errors.Is(err, ErrLayer) {
		t.Errorf("a sparse file of 8 MiB passed a limit of one: %v", err)
	}
	dir := t.TempDir()
	if _, err := Unpack(t.Context(), dir, []Layer{layerOf(raw, raw)}, Limits{Bytes: 16 << 20}, nil); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "holes")); err != nil || fi.Size() != 8<<20 {
		t.Error(fi, err)
	}
}

func TestCompressions(t *testing.T) {
	plain := archive(t, fileEntry("a", "content"))
	var g, z, skip bytes.Buffer
	gw := gzip.NewWriter(&g)
	_, _ = gw.Write(plain[:700])
	_ = gw.Close()
	gw.Reset(&g) // a second member
	_, _ = gw.Write(plain[700:])
	_ = gw.Close()
	zw, err := zstd.NewWriter(&z)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = zw.Write(plain)
	_ = zw.Close()
	skip.Write([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4})
	skip.Write(z.Bytes())
	for name, packed := range map[string][]byte{"plain": plain, "gzip": g.Bytes(), "zstd": z.Bytes(), "zstd after a skippable frame": skip.Bytes()} {
		dir := t.TempDir()
		var last int64
		_, err := Unpack(t.Context(), dir, []Layer{layerOf(plain, packed)}, Limits{}, func(done int64) { last = done })
		if err != nil || strings.Join(listing(t, dir), "|") != "a 644 content" {
			t.Errorf("%s: %v %q", name, err, listing(t, dir))
		}
		if last != 2*int64(len(packed)) {
			t.Errorf("%s: progress ended at %d of %d", name, last, 2*len(packed))
		}
	}
}

func TestTimes(t *testing.T) {
	at := func(name string, when time.Time) tar.Header {
		return of(fileEntry(name, "x"), func(h *tar.Header) { h.ModTime = when; h.Format = tar.FormatPAX })
	}
	dir := t.TempDir()
	l := layer(t, at("d/early", time.Unix(-5, 0)), at("d/late", time.Unix(1<<40, 0)), at("d/usual", time.Unix(1234567890, 5)),
		of(dirEntry("d"), func(h *tar.Header) { h.ModTime = time.Unix(1234567000, 0) }), fileEntry("d/after", ""))
	if _, err := Unpack(t.Context(), dir, []Layer{l}, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"d/early": 0, "d/late": 0, "d/usual": 1234567890, "d": 1234567000} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.ModTime().Unix() != want {
			t.Errorf("%s: %v, %v", name, fi.ModTime().Unix(), err)
		}
	}
}

// TestNeverFollows: a symbolic link that somebody puts into the directory while
// an image is written is not followed.
func TestNeverFollows(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(t.Context(), dir, []Layer{layer(t, fileEntry("a/x", "x"))}, Limits{}, nil); err == nil {
		t.Error("no error")
	}
	if got := listing(t, outside); len(got) > 0 {
		t.Errorf("written outside: %q", got)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	l := layer(t, fileEntry("a", strings.Repeat("x", 1<<20)))
	_, err := Unpack(ctx, t.TempDir(), []Layer{l}, Limits{}, func(done int64) {
		if done > l.Size+l.Size/2 { // while it is written
			cancel(why)
		}
	})
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestPack: what was packed unpacks to the same, and packs to the same bytes.
func TestPack(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are not the same there")
	}
	first, second := t.TempDir(), t.TempDir()
	l := layer(t, dirEntry("d"), fileEntry("d/a", "1"), linkEntry("b", "d/a"), symlinkEntry("s", "/d/a"),
		of(fileEntry("x", "x"), func(h *tar.Header) { h.Mode = 0o751 }), fileEntry("out/z", "z"), fileEntry(strings.Repeat("é/", 90)+"x", ""))
	if _, err := Unpack(t.Context(), first, []Layer{l}, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	pack := func(dir string) []byte {
		var b bytes.Buffer
		if err := Pack(t.Context(), &b, dir, "out"); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	raw := pack(first)
	if _, err := Unpack(t.Context(), second, []Layer{layerOf(raw, raw)}, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(listing(t, first), func(s string) bool { return strings.HasPrefix(s, "out/") })
	if got := listing(t, second); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if !bytes.Equal(pack(second), raw) {
		t.Error("packed again, it is another archive")
	}
}

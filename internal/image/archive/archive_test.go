package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

// member is one of an archive that a test writes: with to, a link.
type member struct{ name, content, to string }

func pack2(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o644, Size: int64(len(m.content))}
		if m.to != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, m.to, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, m.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparse is an archive with a file that is all holes: its size is whatever it
// says.
func sparse(t testing.TB, name string, size int64) []byte {
	t.Helper()
	records := ""
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(kv) + 4 // of two digits, a space and the line's end
		records += fmt.Sprintf("%d %s\n", n, kv)
	}
	raw := pack2(t, member{name: "x", content: records}, member{name: name, content: "0\n" + strings.Repeat("\x00", 510)})
	raw[156] = tar.TypeXHeader
	copy(raw[148:156], "        ")
	sum := 0
	for _, c := range raw[:512] {
		sum += int(c)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

// TestSparse: a file that is larger than an archive may be is not written.
func TestSparse(t *testing.T) {
	dir := t.TempDir()
	if s, err := spread(t.Context(), write(t, sparse(t, "manifest.json", 1<<20)), dir, flatten.Limits{}); err != nil || len(s.files) != 1 {
		t.Fatal(err)
	}
	dir = t.TempDir()
	_, err := Read(t.Context(), write(t, sparse(t, "manifest.json", 1<<50)), dir, flatten.Limits{})
	if err == nil || !strings.Contains(err.Error(), "takes more than") {
		t.Error(err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("written: %v", files)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// layerText is a layer with one file.
func layerText(t testing.TB, name, content string) string {
	return string(pack2(t, member{name: name, content: content}))
}

func configText(layers ...string) string {
	var diffs []string
	for _, l := range layers {
		diffs = append(diffs, digest([]byte(l)))
	}
	raw, _ := Config(diffs, []string{"PATH=/bin"})
	return string(raw)
}

// layout is the members of an OCI layout with one image.
func layout(annotations string, config string, layers ...string) []member {
	blobs := []member{}
	add := func(content string) string {
		d := digest([]byte(content))
		blobs = append(blobs, member{name: "blobs/sha256/" + d[7:], content: content})
		return d
	}
	var list []string
	for _, l := range layers {
		list = append(list, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}`, add(l), len(l)))
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[%s]}`,
		add(config), len(config), strings.Join(list, ","))
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d%s}]}`, add(manifest), len(manifest), annotations)
	return append(blobs, member{name: "oci-layout", content: `{"imageLayoutVersion":"1.0.0"}`}, member{name: "index.json", content: index})
}

func write(t testing.TB, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive.tar")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// filesOf unpacks an image and says what is in it.
func filesOf(t testing.TB, img Image) string {
	t.Helper()
	store := image.At(t.TempDir(), flatten.Limits{Bytes: 1 << 20})
	img.Passing = true
	root, err := store.Add(t.Context(), img.Content, nil)
	if err != nil {
		return "refused: " + err.Error()
	}
	defer root.Release()
	var out []string
	entries, err := os.ReadDir(root.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(root.Dir, e.Name()))
		out = append(out, e.Name()+"="+string(b))
	}
	return strings.Join(out, " ")
}

func TestRead(t *testing.T) {
	one, two := layerText(t, "a", "1"), layerText(t, "b", "2")
	config := configText(one, two)
	save := []member{
		{name: "c.json", content: config}, {name: "l1/layer.tar", content: one}, {name: "l2/layer.tar", content: two},
		{name: "manifest.json", content: `[{"Config":"c.json","RepoTags":["tools:1","docker.io/library/tools:2"],"Layers":["l1/layer.tar","l2/layer.tar"]}]`},
	}
	linked := []member{
		{name: "c.json", content: config}, {name: "l1/layer.tar", content: one}, {name: "x/layer.tar", content: two}, {name: "l2/layer.tar", to: "../x/layer.tar"},
		save[3],
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(pack2(t, save...))
	_ = z.Close()
	named := `,"annotations":{"io.containerd.image.name":"quay.io/x/tools:1","org.opencontainers.image.ref.name":"1"}`
	tests := []struct {
		name, names string
		data        []byte
		plain       bool
	}{
		{"docker save", "tools:1 docker.io/library/tools:2", pack2(t, save...), false},
		{"docker save with links", "tools:1 docker.io/library/tools:2", pack2(t, linked...), false},
		{"compressed", "tools:1 docker.io/library/tools:2", zipped.Bytes(), false},
		{"OCI archive", "quay.io/x/tools:1", pack2(t, layout(named, config, one, two)...), false},
		{"OCI archive with a tag alone", "", pack2(t, layout(`,"annotations":{"org.opencontainers.image.ref.name":"latest"}`, config, one, two)...), false},
		{"names with a dot before them", "quay.io/x/tools:1", func() []byte {
			m := layout(named, config, one, two)
			for i := range m {
				m[i].name = "./" + m[i].name
			}
			return pack2(t, m...)
		}(), false},
		{"a root file system", "", pack2(t, member{name: "./a", content: "1"}, member{name: "./b", content: "2"}), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Read(t.Context(), write(t, tt.data), t.TempDir(), flatten.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || strings.Join(found[0].Names, " ") != tt.names || found[0].Plain != tt.plain {
				t.Fatalf("%d images, %q", len(found), found[0].Names)
			}
			if got := filesOf(t, found[0]); got != "a=1 b=2" {
				t.Error(got)
			}
		})
	}
	t.Run("OCI layout directory", func(t *testing.T) {
		dir := t.TempDir()
		for _, m := range layout(named, config, one, two) {
			file := filepath.Join(dir, filepath.FromSlash(m.name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(m.content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		found, err := Read(t.Context(), dir, t.TempDir(), flatten.Limits{})
		if err != nil || filesOf(t, found[0]) != "a=1 b=2" {
			t.Error(err)
		}
		// A blob that is a link to elsewhere is not followed.
		if runtime.GOOS == "windows" {
			return
		}
		secret := write(t, []byte("secret"))
		blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
		for _, b := range blobs {
			if err := errors.Join(os.Remove(b), os.Symlink(secret, b)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Read(t.Context(), dir, t.TempDir(), flatten.Limits{}); err == nil || strings.Contains(err.Error(), "bytes with the digest") {
			t.Errorf("a link out of the layout was followed: %v", err)
		}
	})
}

func TestReadRefuses(t *testing.T) {
	one := layerText(t, "a", "1")
	config := configText(one)
	changed := func(edit func(m []member) []member) []byte { return pack2(t, edit(layout("", config, one))...) }
	save := func(manifest string, more ...member) []byte {
		return pack2(t, append([]member{{name: "c.json", content: config}, {name: "l.tar", content: one}, {name: "manifest.json", content: manifest}}, more...)...)
	}
	foreign := strings.Replace(config, runtime.GOARCH, "s390x", 1)
	tests := []struct {
		name, want string
		data       []byte
	}{
		{"empty", "empty or not a tar archive", nil},
		{"no archive", "not in order", bytes.Repeat([]byte("text "), 500)},
		{"torn", "unexpected EOF", save(`[]`)[:1500]},
		{"a blob with another content", "and should have", changed(func(m []member) []member {
			m[0].content = strings.Replace(m[0].content, "1", "9", 1)
			return m
		})},
		{"a blob too few", "has no file", changed(func(m []member) []member { return m[1:] })},
		{"no index", "no file", changed(func(m []member) []member { return m[:len(m)-1] })},
		{"an index that is none", "not in order", changed(func(m []member) []member {
			m[len(m)-1].content = "{"
			return m
		})},
		{"no images", "it has 0 images", changed(func(m []member) []member {
			m[len(m)-1].content = `{"schemaVersion":2,"manifests":[]}`
			return m
		})},
		{"a digest of another kind", "not a SHA-256 digest", changed(func(m []member) []member {
			m[len(m)-1].content = strings.Replace(m[len(m)-1].content, "sha256:", "sha512:"+strings.Repeat("0", 64), 1)
			return m
		})},
		{"a path for a digest", "", changed(func(m []member) []member {
			i := strings.Index(m[len(m)-1].content, "sha256:")
			m[len(m)-1].content = m[len(m)-1].content[:i] + "sha256:../../../etc/passwd" + m[len(m)-1].content[i+71:]
			return m
		})},
		{"an index that contains itself", "", func() []byte {
			index := `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:` + strings.Repeat("0", 64) + `","size":1}]}`
			return pack2(t, member{name: "oci-layout", content: "{}"}, member{name: "index.json", content: index})
		}()},
		{"saved images: none", "it has 0 images", save(`[]`)},
		{"saved images: a layer outside", "has no file", save(`[{"Config":"c.json","Layers":["/etc/passwd"]}]`)},
		{"saved images: a link outside", "has no file", save(`[{"Config":"c.json","Layers":["x"]}]`, member{name: "x", to: "/etc/passwd"})},
		{"saved images: a link that climbs", "has no file", save(`[{"Config":"c.json","Layers":["x"]}]`, member{name: "x", to: "../../../../etc/passwd"})},
		{"saved images: links in a circle", "has no file", save(`[{"Config":"c.json","Layers":["x"]}]`, member{name: "x", to: "y"}, member{name: "y", to: "x"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Read(t.Context(), write(t, tt.data), t.TempDir(), flatten.Limits{})
			if err == nil {
				t.Fatalf("%d images: %s", len(found), filesOf(t, found[0]))
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	for name, data := range map[string][]byte{
		"for another machine": pack2(t, layout("", foreign, one)...),
		"another layer":       save(`[{"Config":"c.json","Layers":["c.json"]}]`),
		"a layer twice":       save(`[{"Config":"c.json","Layers":["l.tar","l.tar"]}]`),
	} {
		found, err := Read(t.Context(), write(t, data), t.TempDir(), flatten.Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := filesOf(t, found[0]); !strings.HasPrefix(got, "refused: ") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestWrite: what was written is read as the same image, also by a reader that
// knows docker save alone, and is the same bytes when it is written again.
func TestWrite(t *testing.T) {
	one, two := layerText(t, "a", "1"), layerText(t, "b", "2")
	layer := func(text string) flatten.Layer {
		return flatten.Layer{Name: "x", Size: int64(len(text)), DiffID: digest([]byte(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	c := &image.Content{Config: []byte(configText(one, two)), Layers: []flatten.Layer{layer(one), layer(two)}}
	var first, second bytes.Buffer
	if err := errors.Join(Write(t.Context(), &first, "localhost/x:1", c, t.TempDir()), Write(t.Context(), &second, "localhost/x:1", c, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("written again, it is another archive")
	}
	var saved []member
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != "oci-layout" {
			saved = append(saved, member{name: h.Name, content: string(content)})
		}
	}
	for _, data := range [][]byte{second.Bytes(), pack2(t, saved...)} {
		found, err := Read(t.Context(), write(t, data), t.TempDir(), flatten.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || strings.Join(found[0].Names, " ") != "localhost/x:1" || image.ID(found[0].Config) != image.ID(c.Config) || filesOf(t, found[0]) != "a=1 b=2" {
			t.Errorf("%+v", found[0])
		}
	}
}

// FuzzRead: whatever an archive holds, nothing outside of the folder is written
// or read.
func FuzzRead(f *testing.F) {
	one := layerText(f, "a", "1")
	config := configText(one)
	index, _ := json.Marshal([]map[string]any{{"Config": "c", "RepoTags": []string{"x:1"}, "Layers": []string{"l"}}})
	f.Add("c", config, "l", one, "manifest.json", string(index))
	f.Add("oci-layout", "{}", "index.json", `{"manifests":[{"digest":"sha256:`+strings.Repeat("a", 64)+`"}]}`, "../x", "y")
	f.Add("/manifest.json", "[{}]", "a", "", "b", "")
	f.Fuzz(func(t *testing.T, n1, c1, n2, c2, n3, c3 string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, m := range [][2]string{{n1, c1}, {n2, c2}, {n3, c3}} {
			if w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m[0], Size: int64(len(m[1]))}) == nil {
				_, _ = io.WriteString(w, m[1])
			}
		}
		_ = w.Close()
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		found, err := Read(t.Context(), write(t, b.Bytes()), dir, flatten.Limits{})
		if entries, _ := os.ReadDir(top); len(entries) != 1 {
			t.Fatal("written outside")
		}
		if err != nil {
			return
		}
		for _, img := range found {
			filesOf(t, img)
		}
	})
}

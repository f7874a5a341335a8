package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/language/python"
)

func TestRequirements(t *testing.T) {
	for _, text := range []string{
		"numpy", "pandas>=2,<3", "pandas[excel, test]~=2.1", "a.b-c_d==1.0.post1", "x != 1.0 ; python_version < '3.9' and sys_platform == \"linux\"",
		"x (>=1.0)", "torch==2.1.0+cpu", "x==1.* --hash=sha256:abcdef --hash=sha512:0123", " x ",
	} {
		if _, err := ParseRequirement(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "-e .", "-r other.txt", "--index-url=https://evil", ".", "./x", "/x", "x.whl/..", "../x", "git+https://example.com/x", "x @ https://example.com/x.tar.gz",
		"x@file:///tmp/x", "https://example.com/x.whl", "x --install-option=evil", "x --config-settings=a=b", "x --hash=md5:00", "x\n-e .", "x>=1; python_version@'3'",
		"x; y\n--pre", "x; y\v-e .", "x; y\u2028-e .", `x\y`, "-x", "x-",
		"x==1 --global-option=a", "x>=1 --config-settings a=b", "x==1; y --no-binary=:all:", "x==${HOME}", "x; '${HOME}' > '3'",
	} {
		if r, err := ParseRequirement(text); err == nil {
			t.Errorf("%q is %q", text, r)
		}
	}
	got, err := ReadRequirements(strings.NewReader("# a comment\n\nnumpy # more\npandas>=2, \\\n  <3\n  six==1.0 \\\n --hash=sha256:00ff\n"))
	if err != nil || fmt.Sprintf("%q", got) != `["numpy" "pandas>=2,    <3" "six==1.0   --hash=sha256:00ff"]` {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{"a\n-e .\n": "line 2", "a \\\n": "line 1", "a\nb \\": "ends with a backslash"} {
		if _, err := ReadRequirements(strings.NewReader(text)); want != "line 1" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzRequirement: what passes names a package and nothing else, on one line.
func FuzzRequirement(f *testing.F) {
	for _, s := range []string{"numpy", "a[b]>=1;c", "-e .", "x @ y", "x --hash=sha256:00", "x==1 \n-e ."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequirement(text)
		if err != nil {
			return
		}
		bare := hashForm().ReplaceAllString(string(r), "")
		if strings.ContainsAny(bare, "@/\\") || strings.HasPrefix(bare, "-") || strings.Contains(bare, " --") {
			t.Errorf("%q", r)
		}
		again, err := ReadRequirements(strings.NewReader(string(r)))
		if err != nil || len(again) > 1 {
			t.Errorf("%q is %q in a file, %v", r, again, err)
		}
	})
}

var target = &Target{Version: [3]int{3, 13, 1}, Libc: "glibc", LibcVer: [2]int{2, 17},
	Purelib: "/usr/lib/python3/site-packages", Platlib: "/usr/lib64/python3/site-packages", Scripts: "/usr/bin", Data: "/usr"}

func TestTags(t *testing.T) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if machine == "" {
		t.Skip("no wheels are made for this machine")
	}
	got, err := target.platforms()
	if err != nil || got[0] != "manylinux_2_17_"+machine || got[1] != "manylinux2014_"+machine || got[len(got)-1] != "linux_"+machine {
		t.Errorf("%q, %v", got, err)
	}
	musl := *target
	musl.Libc, musl.LibcVer = "musl", [2]int{1, 2}
	if got, err := musl.platforms(); err != nil || strings.Join(got, " ") != strings.ReplaceAll("musllinux_1_2_M musllinux_1_1_M musllinux_1_0_M linux_M", "M", machine) {
		t.Errorf("%q, %v", got, err)
	}
	web := *target
	web.Libc, web.LibcVer = "wasi", [2]int{}
	if got, err := web.platforms(); err != nil || strings.Join(got, " ") != "any" {
		t.Errorf("in WebAssembly got %q, %v; want any alone", got, err)
	}
	failed := web.explain("ERROR: No matching distribution found for numpy", "any", errors.New("exit status 1"))
	for _, want := range []string{"numpy has no wheel for Python 3.13 in WebAssembly", "choose another engine"} {
		if !strings.Contains(failed.Error(), want) {
			t.Errorf("got %q, want %q in it", failed, want)
		}
	}
	conflict := web.explain("ERROR: ResolutionImpossible: for help visit", "any", errors.New("exit status 1"))
	if want := "no wheel for Python 3.13 in WebAssembly, where only packages without compiled code run, or the requirements conflict"; !strings.Contains(conflict.Error(), want) {
		t.Errorf("got %q, want %q in it", conflict, want)
	}
	for _, libc := range []string{"", "bionic"} {
		odd := *target
		odd.Libc = libc
		if got, err := odd.platforms(); err == nil {
			t.Errorf("%q: %q", libc, got)
		}
	}
	if got := target.abis(); strings.Join(got, " ") != "cp313 abi3 none" {
		t.Errorf("%q", got)
	}
	free := *target
	free.ABI = "t"
	if got := free.abis(); strings.Join(got, " ") != "cp313t none" {
		t.Errorf("%q", got)
	}
}

// wheel writes a wheel of these files, names and contents by turns.
func wheel(t testing.TB, dir, name string, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &zip.FileHeader{Name: files[i], Method: zip.Deflate}
		if to, ok := strings.CutPrefix(files[i+1], "->"); ok {
			h.SetMode(fs.ModeSymlink | 0o777)
			files[i+1] = to
		}
		m, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(m, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestModules: the names that code can import thanks to a wheel.
func TestModules(t *testing.T) {
	in := &installation{}
	for _, name := range []string{"six.py", "yaml/__init__.py", "_yaml.cpython-313-x86_64-linux-gnu.so", "google/cloud/x.py", "numpy.libs/lib.so", "x-1.0.dist-info/a.py", "docs/readme.txt", "x-1.0.data/purelib/pure.py", "x-1.0.data/data/share/no.py", "a-b.py"} {
		in.note(name, "x-1.0.data")
	}
	if got, want := strings.Join(in.names(), " "), "_yaml google pure six yaml"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// installed lists what wheels become.
func installed(t testing.TB, dir string, wheels ...string) ([]string, error) {
	t.Helper()
	in := &installation{target: target, python: "/usr/bin/python3"}
	var b bytes.Buffer
	if err := in.write(t.Context(), &b, dir, wheels); err != nil {
		return nil, err
	}
	var out []string
	r := tar.NewReader(&b)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || h.Typeflag != tar.TypeReg || strings.HasPrefix(h.Name, "/") || !filepath.IsLocal(h.Name) {
			t.Fatalf("%+v, %v", h, err)
		}
		out = append(out, fmt.Sprintf("%s %o %s", h.Name, h.Mode, content))
	}
}

func TestWheels(t *testing.T) {
	dir := t.TempDir()
	name := wheel(t, dir, "x-1.0-py3-none-any.whl",
		"x/__init__.py", "1", "x/data.txt", "2",
		"x-1.0.dist-info/WHEEL", "Root-Is-Purelib: true\n",
		"x-1.0.dist-info/entry_points.txt", "[console_scripts]\nrun = x.cli:main\nodd = x:a.b\nevil = x:main;import os\n../../evil = x:main\n[gui_scripts]\ng = x:g\n",
		"x-1.0.data/scripts/tool", "#!python\nprint(1)\n", "x-1.0.data/scripts/sh", "#!/bin/sh\n",
		"x-1.0.data/data/share/x", "3", "x-1.0.data/platlib/y.so", "4", "x-1.0.data/headers/x.h", "5",
	)
	got, err := installed(t, dir, name)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"usr/lib/python3/site-packages/x/__init__.py 644 1",
		"usr/lib/python3/site-packages/x/data.txt 644 2",
		"usr/lib/python3/site-packages/x-1.0.dist-info/WHEEL 644 Root-Is-Purelib: true\n",
		"usr/bin/tool 755 #!/usr/bin/python3\nprint(1)\n",
		"usr/bin/sh 755 #!/bin/sh\n",
		"usr/share/x 644 3",
		"usr/lib64/python3/site-packages/y.so 644 4",
		"usr/bin/run 755 #!/usr/bin/python3\nimport sys\nfrom x.cli import main\nsys.exit(main())\n",
		"usr/bin/odd 755 #!/usr/bin/python3\nimport sys\nfrom x import a\nsys.exit(a.b())\n",
	}
	got = slices.DeleteFunc(got, func(s string) bool { return strings.Contains(s, "entry_points.txt") })
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	info := []string{"x-1.0.dist-info/WHEEL", ""}
	for what, files := range map[string][]string{
		"no .dist-info":        {"x.py", ""},
		"two .dist-info":       append([]string{"y-1.0.dist-info/WHEEL", ""}, info...),
		"climbs out":           append([]string{"../../etc/passwd", "x"}, info...),
		"climbs in data":       append([]string{"x-1.0.data/data/../../../../etc/passwd", "x"}, info...),
		"absolute":             append([]string{"/etc/passwd", "x"}, info...),
		"backslashes":          append([]string{`..\..\x`, "x"}, info...),
		"a symbolic link":      append([]string{"x/link", "->/etc"}, info...),
		"a script of one line": append([]string{"x-1.0.data/scripts/x", "#!python" + strings.Repeat(" ", 1<<20)}, info...),
		"too deep":             append([]string{strings.Repeat("a/", maxWheelDepth) + "a", "x"}, info...),
		"too long":             append([]string{strings.Repeat("a", maxWheelPath+1), "x"}, info...),
		"data of no kind":      append([]string{"x-1.0.data/scripts", "x"}, info...),
	} {
		if got, err := installed(t, dir, wheel(t, dir, "bad-1.0-py3-none-any.whl", files...)); err == nil {
			t.Errorf("%s: %q", what, got)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "torn-1.0-py3-none-any.whl"), []byte("PK\x03\x04torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := installed(t, dir, "torn-1.0-py3-none-any.whl"); err == nil {
		t.Error("a torn wheel")
	}
}

// TestWheelDirectories: directories count as files.
func TestWheelDirectories(t *testing.T) {
	dir := t.TempDir()
	name := wheel(t, dir, "x-1.0-py3-none-any.whl", "x-1.0.dist-info/WHEEL", "", "a/b/c", "", "a/b/d", "")
	const whole = 6
	for before, good := range map[int]bool{maxWheelFiles - whole: true, maxWheelFiles - whole + 1: false} {
		in := &installation{target: &Target{Platlib: "/"}, files: before}
		if err := in.write(t.Context(), io.Discard, dir, []string{name}); (err == nil) != good {
			t.Errorf("after %d files: got %v, want that it is installed: %v", before, err, good)
		}
	}
}

// TestHugeWheel: a wheel that says that it unpacks to 10 GB ends before it is read.
func TestHugeWheel(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, h := range []*zip.FileHeader{{Name: "x-1.0.dist-info/WHEEL"}, {Name: "x.bin", UncompressedSize64: 10 << 30}} {
		if _, err := w.CreateRaw(h); err != nil {
			t.Fatal(err)
		}
	}
	const name = "x-1.0-py3-none-any.whl"
	if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := installed(t, dir, name); err == nil || !strings.Contains(err.Error(), name+": it unpacks to more than 8 GiB") {
		t.Errorf("got %q, %v, want that it is too large", got, err)
	}
	if _, err := zip.NewReader(&listReader{bytes.NewReader(b.Bytes()), 100}, int64(b.Len())); err == nil || !strings.Contains(err.Error(), "too many files") {
		t.Errorf("got %v, want that its list of files is too long", err)
	}
}

func TestWheelsIn(t *testing.T) {
	for name, good := range map[string]bool{
		"numpy-2.1.0-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": true,
		"six-1.17.0-py2.py3-none-any.whl":                                        true, "x-1.0-1build-py3-none-any.whl": true,
		"x-1.0.tar.gz": false, "x.whl": false, "evil.py": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := wheelsIn(dir); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := wheelsIn(t.TempDir()); err == nil {
		t.Error("nothing was downloaded")
	}
}

// TestFilterCode: of what a sandbox writes, the byte code of the modules that it
// was given is taken, and anything else ends the build.
func TestFilterCode(t *testing.T) {
	archive := func(names ...string) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, n := range names {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: n, Size: 1}
			if to, ok := strings.CutPrefix(n, "->"); ok {
				h.Typeflag, h.Name, h.Linkname, h.Size = tar.TypeSymlink, to, "/etc", 0
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(w, strings.Repeat("3", int(h.Size)))
		}
		_ = w.Close()
		return &b
	}
	modules := []string{"/lib/x/__init__.py", "/lib/y.py"}
	var to bytes.Buffer
	out := &Image{}
	if err := filterCode(archive("lib/x/__pycache__/__init__.cpython-313.pyc", "failed"), &installation{modules: modules}, &to, out); err != nil || out.Uncompiled != 3 {
		t.Error(err, out.Uncompiled)
	}
	for _, names := range [][]string{
		{"lib/x/__init__.py", "failed"}, {"lib/z/__pycache__/z.cpython-313.pyc", "failed"}, {"/lib/__pycache__/y.cpython-313.pyc", "failed"},
		{"lib/__pycache__/../../etc/passwd", "failed"}, {"lib/__pycache__/y.cpython-313.so", "failed"},
		{"lib/__pycache__/y.cpython-313.pyc", "lib/__pycache__/y.cpython-313.pyc", "failed"},
		{"->lib/__pycache__/y.cpython-313.pyc", "failed"}, {"lib/__pycache__/y.cpython-313.pyc"}, {},
	} {
		if err := filterCode(archive(names...), &installation{modules: modules}, io.Discard, &Image{}); err == nil {
			t.Errorf("taken: %q", names)
		}
	}
	big := new(bytes.Buffer)
	_ = tar.NewWriter(big).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "lib/__pycache__/y.cpython-313.pyc", Size: maxCode + 1})
	if err := filterCode(big, &installation{modules: modules}, io.Discard, &Image{}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error("taken: a file of any size:", err)
	}
	if err := filterCode(strings.NewReader("no archive"), &installation{modules: modules}, io.Discard, &Image{}); err == nil {
		t.Error("taken: no archive")
	}
}

// TestHostBase: the host's own Python, as it is in an image, is found there, and
// its libraries with it.
func TestHostBase(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("of Linux hosts")
	}
	name, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("no Python of the distribution's")
	}
	p, err := python.FindInterpreter(t.Context(), name, "/usr/bin")
	if err != nil {
		t.Fatal(err)
	}
	layer, env, err := HostBase(t.Context(), HostPython{Executable: p.Executable, Prefix: p.Prefix, Library: p.Library()}, t.TempDir(), flatten.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := archive.Config([]string{layer.DiffID}, env)
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.At(t.TempDir(), flatten.Limits{}).Add(t.Context(), &image.Content{Config: config, Layers: []flatten.Layer{layer}, Passing: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Release()
	if root.Python == nil || root.Python.String() != p.Version.String() {
		t.Errorf("%+v: %s", root.Python, root.Trouble)
	}
	for _, gone := range []string{"home", "root", "etc/passwd", "etc/shadow", "var"} {
		if _, err := os.Lstat(filepath.Join(root.Dir, gone)); err == nil {
			t.Errorf("%s is in it", gone)
		}
	}
}

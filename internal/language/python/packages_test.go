//go:build unix

package python_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// An index answers install_packages as the host does.
type index struct {
	mu       sync.Mutex
	archives map[string][]byte
	asked    []string
	added    []string
	target   map[string]any
	code     string // whose header lists a requirement in each line
	gone     string // the archive whose second part is refused contains this
}

// packed returns files as an archive.
func packed(files ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}
		if strings.HasPrefix(files[i], "bin/") {
			h.Mode = 0o755
		}
		_ = w.WriteHeader(h)
		_, _ = w.Write([]byte(files[i+1]))
	}
	_ = w.Close()
	return b.Bytes()
}

// wheel returns what a package of that name and version consists of.
func wheel(name, version string, more ...string) []byte {
	return packed(append([]string{
		name + "/__init__.py", fmt.Sprintf("version = %q\n", version),
		name + "-" + version + ".dist-info/METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version),
	}, more...)...)
}

func (x *index) call(_ context.Context, c wire.Call) (json.RawMessage, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.archives == nil {
		x.archives = map[string][]byte{}
	}
	var p struct {
		Packages  []string
		Target    map[string]any
		Installed map[string]string
		Archive   string
		Offset    int
	}
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return nil, err
	}
	switch c.Method {
	case "install_packages":
		x.target = p.Target
		x.asked = append(x.asked, strings.Join(p.Packages, " "))
		if p.Packages[0] == "behind" {
			x.archives["aa"] = wheel("ahead", "1.0")
			return json.RawMessage(`{"packages":[],"also":["aa"]}`), nil
		}
		var found []map[string]string
		var content []byte
		for _, r := range p.Packages {
			name, version, _ := strings.Cut(r, "==")
			if name == "refused" {
				return nil, &wire.CallError{Kind: wire.KindDenied, Message: "policy.packages does not allow refused: the user can"}
			}
			if _, ok := p.Installed[name]; ok {
				continue
			}
			content = x.archives[name]
			if content == nil {
				content = wheel(name, version)
			}
			found = append(found, map[string]string{"name": name, "version": version})
		}
		if found == nil {
			return json.RawMessage(`{"archive":"","packages":[],"files":0,"bytes":0}`), nil
		}
		sum := sha256.Sum256(content)
		id := hex.EncodeToString(sum[:])
		x.archives[id] = content
		return json.Marshal(map[string]any{"archive": id, "packages": found, "files": 2, "bytes": len(content)})
	case wire.MethodScriptHeader:
		found := []string{}
		for _, line := range strings.Split(x.code, "\n# ")[1:] {
			switch r, _, _ := strings.Cut(line, "\n"); r {
			case "unreadable":
				return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "line 2: the script's header: it is odd"}
			case "batch":
				return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no headers"}
			case "/// script", "///":
			default:
				found = append(found, r)
			}
		}
		return json.Marshal(found)
	case "package_part":
		content, ok := x.archives[p.Archive]
		if !ok || x.gone != "" && p.Offset > 0 && bytes.Contains(content, []byte(x.gone)) {
			return nil, &wire.CallError{Kind: wire.KindNotFound, Message: "the archive is gone"}
		}
		end := min(len(content), p.Offset+700)
		return json.Marshal(map[string]any{"data": content[p.Offset:end], "last": end == len(content)})
	case wire.MethodPackagesInstalled:
		x.added = append(x.added, p.Archive)
		return json.RawMessage("null"), nil
	}
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: c.Method}
}

func TestInstallPackages(t *testing.T) {
	long := strings.Repeat("d/", 60) + strings.Repeat("ü", 60) + ".py"
	x := &index{archives: map[string][]byte{
		"one":     wheel("one", "1.0", "one/"+long, "", "one/data.txt", strings.Repeat("x", 5000), "space/a.py", "a = 1\n", "bin/one", "#!/bin/sh\necho one runs\n"),
		"two":     wheel("two", "2.0", "space/b.py", "b = 2\n"),
		"outside": packed("../outside", "x"),
		"cut":     wheel("cut", "1.0")[:520],
		"late":    wheel("late", "1.0", "late/data", strings.Repeat("x", 3000)),
		"header":  wheel("header", "1.0"),
	}, gone: "late/"}
	packages := t.TempDir()
	p := launch(t, sandbox.PackagesEnv+"="+packages)
	for _, tt := range []struct{ name, code, stdout, stderr string }{
		{"one", `await runtime.install_packages("one==1.0")`, "installed one 1.0 (", ""},
		{"importable", `import one, os; one.version, len(open(os.path.dirname(one.__file__) + "/data.txt").read()), len(one.__path__)`, "('1.0', 5000, 1)\n", ""},
		{"again", `await runtime.install_packages("one==1.0")`, "everything is installed already\n", ""},
		{"a namespace of two", "import space.a\nruntime.install_packages_sync('two==2.0')\nimport space.b, two\nspace.a.a, space.b.b", "(1, 2)\n", ""},
		{"last on the path", `import sys; sys.path[-1] == os.environ["PYTHONPATH"]`, "True\n", ""},
		{"children", `import subprocess; subprocess.run("one; " + sys.executable + " -c 'import two; print(two.version)'", shell=True, capture_output=True, text=True).stdout`, `'one runs\n2.0\n'` + "\n", ""},
		{"a list", `repr(install_packages_sync(["one", "two"]))`, "'everything is installed already'\n", ""},
		{"gather", "import asyncio\nr = await asyncio.gather(*(runtime.install_packages(f'g{i}==1') for i in range(5)))\nimport g0, g4\nprint(g4.version, len(r))", "1 5\n", ""},
		{"what another one was offered", "print(await runtime.install_packages('behind'))\nimport ahead; ahead.version", "everything is installed already\n'1.0'\n", ""},
		{"a thread", "import threading\nt = threading.Thread(target=lambda: print(runtime.install_packages_sync('thread==1')))\nt.start(); t.join()\nimport thread", "installed thread 1 (", ""},
		{"not awaited", `x = runtime.install_packages("unawaited")`, "", "write await runtime.install_packages(...)"},
		{"refused", `await runtime.install_packages("refused")`, "", "MCPError: policy.packages does not allow refused: the user can"},
		{"nothing", `await runtime.install_packages()`, "", "install_packages needs names"},
		{"no string", `await runtime.install_packages(5)`, "", "a package must be str, not int"},
		{"outside", `await runtime.install_packages("outside==1")`, "", "'../outside' leads elsewhere"},
		{"cut off", `await runtime.install_packages("cut==1")`, "", "unexpected end of data"},
		{"lost", `await runtime.install_packages("late==1")`, "", "\", line 1, in <module>\n    await runtime.install_packages(\"late==1\")\nmcp.runtime.MCPError: the archive is gone"},
		{"nothing is left", `sorted(n for n in os.listdir(os.environ["PYTHONPATH"]) if n.startswith((".", "late", "cut", "outside")))`, "[]\n", ""},
		{"header, installed", "# /// script\n# one\n# two\n# ///\nprint('runs')", "runs\n", ""},
		{"header", "# /// script\n# header==1.0\n# ///\nimport header; header.version", "'1.0'\n", ""},
		{"header, refused", "print('runs')\n# /// script\n# refused", "", "MCPError: the code did not run, because its header asks for packages that are not installed (refused): policy.packages"},
		{"header, unreadable", "# /// script\n# unreadable\n# ///\nprint('runs')", "", "MCPError: the code did not run: line 2"},
		{"header of a batch", "# /// script\n# batch\n# ///\nprint('runs')", "runs\n", ""},
		{"header, another version", "# /// script\n# two[x] >=1,!=2.1, >2.0.1\n# ///\nprint('runs')", "", "its header asks for two[x] >=1,!=2.1, >2.0.1, and version 2.0 is there, which is kept"},
		{"header, versions that are there", "# /// script\n# two==2.*\n# two (<=2)\n# two>=2.0rc1\n# refused; python_version < '3.9'\n# refused; sys_platform == \"win32\"\n# ///\nprint('runs')", "runs\n", ""},
		{"header of another script", "s = '''\n# /// script\n# refused\n# ///\n'''\nprint('runs')", "runs\n", ""},
		{"no header", "s = '''\n # /// script\n# refused\n# ///'''\nprint('runs')", "runs\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x.code = tt.code
			r := p.run(t, wire.Exec{Code: tt.code}, x.call)
			if r.err != nil || !strings.HasPrefix(r.stdout, tt.stdout) || tt.stdout == "" && r.stdout != "" || !strings.Contains(r.stderr, tt.stderr) || tt.stderr == "" && r.stderr != "" {
				t.Errorf("%v, stdout %q, want %q; stderr %q, want %q in it", r.err, r.stdout, tt.stdout, r.stderr, tt.stderr)
			}
		})
	}
	if r := p.run(t, wire.Exec{Code: "# /// script\n# dependencies = ['refused']\n# ///\nprint('runs')", Filename: "a.py", Script: true}, x.call); r.stdout != "runs\n" {
		t.Errorf("a person's script: stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if got := x.target["tag"]; got == nil || !strings.HasPrefix(got.(string), "cpython-3") {
		t.Errorf("the target is %v", x.target)
	}
	if slices.Contains(x.asked, "one two") {
		t.Error("the host was asked for what is there")
	}
	if len(x.added) != 10 {
		t.Errorf("the guest reports %d archives, want 10", len(x.added))
	}

	// Another sandbox of the session.
	q := launch(t, sandbox.PackagesEnv+"="+t.TempDir())
	r := q.run(t, wire.Exec{Code: "import one, two; print(one.version, two.version)", Packages: x.added}, x.call)
	if r.stdout != "1.0 2.0\n" || r.stderr != "" {
		t.Errorf("in a new sandbox: stdout %q, stderr %q", r.stdout, r.stderr)
	}
	x.gone = "one/"
	q = launch(t, sandbox.PackagesEnv+"="+t.TempDir())
	r = q.run(t, wire.Exec{Code: "print('runs')", Packages: x.added[:1]}, x.call)
	if r.stdout != "runs\n" || !strings.Contains(r.stderr, "packages that this session had are missing: the archive is gone") {
		t.Errorf("without the archive: stdout %q, stderr %q", r.stdout, r.stderr)
	}
}

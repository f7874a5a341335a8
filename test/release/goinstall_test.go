package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// treeFile is a file of the repository, as zip.Create wants it.
type treeFile struct{ top, path string }

func (f treeFile) Path() string                 { return filepath.ToSlash(f.path) }
func (f treeFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.top, f.path)) }
func (f treeFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.top, f.path)) }

// TestGoInstall: `go install …@v1.2.3` builds the program from the module as a
// proxy would serve it, and the executable knows how it was installed.
func TestGoInstall(t *testing.T) {
	if os.Getenv("SALLYPORT_TEST_GO_INSTALL") == "" {
		t.Skip("compiles the program once more: set SALLYPORT_TEST_GO_INSTALL=1")
	}
	proxy, top := t.TempDir(), output(t, "git", "rev-parse", "--show-toplevel")
	m := module.Version{Path: "github.com/sallyport/sallyport", Version: "v1.2.3"}
	at := filepath.Join(proxy, m.Path, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	var tree []zip.File
	for _, path := range strings.Split(strings.Trim(output(t, "git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(top, path)); err == nil {
			tree = append(tree, treeFile{top, path})
		}
	}
	packed, err := os.Create(filepath.Join(at, m.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(zip.Create(packed, m, tree), packed.Close()); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(top, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		m.Version + ".mod":  mod,
		m.Version + ".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-02T03:04:05Z"}`, m.Version),
		"list":              []byte(m.Version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	gobin := t.TempDir()
	install := exec.Command("go", "install", m.Path+"/cmd/sallyport@latest")
	install.Dir = gobin // outside of the module
	install.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+gobin, "GOMODCACHE="+t.TempDir(),
		"GOFLAGS=-trimpath -modcacherw", // what was compiled for other tests serves this one
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(output(t, "go", "env", "GOMODCACHE"))+"/cache/download,off",
		"GONOSUMDB=*", "GONOSUMCHECK=1", "GOSUMDB=off")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	sallyport := filepath.Join(gobin, "sallyport")
	var v struct {
		Version, InstalledBy string
		Build                struct{ Static bool }
	}
	if err := json.Unmarshal([]byte(output(t, sallyport, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != "1.2.3" || v.InstalledBy != "go install" || !v.Build.Static {
		t.Errorf("version --json: got %+v, want 1.2.3, go install and static", v)
	}
	refused, err := exec.Command(sallyport, "upgrade").CombinedOutput()
	if want := "go install " + m.Path + "/cmd/sallyport@latest"; err == nil || !strings.Contains(string(refused), want) {
		t.Errorf("upgrade: got %q, %v; want an error with %q", refused, err, want)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

package environment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image/build"
)

var sum = strings.Repeat("0a", 32)

// TestFiles: what each kind of file asks for, and why another is refused.
func TestFiles(t *testing.T) {
	locked := func(item string) string {
		return "lock-version = '1.0'\ncreated-by = 'x'\n[[packages]]\nname = 'numpy'\n" + item
	}
	wheel := "wheels = [{name = 'n.whl', hashes = {sha256 = '" + sum + "'}}]\n"
	for _, tt := range []struct{ file, text, want string }{
		{"requirements.txt", "numpy # x\npandas>=2\n", `["numpy" "pandas>=2"] ""`},
		{"requirements.txt", "-e .\n", "line 1"},
		{"pyproject.toml", "[project]\nname = 'x'\ndependencies = ['numpy>1']\nrequires-python = '>=3.11'\n[project.optional-dependencies]\na = ['b']\n", `["numpy>1"] ">=3.11"`},
		{"pyproject.toml", "[project]\nname = 'x'\n", `[] ""`},
		{"pyproject.toml", "[tool.poetry]\n", "no table [project]"},
		{"pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "dynamic"},
		{"pyproject.toml", "[project]\ndependencies = ['x @ git+https://example.com/x']\n", "does not name a package"},
		{"pyproject.toml", "\n[project\n", "line 3"},
		{"pyproject.toml", strings.Repeat("[", 2000), "nested too deeply"},
		{"pylock.toml", locked("version = '1.0'\n" + wheel), `["numpy==1.0 --hash=sha256:` + sum + `"] ""`},
		{"pylock.dev.toml", locked("version = '1.0'\nmarker = 'os_name == \"nt\"'\n" + wheel), `["numpy==1.0 ; os_name == \"nt\" --hash=sha256:` + sum + `"] ""`},
		{"pylock.toml", locked("version = '1.0'\nmarker = '\"dev\" in dependency_groups'\n" + wheel), `[] ""`},
		{"pylock.toml", locked("version = '1.0'\nmarker = '\"dev\" not in extras'\n" + wheel), "extras or groups"},
		{"pylock.toml", locked("version = '1.0'\n"), "numpy is without a wheel"},
		{"pylock.toml", locked("vcs = {type = 'git', url = 'https://example.com'}\n"), "from version control"},
		{"pylock.toml", locked("directory = {path = '.'}\n"), "a directory"},
		{"pylock.toml", locked("archive = {url = 'https://example.com/x.zip'}\n"), "an archive"},
		{"pylock.toml", locked(wheel), "no version"},
		{"pylock.toml", locked("version = '1.0'\nwheels = [{hashes = {md5 = '00'}}]\n"), "no SHA-256 hash"},
		{"pylock.toml", locked("version = '1.0 --pre'\n" + wheel), "does not name a package"},
		{"pylock.toml", "lock-version = '2.0'\n", "lock-version"},
	} {
		file := filepath.Join(t.TempDir(), tt.file)
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{}).read(&Definition{Name: "x", File: file})
		got := fmt.Sprint(err)
		if err == nil {
			list := r.requirements
			if r.given != nil {
				list, err = r.given.requirements()
			}
			got = fmt.Sprintf("%q %q %v", list, r.RequiresPython, err)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s %.80q: got %s, want %s", tt.file, tt.text, got, tt.want)
		}
	}
}

// FuzzFiles: whatever a project or lock has, only checked requirements come of it.
func FuzzFiles(f *testing.F) {
	f.Add("[project]\ndependencies = ['a>1']\nrequires-python = '>=3'\n")
	f.Add("lock-version = '1.0'\n[[packages]]\nname = 'a'\nversion = '1'\nmarker = \"'x' in extras\"\nwheels = [{hashes = {sha256 = '" + sum + "'}}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, _, _ := parseProject([]byte(text))
		if l, err := parseLock([]byte(text)); err == nil {
			more, err := l.requirements()
			if err != nil {
				t.Fatalf("accepted by parseLock and then: %v", err)
			}
			for _, r := range more {
				if !strings.Contains(string(r), " --hash=sha256:") {
					t.Errorf("%q has no hash", r)
				}
			}
			list = append(list, more...)
		}
		for _, r := range list {
			if _, err := build.ParseRequirement(string(r)); err != nil || strings.ContainsAny(string(r), "\n\r") {
				t.Errorf("%q: %v", r, err)
			}
		}
	})
}

// TestUnknownSize: a size that the resolver does not say is left out, because other
// tools compare it.
func TestUnknownSize(t *testing.T) {
	for size, want := range map[int64]bool{0: false, 5: true} {
		l := newLock("x", &build.Target{Version: [3]int{3, 13, 0}}, []build.Wheel{{Package: "a", Version: "1", File: "a-1-py3-none-any.whl", SHA256: sum, Size: size}})
		raw, err := l.encode()
		if got := strings.Contains(string(raw), "size"); err != nil || got != want {
			t.Errorf("a size of %d: it has a size: got %v, %v, want %v in\n%s", size, got, err, want, raw)
		}
	}
}

package image

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// elfHeader is the beginning of a program for a machine.
func elfHeader(machine byte) string {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	h[16], h[18], h[20] = 2, machine, 1
	h[52], h[54], h[58] = 64, 56, 64
	return string(h)
}

func TestFindPython(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links are not the same there")
	}
	const x86, arm = 0x3e, 0xb7
	mine, other := byte(x86), byte(arm)
	if runtime.GOARCH == "arm64" {
		mine, other = arm, x86
	}
	self, foreign := elfHeader(mine), elfHeader(other)
	tests := []struct {
		name  string
		env   string
		files map[string]string // "->x" is a link
		want  string            // path and version, or the error
	}{
		{"Debian", "", map[string]string{"usr/bin/python3.11": self, "usr/bin/python3": "->python3.11", "usr/lib/python3.11/os.py": ""}, "/usr/bin/python3 3.11"},
		{"the image of Python itself", "PATH=/usr/local/bin:/usr/bin", map[string]string{"usr/local/bin/python3.13": self, "usr/local/bin/python3": "->python3.13", "usr/local/lib/python3.13/os.py": "", "usr/bin/python3.11": self, "usr/bin/python3": "->python3.11", "usr/lib/python3.11/os.py": ""}, "/usr/local/bin/python3 3.13"},
		{"Alpine", "", map[string]string{"usr/bin/python3.12": self, "usr/bin/python3": "->python3.12", "usr/lib/python3.12/os.pyc": ""}, "/usr/bin/python3 3.12"},
		{"a link through others, as absolute as they are", "", map[string]string{"usr/bin/python3": "->/etc/alternatives/python3", "etc/alternatives/python3": "->/usr/libexec/../bin/python3.10", "usr/libexec/x": "", "usr/bin/python3.10": self, "usr/lib/python3.10/os.py": ""}, "/usr/bin/python3 3.10"},
		{"no version in the name", "", map[string]string{"usr/local/bin/python3": self, "usr/local/lib/python3.9/os.py": ""}, "/usr/local/bin/python3 3.9"},
		{"python3.12 alone", "", map[string]string{"usr/bin/python3.12": self, "usr/lib64/python3.12/os.py": ""}, "/usr/bin/python3.12 3.12"},
		{"conda", "PATH=/opt/conda/bin:/usr/bin", map[string]string{"opt/conda/bin/python3.12": self, "opt/conda/bin/python": "->python3.12", "opt/conda/lib/python3.12/os.py": ""}, "/opt/conda/bin/python 3.12"},
		{"somewhere in /opt", "", map[string]string{"opt/mine/bin/python3.13": self, "opt/mine/bin/python3": "->python3.13", "opt/mine/lib/python3.13/os.py": ""}, "/opt/mine/bin/python3 3.13"},
		{"an environment", "PATH=/venv/bin:/usr/bin", map[string]string{"venv/bin/python3": "->/usr/bin/python3.11", "venv/pyvenv.cfg": "", "usr/bin/python3.11": self, "usr/lib/python3.11/os.py": ""}, "/venv/bin/python3 3.11"},
		{"a shim before it", "PATH=/shims:/usr/bin", map[string]string{"shims/python3": "#!/bin/sh\n", "usr/bin/python3.11": self, "usr/lib/python3.11/os.py": ""}, "/usr/bin/python3.11 3.11"},
		{"directories that are none", "PATH=::.:relative:/nowhere", map[string]string{"usr/bin/python3.11": self, "usr/lib/python3.11/os.py": ""}, "/usr/bin/python3.11 3.11"},
		{"merged directories", "PATH=/bin", map[string]string{"bin": "->usr/bin", "usr/bin/python3.11": self, "usr/lib/python3.11/os.py": ""}, "/bin/python3.11 3.11"},
		{"none", "", map[string]string{"bin/sh": self}, "it has no CPython 3.9 or newer in its PATH"},
		{"too old", "", map[string]string{"usr/bin/python3.8": self, "usr/lib/python3.8/os.py": ""}, "is Python 3.8; 3.9 or newer is needed"},
		{"too old beside one that is not", "", map[string]string{"usr/bin/python3.8": self, "usr/bin/python3": "->python3.8", "usr/lib/python3.8/os.py": "", "usr/bin/python3.12": self, "usr/lib/python3.12/os.py": ""}, "/usr/bin/python3.12 3.12"},
		{"for another machine", "", map[string]string{"usr/bin/python3.12": foreign, "usr/lib/python3.12/os.py": ""}, "a program for"},
		{"a part of its library", "", map[string]string{"usr/bin/python3.13": self, "usr/lib/python3.13/os.py": ""}, "/usr/lib/python3.13 has only a part of the standard library: no asyncio"},
		{"a part of its library, with no version in the name", "", map[string]string{"usr/bin/python3": self, "usr/lib/python3.13/os.py": ""}, "/usr/lib/python3.13 has only a part of the standard library: no asyncio"},
		{"without its library", "", map[string]string{"usr/bin/python3.12": self}, "its standard library is not in /usr/lib/python3.12"},
		{"a link to the host", "", map[string]string{"usr/bin/python3": "->../../../../../../../../usr/bin/python3"}, "too many symbolic links"},
		{"links in a circle", "", map[string]string{"usr/bin/python3": "->python", "usr/bin/python": "->python3"}, "too many symbolic links"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tt.files {
				if at, ok := strings.CutSuffix(strings.TrimSuffix(name, "c"), "/os.py"); ok && !strings.HasPrefix(tt.name, "a part") {
					if err := os.MkdirAll(filepath.Join(dir, at, "asyncio"), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				file := filepath.Join(dir, name)
				err := os.MkdirAll(filepath.Dir(file), 0o755)
				if to, ok := strings.CutPrefix(content, "->"); ok && err == nil {
					if _, there := os.Lstat(file); there == nil {
						t.Fatal("the test makes a directory where a link is to be")
					}
					err = os.Symlink(to, file)
				} else if err == nil {
					err = os.WriteFile(file, []byte(content), 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p, err := FindPython(dir, []string{tt.env})
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = p.Path + " " + p.String()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

package environment

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

// described is a Python for which the fixture's wheels are.
const described = `{"version":[3,12,1],"tag":"cpython-312","abi":"","libc":"glibc","libc_version":[2,36],
	"purelib":"/x","platlib":"/x","scripts":"/x","data":"/x",
	"markers":{"python_version":"3.12","python_full_version":"3.12.1","sys_platform":"linux","platform_system":"Linux","os_name":"posix",
	"implementation_name":"cpython","implementation_version":"3.12.1","platform_machine":"x86_64","platform_python_implementation":"CPython","platform_release":"6","platform_version":"1"}}`

// additions are those of a fixture.
func additions(t *testing.T, f *fixture, allowed ...string) *Additions {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no wheels are made for this machine")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	return NewAdditions(AdditionsConfig{
		State: store.At(filepath.Join(t.TempDir(), "packages")), Scratch: f.images.Scratch, Allowed: func() []string { return allowed }, MaxBytes: 10 << 20,
		Pip: func(context.Context) (build.Pip, error) {
			return build.Pip{Command: []string{python}, Environ: os.Environ(), Wheels: f.wheels}, nil
		},
	})
}

// add resolves and fetches. It returns what was found, as text.
func add(t *testing.T, s *Additions, present map[string]string, packages ...string) (found, archive string, err error) {
	t.Helper()
	list, fetch, err := s.Resolve(t.Context(), &wire.InstallPackages{Packages: packages, Target: json.RawMessage(described), Installed: present, Interpreter: "/py"}, func(string) {})
	if err != nil {
		return "", "", err
	}
	for _, p := range list {
		found += p.Name + " " + p.Version + ", "
	}
	if list == nil {
		return "", "", nil
	}
	archive, _, err = fetch(t.Context())
	return found, archive, err
}

// files reads an archive part by part.
func files(t *testing.T, s *Additions, archive string) []string {
	t.Helper()
	var all []byte
	for size := int64(1); int64(len(all)) < size; {
		var data []byte
		var err error
		if data, size, err = s.Part(archive, int64(len(all))); err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(all)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// TestAdditions: pip resolves what a running Python lacks. What is there is kept, also
// where no index has it, and what the user restricts holds for all.
func TestAdditions(t *testing.T) {
	f := open(t, t.TempDir())
	for _, v := range []string{"1.0", "2.0", "3.0"} {
		f.wheel(t, "lower", v, "")
	}
	f.wheel(t, "upper", "1.0", "Requires-Dist: lower\nRequires-Dist: own\n")
	f.wheel(t, "linked", "1.0", "Requires-Dist: lower @ "+(&url.URL{Scheme: "file", Path: f.wheel(t, "lower", "1.0", "")}).String()+"\n")
	f.wheel(t, "extra", "1.0", "Provides-Extra: more\nRequires-Dist: lower ; extra == 'more'\n")
	for _, tt := range []struct {
		name            string
		allowed         []string
		present         map[string]string
		packages        []string
		found, why, not string
	}{
		{"the newest", nil, map[string]string{"own": "7"}, []string{"upper"}, "upper 1.0, lower 3.0, ", "", ""},
		{"what is there is kept", nil, map[string]string{"own": "7", "Lower": "1.0"}, []string{"upper"}, "upper 1.0, ", "", ""},
		{"all is there", nil, map[string]string{"lower": "1.0"}, []string{"lower<2"}, "", "", ""},
		{"an extra of what is there", nil, map[string]string{"extra": "1.0"}, []string{"extra[more]"}, "lower 3.0, ", "", ""},
		{"another version than is there", nil, map[string]string{"lower": "1.0"}, []string{"lower>=2"}, "", "lower 1.0 is there and is kept", f.wheels},
		{"the user's restriction", []string{"lower<3"}, map[string]string{"own": "7"}, []string{"upper"}, "upper 1.0, lower 2.0, ", "", ""},
		{"against the user's restriction", []string{"lower<3"}, nil, []string{"lower==3.0"}, "", "policy.packages allows lower<3", f.wheels},
		{"no such package", nil, nil, []string{"absent"}, "", "absent has no wheel for Python 3.12", f.wheels},
		{"a version that is none", nil, map[string]string{"own": "7", "lower": "1.0; x", "-r x": "1"}, []string{"upper"}, "upper 1.0, lower 3.0, ", "", ""},
		{"an address", nil, nil, []string{"lower @ https://example.com/x"}, "", "does not name a package", ""},
		{"a package that needs an address", nil, nil, []string{"linked"}, "", "asks for lower by an address", f.wheels},
		{"an option", nil, nil, []string{"lower --hash=sha256:00"}, "", "has a hash", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := additions(t, f, tt.allowed...)
			found, archive, err := add(t, s, tt.present, tt.packages...)
			got := fmt.Sprint(err)
			var forCode *wire.CallError
			if errors.As(err, &forCode) {
				got = forCode.Message
			}
			if found != tt.found || tt.why == "" && err != nil || !strings.Contains(got, tt.why) || tt.not != "" && strings.Contains(got, tt.not) {
				t.Fatalf("got %q, %v; want %q, %q in the error, and not %q", found, err, tt.found, tt.why, tt.not)
			}
			if err != nil && forCode == nil {
				t.Errorf("got %T, want an error for code", err)
			}
			if archive == "" {
				return
			}
			if names := files(t, s, archive); strings.Contains(tt.found, "upper") && !slices.Contains(names, "upper/__init__.py") {
				t.Errorf("got %q, want upper/__init__.py among them", names)
			}
		})
	}
}

// TestOldPip: pip before 22.2 cannot report what it chooses, so it downloads that.
func TestOldPip(t *testing.T) {
	f := open(t, t.TempDir())
	f.wheel(t, "lower", "1.0", "")
	f.wheel(t, "upper", "1.0", "Requires-Dist: lower\nRequires-Dist: own\n")
	s := additions(t, f)
	old := filepath.Join(t.TempDir(), "python3")
	script := "#!/bin/sh\nfor a; do [ \"$a\" != --dry-run ] || { echo 'no such option: --dry-run' >&2; exit 2; }; done\nexec python3 \"$@\"\n"
	if err := os.WriteFile(old, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.config.Pip = func(context.Context) (build.Pip, error) {
		return build.Pip{Command: []string{old}, Environ: os.Environ(), Wheels: f.wheels}, nil
	}
	found, archive, err := add(t, s, map[string]string{"own": "7"}, "upper")
	if err != nil || found != "lower 1.0, upper 1.0, " || archive == "" {
		t.Errorf("got %q, %q, %v", found, archive, err)
	}
}

// TestForCode: code learns what is wrong with a wheel, and no paths of the host.
func TestForCode(t *testing.T) {
	_, _, err := additions(t, open(t, t.TempDir())).Resolve(t.Context(), &wire.InstallPackages{Target: json.RawMessage(strings.Replace(described, "glibc", "other", 1))}, func(string) {})
	if err == nil || !errors.As(err, new(*wire.CallError)) || !strings.Contains(err.Error(), "no wheels are made") {
		t.Errorf("a C library without wheels: got %v", err)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&build.WheelError{File: "x.whl", Err: errors.New("it is odd")}, "the wheel x.whl: it is odd: choose another version of the package; nothing was installed"},
		{&build.WheelError{File: "x.whl", Err: &build.OversizeError{Limit: 1e6}}, "the packages take more than 1 MB"},
		{&build.WheelError{File: "x.whl", Err: &fs.PathError{Op: "write", Path: "/home/me", Err: syscall.ENOSPC}}, "the host's disk is full"},
		{&build.WheelError{File: "x.whl", Err: &fs.PathError{Op: "open", Path: "/home/me", Err: syscall.EIO}}, ""},
	} {
		var shown *wire.CallError
		got := ""
		if errors.As(forCode(tt.err), &shown) {
			got = shown.Message
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestArchives: the same packages are fetched once, and are there without an index;
// too large ones are not kept; the oldest go.
func TestArchives(t *testing.T) {
	f := open(t, t.TempDir())
	file := f.wheel(t, "lower", "1.0", "")
	s := additions(t, f)
	list, fetch, err := s.Resolve(t.Context(), &wire.InstallPackages{Packages: []string{"lower"}, Target: json.RawMessage(described), Interpreter: "/py"}, func(string) {})
	if err != nil || len(list) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	first, size, err := fetch(t.Context())
	if err != nil || size == 0 {
		t.Fatalf("got %d, %v", size, err)
	}
	path := s.config.State.Path(first + extension)
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { b[600] ^= 1; return b }, func(b []byte) []byte { return b[:len(b)-512] }, func([]byte) []byte { return nil },
	} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, damage(slices.Clone(raw)), 0o600); err != nil {
			t.Fatal(err)
		}
		clear(s.intact) // as in another process
		if _, _, err := s.Part(first, 0); !errors.Is(err, errNoArchive) {
			t.Errorf("a damaged archive: got %v, want %v", err, errNoArchive)
		}
		if mended, _, err := fetch(t.Context()); err != nil || mended != first {
			t.Errorf("after the damage: got %q, %v", mended, err)
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("after the damage: got another archive, %v", err)
		}
	}
	if err := os.Remove(filepath.Join(f.wheels, filepath.Base(file))); err != nil {
		t.Fatal(err)
	}
	again, size2, err := fetch(t.Context())
	if err != nil || again != first || size2 != size {
		t.Errorf("got %q of %d, %v; want %q of %d", again, size2, err, first, size)
	}
	old := func() {
		names, err := filepath.Glob(s.config.State.Path("*.json"))
		if err != nil || len(names) != 1 {
			t.Fatalf("got answers %q, %v, want one", names, err)
		}
		if err := os.Chtimes(names[0], time.Time{}, time.Now().Add(-2*answerHolds)); err != nil {
			t.Fatal(err)
		}
	}
	pip := s.config.Pip
	for _, tt := range []struct {
		name, said, why string
		change          func()
	}{
		{"a moment later", "", "", func() {}},
		{"long after, without a network", "NewConnectionError", "", old},
		{"long after, when the index has it no more", "No matching distribution found for lower", "does not exist", old},
	} {
		tt.change()
		s.config.Pip = func(context.Context) (build.Pip, error) {
			return build.Pip{Command: []string{"/bin/sh", "-c", "echo " + tt.said + "; exit 1"}}, nil
		}
		found, archive, err := add(t, s, nil, "lower")
		if tt.why == "" && (found != "lower 1.0, " || archive == "" || err != nil) || tt.why != "" && !strings.Contains(fmt.Sprint(err), tt.why) {
			t.Errorf("%s: got %q, %q, %v; want lower 1.0, or %q", tt.name, found, archive, err, tt.why)
		}
	}
	s.config.Pip = pip
	for _, name := range []string{"", "../" + first, strings.Repeat("0", 64)} {
		if _, _, err := s.Part(name, 0); !errors.Is(err, errNoArchive) {
			t.Errorf("%q: got %v, want %v", name, err, errNoArchive)
		}
	}
	for _, offset := range []int64{-1, size + 1, 1 << 62} {
		if _, _, err := s.Part(first, offset); err == nil {
			t.Errorf("offset %d: got no error", offset)
		}
	}
	f.wheel(t, "large", "1.0", "Summary: "+strings.Repeat("x", 11<<20)+"\n")
	var forCode *wire.CallError
	if _, _, err := add(t, s, nil, "large"); !errors.As(err, &forCode) || forCode.Kind != wire.KindLimit {
		t.Errorf("got %v, want %s", err, wire.KindLimit)
	}
	f.wheel(t, "other", "1.0", "")
	s.config.MaxTotal = 1
	_, other, err := add(t, s, nil, "other")
	if err != nil {
		t.Fatal(err)
	}
	if names, err := s.config.State.List(); err != nil || len(names) != 1 || names[0] != other+extension {
		t.Errorf("got %q, %v; want the newest archive, %s", names, err, other)
	}
}

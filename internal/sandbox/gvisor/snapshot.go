//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

var (
	_ sandbox.Snapshotter = (*run)(nil)
	_ sandbox.Restorer    = (*Backend)(nil)
)

// Snapshot implements sandbox.Snapshotter.
func (r *run) Snapshot(ctx context.Context, dir string, keep bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return &sandbox.Error{Op: OpSnapshot, Backend: Name, Err: err}
	}
	if _, err := r.command(ctx, Command{Op: OpSnapshot, Dir: dir, Keep: keep}); err != nil {
		return err
	}
	if !keep {
		_, err = r.Wait(ctx)
	}
	return err
}

// Restore implements sandbox.Restorer.
func (b *Backend) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	if len(image.Files) == 0 {
		return nil, &sandbox.Error{Op: "restore", Backend: Name, Kind: sandbox.ErrInvalidSpec, Err: errors.New("an image without files")}
	}
	return b.begin(ctx, spec, &image)
}

// Binding implements sandbox.Restorer. A snapshot holds memory of this very
// program (gVisor's own check of versions passes for whatever is built as a Go
// module), and of the files that its processes have mapped: what is in the
// root must be what it was. Files are told apart by what changes with them,
// and package managers by their own records, because reading all of it would
// take longer than a start.
func (b *Backend) Binding(ctx context.Context, spec *sandbox.Spec) (string, error) {
	fail := func(err error) (string, error) {
		return "", &sandbox.Error{Op: "binding", Backend: Name, Err: err}
	}
	if err := checkSpec(spec); err != nil {
		return fail(err)
	}
	program, err := programID(b.opts.Executable)
	if err != nil {
		return fail(err)
	}
	planned, err := b.root(ctx, spec)
	if err != nil {
		return fail(err)
	}
	limits, err := json.Marshal(spec.Limits.WithDefaults())
	if err != nil {
		return fail(err)
	}
	environment := append(slices.Clone(planned.env), environ(spec.Env)...)
	slices.Sort(environment)
	lines := []string{
		"engine: " + Name,
		"program: " + program,
		fmt.Sprintf("user: %d", os.Geteuid()),
		"processor: " + processor(),
		"python: " + planned.python,
		"environment: " + digestOf(environment...),
		"limits: " + string(limits),
		"root: " + digestOf(planned.marks()...),
	}
	if planned.image != "" {
		// In full: what is bound to an image is found by it.
		lines = append(lines, "image: "+planned.image)
	}
	return strings.Join(lines, "\n"), nil
}

func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// programID tells builds of this program apart: the build ID that the linker
// made of all that is in it.
func programID(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if s := f.Section(".note.go.buildid"); s != nil && s.Size < 4096 {
		if note, err := s.Data(); err == nil && len(note) > 16 {
			return digestOf(string(note)), nil
		}
	}
	return "", errors.New("the program has no build ID: build it without -ldflags=-buildid=")
}

// processor names the instructions that the processor offers.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	var kept []string
	for line := range strings.Lines(string(data)) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch what = strings.TrimSpace(what); what {
		case "vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU architecture", "CPU part":
			if entry := what + value; !slices.Contains(kept, entry) {
				kept = append(kept, entry)
			}
		}
	}
	return digestOf(kept...)
}

// packageRecords change whenever a distribution's package is installed,
// upgraded or removed.
var packageRecords = []string{
	"/etc/ld.so.cache", "/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages",
	"/usr/lib/sysimage/rpm/rpmdb.sqlite", "/lib/apk/db/installed", "/var/lib/pacman/local",
}

// fingerprint describes the root file system by what changes with it.
func fingerprint(rootfs hostroot.Rootfs, p *hostroot.Interpreter) []string {
	var out []string
	stat := func(path string) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return
		}
		out = append(out, fmt.Sprintf("%s %d %d %d %d.%d %d.%d", path, st.Dev, st.Ino, st.Size,
			st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec))
	}
	for _, path := range packageRecords {
		stat(path)
	}
	for _, b := range rootfs.Binds {
		out = append(out, b.Target)
		stat(b.Source)
	}
	// The interpreter's own files, wherever it lies.
	stat(p.Executable)
	stat(p.Packages)
	version := "python" + p.Version.String()
	for _, lib := range []string{filepath.Join(p.Prefix, "lib"), filepath.Join(p.Prefix, "lib64"), "/usr/lib", "/usr/local/lib"} {
		for _, path := range []string{
			version, version + "/lib-dynload", version + "/site-packages", version + "/dist-packages",
			"python3/dist-packages", "lib" + version + ".so.1.0",
		} {
			stat(filepath.Join(lib, path))
		}
	}
	for path, target := range rootfs.Links {
		out = append(out, "link "+path+" "+target)
	}
	for path, f := range rootfs.Files {
		out = append(out, "file "+path+" "+digestOf(string(f.Data), fmt.Sprint(f.Mode)))
	}
	for _, dir := range rootfs.Dirs {
		out = append(out, "dir "+dir)
	}
	slices.Sort(out)
	return out
}

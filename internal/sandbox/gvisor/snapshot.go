//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

var (
	_ sandbox.Snapshotter = (*run)(nil)
	_ sandbox.Restorer    = (*Engine)(nil)
)

// Snapshot implements sandbox.Snapshotter.
func (r *run) Snapshot(ctx context.Context, dir string, keep bool) error {
	const op = supervise.OpSnapshot
	dir, err := filepath.Abs(dir)
	if err != nil {
		return &sandbox.Error{Op: op, Backend: Name, Err: err}
	}
	if _, err := r.Do(ctx, supervise.Command{Op: op, Dir: dir, Keep: keep}); err != nil {
		if strings.Contains(err.Error(), sandbox.ErrHeld.Error()) { // it came as an event
			err = &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrHeld}
		}
		return err
	}
	if !keep {
		_, err = r.Wait(ctx)
	}
	return err
}

// Restore implements sandbox.Restorer.
func (b *Engine) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	if len(image.Files) == 0 {
		return nil, &sandbox.Error{Op: "restore", Backend: Name, Kind: sandbox.ErrInvalidSpec, Err: errors.New("an image without files")}
	}
	return b.begin(ctx, spec, &image)
}

// Binding implements sandbox.Restorer. A snapshot holds memory of exactly this
// program (gVisor's own version check passes for anything built as a Go module)
// and of the files that its processes have mapped, so the root's content must be
// unchanged. Changes are detected by files' metadata and by package managers'
// records, because reading everything would take longer than a start.
func (b *Engine) Binding(ctx context.Context, spec *sandbox.Spec) (string, error) {
	fail := func(err error) (string, error) {
		return "", &sandbox.Error{Op: "binding", Backend: Name, Err: err}
	}
	if err := checkSpec(spec); err != nil {
		return fail(err)
	}
	build, err := executable.BuildID(b.opts.Executable)
	if err != nil {
		return fail(err)
	}
	program, err := spec.Program.Digest()
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
	environment := append(slices.Clone(planned.env), supervise.Variables(spec.Env)...)
	slices.Sort(environment)
	lines := []string{
		"engine: " + Name,
		"executable: " + build,
		"program: " + program,
		fmt.Sprintf("user: %d", os.Geteuid()),
		"processor: " + processor(),
		"interpreter: " + planned.interpreter,
		"environment: " + digestOf(environment...),
		"limits: " + string(limits),
		"root: " + digestOf(planned.marks()...),
	}
	if len(spec.Mounts) > 0 {
		mounts, err := json.Marshal(spec.Mounts)
		if err != nil {
			return fail(err)
		}
		lines = append(lines, "folders: "+string(mounts))
	}
	if planned.image != "" {
		// In full, because what is bound to an image is found by it.
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

// processor returns a digest of the processor's model and features.
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

// fingerprint returns metadata that changes with the root file system.
func fingerprint(rootfs hostroot.Rootfs, p *sandbox.Runtime) []string {
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
	// The interpreter's own files, wherever they are.
	stat(p.Executable)
	for _, path := range p.Depends {
		stat(path)
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

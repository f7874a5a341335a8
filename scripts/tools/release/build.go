package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A target is a platform, in Go's words.
type target struct{ system, arch string }

func (t target) String() string { return t.system + "/" + t.arch }

func (t target) executable() string {
	if t.system == "windows" {
		return "sallyport.exe"
	}
	return "sallyport"
}

var allTargets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"darwin", "amd64"}, {"windows", "amd64"},
}

// choose returns the platforms named, or all.
func choose(names string, snapshot bool) ([]target, error) {
	if names == "" {
		return allTargets, nil
	}
	if !snapshot {
		return nil, fmt.Errorf("a release has all platforms: --targets needs --snapshot")
	}
	var chosen []target
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("the platform %s is none of %v", name, allTargets)
		}
		if !slices.Contains(chosen, allTargets[i]) {
			chosen = append(chosen, allTargets[i])
		}
	}
	return chosen, nil
}

// A program is the executable for one platform.
type program struct {
	target
	data []byte
}

// shells name the completions as their shells look for them.
var shells = []struct{ name, file string }{
	{"bash", "sallyport.bash"}, {"zsh", "_sallyport"}, {"fish", "sallyport.fish"}, {"powershell", "sallyport.ps1"},
}

// build makes the executables, and with them what they say of themselves:
// completions and man pages.
func (r *release) build(targets []target) error {
	work, err := os.MkdirTemp("", "sallyport-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, t := range targets {
		data, err := r.compile(t, filepath.Join(work, t.executable()))
		if err != nil {
			return err
		}
		r.programs = append(r.programs, program{t, data})
	}
	for _, name := range []string{"LICENSE", "NOTICE", "README.md"} {
		data, err := r.read(name)
		if err != nil {
			return err
		}
		if name == "README.md" {
			data = r.version.absolute(data)
		}
		r.shared = append(r.shared, file{name, 0o644, data})
	}
	return r.describe(work)
}

// compile builds for one platform. Nothing of this machine or user counts.
func (r *release) compile(t target, out string) ([]byte, error) {
	flags := "-s -w -X " + module + "/internal/cli.version=v" + r.version.String()
	if r.snapshot && r.key != nil {
		flags += " -X " + module + "/internal/upgrade.linked=" + r.key.public()
	}
	env := []string{
		"CGO_ENABLED=0", "GOOS=" + t.system, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOTOOLCHAIN=local", "GOFIPS140=off",
	}
	if _, err := r.output(env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", flags, "-o", out, "./cmd/sallyport"); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return os.ReadFile(out)
}

// describe adds completions and man pages, which the executable for this machine
// writes.
func (r *release) describe(work string) error {
	own := filepath.Join(work, "own")
	i := slices.IndexFunc(r.programs, func(p program) bool { return p.target == host() })
	if i >= 0 {
		if err := os.WriteFile(own, r.programs[i].data, 0o755); err != nil {
			return err
		}
	} else if _, err := r.compile(host(), own); err != nil {
		return err
	}
	// Their home is empty: no configuration of this user's counts.
	env := []string{"HOME=" + work, "XDG_CONFIG_HOME=" + work, "XDG_STATE_HOME=" + work, "XDG_RUNTIME_DIR=" + work}
	for _, s := range shells {
		script, err := r.output(env, own, "completion", s.name)
		if err != nil {
			return err
		}
		r.shared = append(r.shared, file{"completions/" + s.file, 0o644, []byte(script + "\n")})
	}
	pages := filepath.Join(work, "man")
	env = []string{"GOFLAGS=-mod=readonly -trimpath", "CGO_ENABLED=0", "TZ=UTC", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
	if _, err := r.output(env, "go", "run", "./scripts/man", "-version", r.version.String(), pages); err != nil {
		return err
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("scripts/man wrote no page")
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			return err
		}
		r.shared = append(r.shared, file{"man/" + e.Name(), 0o644, data})
	}
	return nil
}

// Command release builds everything that a release of Sallyport consists of:
// archives, packages of systems and languages, an image, manifests, checksums, a
// list of what is inside, provenance and a signature. scripts/release runs it.
//
// The result depends on the commit, the tag and the version of Go alone, to the
// byte: file times are the commit's, and everything is sorted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	project  = "https://github.com/sallyport/sallyport"
	module   = "github.com/sallyport/sallyport"
	registry = "io.github.sallyport/sallyport" // the name in the MCP registry
	summary  = "One tool that runs Python in a hard sandbox, where your MCP servers are modules"
)

func main() {
	var r release
	var out, targets string
	flag.StringVar(&r.top, "top", ".", "the repository's `directory`")
	flag.StringVar(&out, "out", "dist", "the `directory` to write, relative to the repository's")
	flag.BoolVar(&r.snapshot, "snapshot", false, "build the working tree, without a tag")
	flag.BoolVar(&r.unsigned, "unsigned", false, "build a tag without a key")
	flag.StringVar(&targets, "targets", "", "only these platforms, as in linux/amd64,windows/amd64 (a snapshot's)")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: scripts/release [--snapshot] [flags]")
		flag.PrintDefaults()
	}
	flag.Parse()
	err := errors.New("it takes no arguments: the version is the tag of the commit that is checked out")
	if flag.NArg() == 0 {
		err = r.run(out, targets)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scripts/release:", err)
		os.Exit(1)
	}
}

// A release is one build of everything.
type release struct {
	top, out           string
	snapshot, unsigned bool
	version            version
	commit             string
	time               time.Time // the commit's
	key                *key      // nil: unsigned
	programs           []program
	shared             []file // what each archive has besides the executable
}

// A file is part of an archive.
type file struct {
	name string
	mode os.FileMode
	data []byte
}

func (r *release) run(out, targets string) error {
	if err := r.identify(); err != nil {
		return err
	}
	chosen, err := choose(targets, r.snapshot)
	if err != nil {
		return err
	}
	if r.key, err = readKey(os.Getenv); err != nil {
		return err
	}
	// Programs that run from here on have no business with it.
	for _, name := range []string{keyFileVariable, passwordVariable} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	if err := r.checkKey(); err != nil {
		return err
	}
	r.out = filepath.Join(r.top, out)
	// What an earlier run left would be signed with the rest.
	if err := emptyDirectory(r.out); err != nil {
		return err
	}
	began := time.Now()
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"executables", func() error { return r.build(chosen) }},
		{"archives", r.archives},
		{"deb, rpm, apk", r.systemPackages},
		{"npm", r.npm},
		{"PyPI", r.wheels},
		{"bundle of Claude Desktop", r.bundle},
		{"image", r.image},
		{"notes", r.notes},
		{"manifests", r.manifests},
		{"contents and provenance", r.provenance},
		{"checksums", r.checksums},
	} {
		fmt.Printf("%4.0f s  %s\n", time.Since(began).Seconds(), step.name)
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	fmt.Printf("%4.0f s  %s: %d files in %s\n", time.Since(began).Seconds(), r.version, len(files), r.out)
	return nil
}

// marker is in every directory that scripts/release wrote.
const marker = sumsName

// emptyDirectory makes a new directory, or empties one of an earlier release.
func emptyDirectory(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return os.MkdirAll(path, 0o755)
	}
	if err != nil {
		return err
	}
	known := func(e os.DirEntry) bool { return e.Name() == marker || e.Name() == unfinished }
	if len(entries) > 0 && !slices.ContainsFunc(entries, known) {
		return fmt.Errorf("%s has files that are not a release's: remove it", path)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(path, unfinished), nil, 0o644)
}

// unfinished is there until the checksums are.
const unfinished = ".unfinished"

// identify finds the version, the commit and its time.
func (r *release) identify() error {
	var err error
	if r.top, err = filepath.Abs(r.top); err != nil {
		return err
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := r.git("show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(n, 0).UTC()
	if r.snapshot {
		r.version, err = parseVersion("v0.0.0-pre." + r.time.Format("20060102150405"))
		return err
	}
	if changed, err := r.git("status", "--porcelain"); err != nil {
		return err
	} else if changed != "" {
		return fmt.Errorf("the working tree differs from the commit: commit or stash, or use --snapshot:\n%s", changed)
	}
	tags, err := r.git("tag", "--points-at", "HEAD", "--list", "v*")
	if err != nil {
		return err
	}
	names := strings.Fields(tags)
	if len(names) != 1 {
		return fmt.Errorf("the commit has %d tags v*, want one: git tag -s v1.2.3, or use --snapshot", len(names))
	}
	r.version, err = parseVersion(names[0])
	return err
}

func (r *release) git(args ...string) (string, error) {
	return r.output(nil, "git", args...)
}

// output runs a command at the top of the repository.
func (r *release) output(env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.top
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// write puts a file into the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// read reads a file of the repository.
func (r *release) read(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.top, path))
}

// host is the platform of this machine.
func host() target { return target{runtime.GOOS, runtime.GOARCH} }

package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Pip downloads wheels with the host's own pip, which knows the user's index,
// proxy and credentials.
type Pip struct {
	// Command starts a Python that has pip: {"/usr/bin/python3"}, or uv with
	// its arguments before the program.
	Command []string
	// Environ is its environment.
	Environ []string
	// Wheels is a directory with all required wheels; then nothing is
	// downloaded. It may be empty.
	Wheels string
	// Output receives pip's output. It may be nil.
	Output io.Writer
	// Locked is set if the requirements are all, each with its hashes.
	Locked bool
	// MaxBytes bounds what a download may take on the disk; 0: nothing does.
	MaxBytes int64

	tell  func(stage string) // may be nil
	extra []string           // arguments
}

// Telling returns p, which tells of its progress.
func (p Pip) Telling(tell func(stage string)) Pip {
	p.tell = tell
	return p
}

// FindPip finds a Python with pip, or uv, in the search path.
func FindPip(ctx context.Context, environ []string, look func(name string) (string, error), pythons ...string) (Pip, error) {
	p := Pip{Environ: environ}
	for _, name := range pythons {
		file, err := look(name)
		if err != nil {
			continue
		}
		if p.works(ctx, []string{file}) {
			p.Command = []string{file}
			return p, nil
		}
	}
	if uv, err := look("uv"); err == nil {
		p.Command = []string{uv, "run", "--quiet", "--no-project", "--with", "pip", "python"}
		return p, nil
	}
	if err := ctx.Err(); err != nil {
		return p, context.Cause(ctx)
	}
	return p, errors.New("packages are downloaded with pip or uv, and neither was found: install one (Debian, Ubuntu: apt-get install python3-pip)")
}

func (p Pip) works(ctx context.Context, command []string) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(slices.Clone(command[1:]), "-c", "import pip")...)
	cmd.Env = p.Environ
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	return cmd.Run() == nil
}

// pipProgram runs pip for an interpreter other than its own: markers are
// evaluated for that one, and anything but a wheel of the index is refused. A wheel's
// metadata cannot take all memory, and pip ends with the process that started it.
const pipProgram = `
import json, os, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
except (ImportError, ValueError, OSError):
    pass
environment = json.loads(sys.argv.pop(1))
from pip._vendor.packaging import markers
from pip._internal.distributions import sdist
from pip._internal.exceptions import InstallationError
assert hasattr(markers, "default_environment") and hasattr(sdist.SourceDistribution, "prepare_distribution_metadata")
markers.default_environment = lambda: dict(environment)
def refuse(self, *args, **options):
    raise InstallationError("%s is not a wheel: building it would run code here" % self.req)
sdist.SourceDistribution.prepare_distribution_metadata = refuse
from pip._internal.req.req_install import InstallRequirement
make = InstallRequirement.__init__
def named(self, req, *args, **options):
    if getattr(req, "url", None):
        raise InstallationError("a package asks for %s by an address: packages are taken from the index alone" % req.name)
    make(self, req, *args, **options)
InstallRequirement.__init__ = named
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
`

// Download downloads wheels for the target, with all their dependencies, into
// dir.
func (p Pip) Download(ctx context.Context, t *Target, requirements []Requirement, dir string) error {
	args := []string{"download", "--dest", dir}
	if p.Locked {
		args = append(args, "--no-deps", "--require-hashes")
	}
	return p.run(ctx, t, requirements, filepath.Dir(dir), args...)
}

// run runs a command of pip in a folder for temporary files.
func (p Pip) run(ctx context.Context, t *Target, requirements []Requirement, dir string, command ...string) error {
	list := filepath.Join(dir, "requirements.txt")
	var text strings.Builder
	for _, r := range requirements {
		text.WriteString(string(r) + "\n")
	}
	if err := os.WriteFile(list, []byte(text.String()), 0o600); err != nil {
		return err
	}
	environment, err := json.Marshal(t.Markers)
	if err != nil {
		return err
	}
	args := append(slices.Clone(p.Command[1:]), "-c", pipProgram, string(environment))
	args = append(append(append(args, command...), p.extra...),
		"--only-binary=:all:", "--requirement", list, "--progress-bar", "off", "--no-cache-dir",
		"--implementation", "cp", "--python-version", t.python())
	for _, abi := range t.abis() {
		args = append(args, "--abi", abi)
	}
	platforms, err := t.platforms()
	if err != nil {
		return err
	}
	for _, platform := range platforms {
		args = append(args, "--platform", platform)
	}
	if p.Wheels != "" {
		wheels, err := filepath.Abs(p.Wheels)
		if err != nil {
			return err
		}
		args = append(args, "--no-index", "--find-links", wheels)
	}
	ctx, end := p.within(ctx, dir)
	defer end()
	cmd := exec.CommandContext(ctx, p.Command[0], args...)
	cmd.Dir = dir                                          // so that no project's files are in it
	cmd.Env = append(pipEnviron(p.Environ), "TMPDIR="+dir) // where MaxBytes counts
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	out := io.Writer(&tail{b: &said})
	if p.Output != nil {
		out = io.MultiWriter(out, p.Output)
	}
	lines := &lineWriter{w: out, tell: p.tell}
	cmd.Stdout, cmd.Stderr = lines, lines
	if _, err := cmd.StdinPipe(); err != nil { // pip sees its end when this process ends
		return err
	}
	err = cmd.Run()
	lines.end()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return t.explain(strings.TrimSpace(said.String()), platforms[0], err)
	}
	return nil
}

// tail keeps the end of what is written.
type tail struct{ b *bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.b.Write(p)
	if n := t.b.Len() - most; n > 0 {
		t.b.Next(n)
	}
	return len(p), nil
}

package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// evaluated for that one, and anything but a wheel is refused.
const pipProgram = `
import json, sys
environment = json.loads(sys.argv.pop(1))
from pip._vendor.packaging import markers
from pip._internal.distributions import sdist
from pip._internal.exceptions import InstallationError
assert hasattr(markers, "default_environment") and hasattr(sdist.SourceDistribution, "prepare_distribution_metadata")
markers.default_environment = lambda: dict(environment)
def refuse(self, *args, **options):
    raise InstallationError("%s is not a wheel: building it would run code here" % self.req)
sdist.SourceDistribution.prepare_distribution_metadata = refuse
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
`

// Download downloads wheels for the target, with all their dependencies, into
// dir.
func (p Pip) Download(ctx context.Context, t *Target, requirements []Requirement, dir string) error {
	list := filepath.Join(filepath.Dir(dir), "requirements.txt")
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
	args := append(slices.Clone(p.Command[1:]), "-c", pipProgram, string(environment),
		"download", "--only-binary=:all:", "--dest", dir, "--requirement", list, "--progress-bar", "off", "--no-cache-dir",
		"--implementation", "cp", "--python-version", fmt.Sprintf("%d.%d", t.Version[0], t.Version[1]))
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
	cmd := exec.CommandContext(ctx, p.Command[0], args...)
	cmd.Dir = filepath.Dir(dir) // so that no project's files are in it
	cmd.Env = append(slices.Clone(p.Environ), "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	out := io.Writer(&tail{b: &said})
	if p.Output != nil {
		out = io.MultiWriter(out, p.Output)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("pip found no wheels for Python %d.%d on %s (%w):\n%s", t.Version[0], t.Version[1], platforms[0], err, strings.TrimSpace(said.String()))
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

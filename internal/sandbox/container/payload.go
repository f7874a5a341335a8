package container

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// command returns what a container runs: the loader of the program.
func command(p *sandbox.Program, interpreter string) []string {
	argv := sandbox.Command(p.Loader.Argv, interpreter, sandbox.ProgramDir)
	return append(argv, strconv.Itoa(len(p.Loader.Script)))
}

// A payload is what a container reads before the frames.
type payload struct{ bytes.Buffer }

func (p *payload) add(kind byte, name string, data []byte) {
	fmt.Fprintf(p, "%c%08x%08x", kind, len(name), len(data))
	p.WriteString(name)
	p.Write(data)
}

// sources adds the files of a program.
func (p *payload) sources(program *sandbox.Program) error {
	return fs.WalkDir(program.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(program.Files, name)
		if err == nil {
			p.add('m', name, data)
		}
		return err
	})
}

// environment returns the variables of a sandbox. The search path is the image's.
func environment(spec *sandbox.Spec) map[string]string {
	env := map[string]string{}
	for _, kv := range spec.Program.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "PATH" {
			env[k] = v
		}
	}
	maps.Copy(env, spec.Env)
	return env
}

// newPayload returns what starts a program: what the image's interpreter compiled
// from it, or else its files. The container writes marker to its standard error
// when it has read everything.
func newPayload(ctx context.Context, spec *sandbox.Spec, bundle []byte, marker string) (*payload, error) {
	p := &payload{}
	p.Write(spec.Program.Loader.Script)
	if len(bundle) > 0 {
		p.add('b', "", bundle)
	} else if err := p.sources(spec.Program); err != nil {
		return nil, err
	}
	for _, f := range spec.Files {
		mode := f.Mode & 0o777
		if mode == 0 {
			mode = 0o644
		}
		p.add('f', fmt.Sprintf("%o %s", mode, f.Path), f.Data)
	}
	if err := p.copyFolders(ctx, spec.Mounts, maxFiles-int64(spec.FileBytes()), spec.Limits.WithDefaults().WorkspaceBytes); err != nil {
		return nil, err
	}
	env := environment(spec)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		p.add('e', k, []byte(env[k]))
	}
	p.add('.', "", []byte(marker))
	return p, nil
}

// newInspectionPayload returns what makes a container describe itself.
func newInspectionPayload(program *sandbox.Program, marker string) (*payload, error) {
	p := &payload{}
	p.Write(program.Loader.Script)
	if err := p.sources(program); err != nil {
		return nil, err
	}
	p.add('t', "", program.Loader.Inspect)
	p.add('.', "", []byte(marker))
	return p, nil
}

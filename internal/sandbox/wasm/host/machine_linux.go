//go:build linux && (amd64 || arm64)

package host

import (
	"context"
	"io"
	"os"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/machine"
)

// Main runs the child and returns its exit status, if args are those of one.
func Main(args []string) (code int, ok bool) {
	if len(args) == 0 || args[0] != control.Name {
		return 0, false
	}
	return Run(open, Confine), true
}

// open opens the embedded interpreter.
func open(ctx context.Context, o control.Open, code *os.File, progress func(control.Progress)) (Machine, error) {
	m, err := machine.Open(ctx, machine.Config{
		Code: code, ScratchDir: o.ScratchDir,
		Progress: func(p machine.Progress) {
			out := control.Progress{Done: p.Done, Elapsed: p.Elapsed.Milliseconds()}
			if p.Unkept != nil {
				out.Unkept = p.Unkept.Error()
			}
			progress(out)
		},
	})
	if err != nil {
		return nil, err
	}
	return interpreter{m}, nil
}

// interpreter is a machine of package machine.
type interpreter struct{ *machine.Machine }

func (i interpreter) Boot(ctx context.Context, p Program, image *os.File) (Image, error) {
	img, err := i.Machine.Boot(ctx, machine.Program{Files: p.Files, Argv: p.Argv, Env: p.Env, Digest: p.Key}, image)
	if err != nil {
		return nil, err
	}
	return booted{img}, nil
}

// booted is an image of package machine.
type booted struct{ *machine.Image }

func (b booted) Start(ctx context.Context, cfg Session) (Running, error) {
	s, err := b.Image.Start(ctx, machine.SessionConfig(cfg))
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (b booted) Restore(ctx context.Context, cfg Session, snapshot io.Reader) (Running, error) {
	s, err := b.Image.Restore(ctx, machine.SessionConfig(cfg), snapshot)
	if err != nil {
		return nil, err
	}
	return s, nil
}

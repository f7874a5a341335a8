package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// PureTarget has the Python that the engine behind Run brings along describe itself.
// Packages for it have no machine code.
func (b *Builder) PureTarget(ctx context.Context) (*Target, error) {
	b.tell("starting the engine's Python", 0, 0)
	t, err := b.inspect(ctx, sandbox.Root{})
	if err == nil && t.Libc != wasi {
		err = fmt.Errorf("the engine's Python is not for WebAssembly, but for %q", t.Libc)
	}
	return t, err
}

// A Pure is an archive of packages without machine code, for sandbox.Root.Packages.
type Pure struct {
	File     string
	Digest   string // its SHA-256
	Bytes    int64
	Packages []string // the wheels in it, by their file names
	Modules  []string // top-level names that code can import
}

// Pure builds the archive of the wheels that the requirements need, with their byte code.
// dir is an empty folder, in which the archive lies then.
func (b *Builder) Pure(ctx context.Context, target *Target, requirements []Requirement, dir string) (*Pure, error) {
	out := &Pure{}
	in := &installation{
		target: &Target{Purelib: target.Purelib, Platlib: target.Purelib, Scripts: target.Purelib + "/bin", Data: target.Purelib},
		python: "/usr/bin/env python3", below: target.Purelib, written: map[string]bool{}, sources: true,
	}
	wheels := filepath.Join(dir, "wheels")
	if err := os.Mkdir(wheels, 0o700); err != nil {
		return nil, err
	}
	if len(requirements) > 0 {
		b.tell("downloading wheels", 0, 0)
		pip := b.Pip.Telling(func(stage string) { b.tell(stage, 0, 0) })
		if err := pip.Download(ctx, target, requirements, wheels); err != nil {
			return nil, err
		}
		var err error
		if out.Packages, err = wheelsIn(wheels); err != nil {
			return nil, err
		}
	}
	b.tell("unpacking wheels", 0, 0)
	sources, err := b.pack(dir, func(w io.Writer) error { return in.write(ctx, w, wheels, out.Packages) })
	if err != nil {
		return nil, err
	}
	if len(in.modules) == 0 {
		sources.Packages = out.Packages
		return sources, b.starts(ctx, sources)
	}
	whole, err := b.pack(dir, func(w io.Writer) error {
		f, err := os.Open(sources.File)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := io.CopyN(w, f, sources.Bytes-tarEnd); err != nil {
			return err
		}
		return b.byteCode(ctx, sandbox.Root{Packages: sources.File}, in, dir, w, &Image{})
	})
	if err != nil {
		return nil, err
	}
	whole.Packages, whole.Modules = out.Packages, in.names()
	return whole, b.starts(ctx, whole)
}

// starts returns an error if no session can start with an archive.
func (b *Builder) starts(ctx context.Context, p *Pure) error {
	b.tell("trying the packages", 0, 0)
	if err := b.run(ctx, sandbox.Root{Packages: p.File}, "pass\n", &limitedBuffer{left: 1 << 20}); err != nil {
		return fmt.Errorf("trying the packages: %w", err)
	}
	return nil
}

// tarEnd is the length of what ends a tar.
const tarEnd = 1024

// pack writes an archive, and gives it the name that it has as sandbox.Root.Packages.
func (b *Builder) pack(dir string, write func(w io.Writer) error) (*Pure, error) {
	f, err := os.CreateTemp(dir, "packages-")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	w := &Bounded{W: io.MultiWriter(f, sum), Limit: b.Pip.MaxBytes}
	err = write(w)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	out := &Pure{Digest: hex.EncodeToString(sum.Sum(nil)), Bytes: w.N}
	out.File = filepath.Join(dir, out.Digest+sandbox.PackagesExt)
	return out, os.Rename(f.Name(), out.File)
}

// Bounded is a writer that fails instead of writing more than its limit, if it has one.
type Bounded struct {
	W     io.Writer
	N     int64 // written
	Limit int64
}

func (b *Bounded) Write(p []byte) (int, error) {
	if b.N += int64(len(p)); b.Limit > 0 && b.N > b.Limit {
		return 0, &OversizeError{Limit: b.Limit}
	}
	return b.W.Write(p)
}

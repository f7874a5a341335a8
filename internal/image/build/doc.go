// Package build builds images without a container engine: Python packages on
// top of a base, which is an image or the host's own Python.
//
// Nothing that was downloaded runs on the host. Packages come as wheels, which
// are archives, and are unpacked here as hostile input. Facts about the base's
// Python, and byte code, which only it can produce, come from sandboxes without
// a network. Their output is as hostile as the image and goes only into the
// image.
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

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// A Builder builds images in a store.
type Builder struct {
	Store *image.Store
	// Run runs Python code in a new sandbox and writes the code's standard output
	// to out. It adds the program to the spec, whose image is one of the store's,
	// by its ID.
	Run func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error
	// Pip downloads wheels.
	Pip Pip
	// Tell receives progress. It may be nil.
	Tell func(stage string, done, total int64)
	// Passing are the IDs of images that are useless once the engine behind Run
	// is closed.
	Passing []string
}

func (b *Builder) tell(stage string, done, total int64) {
	if b.Tell != nil {
		b.Tell(stage, done, total)
	}
}

// An Image is a built image.
type Image struct {
	*image.Content
	// Packages are the wheels in it, by their file names.
	Packages []string
	// Modules are the top-level names that code can import.
	Modules []string
	// Uncompiled are modules that the interpreter could not compile: those of
	// other versions, and templates.
	Uncompiled int
}

// Packages builds an image from a base and the wheels that the requirements
// need. dir is an empty folder, which must exist as long as the content is
// used.
func (b *Builder) Packages(ctx context.Context, base *image.Root, requirements []Requirement, dir string) (*Image, error) {
	if base.Python == nil {
		return nil, fmt.Errorf("packages cannot be added: %s", base.Trouble)
	}
	below := filepath.Join(dir, "base.tar")
	room := b.Store.Limits().Archives()
	lowest, err := packLayer(below, room, func(w io.Writer) error {
		return flatten.Pack(ctx, w, base.Dir)
	})
	if err != nil {
		return nil, err
	}
	layers := []flatten.Layer{lowest}
	out := &Image{}
	if len(requirements) > 0 {
		b.tell("looking at the base's Python", 0, 0)
		target, err := b.Inspect(ctx, base)
		if err != nil {
			return nil, err
		}
		wheels := filepath.Join(dir, "wheels")
		if err := os.Mkdir(wheels, 0o700); err != nil {
			return nil, err
		}
		b.tell("downloading wheels", 0, 0)
		pip := b.Pip.Telling(func(stage string) { b.tell(stage, 0, 0) })
		if err := pip.Download(ctx, target, requirements, wheels); err != nil {
			return nil, err
		}
		files, err := wheelsIn(wheels)
		if err != nil {
			return nil, err
		}
		b.tell("unpacking wheels", 0, 0)
		installed := &installation{target: target, python: base.Python.Path}
		top, err := packLayer(filepath.Join(dir, "packages.tar"), room, func(w io.Writer) error {
			return installed.write(ctx, w, wheels, files)
		})
		if err != nil {
			return nil, err
		}
		layers = append(layers, top)
		out.Packages, out.Modules = files, installed.names()
		code, err := b.compile(ctx, base, layers, installed, dir, out)
		if err != nil {
			return nil, err
		}
		layers = append(layers, code)
	}
	config, err := configOf(base, layers)
	out.Content = &image.Content{Config: config, Layers: layers}
	return out, err
}

// Resolve chooses the wheels that the requirements need on that base. dir is an
// empty folder.
func (b *Builder) Resolve(ctx context.Context, target *Target, requirements []Requirement, dir string) ([]Wheel, error) {
	b.tell("resolving packages", 0, 0)
	pip := b.Pip.Telling(func(stage string) { b.tell(stage, 0, 0) })
	return pip.Resolve(ctx, target, requirements, dir)
}

// compile compiles the installed modules to byte code, in a sandbox of the
// image so far.
func (b *Builder) compile(ctx context.Context, base *image.Root, layers []flatten.Layer, in *installation, dir string, out *Image) (flatten.Layer, error) {
	config, err := configOf(base, layers)
	if err != nil {
		return flatten.Layer{}, err
	}
	interim, err := b.Store.Add(ctx, &image.Content{Config: config, Layers: layers, Passing: true}, func(done, total int64) { b.tell("unpacking", done, total) })
	if err != nil {
		return flatten.Layer{}, err
	}
	defer interim.Release()
	b.Passing = append(b.Passing, interim.ID)
	return packLayer(filepath.Join(dir, "code.tar"), b.Store.Limits().Archives(), func(w io.Writer) error {
		return b.byteCode(ctx, sandbox.Root{Image: interim.ID}, in, dir, w, out)
	})
}

// configOf returns the configuration of an image with these layers and the
// base's environment.
func configOf(base *image.Root, layers []flatten.Layer) ([]byte, error) {
	var diffs []string
	for _, l := range layers {
		diffs = append(diffs, l.DiffID)
	}
	return archive.Config(diffs, base.Env)
}

// packLayer writes a layer to a file.
func packLayer(file string, room *flatten.Room, write func(w io.Writer) error) (flatten.Layer, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return flatten.Layer{}, err
	}
	sum := sha256.New()
	counted := &counter{}
	err = write(io.MultiWriter(room, f, sum, counted)) // room first: nothing is written without it
	if err = errors.Join(err, f.Close()); err != nil {
		return flatten.Layer{}, err
	}
	return flatten.Layer{
		Name: filepath.Base(file), Size: counted.n, DiffID: "sha256:" + hex.EncodeToString(sum.Sum(nil)),
		Open: func() (io.ReadCloser, error) { return os.Open(file) },
	}, nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

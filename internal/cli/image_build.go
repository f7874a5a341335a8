package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/build"
)

// hostBase names the host's own Python as a base.
const hostBase = "host"

type imageBuildCmd struct {
	Base         string   `help:"Image to add packages to; host is the host's own Python." default:"host" placeholder:"IMAGE" complete:"images"`
	Package      []string `help:"Package to install, optionally with a version: numpy, pandas>=2. Can be repeated." short:"p" placeholder:"NAME" sep:"none"`
	Requirements []string `help:"Requirements file, which may only name packages. Can be repeated." short:"r" placeholder:"FILE" sep:"none"`
	Wheels       string   `help:"Directory with all the wheels; nothing is downloaded." placeholder:"DIR"`
	Tag          string   `help:"Name for the image." short:"t" placeholder:"NAME"`
	Output       string   `help:"Also write the image to this file, as an OCI archive for podman load and docker load." short:"o" placeholder:"FILE"`
	JSON         bool     `help:"Print the image as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imageBuildCmd) Help() string {
	return `Builds an image from a base and Python packages, without a container engine. The host's pip or uv downloads wheels for the base's version of Python, with its own settings (index, proxy, credentials). They are unpacked here and compiled in a sandbox of the base, without a network. Nothing that was downloaded runs on this machine: packages without a wheel are refused. The same packages give the same image.

Examples:
  sallyport image build -p numpy -p pandas -t mydata
  sallyport image build --base python:3.13-slim -r requirements.txt -t mydata --output mydata.tar
  SALLYPORT_IMAGE=mydata sallyport run -c 'import pandas; pandas.__version__'`
}

// Run implements the command.
func (c *imageBuildCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	if c.Tag == "" && c.Output == "" {
		return errors.New("give the image a name with --tag NAME, or write it to a file with --output FILE")
	}
	requirements, err := c.requirements()
	if err != nil {
		return err
	}
	var tag image.Name
	if c.Tag != "" {
		if tag, err = image.ParseName(c.Tag); err != nil {
			return err
		}
		if tag = tag.Here(); tag.ID != "" {
			return fmt.Errorf("%s is an ID, not a name", c.Tag)
		}
	}
	return interrupted(u, c.build(u, tag, requirements))
}

// requirements returns all requested packages.
func (c *imageBuildCmd) requirements() ([]build.Requirement, error) {
	var out []build.Requirement
	for _, text := range c.Package {
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, fmt.Errorf("--package: %w", err)
		}
		out = append(out, r)
	}
	for _, file := range c.Requirements {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		more, err := build.ReadRequirements(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

func (c *imageBuildCmd) build(u *ui, tag image.Name, requirements []build.Requirement) error {
	store := u.ImageStore()
	dir, remove, err := store.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	label := cmp.Or(c.Tag, c.Output)
	meter := u.meter(label)
	defer meter.end()

	b, end, err := u.ImageBuilder(store)
	if err != nil {
		return err
	}
	b.Tell = meter.tell
	defer end()
	if len(requirements) > 0 {
		if b.Pip, err = u.Pip(u.ctx); err != nil {
			return err
		}
		b.Pip.Wheels = c.Wheels
		if !c.JSON {
			b.Pip.Output = &afterMeter{meter, u.stdio.Err}
		}
	}
	var on environment.Definition
	if c.Base != hostBase {
		on.Image = c.Base
	}
	base, err := u.ImageBase(u.ctx, store, &on, meter.tell)
	if err != nil {
		return err
	}
	defer base.Release() // before the engine ends and removes temporary images
	if c.Base == hostBase {
		b.Passing = append(b.Passing, base.ID)
	}
	built, err := b.Packages(u.ctx, base, requirements, dir)
	if err != nil {
		return err
	}
	if c.Output != "" {
		meter.tell("writing "+c.Output, 0, 0)
		if err := c.write(u, tag, built, dir); err != nil {
			return err
		}
	}
	record := image.Record{Name: c.Output, ID: image.ID(built.Config), Source: image.SourceBuild}
	if c.Tag == "" {
		meter.end()
		if c.JSON {
			return u.printImages([]shownImage{imageShown(record, image.Info{})}, true)
		}
		fmt.Fprintf(u.stdio.Out, "%s\n  id      %s\n", c.Output, record.ID)
		return nil
	}
	root, err := store.Add(u.ctx, built.Content, func(done, total int64) { meter.tell("unpacking", done, total) })
	if err != nil {
		return err
	}
	record, err = store.Tag(tag, root, "", image.SourceBuild)
	if err != nil {
		root.Release()
		return err
	}
	meter.end()
	list := []shownImage{u.arrived(record, root, c.JSON)}
	if !c.JSON {
		for _, p := range built.Packages {
			fmt.Fprintf(u.stdio.Out, "  wheel   %s\n", p)
		}
		if built.Uncompiled > 0 {
			fmt.Fprintf(u.stdio.Err, "sallyport: %d modules are for another version of Python and were not compiled.\n", built.Uncompiled)
		}
	}
	return u.printImages(list, c.JSON)
}

// write writes the image to the file, atomically.
func (c *imageBuildCmd) write(u *ui, tag image.Name, built *build.Image, dir string) error {
	name := tag.Full
	if name == "" {
		name = "localhost/" + strings.ToLower(strings.TrimSuffix(filepath.Base(c.Output), filepath.Ext(c.Output))) + ":latest"
	}
	return writeWhole(c.Output, func(w io.Writer) error { return archive.Write(u.ctx, w, name, built.Content, dir) })
}

// afterMeter clears the meter's line before something else is written.
type afterMeter struct {
	meter *meter
	w     io.Writer
}

func (o *afterMeter) Write(p []byte) (int, error) {
	o.meter.pause()
	return o.w.Write(p)
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sallyport/internal/image"
	"sallyport/internal/image/archive"
	"sallyport/internal/image/build"
	"sallyport/internal/image/flatten"
	"sallyport/internal/sandbox/hostroot"
	"sallyport/internal/settings"
)

// hostBase names the host's own Python as a base.
const hostBase = "host"

type imageBuildCmd struct {
	Base         string   `help:"Image to add packages to, or host for the host's own Python." default:"host" placeholder:"IMAGE"`
	Package      []string `help:"Package by its name, with a version if need be: numpy, pandas>=2. Can be repeated." short:"p" placeholder:"NAME" sep:"none"`
	Requirements []string `help:"File of requirements, by name only. Can be repeated." short:"r" placeholder:"FILE" sep:"none"`
	Wheels       string   `help:"Directory with all wheels that are needed; nothing is downloaded." placeholder:"DIR"`
	Tag          string   `help:"Name for the image." short:"t" placeholder:"NAME"`
	Output       string   `help:"Also write the image to this file, as an OCI archive for podman load and docker load." short:"o" placeholder:"FILE"`
	JSON         bool     `help:"Print the image as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imageBuildCmd) Help() string {
	return `Makes an image of a base and Python packages, without a container engine. The host's pip or uv downloads wheels for the base's version of Python, with its own settings (index, proxy, credentials); they are unpacked here, and compiled in a sandbox of the base without a network. Nothing that was downloaded runs on this machine: packages that have no wheel are refused. The same packages make the same image.

Examples:
  sallyport image build -p numpy -p pandas -t mydata
  sallyport image build --base python:3.13-slim -r requirements.txt -t mydata --output mydata.tar
  SALLYPORT_IMAGE=mydata sallyport run -c 'import pandas; pandas.__version__'`
}

// Run implements the command.
func (c *imageBuildCmd) Run(a *app) error {
	if err := a.configure(); err != nil {
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
			return fmt.Errorf("%s is an ID and no name", c.Tag)
		}
	}
	return interrupted(a, c.build(a, tag, requirements))
}

// requirements are all that were asked for.
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

func (c *imageBuildCmd) build(a *app, tag image.Name, requirements []build.Requirement) error {
	store := a.imageStore()
	dir, remove, err := store.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	label := firstOf(c.Tag, c.Output)
	meter := a.meter(label)
	defer meter.end()

	// Code runs in images by their IDs, which are here.
	a.settings.Engine, a.settings.Image = settings.EngineGVisor, ""
	backend, err := a.engine()
	if err != nil {
		return err
	}
	b := &build.Builder{Store: store, Backend: backend, Tell: meter.tell}
	defer func() {
		if err := backend.Close(); err != nil {
			a.log.Warn("cleaning up", "error", err)
		}
		for _, id := range b.Passing {
			if _, err := store.Prune(id, a.bound); err != nil {
				a.log.Warn("cleaning up", "image", id, "error", err)
			}
		}
	}()
	if len(requirements) > 0 {
		look := func(name string) (string, error) { return hostroot.LookPath(name, a.env["PATH"]) }
		if b.Pip, err = build.FindPip(a.ctx, a.env.list(), look, a.settings.Python, "python3", "python"); err != nil {
			return err
		}
		b.Pip.Wheels = c.Wheels
		if !c.JSON {
			b.Pip.Output = &afterMeter{meter, a.stdio.Err}
		}
	}
	base, err := c.base(a, store, dir, meter)
	if err != nil {
		return err
	}
	defer base.Release() // before the engine ends, and what is passing is removed
	if c.Base == hostBase {
		b.Passing = append(b.Passing, base.ID)
	}
	built, err := b.Packages(a.ctx, base, requirements, dir)
	if err != nil {
		return err
	}
	if c.Output != "" {
		meter.tell("writing "+c.Output, 0, 0)
		if err := c.write(a, tag, built, dir); err != nil {
			return err
		}
	}
	record := image.Record{Name: c.Output, ID: image.ID(built.Config), Source: image.SourceBuild}
	if c.Tag == "" {
		meter.end()
		if c.JSON {
			return a.printImages([]shownImage{imageShown(record, image.Info{})}, true)
		}
		fmt.Fprintf(a.stdio.Out, "%s\n  id      %s\n", c.Output, record.ID)
		return nil
	}
	root, err := store.Add(a.ctx, built.Content, func(done, total int64) { meter.tell("unpacking", done, total) })
	if err != nil {
		return err
	}
	record, err = store.Tag(tag, root, "", image.SourceBuild)
	if err != nil {
		root.Release()
		return err
	}
	meter.end()
	list := []shownImage{a.arrived(record, root, c.JSON)}
	if !c.JSON {
		for _, p := range built.Packages {
			fmt.Fprintf(a.stdio.Out, "  wheel   %s\n", p)
		}
		if built.Uncompiled > 0 {
			fmt.Fprintf(a.stdio.Err, "sallyport: %d modules are not for this version of Python and were not compiled.\n", built.Uncompiled)
		}
	}
	return a.printImages(list, c.JSON)
}

// base holds the root that packages are added to.
func (c *imageBuildCmd) base(a *app, store *image.Store, dir string, meter *meter) (*image.Root, error) {
	if c.Base == hostBase {
		meter.tell("copying the host's Python", 0, 0)
		p, err := hostroot.FindInterpreter(a.ctx, a.settings.Python, a.env["PATH"])
		if err != nil {
			return nil, err
		}
		layer, env, err := build.HostBase(a.ctx, p, dir, store.Limits())
		if err != nil {
			return nil, err
		}
		config, err := archive.Config([]string{layer.DiffID}, env)
		if err != nil {
			return nil, err
		}
		return store.Add(a.ctx, &image.Content{Config: config, Layers: []flatten.Layer{layer}, Passing: true}, func(done, total int64) { meter.tell("unpacking the base", done, total) })
	}
	root, _, err := store.Open(a.ctx, c.Base)
	if !errors.Is(err, image.ErrMissing) {
		return root, err
	}
	n, nameErr := image.ParseName(c.Base)
	if nameErr != nil || n.Local() || a.settings.Images.Pull == settings.PullNever {
		return nil, err
	}
	root, _, err = a.pull(a.ctx, store, n, meter.tell)
	return root, err
}

// write writes the image to the file, whole or not at all.
func (c *imageBuildCmd) write(a *app, tag image.Name, built *build.Image, dir string) error {
	name := tag.Full
	if name == "" {
		name = "localhost/" + strings.ToLower(strings.TrimSuffix(filepath.Base(c.Output), filepath.Ext(c.Output))) + ":latest"
	}
	if info, err := os.Stat(c.Output); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", c.Output)
	}
	f, err := os.CreateTemp(filepath.Dir(c.Output), ".sallyport-image-*")
	if err != nil {
		return err
	}
	err = archive.Write(a.ctx, f, name, built.Content, dir)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.Output)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
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

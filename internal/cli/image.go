package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

type imageCmd struct {
	List   imageListCmd   `cmd:"" default:"withargs" help:"List the local images."`
	Pull   imagePullCmd   `cmd:"" help:"Pull images from their registries."`
	Load   imageLoadCmd   `cmd:"" help:"Load images from an archive or a directory."`
	Build  imageBuildCmd  `cmd:"" help:"Build an image from a base and Python packages."`
	Remove imageRemoveCmd `cmd:"" name:"rm" help:"Remove images."`
	Prune  imagePruneCmd  `cmd:"" help:"Remove unused images that have no name."`
}

// shownImage is an image in a list.
type shownImage struct {
	image.Record
	Python   string         `json:"python,omitempty"`
	Platform string         `json:"platform,omitempty"`
	Bytes    int64          `json:"bytes"`
	Trouble  string         `json:"trouble,omitempty"`
	Dropped  map[string]int `json:"dropped,omitempty"`
}

func imageShown(r image.Record, in image.Info) shownImage {
	s := shownImage{Record: r, Platform: in.Platform, Bytes: in.Bytes, Trouble: in.Trouble, Dropped: in.Dropped}
	if in.Python != nil {
		s.Python = in.Python.String()
	}
	return s
}

type imageListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imageListCmd) Help() string {
	return `These images are for the embedded gVisor, which needs no container engine. The setting image (SALLYPORT_IMAGE, MCP_BRIDGE_IMAGE) selects the one that code runs in.

Example:
  sallyport image list
  sallyport image list --json | jq -r '.images[].name'`
}

// Run implements the command.
func (c *imageListCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	store := u.ImageStore()
	records, problems := store.Records()
	list := []shownImage{}
	for _, r := range records {
		in, err := store.Info(r.ID)
		if err != nil {
			in.Trouble = "its files are gone: pull, load or build it again"
		}
		list = append(list, imageShown(r, in))
	}
	if c.JSON {
		err := u.printJSON(struct {
			Images []shownImage `json:"images"`
		}{list})
		return errors.Join(err, problems)
	}
	t := u.table("NAME", "ID", "PYTHON", "SIZE", "FROM", "SINCE")
	for _, s := range list {
		t.Row(printable(s.Name), shortID(s.ID), cmp.Or(s.Python, "none"), megabytes(s.Bytes), string(s.Source),
			s.Time.Local().Format("2006-01-02 15:04"))
	}
	return errors.Join(t.Write(u.stdio.Out), problems)
}

// shortID shortens an ID for people.
func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(12, len(id))]
}

type imagePullCmd struct {
	Names []string `arg:"" help:"Images, by tag or digest." complete:"images"`
	JSON  bool     `help:"Print the pulled images as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imagePullCmd) Help() string {
	return `Pulls each image for this machine's processor, verifies all digests, and unpacks it. No container engine is needed, and nothing in the image is run. Credentials come from REGISTRY_AUTH_FILE and the files of podman login and docker login, credential helpers included. The name refers to this version until it is pulled again. Ctrl-C leaves no partial image.

Examples:
  sallyport image pull python:3.13-slim
  sallyport image pull registry.example/team/tools@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945
  SALLYPORT_IMAGE=python:3.13-slim sallyport run -c 'import sys; sys.version'`
}

// Run implements the command.
func (c *imagePullCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	store := u.ImageStore()
	list := []shownImage{}
	var errs []error
	for _, text := range c.Names {
		n, err := image.ParseName(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		meter := u.meter(n.Full)
		root, record, err := u.PullImage(u.ctx, store, n, meter.tell)
		meter.end()
		if u.ctx.Err() != nil {
			return u.interrupted()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, u.arrived(record, root, c.JSON))
	}
	return errors.Join(append(errs, u.printImages(list, c.JSON))...)
}

// arrived reports what is new in the store.
func (u *ui) arrived(r image.Record, root *image.Root, quiet bool) shownImage {
	defer root.Release()
	s := imageShown(r, root.Info)
	if !quiet {
		fmt.Fprintf(u.stdio.Out, "%s\n  id      %s\n", printable(r.Name), r.ID)
		if r.Digest != "" {
			fmt.Fprintf(u.stdio.Out, "  digest  %s\n", r.Digest)
		}
		fmt.Fprintf(u.stdio.Out, "  size    %.1f MB\n", float64(s.Bytes)/1e6)
		if root.Python != nil {
			fmt.Fprintf(u.stdio.Out, "  python  %s (%s)\n", root.Python, printable(root.Python.Path))
		}
	}
	if len(root.Dropped) > 0 {
		fmt.Fprintf(u.stdio.Err, "sallyport: %s: not unpacked, because a sandbox cannot use it: %s\n", printable(r.Name), counted(root.Dropped))
	}
	if root.Python == nil {
		fmt.Fprintf(u.stdio.Err, "sallyport: %s: code cannot run in this image: %s\n", printable(r.Name), printable(root.Trouble))
	}
	return s
}

func counted(what map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(what)) {
		parts = append(parts, fmt.Sprintf("%d %s", what[k], k))
	}
	return strings.Join(parts, ", ")
}

func (u *ui) printImages(list []shownImage, asJSON bool) error {
	if !asJSON {
		return nil
	}
	return u.printJSON(struct {
		Images []shownImage `json:"images"`
	}{list})
}

type imageLoadCmd struct {
	File string `arg:"" help:"An archive of docker save or podman save, an OCI archive or layout directory, or the tar archive of a root file system; - for standard input."`
	Tag  string `help:"Name for the image; required if the archive has none. The images of an archive with several keep their names." short:"t" placeholder:"NAME"`
	JSON bool   `help:"Print the loaded images as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imageLoadCmd) Help() string {
	return `Archives may be compressed with gzip or zstd. Digests are verified if the archive has them. A --tag without a registry becomes localhost/NAME, which no registry has; the image can also be used as NAME.

Examples:
  docker save team/tools | sallyport image load -
  sallyport image load -t tools tools.tar.gz
  debootstrap --variant=minbase --include=python3 stable root && tar -C root -c . | sallyport image load -t debian -`
}

// Run implements the command.
func (c *imageLoadCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	var tag image.Name
	if c.Tag != "" {
		n, err := image.ParseName(c.Tag)
		if err != nil {
			return err
		}
		tag = n.Here()
	}
	store := u.ImageStore()
	dir, remove, err := store.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	file := c.File
	if file == "-" {
		file = filepath.Join(dir, "standard-input.tar")
		if err := spool(u, file, store.Limits()); err != nil {
			return interrupted(u, fmt.Errorf("reading standard input: %w", err))
		}
	}
	found, err := archive.Read(u.ctx, file, dir, store.Limits())
	if err != nil {
		return interrupted(u, err)
	}
	if c.Tag != "" && len(found) > 1 {
		return fmt.Errorf("%s contains %d images: load it without --tag", c.File, len(found))
	}
	list := []shownImage{}
	room := store.Limits().Room() // images of one archive can share their layers
	for _, img := range found {
		names, err := namesOf(img, tag)
		if err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
		meter := u.meter(names[0].Full)
		root, err := store.Add(u.ctx, img.Content, func(done, total int64) { meter.tell("unpacking", done, total) })
		meter.end()
		if err != nil {
			return interrupted(u, fmt.Errorf("%s: %w", c.File, err))
		}
		if err := room.Take(root.Bytes); err != nil {
			id := root.ID
			root.Release()
			_, pruned := store.Prune(id, u.NeedsImage)
			return errors.Join(fmt.Errorf("%s: %w", c.File, err), pruned)
		}
		for i, n := range names {
			r, err := store.Tag(n, root, img.Digest, image.SourceLoad)
			if err != nil {
				root.Release()
				return err
			}
			if i == len(names)-1 {
				list = append(list, u.arrived(r, root, c.JSON))
			}
		}
	}
	return u.printImages(list, c.JSON)
}

// namesOf returns the names for an image of an archive.
func namesOf(img archive.Image, tag image.Name) ([]image.Name, error) {
	if tag.Full != "" {
		return []image.Name{tag}, nil
	}
	var names []image.Name
	for _, text := range img.Names {
		n, err := image.ParseName(text)
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	if len(names) == 0 {
		return nil, errors.New("the archive has no image name: give one with --tag NAME")
	}
	return names, nil
}

// spool writes standard input to a file.
func spool(u *ui, file string, limits flatten.Limits) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, limits.Room().Reader(u.input()))
	return errors.Join(err, f.Close())
}

// interrupted returns a command's error, or the one for Ctrl-C if that ended
// it.
func interrupted(u *ui, err error) error {
	if err != nil && u.ctx.Err() != nil {
		return u.interrupted()
	}
	return err
}

type imageRemoveCmd struct {
	Names []string `arg:"" help:"Names or IDs of images." complete:"images"`
	JSON  bool     `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imageRemoveCmd) Help() string {
	return `The files of an image are removed with its last name, unless a Sallyport process uses them or a suspended session needs them: then 'sallyport image prune' removes them later. The image of an environment is removed with the environment.

Example:
  sallyport image rm python:3.12-slim`
}

// removedImage says what happened to an image's files.
type removedImage struct {
	Name  string `json:"name,omitempty"`
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
	Kept  string `json:"kept,omitempty"`
}

// Run implements the command.
func (c *imageRemoveCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	store := u.ImageStore()
	out := []removedImage{}
	var errs []error
	for _, text := range c.Names {
		r, err := store.Find(text)
		if env := image.Environment(r.Name); env != "" {
			err = fmt.Errorf("%s is the image of the environment %s: remove that with `sallyport env rm %[2]s`", printable(r.Name), env)
		} else if err == nil && r.Name != r.ID {
			err = store.Untag(r)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed, err := store.Prune(r.ID, u.NeedsImage)
		errs = append(errs, err)
		one := removedImage{Name: r.Name, ID: r.ID}
		for _, d := range removed {
			one.Bytes, one.Kept = d.Bytes, d.Kept
		}
		out = append(out, one)
		if !c.JSON {
			fmt.Fprintf(u.stdio.Err, "%s is removed%s.\n", printable(r.Name), ending(one))
		}
	}
	if c.JSON {
		errs = append(errs, u.printJSON(struct {
			Removed []removedImage `json:"removed"`
		}{out}))
	}
	return errors.Join(errs...)
}

func ending(r removedImage) string {
	if r.Kept != "" {
		return "; its files are kept: " + r.Kept
	}
	return fmt.Sprintf(", %.1f MB freed", float64(r.Bytes)/1e6)
}

type imagePruneCmd struct {
	JSON bool `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*imagePruneCmd) Help() string {
	return `Removes earlier versions of images that were pulled or built again, packages of environments that are gone, and the leftovers of a crash. Images that have a name, that a Sallyport process uses, or that a suspended session needs stay.

Example:
  sallyport image prune`
}

// Run implements the command.
func (c *imagePruneCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	removed, err := u.ImageStore().Prune("", u.NeedsImage)
	out := []removedImage{}
	var free int64
	for _, r := range removed {
		if r.Kept == image.KeptNamed {
			continue
		}
		free += r.Bytes
		out = append(out, removedImage{ID: r.ID, Bytes: r.Bytes, Kept: r.Kept})
		if !c.JSON {
			fmt.Fprintf(u.stdio.Err, "%s%s.\n", shortID(r.ID), map[bool]string{true: " stays: " + r.Kept, false: " is removed"}[r.Kept != ""])
		}
	}
	if s, failed := u.Environments(); failed == nil {
		freed, failed := s.Sweep(environment.AllArchives)
		free += freed
		err = errors.Join(err, failed)
	}
	if c.JSON {
		return errors.Join(err, u.printJSON(struct {
			Removed []removedImage `json:"removed"`
		}{out}))
	}
	fmt.Fprintf(u.stdio.Err, "%.1f MB freed.\n", float64(free)/1e6)
	return err
}

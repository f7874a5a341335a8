package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/invisible"
)

type artifactsSaveCmd struct {
	Artifacts []string `arg:"" name:"artifact" help:"ID, ID/PATH, or PATH for the newest file of that path." complete:"artifacts"`
	Output    string   `help:"File to write, or directory for several (default: this directory); - is standard output." short:"o" placeholder:"PATH"`
}

// Help implements kong's HelpProvider.
func (*artifactsSaveCmd) Help() string {
	return `A file that is named goes into the directory under its own name; the files of an ID keep their folders. Existing files are not overwritten: in a directory, the new file gets another name. Each file is compared with its SHA-256 while it is copied, and one that is damaged is removed again.

Examples:
  sallyport artifacts save report.csv
  sallyport artifacts save 4k2jvqhx7m -o results
  sallyport artifacts save 4k2jvqhx7m/data.parquet -o - | sha256sum`
}

// Run implements the command.
func (c *artifactsSaveCmd) Run(u *ui) error {
	store, err := u.artifacts()
	if err != nil {
		return err
	}
	var files []kept
	var names []string // below the directory
	single := len(c.Artifacts) == 1
	for _, name := range c.Artifacts {
		found, whole, err := findArtifact(store, name)
		if err != nil {
			return err
		}
		single = single && !whole
		for _, f := range found {
			files = append(files, f)
			if whole {
				names = append(names, f.Path)
			} else {
				names = append(names, path.Base(f.Path))
			}
		}
	}
	if c.Output == "-" {
		if len(files) != 1 {
			return fmt.Errorf("-o - takes one file, not %d", len(files))
		}
		return u.saveArtifact(store, files[0].File, u.stdio.Out)
	}
	dir := c.Output
	if dir == "" {
		dir = "."
	} else if single && !os.IsPathSeparator(dir[len(dir)-1]) {
		switch info, err := os.Stat(dir); {
		case err == nil && info.IsDir():
		case err == nil:
			return fmt.Errorf("%s already exists; choose another file with -o", dir)
		default:
			dir, names[0] = filepath.Split(dir)
			dir = filepath.Clean(dir) // empty: this directory
		}
	}
	out, err := u.outAs("-o", dir)
	if err != nil {
		return err
	}
	defer out.close()
	var failed []error
	for i, f := range files {
		if u.ctx.Err() != nil {
			break
		}
		err := u.saveBelow(store, f.File, out, names[i])
		if err != nil {
			err = fmt.Errorf("%s: %w", invisible.Line(f.address()), err)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// saveBelow writes a kept file below a directory.
func (u *ui) saveBelow(store *artifact.Store, f artifact.File, out *outDir, name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("this system cannot have a file of that name; choose one with -o")
	}
	w, done, err := out.create(name)
	if err != nil {
		return err
	}
	err = u.saveArtifact(store, f, w)
	return errors.Join(err, done(err == nil))
}

// longTransfer is the size from which on progress is shown.
const longTransfer = 16 << 20

// saveArtifact copies a kept file, and fails if it is damaged.
func (u *ui) saveArtifact(store *artifact.Store, f artifact.File, to io.Writer) error {
	content, err := store.Open(f)
	if err != nil {
		return err
	}
	defer content.Close()
	var from io.Reader = artifact.NewVerifier(f, content)
	if f.Size >= longTransfer {
		progress := u.silentMeter("sallyport")
		defer progress.end()
		from = &transfer{ctx: u.ctx, from: from, tell: func(done int64) { progress.tell("saving "+invisible.Line(f.Path), done, f.Size) }}
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, 256<<10))
	return err
}

// transfer reads until its context is done, and tells how much it has read.
type transfer struct {
	ctx  context.Context
	from io.Reader
	tell func(done int64)
	done int64
}

func (t *transfer) Read(p []byte) (int, error) {
	if t.ctx.Err() != nil {
		return 0, context.Cause(t.ctx)
	}
	n, err := t.from.Read(p)
	t.done += int64(n)
	t.tell(t.done)
	return n, err
}

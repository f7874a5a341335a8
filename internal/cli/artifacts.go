package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/invisible"
)

type artifactsCmd struct {
	List   artifactsListCmd   `cmd:"" default:"withargs" help:"List the files that code has left, the newest first."`
	Show   artifactsShowCmd   `cmd:"" help:"Show where a file comes from, and the beginning of text."`
	Save   artifactsSaveCmd   `cmd:"" help:"Write files to this computer, and check that they are whole."`
	Open   artifactsOpenCmd   `cmd:"" help:"Open a picture, a PDF, a page or text with the program of your desktop."`
	Remove artifactsRemoveCmd `cmd:"" name:"rm" help:"Remove files before their time (setting artifacts.keep)."`
}

// kept is a file and the record that names it.
type kept struct {
	artifact.File
	record *artifact.Record
}

// address is what commands take for the file.
func (k kept) address() string { return k.record.ID + "/" + k.Path }

// artifacts opens the files that code has left.
func (u *ui) artifacts() (*artifact.Store, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	return u.Artifacts(), nil
}

// findArtifact returns the files that ID, ID/PATH or PATH names, of which the last is
// the newest file of that path.
func findArtifact(store *artifact.Store, name string) (files []kept, whole bool, err error) {
	id, path, one := strings.Cut(name, "/")
	r, err := store.Get(id)
	switch {
	case err == nil && !one:
		for _, f := range r.Files {
			files = append(files, kept{f, r})
		}
		return files, true, nil
	case err == nil:
		f, missing := r.File(path)
		if missing == nil {
			return []kept{{f, r}}, false, nil
		}
	case !errors.Is(err, artifact.ErrUnknown):
		return nil, false, err
	}
	list, unread := store.List()
	for _, r := range list {
		if f, err := r.File(name); err == nil {
			return []kept{{f, r}}, false, nil
		}
	}
	err = fmt.Errorf("%w: %s; `sallyport artifacts list` lists those that are kept", artifact.ErrUnknown, printable(name))
	return nil, false, errors.Join(err, unread)
}

type artifactsListCmd struct {
	Session string `help:"Only files of that session." placeholder:"NAME" complete:"sessions"`
	JSON    bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*artifactsListCmd) Help() string {
	return `Every file that code creates or changes in /workspace is kept when the code ends, for as long as the settings artifacts.keep and artifacts.maxDisk allow. Other commands take a file as ID/PATH, all files of an execution as ID, and the newest file of a path as PATH.

Examples:
  sallyport artifacts
  sallyport artifacts list --session analysis`
}

// Run implements the command.
func (c *artifactsListCmd) Run(u *ui) error {
	store, err := u.artifacts()
	if err != nil {
		return err
	}
	all, problems := store.List()
	list := []*artifact.Record{}
	for _, r := range all {
		if c.Session == "" || r.Session == c.Session {
			list = append(list, r)
		}
	}
	if c.JSON {
		return errors.Join(u.printJSON(struct {
			Artifacts []*artifact.Record `json:"artifacts"`
		}{list}), problems)
	}
	if len(list) == 0 {
		if problems == nil {
			fmt.Fprintln(u.stdio.Out, "No files are kept. Code leaves them in /workspace.")
		}
		return problems
	}
	t := u.table("ARTIFACT", "SESSION", "CREATED", "TYPE", "SIZE")
	for _, r := range list {
		for _, f := range r.Files {
			t.Row(invisible.Line(kept{f, r}.address()), sessionOf(r), r.Created.Local().Format("2006-01-02 15:04"), invisible.Line(f.Type), readable(f.Size))
		}
	}
	return errors.Join(t.Write(u.stdio.Out), problems)
}

// sessionOf names a record's session; those of one client alone have no name that others
// could use.
func sessionOf(r *artifact.Record) string {
	if r.Own || r.Session == "" {
		return "-"
	}
	return printable(r.Session)
}

type artifactsShowCmd struct {
	Artifact string `arg:"" help:"ID, ID/PATH, or PATH for the newest file of that path." complete:"artifacts"`
	JSON     bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*artifactsShowCmd) Help() string {
	return `Example:
  sallyport artifacts show report.csv`
}

// Run implements the command.
func (c *artifactsShowCmd) Run(u *ui) error {
	store, err := u.artifacts()
	if err != nil {
		return err
	}
	files, whole, err := findArtifact(store, c.Artifact)
	if err != nil {
		return err
	}
	r := files[0].record
	if c.JSON {
		shown := *r
		if !whole {
			shown.Files = []artifact.File{files[0].File}
		}
		return u.printJSON(&shown)
	}
	t := u.table()
	row := func(what, text string) {
		if text != "" {
			t.Row(what, text)
		}
	}
	row("created", r.Created.Local().Format(time.DateTime)+" ("+ago(r.Created)+")")
	if name := sessionOf(r); name != "-" {
		row("session", name)
	}
	if r.Execution > 0 {
		row("execution", fmt.Sprint(r.Execution))
	}
	row("client", printable(r.Client))
	row("request", printable(r.Request))
	for _, f := range files {
		row("artifact", invisible.Line(f.address()))
		row("", invisible.Line(cmp.Or(f.Type, "-"))+", "+readable(f.Size))
		row("", invisible.Line(f.About))
		row("", "SHA-256 "+f.Digest)
	}
	if err := t.Write(u.stdio.Out); err != nil || whole || !artifact.IsText(files[0].Type) {
		return err
	}
	return u.preview(store, files[0].File)
}

// Bounds of what a preview shows.
const (
	previewBytes = 4 << 10
	previewLines = 20
)

// preview prints the beginning of text.
func (u *ui) preview(store *artifact.Store, f artifact.File) error {
	content, err := store.Open(f)
	if err != nil {
		return err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, previewBytes))
	if err != nil {
		return err
	}
	text := strings.TrimRight(strings.ToValidUTF8(string(data), ""), "\n")
	lines := strings.Split(text, "\n")
	rest := f.Size > int64(len(data)) || len(lines) > previewLines
	fmt.Fprintln(u.stdio.Out, "\n"+escaped(strings.Join(lines[:min(len(lines), previewLines)], "\n")))
	if rest {
		fmt.Fprintln(u.stdio.Out, "…")
	}
	return nil
}

type artifactsRemoveCmd struct {
	Artifacts []string      `arg:"" optional:"" name:"artifact" help:"ID or ID/PATH." complete:"artifacts"`
	Session   string        `help:"All files of that session." placeholder:"NAME" complete:"sessions"`
	Older     time.Duration `help:"All files that are older, such as 48h." placeholder:"DURATION"`
	All       bool          `help:"All files."`
}

// Help implements kong's HelpProvider.
func (*artifactsRemoveCmd) Help() string {
	return `With --session and --older, files that both name are removed.

Examples:
  sallyport artifacts rm 4k2jvqhx7m/big.bin
  sallyport artifacts rm --session analysis --older 48h`
}

// Run implements the command.
func (c *artifactsRemoveCmd) Run(u *ui) error {
	chosen := c.Session != "" || c.Older != 0
	switch {
	case c.Older < 0:
		return errors.New("--older: the duration is negative")
	case len(c.Artifacts) == 0 && !chosen && !c.All:
		return errors.New("name files, or choose them with --session, --older or --all")
	case len(c.Artifacts) > 0 && (chosen || c.All) || chosen && c.All:
		return errors.New("names, --all, and --session or --older exclude one another")
	}
	store, err := u.artifacts()
	if err != nil {
		return err
	}
	var failed []error
	remove := func(name, id string, paths ...string) {
		if err := store.Remove(id, paths...); err != nil {
			failed = append(failed, err)
			return
		}
		fmt.Fprintln(u.stdio.Out, invisible.Line(name))
	}
	for _, name := range c.Artifacts {
		id, path, one := strings.Cut(name, "/")
		if one {
			remove(name, id, path)
		} else {
			remove(name, id)
		}
	}
	if len(c.Artifacts) > 0 {
		return errors.Join(failed...)
	}
	list, problems := store.List()
	for _, r := range list {
		if (c.Session == "" || r.Session == c.Session && !r.Own) && time.Since(r.Created) >= c.Older {
			remove(r.ID, r.ID)
		}
	}
	return errors.Join(append(failed, problems)...)
}

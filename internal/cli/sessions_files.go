package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/wire"
)

type sessionsPutCmd struct {
	composeFlags
	Name  string   `arg:"" help:"The session." complete:"sessions"`
	Files []string `arg:"" name:"file" help:"Files and directories, under their own names or as FILE=NAME." complete:"files"`
	To    string   `help:"Directory below /workspace; created if it does not exist." placeholder:"DIR"`
}

// Help implements kong's HelpProvider.
func (*sessionsPutCmd) Help() string {
	return `Files go into /workspace and replace those of the same name, each when it is there whole. Links in directories are left out. If code is running in the session, the command waits until it has ended. A suspended session gets the files and is suspended again.

Examples:
  sallyport sessions put analysis data.csv
  sallyport sessions put analysis input=raw --to data`
}

// Run implements the command.
func (c *sessionsPutCmd) Run(u *ui) error {
	to, err := inWorkspace(c.To)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	var files []session.Outgoing
	var total, done int64
	progress := u.silentMeter("sallyport")
	defer progress.end()
	err = eachFile("put", c.Files, func(from, name string, info fs.FileInfo) error {
		mode := uint32(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		total += info.Size()
		files = append(files, session.Outgoing{Path: path.Join(to, name), Mode: mode, Open: func() (io.ReadCloser, error) {
			f, err := os.Open(from)
			if err != nil {
				return nil, err
			}
			before := done
			return struct {
				io.Reader
				io.Closer
			}{&transfer{ctx: u.ctx, from: f, tell: func(n int64) {
				if done = before + n; total >= longTransfer {
					progress.tell("copying "+invisible.Line(name), done, total)
				}
			}}, f}, nil
		}})
		return nil
	})
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("there are no files in it")
	}
	parts := session.NewParts(files)
	defer parts.Close()
	return u.workspace(&c.composeFlags, c.Name, func(s workspaces, key session.Key) error { return s.Put(u.ctx, key, parts.Next) })
}

// workspaces moves files: of sessions in another process, or in this one.
type workspaces interface {
	Put(ctx context.Context, key session.Key, next func() (*wire.TaskFile, error)) error
	Take(ctx context.Context, key session.Key, paths []string, give func(wire.TaskFile) error) error
}

var _ workspaces = (*control.Client)(nil)

// workspace calls do for the process that has a session, or for this one if the session
// is suspended, which it then is again.
func (u *ui) workspace(flags *composeFlags, name string, do func(workspaces, session.Key) error) (err error) {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	k, err := s.Find(name)
	if errors.Is(err, session.ErrUnknown) {
		return fmt.Errorf("%w, and `sallyport run --session` makes one", err)
	}
	if err != nil {
		return err
	}
	if err := reachable(k, "copy"); err != nil {
		return err
	}
	if k.Control != nil {
		if k.Waiting > 0 {
			fmt.Fprintf(u.stdio.Err, "sallyport: code is running in %s; waiting until it has ended\n", printable(k.Address))
		}
		return do(k.Control, k.Key())
	}
	var unsaved error
	flags.unsaved = func(session string, err error) {
		unsaved = fmt.Errorf("the session %s could not be suspended again: %w", printable(session), err)
	}
	sys, err := u.compose(flags)
	if err != nil {
		return err
	}
	err = do(sys.Sessions(), session.Key{Name: k.Name})
	sys.Close()
	return errors.Join(err, unsaved)
}

// reachable reports why the files of a session cannot be reached to do something with them.
func reachable(k *app.KnownSession, what string) error {
	switch {
	case k.Status == hibernate.Gone:
		return fmt.Errorf("nothing is left of it to %s: %s", what, k.Lost)
	case k.Status == hibernate.Unused:
		return fmt.Errorf("it has no state yet: there is nothing to %s", what)
	case k.Status == hibernate.Running && k.Control == nil:
		return fmt.Errorf("process %d, where it is running, does not answer; when that process ends, the session is suspended; then try again", k.Process)
	}
	return nil
}

// inWorkspace returns a path relative to /workspace; empty and /workspace are ".".
func inWorkspace(name string) (string, error) {
	below := name
	if path.IsAbs(name) {
		below = "."
		if rest := strings.TrimPrefix(path.Clean(name), "/workspace"); rest != "" {
			if rest == path.Clean(name) || rest[0] != '/' {
				return "", fmt.Errorf("%s is not below /workspace", printable(name))
			}
			below = rest[1:]
		}
	}
	if below = path.Clean(below); !fs.ValidPath(below) {
		return "", fmt.Errorf("%s is not below /workspace", printable(name))
	}
	return below, nil
}

type sessionsGetCmd struct {
	composeFlags
	Name   string   `arg:"" help:"The session." complete:"sessions"`
	Paths  []string `arg:"" name:"path" help:"Files and directories in /workspace."`
	Output string   `help:"Directory for the files (default: this one); - writes one file to standard output." short:"o" default:"." placeholder:"DIR"`
}

// Help implements kong's HelpProvider.
func (*sessionsGetCmd) Help() string {
	return `Existing files are not overwritten: the new file gets another name. Links are left out. If code is running in the session, the command waits until it has ended. A suspended session stays suspended.

Examples:
  sallyport sessions get analysis results -o copies
  sallyport sessions get analysis report.csv -o - | head`
}

// Run implements the command.
func (c *sessionsGetCmd) Run(u *ui) (err error) {
	var paths []string
	for _, name := range c.Paths {
		p, err := inWorkspace(name)
		if err != nil {
			return err
		}
		paths = append(paths, p)
	}
	g := &incoming{u: u, paths: paths, progress: u.silentMeter("sallyport")}
	defer g.progress.end()
	if c.Output == "-" {
		if len(paths) != 1 {
			return fmt.Errorf("-o - takes one file, not %d", len(paths))
		}
		g.single = u.stdio.Out
	} else if g.out, err = u.outAs("-o", c.Output); err != nil {
		return err
	} else {
		defer g.out.close()
	}
	err = u.workspace(&c.composeFlags, c.Name, func(s workspaces, key session.Key) error { return s.Take(u.ctx, key, paths, g.part) })
	return errors.Join(append(g.left, err, g.end(err == nil))...)
}

// incoming writes files that come in parts. Their paths come from the sandbox.
type incoming struct {
	u        *ui
	paths    []string // that were asked for
	out      *outDir
	single   io.Writer // instead of out
	progress *meter

	content io.Writer
	done    func(whole bool) error // nil: no file is open
	open    string
	files   int
	bytes   int64
	left    []error
}

func (g *incoming) part(f wire.TaskFile) error {
	switch {
	case g.u.ctx.Err() != nil:
		return context.Cause(g.u.ctx)
	case f.LeftOut != "":
		why := fmt.Errorf("%s: %s", invisible.Line(f.Path), invisible.Line(f.LeftOut))
		if slices.Contains(g.paths, f.Path) || g.done != nil {
			g.left = append(g.left, errors.Join(why, g.end(false)))
			return nil
		}
		g.progress.pause()
		fmt.Fprintln(g.u.stdio.Err, "sallyport: left out:", why)
		return nil
	case f.Directory && g.single != nil:
		return fmt.Errorf("%s is a directory; -o - takes one file", invisible.Line(f.Path))
	case f.Directory: // made with its first file
		return nil
	case g.done != nil && f.Path != g.open:
		return errors.Join(errors.New("the sandbox did not send all of a file"), g.end(false))
	}
	if g.done == nil {
		if err := g.begin(f); err != nil {
			return err
		}
	}
	if _, err := g.content.Write(f.Data); err != nil {
		return err
	}
	if g.bytes += int64(len(f.Data)); g.bytes >= longTransfer {
		g.progress.tell(fmt.Sprintf("copying %s, %s", invisible.Line(f.Path), readable(g.bytes)), 0, 0)
	}
	if f.More {
		return nil
	}
	return g.end(true)
}

// begin opens a file under its name below what was asked for.
func (g *incoming) begin(f wire.TaskFile) (err error) {
	g.files++
	g.open = f.Path
	if g.single != nil {
		if g.files > 1 {
			return errors.New("-o - takes one file")
		}
		g.content, g.done = g.single, func(bool) error { return nil }
		return nil
	}
	name := f.Path
	for _, p := range g.paths {
		if p != "." && (f.Path == p || strings.HasPrefix(f.Path, p+"/")) {
			name = strings.TrimPrefix(f.Path, strings.TrimSuffix(p, path.Base(p)))
			break
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("this system cannot have a file with the name %s", invisible.Line(name))
	}
	mode := fs.FileMode(0o666)
	if f.Mode&0o100 != 0 {
		mode = 0o777
	}
	g.progress.pause()
	g.content, g.done, err = g.out.createAs(name, mode)
	return err
}

// end ends the open file, which is removed unless it is whole.
func (g *incoming) end(whole bool) error {
	done := g.done
	if g.done = nil; done == nil {
		return nil
	}
	g.progress.pause()
	if g.single == nil && !whole {
		return errors.Join(errors.New("a file did not come whole, and is removed"), done(false))
	}
	return done(whole)
}

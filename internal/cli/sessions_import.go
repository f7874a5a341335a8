package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/store/keyed"
	"github.com/sallyport/sallyport/internal/terminal"
)

type sessionsImportCmd struct {
	composeFlags
	File     string `arg:"" help:"The archive."`
	Name     string `help:"The new session's name (default: the one in the archive)." placeholder:"NAME"`
	In       int    `help:"Create it in that process, where it is then running. Required where sandboxes cannot be saved." placeholder:"PID"`
	Memories bool   `help:"Also import the archive's values of save_memory, except for keys that exist."`
}

// Help implements kong's HelpProvider.
func (*sessionsImportCmd) Help() string {
	return `The new session has the archive's files in /workspace. The code in the archive is not run, and there are no variables: code/ has the source, in the order in which it ran, for you or an agent to run what is wanted again.

Examples:
  sallyport sessions import analysis.tar.gz --name again
  tar xzf analysis.tar.gz code && cat code/*.py`
}

// Run implements the command.
func (c *sessionsImportCmd) Run(u *ui) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	dir, remove, err := u.scratch()
	if err != nil {
		return err
	}
	defer remove()
	plain := filepath.Join(dir, "session.tar")
	limit := u.Settings.Limits.Workspace
	facts, kept, err := unpack(c.File, plain, limit, c.Memories)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	name := c.Name
	if name == "" {
		name = facts.Name
	}
	if name == broker.DefaultSession {
		return fmt.Errorf("the new session needs a name: add --name NAME")
	}
	for _, k := range s.All {
		if k.Name == name {
			return fmt.Errorf("session %s already exists: choose another name with --name, or remove it with: sallyport sessions rm %s", name, terminal.ShellWord(k.Address))
		}
	}
	if c.In != 0 {
		_, client, err := s.Process(c.In)
		if err != nil {
			return err
		}
		if err := client.Import(u.ctx, session.Key{Name: name}, plain); err != nil {
			return err
		}
	} else if err := c.makeAndSuspend(u, name, plain); err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Err, "The session %s has the files of the archive. Its code was not run: there are no variables, and no packages that it added.\n", name)
	if c.Memories {
		return keep(u, kept)
	}
	return nil
}

// makeAndSuspend creates the session and suspends it, so that every process can
// find it.
func (c *sessionsImportCmd) makeAndSuspend(u *ui, name, plain string) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	report, err := sys.Engine.Probe(u.ctx)
	if err != nil {
		return err
	}
	if report.Usable && !report.Snapshots {
		return errors.New("sandboxes cannot be saved here, so the session has to live in a process: name one that serves with --in PID ('sallyport sessions' lists them)")
	}
	f, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer f.Close()
	key := session.Key{Name: name}
	if err := sys.Sessions().Import(u.ctx, key, f); err != nil {
		return err
	}
	return sys.Sessions().Suspend(u.ctx, key)
}

// unpack checks a whole archive and writes it to a file, without compression
// and without the memories. It returns those only if they are wanted: an
// untrusted archive may have any number of them.
func unpack(file, plain string, limit int64, wanted bool) (facts archive.Facts, kept []memory.Entry, err error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return facts, nil, err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return facts, nil, fmt.Errorf("%w: %w", archive.ErrInvalid, err)
	}
	in, err := archive.NewReader(zipped, limit)
	if err != nil {
		return facts, nil, err
	}
	w, err := os.OpenFile(plain, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return facts, nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	out := tar.NewWriter(w)
	data, err := json.Marshal(in.Facts)
	if err != nil {
		return facts, nil, err
	}
	add := func(i *archive.Item) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: i.Name, Mode: int64(i.Mode), Size: i.Size}
		if i.Directory {
			h.Typeflag, h.Name = tar.TypeDir, i.Name+"/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.CopyN(out, i.Content, i.Size)
		return err
	}
	if err := add(&archive.Item{Name: archive.FactsFile, Size: int64(len(data)), Content: bytes.NewReader(data)}); err != nil {
		return facts, nil, err
	}
	for {
		i, err := in.Next()
		if err != nil {
			return facts, nil, err
		}
		if i == nil {
			break
		}
		switch {
		case strings.HasPrefix(i.Name, archive.Workspace):
			if err := add(i); err != nil {
				return facts, nil, fmt.Errorf("%w: %w", archive.ErrInvalid, err)
			}
		case i.Name == archiveMemories && !i.Directory && wanted:
			var m memories
			if err := json.NewDecoder(io.LimitReader(i.Content, maxMemories)).Decode(&m); err != nil {
				return facts, nil, fmt.Errorf("%w: %s: %w", archive.ErrInvalid, archiveMemories, err)
			}
			kept = m.Memories
		}
	}
	return in.Facts, kept, out.Close()
}

// keep stores memories under keys that do not exist yet.
func keep(u *ui, list []memory.Entry) error {
	store := u.Memory()
	n := 0
	var errs []error
	for _, e := range list {
		_, err := store.Get(e.Key)
		if !errors.Is(err, keyed.ErrMissing) {
			continue
		}
		if _, err := store.Put(e.Key, e.Value, e.Metadata); err != nil {
			errs = append(errs, aboutKey(e.Key, err))
			continue
		}
		n++
	}
	fmt.Fprintf(u.stdio.Err, "%s of the archive's %d imported; the others existed already.\n", plural(n, "memory is", "memories are"), len(list))
	return errors.Join(errs...)
}

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
	"time"

	"sallyport/internal/broker"
	"sallyport/internal/memory"
	"sallyport/internal/session"
	"sallyport/internal/state"
)

const (
	// archiveMemories is the file of an archive with the memories, as
	// 'sallyport memory export' prints them.
	archiveMemories = "memories.json"
	// maxMemories bounds it.
	maxMemories = 512 << 20
	archiveEnd  = ".tar.gz"
)

type sessionsExportCmd struct {
	composeFlags
	Name     string `arg:"" help:"The session."`
	Output   string `help:"File to write (default: NAME.tar.gz); - is standard output." short:"o" placeholder:"FILE"`
	Memories bool   `help:"Put what code has kept with save_memory into the archive, which all sessions share." default:"true" negatable:""`
}

// Help implements kong's HelpProvider.
func (*sessionsExportCmd) Help() string {
	return `The archive has the files of /workspace, the source of what was run, as far as the log reaches back, and the memories. Variables and running code are not in it: they are of no use elsewhere, and left-out.txt says what else is missing. A session that sleeps is looked into and sleeps on.

Examples:
  sallyport sessions export analysis
  sallyport sessions export analysis -o - | tar tz`
}

// Run implements the command.
func (c *sessionsExportCmd) Run(a *app) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	k, err := s.find(c.Name)
	if err != nil {
		return err
	}
	switch {
	case k.Status == session.Gone:
		return fmt.Errorf("nothing is left of it to export: %s", k.Lost)
	case k.Status == session.Unused:
		return errors.New("it has no state yet: there is nothing to export")
	case k.Status == session.Awake && k.client == nil:
		return fmt.Errorf("process %d, where it is awake, does not answer; when that process ends, the session sleeps and can be exported", k.Process)
	}
	target := c.Output
	if target == "" {
		target = k.Name + archiveEnd
	}
	if target != "-" {
		if _, err := os.Lstat(target); err == nil {
			return fmt.Errorf("%s: there is such a file already; name another one with -o", target)
		}
	}
	dir, remove, err := a.scratch()
	if err != nil {
		return err
	}
	defer remove()
	plain := filepath.Join(dir, "session.tar")
	if k.client != nil {
		err = k.client.Export(a.ctx, k.asked(), plain)
	} else {
		err = c.lookInto(a, k.Name, plain)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer f.Close()
	var kept []memory.Entry
	if c.Memories {
		_, err = memoryOf(a.settings).Export(func(e memory.Entry) error { kept = append(kept, e); return nil })
		if err != nil {
			return err
		}
	}
	if target == "-" {
		_, err = pack(a.stdio.Out, f, kept)
		return err
	}
	files, err := packFile(target, f, kept)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdio.Err, "%s has %s of the session %s. Its variables are not in it.\n", target, plural(files, "file", "files"), printable(k.Address))
	return nil
}

// scratch makes a directory for the files of a command. The next command that
// needs one removes those of commands that were killed.
func (a *app) scratch() (dir string, remove func(), err error) {
	dir, remove, err = a.imageStore().Scratch()
	if errors.Is(err, state.ErrNoPlace) {
		dir, err = os.MkdirTemp("", "sallyport-*") // 0700
		remove = func() { _ = os.RemoveAll(dir) }
	}
	return dir, remove, err
}

// lookInto writes the archive of a session that sleeps.
func (c *sessionsExportCmd) lookInto(a *app, name, file string) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = sys.broker.Export(a.ctx, name, f)
	return errors.Join(err, f.Close())
}

// packFile makes the file, whole or not at all.
func packFile(target string, plain io.Reader, kept []memory.Entry) (files int, err error) {
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+"-*") // 0600
	if err != nil {
		return 0, err
	}
	files, err = pack(f, plain, kept)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return files, nil
}

// pack makes the archive that people get of what a process wrote.
func pack(w io.Writer, plain io.Reader, kept []memory.Entry) (files int, err error) {
	zipped := gzip.NewWriter(w)
	out := tar.NewWriter(zipped)
	in := tar.NewReader(plain)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if strings.HasPrefix(h.Name, session.ArchiveWorkspace) && h.Typeflag == tar.TypeReg {
			files++
		}
		if err := out.WriteHeader(h); err != nil {
			return 0, err
		}
		if _, err := io.Copy(out, in); err != nil { // as large as the header says
			return 0, err
		}
	}
	if len(kept) > 0 {
		data, err := json.MarshalIndent(memories{kept}, "", "  ")
		if err != nil {
			return 0, err
		}
		err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: archiveMemories, Mode: 0o644, Size: int64(len(data)), ModTime: time.Now()})
		if err != nil {
			return 0, err
		}
		if _, err := out.Write(data); err != nil {
			return 0, err
		}
	}
	return files, errors.Join(out.Close(), zipped.Close())
}

// memories is the document of 'sallyport memory export'.
type memories struct {
	Memories []memory.Entry `json:"memories"`
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

type sessionsImportCmd struct {
	composeFlags
	File     string `arg:"" help:"The archive."`
	Name     string `help:"The new session's name (default: the one in the archive)." placeholder:"NAME"`
	In       int    `help:"Make it in that process, which has it awake then. Where sandboxes cannot be saved there is no other way." placeholder:"PID"`
	Memories bool   `help:"Keep the archive's memories too, where there is nothing under their keys."`
}

// Help implements kong's HelpProvider.
func (*sessionsImportCmd) Help() string {
	return `The new session has the archive's files in /workspace. The code in the archive is not run, and there are no variables: code/ has the source, in the order in which it ran, for you or an agent to run what is wanted again.

Examples:
  sallyport sessions import analysis.tar.gz --name again
  tar xzf analysis.tar.gz code && cat code/*.py`
}

// Run implements the command.
func (c *sessionsImportCmd) Run(a *app) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	dir, remove, err := a.scratch()
	if err != nil {
		return err
	}
	defer remove()
	plain := filepath.Join(dir, "session.tar")
	limit := a.settings.Limits.Workspace
	facts, kept, err := unpack(c.File, plain, limit, c.Memories)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	name := c.Name
	if name == "" {
		name = facts.Name
	}
	if name == broker.DefaultSession {
		return fmt.Errorf("a name is needed for the new session: add --name NAME")
	}
	for _, k := range s.all {
		if k.Name == name {
			return fmt.Errorf("there is a session %s already: choose another name with --name, or remove it with 'sallyport sessions rm %s'", name, k.Address)
		}
	}
	if c.In != 0 {
		_, client, err := s.process(c.In)
		if err != nil {
			return err
		}
		if err := client.Import(a.ctx, name, plain); err != nil {
			return err
		}
	} else if err := c.makeAndSleep(a, name, plain); err != nil {
		return err
	}
	fmt.Fprintf(a.stdio.Err, "The session %s has the files of the archive. Its code was not run: there are no variables.\n", name)
	if c.Memories {
		return keep(a, kept)
	}
	return nil
}

// makeAndSleep makes the session and lays it to sleep, where every process
// finds it.
func (c *sessionsImportCmd) makeAndSleep(a *app, name, plain string) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	report, err := sys.backend.Probe(a.ctx)
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
	if err := sys.broker.Import(a.ctx, name, f); err != nil {
		return err
	}
	return sys.broker.Hibernate(a.ctx, name)
}

// unpack checks a whole archive and writes it to a file without compression
// and without the memories, which it returns if they are wanted: a stranger's
// archive may have any number of them.
func unpack(file, plain string, limit int64, wanted bool) (facts session.Facts, kept []memory.Entry, err error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return facts, nil, err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return facts, nil, fmt.Errorf("%w: %w", session.ErrArchive, err)
	}
	in, err := session.ReadArchive(zipped, limit)
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
	add := func(i *session.Item) error {
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
	if err := add(&session.Item{Name: session.ArchiveFacts, Size: int64(len(data)), Content: bytes.NewReader(data)}); err != nil {
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
		case strings.HasPrefix(i.Name, session.ArchiveWorkspace):
			if err := add(i); err != nil {
				return facts, nil, fmt.Errorf("%w: %w", session.ErrArchive, err)
			}
		case i.Name == archiveMemories && !i.Directory && wanted:
			var m memories
			if err := json.NewDecoder(io.LimitReader(i.Content, maxMemories)).Decode(&m); err != nil {
				return facts, nil, fmt.Errorf("%w: %s: %w", session.ErrArchive, archiveMemories, err)
			}
			kept = m.Memories
		}
	}
	return in.Facts, kept, out.Close()
}

// keep keeps memories where there is nothing yet.
func keep(a *app, list []memory.Entry) error {
	store := memoryOf(a.settings)
	n := 0
	var errs []error
	for _, e := range list {
		_, err := store.Get(e.Key)
		if !errors.Is(err, memory.ErrMissing) {
			continue
		}
		if _, err := store.Put(e.Key, e.Value, e.Metadata); err != nil {
			errs = append(errs, aboutKey(e.Key, err))
			continue
		}
		n++
	}
	fmt.Fprintf(a.stdio.Err, "%s of the archive's %d kept; the others were there already.\n", plural(n, "memory is", "memories are"), len(list))
	return errors.Join(errs...)
}

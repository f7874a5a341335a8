package cli

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/store"
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
	Name     string `arg:"" help:"The session." complete:"sessions"`
	Output   string `help:"File to write (default: NAME.tar.gz); - is standard output." short:"o" placeholder:"FILE"`
	Memories bool   `help:"Include the values that code has kept with save_memory, which all sessions share." default:"true" negatable:""`
}

// Help implements kong's HelpProvider.
func (*sessionsExportCmd) Help() string {
	return `The archive has the files of /workspace, the source of what was run, as far as the log reaches back, and the memories. Variables and running code are not in it, because they cannot be moved, and no packages that code added; left-out.txt lists these and what else is missing. A suspended session stays suspended.

Examples:
  sallyport sessions export analysis
  sallyport sessions export analysis -o - | tar tz`
}

// Run implements the command.
func (c *sessionsExportCmd) Run(u *ui) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	k, err := s.Find(c.Name)
	if err != nil {
		return err
	}
	if err := reachable(k, "export"); err != nil {
		return err
	}
	target := c.Output
	if target == "" {
		target = k.Name + archiveEnd
	}
	if target != "-" {
		if _, err := os.Lstat(target); err == nil {
			return fmt.Errorf("%s already exists; choose another file with -o", target)
		}
	}
	dir, remove, err := u.scratch()
	if err != nil {
		return err
	}
	defer remove()
	plain := filepath.Join(dir, "session.tar")
	if k.Control != nil {
		err = k.Control.Export(u.ctx, k.Key(), plain)
	} else {
		err = c.lookInto(u, k.Name, plain)
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
		_, err = u.Memory().Export(func(e memory.Entry) error { kept = append(kept, e); return nil })
		if err != nil {
			return err
		}
	}
	if target == "-" {
		_, err = pack(u.stdio.Out, f, kept)
		return err
	}
	files, err := packFile(target, f, kept)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Err, "%s has %s of the session %s. Its variables, and packages that code added, are not in it.\n", target, plural(files, "file", "files"), printable(k.Address))
	return nil
}

// scratch makes a directory for a command's files. The next command that needs
// one removes the directories of commands that were killed.
func (u *ui) scratch() (dir string, remove func(), err error) {
	dir, remove, err = u.ImageStore().Scratch()
	if errors.Is(err, store.ErrNoPlace) {
		dir, err = os.MkdirTemp("", "sallyport-*") // 0700
		remove = func() { _ = os.RemoveAll(dir) }
	}
	return dir, remove, err
}

// lookInto writes the archive of a suspended session.
func (c *sessionsExportCmd) lookInto(u *ui, name, file string) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = sys.Sessions().Export(u.ctx, session.Key{Name: name}, f)
	return errors.Join(err, f.Close())
}

// packFile creates the file, atomically.
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

// pack turns what a process wrote into the archive that people get.
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
		if strings.HasPrefix(h.Name, archive.Workspace) && h.Typeflag == tar.TypeReg {
			files++
		}
		if err := out.WriteHeader(h); err != nil {
			return 0, err
		}
		if _, err := io.Copy(out, in); err != nil { // of the size in the header
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

// memories is the document that 'sallyport memory export' prints.
type memories struct {
	Memories []memory.Entry `json:"memories"`
}

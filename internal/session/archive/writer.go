package archive

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/wire"
)

// Writer writes an archive of the files that a guest sends. It checks every
// file, because the guest is hostile.
type Writer struct {
	tar     *tar.Writer
	limit   int64 // of bytes
	now     time.Time
	seen    map[string]bool
	buffer  *os.File // holds the current file; it has no name
	current wire.TaskFile
	size    int64 // of the current file so far
	total   int64
	missing []string
	more    int // missing files beyond those
}

// NewWriter begins an archive in w that holds at most limit bytes of files. It
// fills in Facts.Format. The caller must call Close.
func NewWriter(w io.Writer, facts Facts, limit int64) (*Writer, error) {
	facts.Format = format
	a := &Writer{tar: tar.NewWriter(w), limit: limit, now: facts.Exported, seen: map[string]bool{}}
	data, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := a.file(FactsFile, append(data, '\n')); err != nil {
		return nil, err
	}
	if a.buffer, err = os.CreateTemp("", "sallyport-export-*"); err != nil {
		return nil, err
	}
	// Without a name, nothing stays behind if this program is killed. Where an
	// open file cannot be removed, Close removes it.
	_ = os.Remove(a.buffer.Name())
	return a, nil
}

// Close releases the writer's resources. It does not complete the archive.
func (a *Writer) Close() {
	_ = a.buffer.Close()
	_ = os.Remove(a.buffer.Name())
}

// Add adds a file, a part of one or a directory of the workspace. It leaves out
// files with unusable names, and returns an error when the archive becomes too
// large.
func (a *Writer) Add(f wire.TaskFile) error {
	switch {
	case a.current.More && (f.Path != a.current.Path || f.Directory || f.LeftOut != ""):
		// The guest gave up in the middle of a file.
		if err := a.finish(); err != nil {
			return err
		}
		a.leaveOut(a.current.Path, "could not be read to its end")
		a.current = wire.TaskFile{}
		return a.Add(f)
	case f.LeftOut != "":
		a.leaveOut(f.Path, f.LeftOut)
		return nil
	case !validPath(f.Path):
		a.leaveOut(f.Path, "its name is not valid on all systems")
		return nil
	}
	if !a.current.More {
		if a.seen[f.Path] {
			return nil // sent twice
		}
		if len(a.seen) >= maxFiles {
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		a.seen[f.Path] = true
		if f.Directory {
			return a.tar.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: Workspace + f.Path + "/", Mode: int64(f.Mode&0o777 | 0o700), ModTime: a.now,
			})
		}
		if _, err := a.buffer.Seek(0, io.SeekStart); err != nil {
			return err
		}
		a.size = 0
	}
	if a.total += int64(len(f.Data)); a.total > a.limit {
		return fmt.Errorf("the files are larger than the workspace's %d bytes", a.limit)
	}
	if _, err := a.buffer.Write(f.Data); err != nil {
		return err
	}
	a.size += int64(len(f.Data))
	a.current = f
	if f.More {
		return nil
	}
	return a.finish()
}

// finish adds the current file to the archive.
func (a *Writer) finish() error {
	err := a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: Workspace + a.current.Path, Mode: int64(a.current.Mode & 0o777), Size: a.size, ModTime: a.now,
	})
	if err != nil {
		return err
	}
	if _, err := a.buffer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(a.tar, a.buffer, a.size)
	return err
}

func (a *Writer) leaveOut(path, why string) {
	if len(a.missing) >= maxListed {
		a.more++
		return
	}
	a.missing = append(a.missing, wire.OneLine(path)+": "+wire.OneLine(why))
}

// file adds a file that describes the session.
func (a *Writer) file(name string, data []byte) error {
	err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: a.now})
	if err == nil {
		_, err = a.tar.Write(data)
	}
	return err
}

// AddCode adds the source of the code that ran since the last reset, from the
// directory of the session's log; log is empty if no log is kept.
func (a *Writer) AddCode(log string) error {
	if log == "" {
		a.leaveOut("the code of the session", "no log of it is kept (sessions.logs)")
		return nil
	}
	var list []sessionlog.Entry
	r := sessionlog.ReadCode(log)
	defer r.Close()
	err := r.Read(func(e sessionlog.Entry) error {
		if e.Reset {
			list = nil
		} else {
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n, e := range list {
		text := e.Code
		if text == "" {
			text = "# The state was lost here: " + wire.OneLine(e.Lost)
		}
		text = strings.TrimRight(text, "\n") + "\n"
		if err := a.file(fmt.Sprintf("%s%05d.py", Code, n+1), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// Finish completes the archive.
func (a *Writer) Finish() error {
	if a.current.More {
		if err := a.finish(); err != nil {
			return err
		}
		a.leaveOut(a.current.Path, "could not be read to its end")
	}
	text := "variables and running code: they cannot be moved\n"
	for _, m := range a.missing {
		text += m + "\n"
	}
	if a.more > 0 {
		text += fmt.Sprintf("and %d more files\n", a.more)
	}
	if err := a.file(LeftOutFile, []byte(text)); err != nil {
		return err
	}
	return a.tar.Close()
}

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sallyport/internal/broker"
	"sallyport/internal/hidden"
	"sallyport/internal/sandbox"
)

// Bounds of what --file sends along. It passes through memory.
const (
	maxSent      = 96 << 20
	maxSentFiles = 4096
)

// readFiles reads what --file names: files, and directories with all that is in
// them, each under its own name or after an equals sign.
func readFiles(args []string) ([]sandbox.File, error) {
	var files []sandbox.File
	total := int64(0)
	add := func(from, to string, info fs.FileInfo) error {
		if total += info.Size(); total > maxSent {
			return fmt.Errorf("--file: more than %d MiB in all", maxSent>>20)
		}
		if len(files) == maxSentFiles {
			return fmt.Errorf("--file: more than %d files", maxSentFiles)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, sandbox.File{Path: to, Data: data, Mode: uint32(info.Mode().Perm()) | 0o400})
		return nil
	}
	for _, arg := range args {
		from, to := splitFile(arg)
		info, err := os.Stat(from)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		to = path.Clean(to)
		if !filepath.IsLocal(to) || to == "." && !info.IsDir() {
			return nil, fmt.Errorf("--file %s: %s is not a place below /workspace (write SRC=DEST)", arg, to)
		}
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("--file %s: not a file or a directory", arg)
			}
			if err := add(from, to, info); err != nil {
				return nil, err
			}
			continue
		}
		err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() { // links may lead anywhere
				return err
			}
			below, err := filepath.Rel(from, name)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return add(name, path.Join(to, filepath.ToSlash(below)), info)
		})
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", arg, err)
		}
	}
	spec := sandbox.Spec{ID: "files", Files: files}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	return files, nil
}

// splitFile takes SRC=DEST apart. A file that has an equals sign in its name is
// taken for itself.
func splitFile(arg string) (from, to string) {
	if _, err := os.Stat(arg); err == nil {
		return arg, filepath.Base(filepath.Clean(arg))
	}
	if i := strings.LastIndexByte(arg, '='); i > 0 && i < len(arg)-1 {
		return arg[:i], arg[i+1:]
	}
	return arg, filepath.Base(filepath.Clean(arg))
}

// writeFiles writes what the program left into the directory of --out.
func (c *runCmd) writeFiles(a *app, sys *system, r *broker.Result) error {
	if r.Run != "" {
		record, err := sys.runs.Get(r.Run)
		if err != nil {
			return err
		}
		if len(record.Files) == 0 {
			return nil
		}
		return a.copyRun(sys.runs, record, c.Out, false)
	}
	if len(r.Files) == 0 {
		return nil
	}
	out, err := openOut(c.Out)
	if err != nil {
		return err
	}
	defer out.Close()
	var failed []error
	for _, f := range r.Files {
		if err := writeOut(out, f.Path, bytes.NewReader(f.Data)); err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintln(a.stdio.Err, "sallyport: "+hidden.Escape(filepath.Join(c.Out, filepath.FromSlash(f.Path))))
	}
	return errors.Join(failed...)
}

// statusLines prints how a run elsewhere goes, each change on a line.
func (a *app) statusLines() func(string) {
	last := ""
	return func(text string) {
		if text != "" && text != last {
			last = text
			fmt.Fprintln(a.stdio.Err, "sallyport: "+hidden.Escape(text))
		}
	}
}

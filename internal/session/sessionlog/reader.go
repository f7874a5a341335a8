package sessionlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLine bounds the length of a line that is read.
const maxLine = 8 << 20

// Reader reads a session's log from its directory, and follows it as it grows.
type Reader struct {
	path  string
	older bool // the older file was looked for
	file  *os.File
	rest  []byte // of a line that is not complete yet
}

// ReadOutput returns a reader of what the executions of a session wrote.
func ReadOutput(dir string) *Reader { return &Reader{path: filepath.Join(dir, outputFile)} }

// ReadCode returns a reader of what the executions of a session ran.
func ReadCode(dir string) *Reader { return &Reader{path: filepath.Join(dir, codeFile)} }

// Read calls f with the entries since the last Read, oldest first, and returns
// when there are no more for now. It skips lines that are not entries. A missing
// log is empty.
func (r *Reader) Read(f func(Entry) error) error {
	for {
		if r.file == nil {
			path := r.path
			if !r.older {
				path += olderSuffix
			}
			file, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) && !r.older {
				r.older = true
				continue
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			r.older, r.file, r.rest = true, file, nil
		}
		if err := r.readToEnd(f); err != nil {
			return err
		}
		// The file may have been rotated: then a new one continues it.
		now, err := os.Stat(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if was, err := r.file.Stat(); err == nil && os.SameFile(was, now) {
			return nil
		}
		// It may have received its last lines after it was read.
		if err := r.readToEnd(f); err != nil {
			return err
		}
		_ = r.file.Close()
		r.file = nil
	}
}

// drain reads the open file to its present end.
func (r *Reader) readToEnd(f func(Entry) error) error {
	in := bufio.NewReaderSize(r.file, 64<<10)
	for {
		part, err := in.ReadSlice('\n')
		if len(r.rest)+len(part) <= maxLine {
			r.rest = append(r.rest, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var e Entry
		text := bytes.TrimSpace(r.rest)
		r.rest = r.rest[:0]
		if json.Unmarshal(text, &e) != nil {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
}

// Close releases the reader's file.
func (r *Reader) Close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

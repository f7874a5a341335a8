package session

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

// maxLine bounds a line of a log that is read.
const maxLine = 8 << 20

// A LogReader reads a session's log from its directory, and what is appended
// to it later.
type LogReader struct {
	path  string
	older bool // has been looked for
	file  *os.File
	rest  []byte // of a line that is being written
}

// Outputs reads what the executions of a session wrote; the directory is
// [Info].Log.
func Outputs(dir string) *LogReader { return &LogReader{path: filepath.Join(dir, outputFile)} }

// Codes reads what they ran.
func Codes(dir string) *LogReader { return &LogReader{path: filepath.Join(dir, codeFile)} }

// Read calls f with the entries that have come since the last Read, oldest
// first, and returns when there are no more for now. Lines that are not
// entries are passed over. A log that is not there is empty.
func (r *LogReader) Read(f func(Entry) error) error {
	for {
		if r.file == nil {
			path := r.path
			if !r.older {
				path += olderFile
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
		if err := r.drain(f); err != nil {
			return err
		}
		// The file may have been put aside: then its successor goes on.
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
		// It may have got its last lines after it was drained.
		if err := r.drain(f); err != nil {
			return err
		}
		_ = r.file.Close()
		r.file = nil
	}
}

// drain reads the open file to its present end.
func (r *LogReader) drain(f func(Entry) error) error {
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

// Close ends the reading.
func (r *LogReader) Close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

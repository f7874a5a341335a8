package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// A Report is what Verify has found.
type Report struct {
	Records uint64    `json:"records"`
	First   uint64    `json:"first"` // of those that are kept
	Last    uint64    `json:"last"`
	Hash    string    `json:"hash"` // of the last record
	Since   time.Time `json:"since,omitzero"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`
	// Lost is how many events could not be recorded, as the log itself says.
	Lost int `json:"lost"`
	// Problems say that something other than this program has changed the log.
	Problems []Problem `json:"problems"`
	// Notes say what was found that is no reason to doubt it.
	Notes []string `json:"notes,omitempty"`
}

// A Problem is a place where the chain does not hold.
type Problem struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s, line %d: %s", p.File, p.Line, p.Text)
}

// maxProblems bounds a report.
const maxProblems = 50

// Verify checks the whole chain. expect, if it is not empty, is the hash of a
// record that was noted elsewhere and must be in the log. There is no error for a
// log that does not exist.
func Verify(dir store.Dir, expect string) (*Report, error) {
	report := &Report{Problems: []Problem{}}
	files, h, err := snapshot(dir, report)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	v := verifier{Report: report, head: h, expect: expect, at: link{hash: nothing}}
	if h != nil {
		v.at = link{seq: h.First - 1, hash: h.Before}
		report.First = h.First
	}
	for _, f := range files {
		if err := v.file(f); err != nil {
			return nil, err
		}
	}
	v.end()
	return report, nil
}

// A file is open, so that no one removes it meanwhile.
type file struct {
	*os.File
	name  string
	first uint64
	size  int64
}

// snapshot opens the files as they are between two batches, and reads the head. A
// nil head was reported.
func snapshot(dir store.Dir, report *Report) (files []file, h *head, err error) {
	names, err := dir.List()
	if err != nil || len(names) == 0 {
		return nil, nil, err
	}
	unlock, err := dir.Lock(lockName)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if names, err = dir.List(); err != nil {
		return nil, nil, err
	}
	key, err := dir.Key(keyName, false)
	keyless := err != nil
	switch one, err := readHead(dir, key); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || keyless:
		report.problem("", 0, "the head of the log (%s) cannot be trusted: %v", headName, errors.Join(err, problemOf(keyless)))
	default:
		h = &one
	}
	for _, name := range names {
		first, ok := firstOf(name)
		if !ok {
			continue
		}
		f, err := dir.Open(name)
		if err != nil {
			return files, h, err
		}
		files = append(files, file{f, name, first, 0})
		info, err := f.Stat()
		if err != nil {
			return files, h, err
		}
		files[len(files)-1].size = info.Size()
	}
	if h == nil && len(files) > 0 && len(report.Problems) == 0 {
		report.problem("", 0, "the head of the log (%s) is missing", headName)
	}
	return files, h, nil
}

func problemOf(keyless bool) error {
	if keyless {
		return errors.New("the key is missing")
	}
	return nil
}

func (r *Report) problem(file string, line int, format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, Problem{file, line, fmt.Sprintf(format, args...)})
	}
}

// verifier follows the chain.
type verifier struct {
	*Report
	head   *head
	expect string
	at     link // the record before
	sealed bool // the record that the head names was there
	torn   bool // the last line was not whole
}

func (v *verifier) file(f file) error {
	if v.head != nil && f.first < v.head.First {
		return nil // it was about to be removed
	}
	v.Files++
	v.Bytes += f.size
	n := 0
	return eachLine(f.File, f.size, func(line []byte, whole bool) bool {
		n++
		if v.torn {
			v.problem(f.name, n, "something follows a line that is not whole")
			v.torn = false
		}
		if !whole {
			v.torn = true
			return true
		}
		l, ok := linkOf(line)
		switch {
		case !ok:
			v.problem(f.name, n, "the line was changed")
			if l.hash == "" {
				return true // the next one does not fit either
			}
			v.at = link{seq: v.at.seq + 1, hash: l.hash}
			return true
		case l.seq > v.at.seq+1:
			v.problem(f.name, n, "records %d to %d are missing", v.at.seq+1, l.seq-1)
		case l.seq != v.at.seq+1:
			v.problem(f.name, n, "record %d follows record %d", l.seq, v.at.seq)
		case l.prev != v.at.hash:
			v.problem(f.name, n, "record %d was changed: the next one does not follow it", v.at.seq)
		case n == 1 && l.seq != f.first:
			v.problem(f.name, n, "the file should begin with record %d and begins with %d", f.first, l.seq)
		}
		v.at = l
		v.Records++
		v.record(f.name, n, line)
		return true
	})
}

// record looks at one that is as it was written.
func (v *verifier) record(name string, n int, line []byte) {
	if v.at.hash == v.expect {
		v.expect = ""
	}
	if v.head != nil && v.at.seq == v.head.Seq {
		v.sealed = v.at.hash == v.head.Hash
	}
	special := bytes.Contains(line, []byte(`"type":"lost"`)) || bytes.Contains(line, []byte(`"type":"repaired"`)) || bytes.Contains(line, []byte(`"type":"broken"`))
	if !special && !v.Since.IsZero() {
		return
	}
	var r Record
	if json.Unmarshal(line, &r) != nil {
		v.problem(name, n, "the line is no record")
		return
	}
	if v.Since.IsZero() {
		v.Since = r.Time
	}
	switch r.Type {
	case Lost:
		v.Lost += r.Lost
	case Repaired:
		v.Notes = append(v.Notes, fmt.Sprintf("before record %d: %s (%d bytes)", r.Seq, r.Reason, r.Lost))
	case Broken:
		v.problem(name, n, "when record %d was written, %s", r.Seq, r.Reason)
	}
}

// end compares the end of the chain with the head.
func (v *verifier) end() {
	v.Last, v.Hash = v.at.seq, v.at.hash
	if v.head != nil {
		switch {
		case v.at.seq < v.head.Seq:
			v.problem("", 0, "the end is missing: the log ends with record %d, and %d was the last one", v.at.seq, v.head.Seq)
		case !v.sealed:
			v.problem("", 0, "record %d is not the one that was written", v.head.Seq)
		case v.at.seq > v.head.Seq:
			v.Notes = append(v.Notes, fmt.Sprintf("the last %d records are not sealed: the process that wrote them was killed, or writes at this moment", v.at.seq-v.head.Seq))
		}
	}
	if v.torn {
		v.Notes = append(v.Notes, "the last line is not whole: the process that wrote it was killed; the next one removes it")
	}
	if v.expect != "" {
		v.problem("", 0, "no record has the hash %s", v.expect)
	}
}

// eachLine calls visit with the lines of a file, without their ends, up to size
// (negative: all of it), until it returns false. whole means that the line has an
// end.
func eachLine(f io.ReaderAt, size int64, visit func(line []byte, whole bool) bool) error {
	if size < 0 {
		size = math.MaxInt64
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 64<<10)
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		whole := err == nil
		if whole {
			line = line[:len(line)-1]
		}
		if (whole || len(line) > 0) && !visit(line, whole) || !whole {
			return nil
		}
		long = long[:0]
	}
}

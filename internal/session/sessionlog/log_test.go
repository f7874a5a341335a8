package sessionlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

func entries(t *testing.T, r *Reader) []Entry {
	t.Helper()
	var list []Entry
	if err := r.Read(func(e Entry) error { list = append(list, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// said is a log in short.
func said(list []Entry) string {
	var b strings.Builder
	for _, e := range list {
		switch {
		case e.Start:
			fmt.Fprintf(&b, "[%d", e.Execution)
		case e.End != "":
			fmt.Fprintf(&b, " %s]", e.End)
		case e.Stream != "":
			fmt.Fprintf(&b, " %s %d %q", e.Stream, e.Execution, e.Text+string(e.Bytes))
		case e.Told != "":
			fmt.Fprintf(&b, " %s %d %q", e.Server, e.Execution, e.Told)
		case e.Reset:
			b.WriteString("(reset)")
		case e.LeftOut > 0:
			fmt.Fprintf(&b, "(%d left out)", e.LeftOut)
		case e.Code != "":
			fmt.Fprintf(&b, "{%s}", e.Code)
		case e.Lost != "":
			fmt.Fprintf(&b, "(lost: %s)", e.Lost)
		}
	}
	return b.String()
}

// The log of a session that ends with its process is removed with it: also when
// the process was killed.
func TestLogsOfProcesses(t *testing.T) {
	dir := t.TempDir()
	killed, alive := New(dir, 1<<20, discard), New(dir, 1<<20, discard)
	for _, s := range []*Store{killed, alive} {
		l := s.Log("own", false)
		l.Begin(1, "say x")
		l.Output(1, wire.Stdout, []byte("x"))
		l.End(1, "finished", "")
		l.Flush()
		if got := said(entries(t, ReadOutput(l.Dir()))); got != `[1 stdout 1 "x" finished]` {
			t.Errorf("got %s", got)
		}
	}
	left := func() int {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	killed.unlock() // a killed process loses its lock, and leaves its files
	long := time.Now().Add(-time.Hour)
	for _, s := range []*Store{killed, alive} {
		if err := os.Chtimes(filepath.Join(dir, s.process), long, long); err != nil {
			t.Fatal(err)
		}
	}
	if got := left(); got != 2 {
		t.Errorf("got %d directories before Tidy, want 2", got)
	}
	alive.Tidy(func(string) bool { return true })
	if got := left(); got != 1 {
		t.Errorf("got %d directories, want that of the living process alone", got)
	}
	alive.Close()
	if got := left(); got != 0 {
		t.Errorf("got %d directories after Close, want none", got)
	}
}

// However much comes at once, and whatever becomes of it in JSON.
func TestLogIsBoundedByTheByte(t *testing.T) {
	const limit = 64 << 10
	for name, write := range map[string]func(b *Log){
		"one large piece of code": func(b *Log) { b.Begin(1, strings.Repeat("\x00", limit/9)) },
		"much at once": func(b *Log) {
			for i := range uint64(200) {
				b.Output(i, wire.Stdout, []byte(strings.Repeat("\x01", 30)))
				b.End(i, "finished", "")
			}
		},
		"one long line": func(b *Log) { b.Output(1, wire.Stdout, []byte(strings.Repeat("\x02", limit/9))) },
	} {
		t.Run(name, func(t *testing.T) {
			k := New(t.TempDir(), limit, discard)
			b := k.Log("work", true)
			for range 20 {
				write(b)
				b.Flush()
				var size int64
				files, err := os.ReadDir(b.Dir())
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					info, err := f.Info()
					if err != nil {
						t.Fatal(err)
					}
					size += info.Size()
				}
				if size > limit {
					t.Fatalf("%d bytes on disk, %d are allowed", size, limit)
				}
			}
			// What is left out is counted, and what follows is there.
			b.Output(99, wire.Stdout, []byte("the end"))
			b.Flush()
			r := ReadOutput(b.Dir())
			defer r.Close()
			list := entries(t, r)
			if len(list) == 0 || list[len(list)-1].Text != "the end" {
				t.Errorf("%+v", list)
			}
			if name == "one long line" && !slices.ContainsFunc(list, func(e Entry) bool { return e.LeftOut > limit/9 }) {
				t.Error("nothing says that something was left out")
			}
		})
	}
}

func TestLogIsBounded(t *testing.T) {
	const limit = 64 << 10
	k := New(t.TempDir(), limit, discard)
	b := k.Log("work", true)
	r := ReadOutput(b.Dir())
	defer r.Close()
	var all strings.Builder
	for i := range uint64(500) {
		b.Begin(i, "some code")
		b.Output(i, wire.Stdout, []byte(strings.Repeat("x", 500)))
		b.Output(i, wire.Stdout, fmt.Appendf(nil, "%d\n", i))
		b.Flush()
		if i%7 == 0 {
			for _, e := range entries(t, r) {
				all.WriteString(e.Text)
			}
		}
	}
	var size int64
	files, err := os.ReadDir(b.Dir())
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > limit || size < limit/4 {
		t.Errorf("%d bytes on disk, %d are allowed", size, limit)
	}
	for _, e := range entries(t, r) {
		all.WriteString(e.Text)
	}
	for i := range 500 {
		if !strings.Contains(all.String(), fmt.Sprintf("x%d\n", i)) {
			t.Fatalf("who follows has missed %d", i)
		}
	}
	b.Output(2, wire.Stdout, []byte("no text: \xff"))
	b.Flush()
	if got := said(entries(t, r)); got != ` stdout 2 "no text: \xff"` {
		t.Error(got)
	}
	// What comes faster than it is written is counted.
	b.Output(1, wire.Stderr, bytes.Repeat([]byte("y"), limit))
	b.Output(1, wire.Stderr, []byte("z"))
	b.Flush()
	if got := said(entries(t, r)); got != ` stderr 1 "z"(65536 left out)` && got != `(65536 left out) stderr 1 "z"` {
		t.Error(got)
	}
	k.Close()
}

// Lines that are none, and one that is half written, do not disturb who reads.
func TestReadBrokenLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, outputFile)
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	r := ReadOutput(dir)
	defer r.Close()
	if got := entries(t, r); got != nil {
		t.Error(got)
	}
	write("no entry\n{\"text\":\"one\"}\n" + strings.Repeat("long", maxLine) + "\n{\"text\":\"tw")
	if got := entries(t, r); len(got) != 1 || got[0].Text != "one" {
		t.Errorf("%d entries", len(got))
	}
	write("o\"}\n")
	if got := entries(t, r); len(got) != 1 || got[0].Text != "two" {
		t.Error(got)
	}
}

// A disk that takes nothing costs the log, and is said once.
func TestLogCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "logs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	k := New(filepath.Join(dir, "logs"), 1<<20, slog.New(slog.NewTextHandler(&lines, nil)))
	b := k.Log("work", true)
	for range 3 {
		b.Begin(1, "x")
		b.Flush()
	}
	k.Close()
	if n := strings.Count(lines.String(), "log cannot be written"); n != 1 {
		t.Errorf("said %d times: %s", n, lines.String())
	}
}

// BenchmarkLog is what the log costs an execution that prints a line, while it
// runs.
func BenchmarkLog(b *testing.B) {
	k := New(b.TempDir(), 64<<20, discard)
	defer k.Close()
	one := k.Log("work", true)
	b.ReportAllocs()
	line := []byte("2\n")
	for i := range b.N {
		one.Begin(uint64(i), "print(1+1)")
		one.Output(uint64(i), wire.Stdout, line)
		one.End(uint64(i), "finished", "")
	}
	b.StopTimer() // what is left is written without anybody waiting
}

package session

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logged makes sessions keep logs in a directory beside the others.
func logged(limit int64) func(*Config) {
	return func(c *Config) {
		c.Logs, c.LogBytes = filepath.Join(filepath.Dir(c.Records.Path("")), "logs"), limit
	}
}

func entries(t *testing.T, r *LogReader) []Entry {
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

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, logged(1<<20))
		set := open(e)
		s := get(t, set, "work")
		exec(t, s, "say one\n")
		exec(t, s, "leave behind")
		time.Sleep(10 * time.Millisecond)
		exec(t, s, "vanish")
		exec(t, s, "say two")
		time.Sleep(time.Second)
		work := filepath.Join(dir, "logs", "named", "work")
		out, code := Outputs(work), Codes(work)
		defer out.Close()
		defer code.Close()
		const first = `[1 stdout 1 "one\n" finished][2 finished] stdout 0 "behind"[3 died](lost: `
		if got := said(entries(t, out)); !strings.HasPrefix(got, first) || !strings.HasSuffix(got, `)[1 stdout 1 "two" finished]`) {
			t.Error(got)
		}
		if got := said(entries(t, code)); !strings.HasPrefix(got, `{say one`+"\n"+`}{leave behind}{vanish}(lost: `) || !strings.HasSuffix(got, "){say two}") {
			t.Error(got)
		}
		// The next process goes on with it.
		set.Close()
		set = open(e)
		s = get(t, set, "work")
		exec(t, s, "say three")
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := said(entries(t, out)); got != `[2 stdout 2 "three" finished](reset)` {
			t.Error(got)
		}
		if got := said(entries(t, code)); got != `{say three}(reset)` {
			t.Error(got)
		}
		if err := set.Remove(t.Context(), "work"); err != nil {
			t.Error(err)
		}
		if exists(work) {
			t.Error("the log of a removed session is there")
		}
		set.Close()
	})
}

// What ends with a process leaves no log: also that of one that was killed.
func TestLogsOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, logged(1<<20))
		dead, set := open(e), open(e)
		for _, one := range []*Set{dead, set} {
			exec(t, get(t, one, "own"), "say x")
		}
		time.Sleep(time.Second)
		logs := filepath.Join(dir, "logs")
		left := func() int {
			t.Helper()
			list, err := os.ReadDir(logs)
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if got := said(entries(t, Outputs(get(t, set, "own").info().Log))); got != `[1 stdout 1 "x" finished]` {
			t.Error(got)
		}
		// Killed: its lock goes, its files stay.
		dead.books.mark()
		long := time.Now().Add(-time.Hour)
		for _, name := range []string{dead.books.own, set.books.own} {
			if err := os.Chtimes(filepath.Join(logs, name), long, long); err != nil {
				t.Fatal(err)
			}
		}
		if left() != 2 {
			t.Error(left())
		}
		if err := set.tidy(); err != nil {
			t.Fatal(err)
		}
		if left() != 1 {
			t.Error("the log of a dead process stays, or that of a living one went")
		}
		set.Close()
		if left() != 0 {
			t.Error("a process left its log")
		}
		dead.Close()
	})
}

// A log of a named session stays as long as there is a record of it.
func TestLogsWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, logged(1<<20))
		set := open(e)
		defer set.Close()
		for _, name := range []string{"kept", "Gone"} {
			exec(t, get(t, set, name), "say x")
		}
		if err := set.Reset(t.Context(), "Gone"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		long := time.Now().Add(-time.Hour)
		for _, name := range []string{"kept", "+gone"} {
			if err := os.Chtimes(filepath.Join(dir, "logs", "named", name), long, long); err != nil {
				t.Fatal(err)
			}
		}
		if err := set.tidy(); err != nil {
			t.Fatal(err)
		}
		if !exists(bookDir(filepath.Join(dir, "logs"), "kept")) || exists(bookDir(filepath.Join(dir, "logs"), "Gone")) {
			t.Error("the wrong log went")
		}
	})
}

// However much comes at once, and whatever becomes of it in JSON.
func TestLogIsBoundedByTheByte(t *testing.T) {
	const limit = 64 << 10
	for name, write := range map[string]func(b *book){
		"one large piece of code": func(b *book) { b.begin(1, strings.Repeat("\x00", limit/9)) },
		"much at once": func(b *book) {
			for i := range uint64(200) {
				b.output(i, Stdout, []byte(strings.Repeat("\x01", 30)))
				b.end(i, &Outcome{})
			}
		},
		"one long line": func(b *book) { b.output(1, Stdout, []byte(strings.Repeat("\x02", limit/9))) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newBooks(Config{Logs: t.TempDir(), LogBytes: limit, Logger: discard})
			b := k.book("work", true)
			for range 20 {
				write(b)
				b.flush()
				var size int64
				files, err := os.ReadDir(b.dir)
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
			b.output(99, Stdout, []byte("the end"))
			b.flush()
			r := Outputs(b.dir)
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
	k := newBooks(Config{Logs: t.TempDir(), LogBytes: limit, Logger: discard})
	b := k.book("work", true)
	r := Outputs(b.dir)
	defer r.Close()
	var all strings.Builder
	for i := range uint64(500) {
		b.begin(i, "some code")
		b.output(i, Stdout, []byte(strings.Repeat("x", 500)))
		b.output(i, Stdout, fmt.Appendf(nil, "%d\n", i))
		b.flush()
		if i%7 == 0 {
			for _, e := range entries(t, r) {
				all.WriteString(e.Text)
			}
		}
	}
	var size int64
	files, err := os.ReadDir(b.dir)
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
	b.output(2, Stdout, []byte("no text: \xff"))
	b.flush()
	if got := said(entries(t, r)); got != ` stdout 2 "no text: \xff"` {
		t.Error(got)
	}
	// What comes faster than it is written is counted.
	b.output(1, Stderr, bytes.Repeat([]byte("y"), limit))
	b.output(1, Stderr, []byte("z"))
	b.flush()
	if got := said(entries(t, r)); got != ` stderr 1 "z"(65536 left out)` && got != `(65536 left out) stderr 1 "z"` {
		t.Error(got)
	}
	k.close()
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
	r := Outputs(dir)
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
	k := newBooks(Config{Logs: filepath.Join(dir, "logs"), LogBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	b := k.book("work", true)
	for range 3 {
		b.begin(1, "x")
		b.flush()
	}
	k.close()
	if n := strings.Count(lines.String(), "log cannot be written"); n != 1 {
		t.Errorf("said %d times: %s", n, lines.String())
	}
}

// BenchmarkLog is what the log costs an execution that prints a line, while it
// runs.
func BenchmarkLog(b *testing.B) {
	k := newBooks(Config{Logs: b.TempDir(), LogBytes: 64 << 20, Logger: discard})
	defer k.close()
	one := k.book("work", true)
	b.ReportAllocs()
	line := []byte("2\n")
	out := &Outcome{}
	for i := range b.N {
		one.begin(uint64(i), "print(1+1)")
		one.output(uint64(i), Stdout, line)
		one.end(uint64(i), out)
	}
	b.StopTimer() // what is left is written without anybody waiting
}

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

// logged makes sessions keep logs.
func logged(limit int64) func(*setup) {
	return func(c *setup) {
		c.Logs, c.LogBytes = filepath.Join(filepath.Dir(c.Records.Path("")), "logs"), limit
	}
}

func entries(t *testing.T, r *sessionlog.Reader) []sessionlog.Entry {
	t.Helper()
	var list []sessionlog.Entry
	if err := r.Read(func(e sessionlog.Entry) error { list = append(list, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// said is a log in short.
func said(list []sessionlog.Entry) string {
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
		out, code := sessionlog.ReadOutput(work), sessionlog.ReadCode(work)
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
		if logs := filepath.Join(dir, "logs"); !sessionlog.Exists(logs, "kept") || sessionlog.Exists(logs, "Gone") {
			t.Error("the wrong log went")
		}
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

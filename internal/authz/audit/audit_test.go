package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/store"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func config(dir string) Config {
	return Config{
		Dir: store.At(dir), Code: Hash, Arguments: Hash, RotateSize: 1 << 20, RotateAge: time.Hour,
		Secrets: &redact.Set{}, Log: quiet(),
	}
}

var when = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func origin() journal.Origin {
	return journal.Origin{Time: when, Owner: "local", Client: "claude", Session: "s", Execution: "x-1"}
}

func decided(n uint64, arguments string) *journal.Decided {
	return &journal.Decided{
		Origin: origin(), Call: n, Action: "call_tool", Server: "fs", Item: "write_file", Arguments: json.RawMessage(arguments), Effect: "allow", Allowed: true,
	}
}

// write writes events as one process does, in batches of one.
func write(t *testing.T, c Config, events ...journal.Event) {
	t.Helper()
	j := journal.New(quiet())
	l := Open(c, j)
	for _, e := range events {
		j.Publish(e)
		if err := l.events.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
}

func verified(t *testing.T, dir string) *Report {
	t.Helper()
	r, err := Verify(store.At(dir), "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func intact(t *testing.T, dir string, records uint64) *Report {
	t.Helper()
	r := verified(t, dir)
	if len(r.Problems) > 0 || r.Records != records {
		t.Fatalf("got %d records and %v, want %d and no problem", r.Records, r.Problems, records)
	}
	return r
}

func TestRecords(t *testing.T) {
	for _, test := range []struct {
		name            string
		code, arguments string
		event           journal.Event
		has, not        []string
	}{
		{"a call", Hash, Hash, decided(7, `{"path":"/x"}`), []string{`"type":"decision"`, `"owner":"local"`, `"client":"claude"`, `"session":"s"`, `"execution":"x-1"`, `-7"`, `"digest":"sha256:`, `"size":13`, `"allowed":true`}, []string{"/x"}},
		{"complete", Hash, Complete, decided(7, `{"path": "/x", "n":1e400}`), []string{`"arguments":{"path":"/x","n":1e400}`}, []string{"digest"}},
		{"omitted", Hash, Omit, decided(7, `{"path":"/x"}`), []string{`"size":13`}, []string{"/x", "digest"}},
		{"by the rule", Hash, Hash, &journal.Decided{Arguments: json.RawMessage(`[1]`), Audit: Complete}, []string{`"arguments":[1]`, `"allowed":false`}, nil},
		{"hashed by the rule", Hash, Complete, &journal.Decided{Arguments: json.RawMessage(`[1]`), Audit: Hash}, []string{"digest"}, []string{"[1]"}},
		{"no JSON", Hash, Complete, decided(7, `{"a`), []string{`"arguments":"{\"a"`}, nil},
		{"an answer", Hash, Hash, &journal.Decided{AnsweredBy: "terminal", Words: "not \u202e there", Scope: "session", Rule: "policy.d/a.yaml:3", Reason: "why"}, []string{`"answeredBy":"terminal"`, `"words":"not `, `"scope":"session"`, `"rule":"policy.d/a.yaml:3"`, `"reason":"why"`}, nil},
		{"an outcome", Hash, Hash, &journal.Finished{Call: 7, Took: 1500 * time.Microsecond, Bytes: 9, Failure: "timeout"}, []string{`"tookMs":1.5`, `"bytes":9`, `"failure":"timeout"`}, nil},
		{"code", Hash, Hash, &journal.ExecutionBegan{Code: "print(1)", Servers: []string{"fs"}}, []string{`"size":8`, `"digest":"sha256:`, `"servers":["fs"]`}, []string{"print"}},
		{"whole code", Complete, Hash, &journal.ExecutionBegan{Code: "print(1)"}, []string{`"code":"print(1)"`}, []string{"digest"}},
		{"an end", Hash, Hash, &journal.ExecutionEnded{Status: "error", Stdout: 3, Stderr: 4, StateLost: "killed"}, []string{`"status":"error"`, `"bytes":7`, `"cause":"killed"`}, nil},
		{"a question", Hash, Hash, asked(5, ""), []string{`"type":"question"`, `"owner":"local"`, `"client":"claude"`, `"session":"s"`, `"execution":"x-1"`, `"question":"k3vq"`, `"revision":5`, `"action":"call_tool"`, `"server":"fs"`, `"item":"write_file"`, `"rule":"policy.tools[1]"`, `"calls":5`, `"size":12`, `"digest":"` + digest([]byte("shown /etc/x")) + `"`}, []string{"/etc/x", "shown"}},
		{"a question, complete", Hash, Complete, asked(5, ""), []string{`"shown":"shown /etc/x"`, `"size":12`}, []string{"digest"}},
		{"a question, omitted", Hash, Omit, asked(5, ""), []string{`"size":12`}, []string{"/etc/x", "digest", "shown"}},
		{"a question, complete by the rule", Hash, Omit, asked(5, Complete), []string{`"shown":"shown /etc/x"`}, nil},
		{"a question, hashed by the rule", Hash, Complete, asked(5, Hash), []string{"digest"}, []string{"/etc/x", "shown"}},
		{"a question, omitted by the rule", Hash, Complete, asked(5, Omit), []string{`"size":12`}, []string{"/etc/x", "digest", "shown"}},
		{"a yes", Hash, Hash, &journal.Answered{Origin: origin(), Question: "k3vq", Revision: 7, Action: "call_tool", Server: "fs", Item: "write_file", Allowed: true, By: "terminal", Scope: "this call", Calls: 1, Took: 1500 * time.Millisecond}, []string{`"type":"answer"`, `"owner":"local"`, `"client":"claude"`, `"session":"s"`, `"execution":"x-1"`, `"question":"k3vq"`, `"revision":7`, `"server":"fs"`, `"item":"write_file"`, `"allowed":true`, `"answeredBy":"terminal"`, `"scope":"this call"`, `"calls":1`, `"tookMs":1500`}, []string{"killed", "since", "reason"}},
		{"a no", Hash, Hash, &journal.Answered{Question: "k3vq", Revision: 7, By: "client", Words: "not there"}, []string{`"allowed":false`, `"words":"not there"`}, nil},
		{"no answer", Hash, Hash, &journal.Answered{Question: "k3vq", Reason: "no answer came", Calls: 2}, []string{`"allowed":false`, `"reason":"no answer came"`, `"calls":2`}, []string{"answeredBy", "revision", "killed"}},
		{"no answer, killed", Hash, Hash, &journal.Answered{Origin: origin(), Question: "k3vq", Reason: "none of its calls was sent", Killed: 42, Since: when, Calls: 3}, []string{`"client":"claude"`, `"session":"s"`, `"calls":3`, `"killed":42`, `"since":"2026-11-23T12:00:00Z"`, `"reason":"none of its calls was sent"`}, nil},
		{"a session", Hash, Hash, &journal.SessionChanged{To: journal.SessionLost, Cause: "memory"}, []string{`"type":"session"`, `"to":"lost"`, `"cause":"memory"`}, nil},
		{"a server", Hash, Hash, &journal.ServerChanged{Server: "fs", To: journal.ServerDied}, []string{`"type":"server"`, `"to":"died"`}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			c := config(dir)
			c.Code, c.Arguments = test.code, test.arguments
			write(t, c, test.event)
			intact(t, dir, 1)
			line, err := os.ReadFile(filepath.Join(dir, fileName(1)))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.has {
				if !bytes.Contains(line, []byte(want)) {
					t.Errorf("got %s, want %s in it", line, want)
				}
			}
			for _, not := range test.not {
				if bytes.Contains(line, []byte(not)) {
					t.Errorf("got %s, want no %s in it", line, not)
				}
			}
		})
	}
}

// No secret is in any field that others have written, in no form.
func TestSecrets(t *testing.T) {
	const secret = "hunter2-\"pä/ss"
	c := config(t.TempDir())
	c.Code, c.Arguments = Complete, Complete
	c.Secrets.Add(secret)
	inBase64 := base64.StdEncoding.EncodeToString([]byte("Bearer " + secret))
	text := secret + " " + inBase64
	o := journal.Origin{Client: text, Session: text, Execution: text}
	arguments, _ := json.Marshal(map[string]string{"a": text, text: "b"})
	write(t, c,
		&journal.ExecutionBegan{Origin: o, Code: text, File: text},
		&journal.ExecutionEnded{Origin: o, Error: text, StateLost: text},
		&journal.Decided{Origin: o, Server: text, Item: text, Arguments: arguments, Folders: []string{text}, Reason: text, AnsweredBy: text, Words: text, Scope: text},
		&journal.Finished{Origin: o, Server: text, Item: text},
		&journal.Asked{Origin: o, Server: text, Item: text, Rule: text, Shown: text},
		&journal.Answered{Origin: o, Server: text, Item: text, By: text, Words: text, Scope: text, Reason: text},
		&journal.SessionChanged{Origin: o, Cause: text},
		&journal.ServerChanged{Origin: o, Server: text, Cause: text},
	)
	raw, err := os.ReadFile(c.Dir.Path(fileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"hunter2", `p\u00e4`, "ss ", inBase64[10:]} {
		if bytes.Contains(raw, []byte(part)) {
			t.Errorf("%q is in %s", part, raw)
		}
	}
	if n := bytes.Count(raw, []byte(redact.Mask)); n < 40 {
		t.Errorf("got %d masks, want one for each secret", n)
	}
}

// chainOf makes a log of several files and returns its lines by file.
func chainOf(t *testing.T) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	c := config(dir)
	c.RotateSize = 800
	for i := range 3 { // processes
		var events []journal.Event
		for n := range 4 {
			events = append(events, decided(uint64(n), fmt.Sprintf(`{"process":%d}`, i)))
		}
		write(t, c, events...)
	}
	intact(t, dir, 12)
	names, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if len(names) < 4 {
		t.Fatalf("got the files %v, want some more", names)
	}
	return dir, names
}

// TestTampering: whatever is changed, removed or moved is found.
func TestTampering(t *testing.T) {
	lines := func(name string) [][]byte {
		raw, _ := os.ReadFile(name)
		return bytes.SplitAfter(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	}
	put := func(name string, lines ...[]byte) {
		out := bytes.Join(lines, nil)
		if !bytes.HasSuffix(out, []byte("\n")) && len(out) > 0 {
			out = append(out, '\n')
		}
		if err := os.WriteFile(name, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		do   func(dir string, files []string)
		want string
	}{
		{"the first line", func(_ string, f []string) { put(f[0], lines(f[0])[1:]...) }, "missing"},
		{"a line in the middle", func(_ string, f []string) { put(f[1], lines(f[1])[:1]...) }, "missing"},
		{"the first file", func(_ string, f []string) { os.Remove(f[0]) }, "missing"},
		{"a file", func(_ string, f []string) { os.Remove(f[1]) }, "missing"},
		{"the last file", func(_ string, f []string) { os.Remove(f[len(f)-1]) }, "the end is missing"},
		{"the last line", func(_ string, f []string) {
			last := f[len(f)-1]
			all := lines(last)
			put(last, all[:len(all)-1]...)
		}, "missing"},
		{"all files", func(_ string, f []string) {
			for _, name := range f {
				os.Remove(name)
			}
		}, "the end is missing"},
		{"the head", func(dir string, _ []string) { os.Remove(filepath.Join(dir, headName)) }, "is missing"},
		{"the key", func(dir string, _ []string) { os.Remove(filepath.Join(dir, keyName)) }, "cannot be trusted"},
		{"another key", func(dir string, _ []string) {
			os.WriteFile(filepath.Join(dir, keyName), bytes.Repeat([]byte("k"), 32), 0o600)
		}, "cannot be trusted"},
		{"the head of a shorter log", func(dir string, _ []string) {
			raw, _ := os.ReadFile(filepath.Join(dir, headName))
			os.WriteFile(filepath.Join(dir, headName), bytes.Replace(raw, []byte(`"seq":12`), []byte(`"seq":11`), 1), 0o600)
		}, "cannot be trusted"},
		{"two lines the other way round", func(_ string, f []string) {
			all := lines(f[0])
			all[0], all[1] = append(bytes.TrimSuffix(all[1], []byte("\n")), '\n'), all[0]
			put(f[0], all...)
		}, "missing"},
		{"a line twice", func(_ string, f []string) { put(f[0], append([][]byte{lines(f[0])[0]}, lines(f[0])...)...) }, "follows"},
		{"a line with a new hash", func(_ string, f []string) {
			all := lines(f[0])
			body := bytes.Replace(all[0], []byte("write_file"), []byte("read_files"), 1)
			_, rest, _ := bytes.Cut(body[:bytes.Index(body, []byte(beforeHash))], []byte(`0",`))
			all[0], _ = lineOf(1, nothing, append(append([]byte("{"), rest...), '}'))
			put(f[0], all...)
		}, "record 1 was changed"},
		{"the last line with a new hash", func(_ string, f []string) {
			last := f[len(f)-1]
			all := lines(last)
			l, _ := linkOf(bytes.TrimSuffix(all[len(all)-1], []byte("\n")))
			all[len(all)-1], _ = lineOf(l.seq, l.prev, []byte(`{"type":"decision"}`))
			put(last, all...)
		}, "not the one that was written"},
		{"the name of a file", func(dir string, f []string) { os.Rename(f[1], filepath.Join(dir, fileName(2))) }, "should begin"},
		{"a file more", func(dir string, f []string) { put(filepath.Join(dir, fileName(99)), lines(f[0])...) }, "follows"},
		{"an empty line", func(_ string, f []string) { put(f[0], append([][]byte{[]byte("\n")}, lines(f[0])...)...) }, "changed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, files := chainOf(t)
			test.do(dir, files)
			r := verified(t, dir)
			if got := fmt.Sprint(r.Problems); !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %q in it", got, test.want)
			}
			// Who writes next goes on, and does not hide it.
			write(t, config(dir), decided(1, "{}"))
			if r := verified(t, dir); len(r.Problems) == 0 {
				t.Errorf("after one record more: got no problem")
			}
		})
	}
}

// FuzzChanges changes the bytes of a log in any way.
func FuzzChanges(f *testing.F) {
	var at uint
	for range 40 {
		at += 97
		f.Add(at, byte(at), at%3)
	}
	f.Fuzz(func(t *testing.T, at uint, by byte, how uint) {
		dir, files := chainOf(t)
		name := files[at%uint(len(files))]
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		i := int(at % uint(len(raw)))
		changed := bytes.Clone(raw)
		switch how % 3 {
		case 0:
			changed[i] = by
		case 1:
			changed = append(changed[:i], changed[i+1:]...)
		case 2:
			changed = changed[:i]
		}
		if bytes.Equal(raw, changed) {
			t.Skip()
		}
		if err := os.WriteFile(name, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, dir); len(r.Problems) == 0 {
			t.Errorf("byte %d of %s, %d: got no problem", i, name, how%3)
		}
	})
}

// TestKilled: a process that is killed leaves a log that is intact, and the next one
// goes on with it.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("AUDIT_WRITES_TO"); dir != "" {
		c := config(dir)
		c.Strict, c.RotateSize = true, 4<<10
		j := journal.New(quiet())
		Open(c, j)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := uint64(0); ; n++ {
					if err := j.Commit(context.Background(), decided(n, `{}`)); err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
					fmt.Println(i)
				}
			})
		}
		all.Wait()
	}
	dir := t.TempDir()
	told := 0
	for range 4 {
		var running []*exec.Cmd
		for range 2 {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
			cmd.Env = append(os.Environ(), "AUDIT_WRITES_TO="+dir)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for n := 0; n < 20+rand.IntN(20) && lines.Scan(); n++ {
				told++
			}
			running = append(running, cmd)
		}
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if r := verified(t, dir); len(r.Problems) > 0 || int(r.Records) < told {
			t.Fatalf("got %d records and %v, want at least the %d that were committed", r.Records, r.Problems, told)
		}
	}
	write(t, config(dir), decided(1, "{}"))
	if r := verified(t, dir); len(r.Problems) > 0 {
		t.Errorf("after the next process: %v", r.Problems)
	}
}

// What a process did not finish is removed, and that is recorded. What it finished
// and did not seal stays.
func TestUnsealed(t *testing.T) {
	dir := t.TempDir()
	write(t, config(dir), decided(1, "{}"))
	head, _ := os.ReadFile(filepath.Join(dir, headName))
	write(t, config(dir), decided(2, "{}"))
	if err := os.WriteFile(filepath.Join(dir, headName), head, 0o600); err != nil {
		t.Fatal(err)
	}
	f, _ := os.OpenFile(filepath.Join(dir, fileName(1)), os.O_APPEND|os.O_WRONLY, 0)
	fmt.Fprint(f, `{"seq":3,"prev":"0123`)
	f.Close()
	if r := intact(t, dir, 2); len(r.Notes) != 2 {
		t.Errorf("got the notes %q, want that it is not sealed and not whole", r.Notes)
	}
	write(t, config(dir), decided(3, "{}"))
	if r := intact(t, dir, 4); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "21 bytes") {
		t.Errorf("got the notes %q, want one about 21 bytes", r.Notes)
	}
}

// A process that dies between a new file and the head loses nothing.
func TestUnsealedFile(t *testing.T) {
	for _, size := range []int64{1, 1 << 20} {
		dir := t.TempDir()
		c := config(dir)
		write(t, c, decided(1, "{}"))
		head, _ := os.ReadFile(filepath.Join(dir, headName))
		c.RotateSize = 1
		write(t, c, decided(2, "{}"), decided(3, "{}"))
		if err := os.WriteFile(filepath.Join(dir, headName), head, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fileName(4)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		intact(t, dir, 3)
		c.RotateSize = size
		write(t, c, decided(4, "{}"))
		intact(t, dir, 4)
	}
}

func TestExpect(t *testing.T) {
	dir := t.TempDir()
	write(t, config(dir), decided(1, "{}"))
	noted := intact(t, dir, 1).Hash
	write(t, config(dir), decided(2, "{}"))
	for hash, want := range map[string]int{noted: 0, strings.Repeat("f", 64): 1} {
		r, err := Verify(store.At(dir), hash)
		if err != nil || len(r.Problems) != want {
			t.Errorf("expecting %s: got %v, %v, want %d problems", hash, r.Problems, err, want)
		}
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.RotateSize, c.MaxDisk = 1, 3000
	for range 20 {
		write(t, c, decided(1, "{}"))
	}
	r := verified(t, dir)
	if len(r.Problems) > 0 || r.Last != 20 || r.First == 1 || r.Bytes > 4000 {
		t.Errorf("got %+v, want the last records and not the first", r)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	for _, name := range names {
		if err := os.Chtimes(name, when, when.AddDate(-1, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	c.Keep = 24 * time.Hour
	write(t, c, decided(1, "{}"))
	if r := intact(t, dir, 1); r.First != 21 {
		t.Errorf("got the first record %d, want 21", r.First)
	}
}

// logged keeps the lines of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

// TestFullDisk: it is reported once, costs nothing but the records, and is recorded
// later. A strict log refuses.
func TestFullDisk(t *testing.T) {
	for _, strict := range []bool{false, true} {
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skipf("no small file system can be mounted: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		filler := filepath.Join(dir, "filler")
		var out logged
		c := config(filepath.Join(dir, "audit"))
		c.Strict, c.Log = strict, slog.New(slog.NewTextHandler(&out, nil))
		j := journal.New(c.Log)
		l := Open(c, j)
		commit := func() error {
			if err := j.Commit(t.Context(), decided(1, "{}")); err != nil {
				return err
			}
			_ = l.events.Flush(t.Context())
			return nil
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		_ = os.WriteFile(filler, make([]byte, 64<<10), 0o600) // as much as there is room for
		for range 3 {
			if err := commit(); (err != nil) != strict {
				t.Errorf("strict %v, full: got %v", strict, err)
			}
		}
		if l.Failure() == nil || l.Failing() != 1 {
			t.Errorf("got the failure %v, period %d, want the first one", l.Failure(), l.Failing())
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := commit(); err != nil {
			t.Errorf("strict %v, with room again: %v", strict, err)
		}
		if n := l.Failing(); n != 0 {
			t.Errorf("strict %v, with room again: got period %d, want none", strict, n)
		}
		l.Close()
		if r := intact(t, c.Dir.Path(""), 3); r.Lost != 3 {
			t.Errorf("got %d lost, want 3", r.Lost)
		}
		if len(out.lines) != 2 || !strings.Contains(out.lines[0], "level=ERROR") || !strings.Contains(out.lines[1], "written again") {
			t.Errorf("got the log %q, want one error and its end", out.lines)
		}
	}
}

// An audit directory that is none is a failure, too.
func TestNoDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config(path)
	c.Strict = true
	j := journal.New(quiet())
	l := Open(c, j)
	defer l.Close()
	if err := j.Commit(t.Context(), decided(1, "{}")); err == nil {
		t.Error("got no error, want one")
	}
}

// Several logs of one process and many goroutines write one chain.
func TestConcurrency(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 3 {
		c := config(dir)
		c.Strict, c.RotateSize = i == 0, 2000
		j := journal.New(quiet())
		l := Open(c, j)
		all.Go(func() {
			var some sync.WaitGroup
			for n := range 10 {
				some.Go(func() {
					for range 5 {
						if err := j.Commit(t.Context(), decided(uint64(n), "{}")); err != nil {
							t.Error(err)
						}
						j.Publish(&journal.Finished{Origin: origin(), Call: uint64(n)})
					}
				})
			}
			some.Wait()
			l.Close()
		})
	}
	all.Wait()
	intact(t, dir, 300)
}

// BenchmarkFailing is what each result costs.
func BenchmarkFailing(b *testing.B) {
	c := config(b.TempDir())
	j := journal.New(quiet())
	l := Open(c, j)
	defer l.Close()
	j.Publish(decided(1, "{}"))
	for b.Loop() {
		if l.Failing() != 0 {
			b.Fatal("it can be written")
		}
	}
}

// BenchmarkCommit is what a decision costs who waits for it.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []string{"off", "on", "strict"} {
		b.Run(mode, func(b *testing.B) {
			c := config(b.TempDir())
			c.Strict, c.Dir = mode == "strict", store.At(b.TempDir())
			j := journal.New(quiet())
			if mode != "off" {
				l := Open(c, j)
				defer l.Close()
			}
			b.ReportAllocs()
			for n := uint64(0); b.Loop(); n++ {
				if !j.Wants(journal.Actions) {
					continue
				}
				if err := j.Commit(b.Context(), decided(n, `{"path":"/tmp/x","content":"hello"}`)); err != nil && c.Strict {
					b.Fatal(err)
				}
				j.Publish(&journal.Finished{Origin: origin(), Call: n})
			}
		})
	}
}

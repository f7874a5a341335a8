//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// TestDirectories: a server starts where its definition says, or else where the
// client works; clients that work elsewhere have another.
func TestDirectories(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for range 3 {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(exe, filepath.Join(dir, "server")); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	home := dirs[2]
	env := append(os.Environ(), "HOME="+home)
	launch := func(command, dir string, args ...string) Definition {
		return definitions.New("a", "", definitions.Launch{Command: command, Dir: dir, Args: args, Env: map[string]string{roleVariable: "sdk"}})
	}
	project := launch(exe, "", "@upstash/context7-mcp")
	project.Source = definitions.NameProject
	for _, tt := range []struct {
		name   string
		def    Definition
		dirs   [2]string
		want   [2]string
		shares bool
	}{
		{"the client's", launch(exe, ""), [2]string(dirs), [2]string(dirs), false},
		{"the same client's", launch(exe, ""), [2]string{dirs[0], dirs[0]}, [2]string{dirs[0], dirs[0]}, true},
		{"the definition's", launch(exe, dirs[1]), [2]string(dirs), [2]string{dirs[1], dirs[1]}, true},
		{"a relative command", launch("./server", ""), [2]string(dirs), [2]string(dirs), false},
		{"none any more", launch(exe, ""), [2]string{}, [2]string{home, home}, true},
		{"a server that does not look", launch("env", "", exe, "@upstash/context7-mcp@1.2"), [2]string(dirs), [2]string{home, home}, true},
		{"a server of a project that does not look", project, [2]string(dirs), [2]string(dirs), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pooled(t, Options{})
			var pids [2]int
			for i, dir := range tt.dirs {
				s := running(t, p.NewManager([]Definition{tt.def}, Surroundings{Environ: env, Dir: dir}), "a")
				pids[i] = s.Info().PID
				if got := text(t, must(t)(s.CallTool(t.Context(), "directory", nil))); got != tt.want[i] {
					t.Errorf("client %d: got directory %q, want %q", i, got, tt.want[i])
				}
			}
			if shares := pids[0] == pids[1]; shares != tt.shares {
				t.Errorf("got shared %t, want %t", shares, tt.shares)
			}
		})
	}
}

// TestDirectoryGone: the error names the directory, not the program.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	m := manage(t, Options{Dir: dir}, define(t, "a", "sdk"))
	if _, err := m.Server(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "the directory to start in: stat "+dir) {
		t.Errorf("got %v, want an error of %s", err, dir)
	}
}

// TestOwnVariables: a definition's variables have the values of the client that
// defines it, and nothing else of a client's environment reaches a server.
func TestOwnVariables(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry, err := json.Marshal(map[string]any{"command": exe, "env": map[string]string{roleVariable: "sdk", "KEY": "${TOKEN}"}})
	if err != nil {
		t.Fatal(err)
	}
	p := pooled(t, Options{})
	client := func(token string) *Server {
		t.Helper()
		env := append(os.Environ(), "TOKEN="+token, "OTHER_SECRET=other-"+token)
		def, err := definitions.Parse("a", entry, definitions.Options{Env: func(name string) (string, bool) {
			return token, name == "TOKEN"
		}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return running(t, p.NewManager([]Definition{def}, Surroundings{Environ: env}), "a")
	}
	pids := map[int]string{}
	for _, token := range []string{"secret-one", "secret-two"} {
		s := client(token)
		got := text(t, must(t)(s.CallTool(t.Context(), "environment", nil)))
		if !strings.Contains(got, "KEY="+token+"\n") {
			t.Errorf("the server of %s has not got its value:\n%s", token, got)
		}
		for _, bad := range []string{"other-", "\nTOKEN="} {
			if strings.Contains(got, bad) {
				t.Errorf("the server of %s got %q:\n%s", token, bad, got)
			}
		}
		if whose := pids[s.Info().PID]; whose != "" {
			t.Errorf("the server of %s is that of %s", token, whose)
		}
		pids[s.Info().PID] = token
	}
	if s := client("secret-one"); pids[s.Info().PID] != "secret-one" {
		t.Error("a client with the same value has another server")
	}
}

// TestOutputOfOthers: what a server prints during a client's calls is not shown to
// another client, however that asks for it.
func TestOutputOfOthers(t *testing.T) {
	p := pooled(t, Options{CallTimeout: time.Minute})
	def := define(t, "a", "sdk")
	short := def
	short.CallTimeout = 200 * time.Millisecond
	one, two := p.NewManager([]Definition{def}, here()), p.NewManager([]Definition{short}, here())
	a, b := running(t, one, "a"), running(t, two, "a")
	if a.Info().PID != b.Info().PID {
		t.Fatal("the server is not shared")
	}
	const private = "private-words"
	must(t)(a.CallTool(t.Context(), "say", json.RawMessage(`{"what":"`+private+`"}`)))
	waitFor(t, func() bool { return strings.Contains(a.Diagnosis().Stderr, private) })
	if d := b.Diagnosis(); strings.Contains(fmt.Sprint(d), private) || !d.Withheld {
		t.Errorf("the other client reads %+v", d)
	}
	must(t)(b.CallTool(t.Context(), "echo", nil))
	if d := a.Diagnosis(); !d.Withheld {
		t.Errorf("after a call of the other client, the first one reads %+v", d)
	}
	// It ends during a call of the first client, and then there is a pause.
	_, err := a.CallTool(t.Context(), "exit", nil)
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrGone || !e.Withheld || strings.Contains(err.Error(), "going down") {
		t.Errorf("got %v, want that its output is withheld", err)
	}
	_, err = b.CallTool(t.Context(), "echo", nil)
	if err == nil || strings.Contains(err.Error(), private) || strings.Contains(err.Error(), "going down") {
		t.Errorf("the other client got %v", err)
	}
}

// TestLastFailureOfOthers: the reason why a server is not started yet has no output
// of another client's call, and the client whose call it was reads it.
func TestLastFailureOfOthers(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "a", "sdk", "SECRET=words")
	one, two := p.NewManager([]Definition{def}, here()), p.NewManager([]Definition{def}, here())
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	for round := range 3 {
		s, err := one.Server(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CallTool(t.Context(), "exit", nil); !IsGone(err) || !strings.Contains(err.Error(), "going down") {
			t.Fatalf("round %d: got %v, want its output", round, err)
		}
	}
	_, errTwo := two.Server(ctx, "a")
	_, errOne := one.Server(ctx, "a")
	for who, err := range map[string]error{"one": errOne, "two": errTwo} {
		var early *tooEarly
		if !errors.As(err, &early) {
			t.Fatalf("%s: got %v, want that it is too early", who, err)
		}
		if shows := strings.Contains(err.Error(), "going down"); shows != (who == "one") {
			t.Errorf("%s: got output shown %t: %v", who, shows, err)
		}
	}
}

// TestProgressOfOthers: each client gets the progress of its own calls.
func TestProgressOfOthers(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "a", "sdk")
	var all sync.WaitGroup
	for i := range 4 {
		s := running(t, p.NewManager([]Definition{def}, here()), "a")
		all.Go(func() {
			for range 20 {
				var steps []string
				host := &fakeHost{}
				_, err := s.CallTool(WithHost(t.Context(), host), "count", nil)
				_, told, _ := host.heard()
				for _, p := range told {
					steps = append(steps, p.Message)
				}
				if got, want := strings.Join(steps, " "), "step 1 step 2 step 3"; err != nil || got != want {
					t.Errorf("client %d: got %q, %v, want %q", i, got, err, want)
				}
			}
		})
	}
	all.Wait()
}

// TestSessions: where each session has a server, it is shared by the clients that
// use the session, and ends with it.
func TestSessions(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "a", "sdk")
	def.Sharing = definitions.ShareSession
	one, two := p.NewManager([]Definition{def}, here()), p.NewManager([]Definition{def}, here())
	in := func(m *Manager, session string) *Server {
		t.Helper()
		s, err := m.Server(InSession(t.Context(), session), "a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, other, shared := in(one, "x"), in(one, "y"), in(two, "x")
	if s.Info().PID == other.Info().PID {
		t.Error("two sessions share a server")
	}
	if s.Info().PID != shared.Info().PID {
		t.Error("two clients of one session have two servers")
	}
	if pid(t, one, "a") == s.Info().PID || pid(t, one, "a") == pid(t, two, "a") {
		t.Error("without a session, the server of another one is used")
	}
	if got := len(one.Running()); got != 3 {
		t.Errorf("got %d servers of the first client, want 3", got)
	}
	if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := in(two, "x"); again.Info().PID != s.Info().PID {
		t.Error("the server ended although a client uses the session")
	}
	one = p.NewManager([]Definition{def}, here())
	other = in(one, "y")
	p.EndSession("x")
	p.EndSession("x")
	exited(t, s)
	if fresh := in(two, "x"); fresh.Info().PID == s.Info().PID {
		t.Error("a new session of the same name has the old server")
	}
	if !other.Alive() {
		t.Error("the server of another session ended")
	}
	one.Replace(nil, 0)
	exited(t, other)
}

func exited(t *testing.T, s *Server) {
	t.Helper()
	select {
	case <-processOf(s).Exited():
	case <-time.After(time.Minute):
		t.Fatal("the server runs on")
	}
}

// TestStartLimits: a client waits for a start as long as its own definition says,
// although another client's allows more.
func TestStartLimits(t *testing.T) {
	p := pooled(t, Options{})
	long, short := define(t, "a", "silent"), define(t, "a", "silent")
	long.StartTimeout, short.StartTimeout = time.Hour, 20*time.Millisecond
	one, two := p.NewManager([]Definition{long}, here()), p.NewManager([]Definition{short}, here())
	if _, err := two.Server(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("got %v, want that it waited 20ms", err)
	}
	e := one.set.Load().slots["a"].entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.starting == nil {
		t.Error("the start ended that another client may still wait for")
	}
}

// TestLinger: one timer for each server, however often clients come and go.
func TestLinger(t *testing.T) {
	p := pooled(t, Options{})
	p.linger = time.Hour
	def := define(t, "a", "sdk")
	var e *entry
	var timer *time.Timer
	for round := range 100 {
		m := p.NewManager([]Definition{def}, here())
		e = m.set.Load().slots["a"].entry
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if round > 0 && e.leaving != timer {
			t.Fatal("there is another timer")
		}
		timer = e.leaving
	}
	m := p.NewManager([]Definition{def}, here())
	if timer.Stop() {
		t.Error("the timer runs although a client uses the server")
	}
	s := running(t, m, "a")
	p.linger = time.Millisecond
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	exited(t, s)
}

// TestTwoBorrow: of two that borrow a server, neither ends it under the other, and
// the last one ends it.
func TestTwoBorrow(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "a", "sdk")
	one, two := p.NewManager([]Definition{def}, here()), p.NewManager([]Definition{def}, here())
	var lent *Server
	firstGone, second := make(chan struct{}), make(chan error, 1)
	err := one.Borrow(t.Context(), "a", func(s *Server) error {
		lent = s
		began := make(chan struct{})
		go func() {
			second <- two.Borrow(t.Context(), "a", func(s *Server) error {
				close(began)
				<-firstGone
				_, err := s.Tools(t.Context())
				return err
			})
		}()
		<-began
		return nil
	})
	close(firstGone)
	if err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Errorf("it was ended under the second borrower: %v", err)
	}
	exited(t, lent)
}

// TestSearchPath: relative directories and those that do not exist are left out.
func TestSearchPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                                    "",
		dir:                                   dir,
		dir + "/:" + link + ":" + dir:         dir,
		".:bin::" + dir + "/../x":             "",
		"/nowhere/at/all:" + dir + ":/":       dir + ":/",
		link + "/link/link:./x:" + dir + "//": dir,
	} {
		if got := canonicalPath(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

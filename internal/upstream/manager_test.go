//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func TestDefinitionsOfAManager(t *testing.T) {
	defs := []Definition{define(t, "b c", "x"), define(t, "B-C", "x"), define(t, "a", "x"), define(t, "a", "y"), define(t, "1st", "x")}
	defs[0].Disabled = true
	m := manage(t, Options{}, defs...)
	var got []string
	for _, d := range m.Definitions() {
		got = append(got, d.Name+"="+d.Alias)
	}
	if strings.Join(got, " ") != "1st=_1st B-C=b_c a=a b c=b_c" {
		t.Error(got)
	}
	if defs[0].Alias != "" {
		t.Error("the caller's definitions were changed")
	}
	if d, ok := m.Definition("a"); !ok || d.Launch().Env[roleVariable] != "x" {
		t.Error(d, ok)
	}
	if _, err := m.Server(t.Context(), "b c"); !errors.Is(err, ErrDisabled) {
		t.Error(err)
	}
	if _, err := m.Server(t.Context(), "none"); !errors.Is(err, ErrUnknownServer) {
		t.Error(err)
	}
}

func TestFailedStarts(t *testing.T) {
	missing := definitions.New("missing", "", definitions.Launch{Command: "no-such-command-here", Env: map[string]string{"PATH": "/s3cr3t-dir"}})
	notExecutable := definitions.New("plain", "", definitions.Launch{Command: "/etc/passwd"})
	badFormat := definitions.New("format", "", definitions.Launch{Command: writeFile(t, "not a program", 0o755)})
	tests := []struct {
		def  Definition
		want []string
	}{
		{define(t, "x", "dies-at-start", "SECRET=s3cr3t-key"), []string{"exit status 3", "\n  Error: the key ${SECRET} is wrong"}},
		{define(t, "x", "says-goodbye-on-stdout"), []string{"exit status 0", "usage: server --port N"}},
		{define(t, "x", "silent"), []string{"no answer to initialize within 300ms"}},
		{define(t, "x", "closes-stdout"), []string{"EOF"}},
		{missing, []string{`command "no-such-command-here" not found (PATH is ${PATH})`}},
		{notExecutable, []string{"permission denied"}},
		{badFormat, []string{"exec format error"}},
	}
	for _, test := range tests {
		name := test.def.Launch().Env[roleVariable]
		if name == "" {
			name = test.def.Name
		}
		t.Run(name, func(t *testing.T) {
			logged := new(logBuffer)
			m := manage(t, Options{Log: logged.logger(), StartTimeout: 300 * time.Millisecond}, test.def)
			_, err := m.Server(t.Context(), test.def.Name)
			if !errors.Is(err, ErrStart) {
				t.Fatal(err)
			}
			for _, want := range append(test.want, "did not start ("+test.def.CommandLine()) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error()+logged.String(), "s3cr3t") || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q or the log shows too much", err)
			}
		})
	}
	var notFound *child.NotFoundError
	m := manage(t, Options{}, missing)
	if _, err := m.Server(t.Context(), "missing"); !errors.As(err, &notFound) {
		t.Error(err)
	}
}

func writeFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOneStartForAll(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "slow-start"))
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.Server(impatient, "x"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStart) {
		t.Error(err)
	}
	servers := make([]*Server, 20)
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			s, err := m.Server(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			servers[i] = s
		})
	}
	wg.Wait()
	if len(slices.Compact(servers)) != 1 || len(m.Running()) != 1 {
		t.Error("more than one was started")
	}
}

func TestBackoff(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: a caller must be refused within 300 ms")
	}
	m := manage(t, Options{}, define(t, "x", "dies-at-start"), define(t, "y", "plain"))
	const paused = "it is tried again after"
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), paused) }
	// A caller waits for a pause of one second and for one of two, not for one
	// of four, nor for one that is longer than it may wait.
	for i := range 5 {
		if i == 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if _, err := m.Server(ctx, "x"); !refused(err) || ctx.Err() != nil {
				t.Errorf("in less time than the pause: %v", err)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, err := m.Server(ctx, "x"); !errors.Is(err, context.Canceled) {
				t.Errorf("given up during the pause: %v", err)
			}
		}
		_, err := m.Server(t.Context(), "x")
		if refused(err) != (i == 4) || !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("start %d: %v", i, err)
		}
	}
	// One that starts well and dies each time is held back too.
	for i := range 5 {
		s, err := m.Server(t.Context(), "y")
		if i == 4 {
			if !errors.Is(err, ErrGone) || !refused(err) {
				t.Errorf("start %d: %v", i, err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CallTool(t.Context(), "die", nil); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	}
}

func TestCloseDuringAPause(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "dies-at-start"))
	for range 2 {
		if _, err := m.Server(t.Context(), "x"); !errors.Is(err, ErrStart) {
			t.Fatal(err)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = m.Close(context.Background()) })
	if _, err := m.Server(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "tried again after") {
		t.Errorf("got %v, want the pause to end with a refusal", err)
	}
}

func TestIdleStop(t *testing.T) {
	m := manage(t, Options{IdleStop: 100 * time.Millisecond}, define(t, "x", "sdk"))
	s := running(t, m, "x")
	// In use it is not idle.
	if _, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":400}`)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return !s.Alive() && syscall.Kill(s.Info().PID, 0) != nil })
	if _, err := s.CallTool(t.Context(), "echo", nil); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "it was stopped") {
		t.Error(err)
	}
	if again := running(t, m, "x"); again == s || again.Info().PID == s.Info().PID {
		t.Error("the stopped server was handed out")
	}
}

func TestClose(t *testing.T) {
	defs := []Definition{define(t, "a", "sdk"), define(t, "b", "stubborn"), define(t, "c", "silent"), define(t, "d", "flood"), define(t, "e", "plain")}
	m := NewManager(defs, Options{Environ: os.Environ(), StopGrace: 200 * time.Millisecond})
	var pids []int
	for _, name := range []string{"a", "b", "d", "e"} {
		pids = append(pids, running(t, m, name).Info().PID)
	}
	call := make(chan error, 2)
	go func() {
		_, err := running(t, m, "e").CallTool(t.Context(), "silence", nil)
		call <- err
	}()
	go func() {
		_, err := m.Server(t.Context(), "c")
		call <- err
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	for range 2 {
		if err := <-call; !errors.Is(err, ErrGone) && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if _, err := m.Server(t.Context(), "a"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseInAHurry(t *testing.T) {
	m := NewManager([]Definition{define(t, "b", "stubborn"), define(t, "c", "stubborn")}, Options{Environ: os.Environ(), StopGrace: time.Minute})
	running(t, m, "b")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := m.Close(ctx); err != nil || time.Since(began) > 30*time.Second {
		t.Error(err, time.Since(began))
	}
}

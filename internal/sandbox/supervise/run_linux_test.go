package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestMain lets the test's executable be the helper, too.
func TestMain(m *testing.M) {
	if os.Args[0] == helperName {
		os.Exit(helper())
	}
	os.Exit(m.Run())
}

const helperName = "supervise-test-helper"

// helperConfig tells the helper how to behave.
type helperConfig struct {
	Fail    string // to start
	Confirm bool   // waits for OpRestore
	Stay    bool   // ignores the end of the lifeline
}

func helper() int {
	var cfg helperConfig
	line, err := OpenLifeline(&cfg)
	if err != nil {
		return 2
	}
	if cfg.Confirm {
		if cmd, err := line.Next(); err != nil || cmd.Op != OpRestore {
			return 3
		}
	}
	if cfg.Fail != "" {
		line.Send(Event{Kind: EventFailed, Error: cfg.Fail, Detail: "details"})
		return 1
	}
	line.Send(Event{Kind: EventStarted})
	ended := make(chan struct{})
	go func() {
		<-ended
		line.Finish(Event{Kind: EventExited, Exit: &Exit{Code: 9}})
		os.Exit(0)
	}()
	line.Serve(func(cmd Command) (*Usage, error) {
		switch cmd.Op {
		case OpUsage:
			return &Usage{CPUMillis: 5, MemoryBytes: 6, PeakBytes: 7}, nil
		case OpPause:
			return nil, errors.New("cannot pause")
		case OpInterrupt:
			line.Send(Event{Kind: EventExited, Exit: &Exit{Code: 9}, Detail: "details"})
			os.Exit(0)
		case OpSnapshot: // what the helper waits for ends before the answer
			close(ended)
			time.Sleep(20 * time.Millisecond)
		case OpResume:
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		return nil, nil
	})
	if cfg.Stay {
		time.Sleep(time.Hour)
	}
	return 0
}

func start(t *testing.T, cfg helperConfig, change func(*Config)) (*Run, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Handle:     sandbox.Handle{Backend: "engine", Version: 1, ID: "a"},
		Executable: exe, Name: helperName, Attr: &syscall.SysProcAttr{},
		Configure: func(int) (any, error) { return cfg, nil },
	}
	if change != nil {
		change(&c)
	}
	return Start(t.Context(), c)
}

func TestRun(t *testing.T) {
	released := 0
	run, err := start(t, helperConfig{Confirm: true}, func(c *Config) {
		c.Confirm = func(context.Context) error { return nil }
		c.Release = func() error { released++; return nil }
	})
	if err != nil {
		t.Fatal(err)
	}
	if u, err := run.Usage(t.Context()); err != nil || u != (sandbox.Usage{CPU: 5 * time.Millisecond, MemoryBytes: 6, PeakBytes: 7}) {
		t.Errorf("Usage: got %+v, %v", u, err)
	}
	if err := run.Pause(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot pause") {
		t.Errorf("Pause: got %v, want the helper's error", err)
	}
	for range 2 { // idempotent
		if err := run.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	exit, err := run.Wait(t.Context())
	if want := (sandbox.Exit{Code: 137, Reason: sandbox.Destroyed}); exit != want || err != nil {
		t.Errorf("Wait: got %+v, %v, want %+v", exit, err, want)
	}
	if released != 1 {
		t.Errorf("released %d times, want once", released)
	}
	if u, err := run.Usage(t.Context()); !errors.Is(err, sandbox.ErrGone) || u.CPU != -1 {
		t.Errorf("Usage after the end: got %+v, %v, want unknown and ErrGone", u, err)
	}
}

func TestExit(t *testing.T) {
	tests := []struct {
		name string
		end  func(*Run) error
		oom  bool
		want sandbox.Exit
	}{
		{"exited", func(r *Run) error { return r.Interrupt(context.Background()) }, false,
			sandbox.Exit{Code: 9, Reason: sandbox.Exited, Detail: "details"}},
		{"helper killed", func(r *Run) error { return r.Resume(context.Background()) }, false,
			sandbox.Exit{Code: 137, Reason: sandbox.EngineDied, Detail: "the sandbox's kernel or its supervisor was killed"}},
		{"out of memory", func(r *Run) error { return r.Resume(context.Background()) }, true,
			sandbox.Exit{Code: 137, Reason: sandbox.OutOfMemory}},
	}
	for _, tt := range tests {
		run, err := start(t, helperConfig{}, func(c *Config) { c.OutOfMemory = func() bool { return tt.oom } })
		if err != nil {
			t.Fatal(err)
		}
		if err := tt.end(run); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: unanswered command: got %v, want ErrGone", tt.name, err)
		}
		if exit, err := run.Wait(t.Context()); exit != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, exit, err, tt.want)
		}
		if err := run.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestAnswerBeforeTheEnd: a snapshot that ends the run is answered all the same.
func TestAnswerBeforeTheEnd(t *testing.T) {
	for range 20 {
		run, err := start(t, helperConfig{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Do(t.Context(), Command{Op: OpSnapshot}); err != nil {
			t.Errorf("the snapshot: got %v, want an answer", err)
		}
		if exit, err := run.Wait(t.Context()); exit.Code != 9 || exit.Reason != sandbox.Exited || err != nil {
			t.Errorf("Wait: got %+v, %v, want status 9", exit, err)
		}
		if err := run.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestFailedStart: a failed start leaves no process and releases what there is.
func TestFailedStart(t *testing.T) {
	refused := errors.New("refused")
	cancelled, cancel := context.WithCancel(t.Context())
	tests := []struct {
		name   string
		cfg    helperConfig
		change func(*Config)
		want   string
	}{
		{"no executable", helperConfig{}, func(c *Config) { c.Executable = "/nonexistent" }, "no such file"},
		{"not confined", helperConfig{}, func(c *Config) { c.Configure = func(int) (any, error) { return nil, refused } }, "refused"},
		{"helper fails", helperConfig{Fail: "no root"}, nil, "no root: details"},
		{"snapshot refused", helperConfig{Confirm: true}, func(c *Config) { c.Confirm = func(context.Context) error { return refused } }, "refused"},
		{"given up", helperConfig{Confirm: true}, func(c *Config) {
			c.Confirm = func(context.Context) error { cancel(); return cancelled.Err() }
		}, "context canceled"},
	}
	for _, tt := range tests {
		released, pid := 0, 0
		_, err := start(t, tt.cfg, func(c *Config) {
			c.Release = func() error { released++; return nil }
			if tt.change != nil {
				tt.change(c)
			}
			configure := c.Configure
			c.Configure = func(p int) (any, error) { pid = p; return configure(p) }
		})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if released != 1 {
			t.Errorf("%s: released %d times, want once", tt.name, released)
		}
		if pid != 0 && unix.Kill(pid, 0) != unix.ESRCH {
			t.Errorf("%s: the helper lives on", tt.name)
		}
	}
}

// TestGrace: a helper with a grace is asked to end first, and killed when it
// does not.
func TestGrace(t *testing.T) {
	for _, stay := range []bool{false, true} {
		run, err := start(t, helperConfig{Stay: stay}, func(c *Config) {
			c.Grace = time.Minute
			if stay {
				c.Grace = time.Millisecond
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if got := run.cmd.ProcessState.ExitCode() == 0; got == stay {
			t.Errorf("stay %t: the helper ended with %v", stay, run.cmd.ProcessState)
		}
	}
}

func TestStreams(t *testing.T) {
	run, err := start(t, helperConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	channel := run.Channel()
	if err := run.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := channel.Stdin.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Destroy: got %v, want os.ErrClosed", err)
	}
	if _, err := io.ReadAll(channel.Stdout); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read after Destroy: got %v, want os.ErrClosed", err)
	}
}

package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words)}
		s := newSingle(t, e, nil)
		if e.started() != 0 {
			t.Error("a sandbox before any code")
		}
		for i := range 3 {
			if out := exec(t, s, fmt.Sprintf("say hello %d", i)); out.End != Finished || out.Stdout.Head != fmt.Sprintf("hello %d", i) || out.Lost != "" {
				t.Errorf("%+v", out)
			}
		}
		id := e.run(0).spec.ID
		if e.started() != 1 || !strings.HasPrefix(id, "sp-") || len(id) > 63 || id != strings.ToLower(id) {
			t.Errorf("%d sandboxes, ID %q", e.started(), id)
		}
		if e.run(0).spec.Limits != sandbox.DefaultLimits {
			t.Errorf("limits %+v", e.run(0).spec.Limits)
		}
		s.Close()
		if !e.run(0).isDestroyed() {
			t.Error("Close leaves the sandbox")
		}
		if _, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "say x", Timeout: time.Second}}); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStop) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestDeath(t *testing.T) {
	tests := []struct {
		name, code string
		exit       sandbox.Exit
		reason     string
		known      bool
		exitCode   int
	}{
		{"with a status", `die {"code":7}`, sandbox.Exit{Reason: sandbox.Exited, Code: 7}, "the interpreter ended with status 7", true, 7},
		{"by a signal", `die {"signal":11}`, sandbox.Exit{Reason: sandbox.Exited, Code: 139}, "signal 11", true, 139},
		{"out of memory", `die {"signal":9}`, sandbox.Exit{Reason: sandbox.OutOfMemory}, "the sandbox ran out of memory: it may use 512 MB (limits.memory)", true, 137},
		{"out of memory, by a watcher", `vanish`, sandbox.Exit{Reason: sandbox.OutOfMemory, Detail: "the engine's words"}, "the sandbox ran out of memory: it may use 512 MB (limits.memory)", true, 137},
		{"of the engine", `vanish`, sandbox.Exit{Reason: sandbox.EngineDied, Detail: "killed"}, "the sandbox engine died: killed", false, 0},
		{"without a word", `vanish`, sandbox.Exit{Reason: sandbox.Exited, Code: 3}, "the sandbox ended with status 3", false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{guest: each(words)}
				s := newSingle(t, e, nil)
				exec(t, s, "say warm")
				e.run(0).mu.Lock()
				e.run(0).exit = tt.exit
				e.run(0).mu.Unlock()
				out := exec(t, s, tt.code)
				if out.End != Died || !strings.Contains(out.Reason, tt.reason) || out.Lost != out.Reason || out.Known != tt.known || out.ExitCode != tt.exitCode ||
					out.OutOfMemory != (tt.exit.Reason == sandbox.OutOfMemory) {
					t.Errorf("got %+v, want %+v", out, tt)
				}
				if !e.run(0).isDestroyed() {
					t.Error("the dead sandbox was not released")
				}
				out = exec(t, s, "say again")
				if out.Stdout.Head != "again" || out.Lost != "" || e.started() != 2 {
					t.Errorf("after it: %+v", out)
				}
			})
		})
	}
}

func TestDeathBetweenExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words)}
		s := newSingle(t, e, nil)
		exec(t, s, "say warm")
		e.run(0).mu.Lock()
		e.run(0).exit = sandbox.Exit{Reason: sandbox.OutOfMemory}
		e.run(0).mu.Unlock()
		e.run(0).kill()
		time.Sleep(5 * time.Second)
		out := exec(t, s, "say back")
		if out.End != Finished || out.Stdout.Head != "back" || !strings.Contains(out.Lost, "out of memory") || e.started() != 2 {
			t.Errorf("%+v", out)
		}
	})
}

func TestTimeouts(t *testing.T) {
	tests := []struct {
		name, code string
		engine     func(*scripted)
		config     func(*setup)
		took       time.Duration
		survived   bool
		whole      bool
	}{
		{"code that ends when it is interrupted", "sleep 1h", nil, nil, 10 * time.Second, true, false},
		{"code that ends when it is interrupted twice", "hesitant", nil, nil, 11 * time.Second, true, false},
		{"code that does not", "stubborn", nil, nil, 12 * time.Second, false, false},
		{"an engine that cannot interrupt", "sleep 1h", func(e *scripted) { e.deaf = true }, nil, 10 * time.Second, false, false},
		{"the whole run", "sleep 1h", nil, func(c *setup) { c.WholeRun = 3 * time.Second }, 3 * time.Second, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{guest: each(words)}
				if tt.engine != nil {
					tt.engine(e)
				}
				s := newSingle(t, e, tt.config)
				began := time.Now()
				out := exec(t, s, tt.code)
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if out.End != TimedOut || out.Survived != tt.survived || out.Whole != tt.whole || (out.Lost == "") != tt.survived {
					t.Errorf("%+v", out)
				}
				after := exec(t, s, "say on")
				if after.Stdout.Head != "on" || after.Lost != "" {
					t.Errorf("after it: %+v", after)
				}
			})
		})
	}
}

func TestAnEngineWithoutAChannelIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words), mute: true}
		s := newSingle(t, e, nil)
		_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "say x", Timeout: time.Second}})
		if !errors.Is(err, sandbox.ErrUnsupported) || !e.run(0).isDestroyed() {
			t.Errorf("%v", err)
		}
	})
}

func TestOwnTimeOfAnExecution(t *testing.T) {
	callFor := func(d time.Duration) func(context.Context, wire.Call) ([]byte, error) {
		return func(ctx context.Context, _ wire.Call) ([]byte, error) {
			select {
			case <-time.After(d):
				return []byte(`"answer"`), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	tests := []struct {
		name       string
		metered    bool
		processors float64
		end        End
		took       time.Duration
	}{
		{"waiting is free", true, 0, Finished, 30 * time.Second},
		{"half a processor beside the call", true, 0.5, TimedOut, 20 * time.Second},
		{"eight processors beside the call", true, 8, TimedOut, 10 * time.Second},
		{"without a meter", false, 8, Finished, 30 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{metered: tt.metered, guest: each(words)}
				s := newSingle(t, e, nil)
				exec(t, s, "say warm")
				e.run(0).spin(tt.processors)
				began := time.Now()
				out, err := s.Exec(t.Context(), s.Enter(), Request{Call: callFor(30 * time.Second), Submission: Submission{Code: "call", Timeout: 10 * time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if out.End == TimedOut {
					took -= 2 * time.Second // this guest hears no interrupt
				}
				// The first tenth of a second is the base of the measurements.
				if out.End != tt.end || took < tt.took || took > tt.took+300*time.Millisecond {
					t.Errorf("ended with %v after %v: %+v", out.End, took, out)
				}
				if (out.Usage != nil) != tt.metered {
					t.Errorf("usage %+v", out.Usage)
				}
			})
		})
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Run("while the engine starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{startHangs: true}
			s := newSingle(t, e, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errTest) })
			if _, err := s.Exec(ctx, s.Enter(), Request{Submission: Submission{Code: "x", Timeout: time.Second}}); !errors.Is(err, errTest) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("while the guest gets ready", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{guest: func(g *guestEnd) { g.next() }}
			s := newSingle(t, e, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errTest) })
			if _, err := s.Exec(ctx, s.Enter(), Request{Submission: Submission{Code: "x", Timeout: time.Second}}); !errors.Is(err, errTest) {
				t.Errorf("%v", err)
			}
			if !e.run(0).isDestroyed() {
				t.Error("the sandbox is left")
			}
		})
	})
	t.Run("too slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{guest: func(g *guestEnd) { g.next() }}
			s := newSingle(t, e, func(c *setup) { c.StartTimeout = 7 * time.Second })
			began := time.Now()
			_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "x", Timeout: time.Second}})
			if err == nil || !strings.Contains(err.Error(), "no answer within 7s") || time.Since(began) != 7*time.Second || !e.run(0).isDestroyed() {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
	t.Run("dies while it gets ready", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &scripted{guest: func(g *guestEnd) { _, _ = g.err.Write([]byte("python3: not found\n")) }}
			s := newSingle(t, e, nil)
			_, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "x", Timeout: time.Second}})
			if !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "python3: not found") || !e.run(0).isDestroyed() {
				t.Errorf("%v", err)
			}
		})
	})
}

func TestPrepareRunsBesideTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words), startDelay: 3 * time.Second}
		s := newSingle(t, e, nil)
		prepare := func(context.Context) (*Preparation, error) {
			time.Sleep(2 * time.Second)
			return &Preparation{}, nil
		}
		began := time.Now()
		if _, err := s.Exec(t.Context(), s.Enter(), Request{Prepare: prepare, Submission: Submission{Code: "say x", Timeout: time.Second}}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		fails := func(context.Context) (*Preparation, error) { return nil, errTest }
		if _, err := s.Exec(t.Context(), s.Enter(), Request{Prepare: fails, Submission: Submission{Code: "say x", Timeout: time.Second}}); !errors.Is(err, errTest) {
			t.Errorf("%v", err)
		}
		if out := exec(t, s, "say on"); out.Lost != "" || e.started() != 1 {
			t.Errorf("a failed preparation cost the sandbox: %+v", out)
		}
	})
}

func TestWhatTheGuestKnowsIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var frames []frame
		e := &scripted{guest: each(func(g *guestEnd, f frame) bool {
			frames = append(frames, f)
			return words(g, f)
		})}
		s := newSingle(t, e, nil)
		prep := func(version string, names ...string) func(context.Context) (*Preparation, error) {
			return func(context.Context) (*Preparation, error) {
				p := &Preparation{Grants: names, Discovered: []wire.ServerInfo{{Name: "a"}}, DiscoveredVersion: "1"}
				for _, n := range names {
					p.Define = append(p.Define, wire.Server{Name: n, Alias: n, Version: version})
				}
				return p, nil
			}
		}
		steps := []struct {
			prepare            func(context.Context) (*Preparation, error)
			code               string
			define, discovered int
		}{
			{prep("1", "a"), "say x", 1, 1},
			{prep("1", "a"), "say x", 0, 0},
			{prep("1", "b", "a"), "say x", 1, 0},
			{prep("2", "a"), "say x", 1, 0},
			{prep("2", "a"), "vanish", 0, 0},
			{prep("2", "a"), "say x", 1, 1}, // another sandbox knows nothing
		}
		for i, step := range steps {
			if _, err := s.Exec(t.Context(), s.Enter(), Request{Prepare: step.prepare, Submission: Submission{Code: step.code, Timeout: time.Second}}); err != nil {
				t.Fatal(err)
			}
			f := frames[i]
			if len(f.Define) != step.define || len(f.Discovered) != step.discovered || len(f.Grants) == 0 {
				t.Errorf("step %d: %+v", i, f)
			}
		}
	})
}

// TestHostileGuests: whatever a guest says, its session answers, and the next
// execution works.
func TestHostileGuests(t *testing.T) {
	raw := func(g *guestEnd, b ...byte) { _, _ = g.out.Write(b) }
	tests := []struct {
		name   string
		attack func(*guestEnd, frame) bool
		end    End
		stdout string
	}{
		{"a done frame of another execution", func(g *guestEnd, f frame) bool {
			g.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, f.ID+1)
			g.output(wire.KindStdout, "real")
			g.done(f, "ok", 0)
			return true
		}, Finished, "real"},
		{"a done frame twice", func(g *guestEnd, f frame) bool {
			g.control(`{"type":"done","id":%d,"status":"error","exitCode":-5}`, f.ID)
			g.done(f, "ok", 0)
			return true
		}, Raised, ""},
		{"a wrong nonce", func(g *guestEnd, f frame) bool {
			g.output(wire.KindNonce, strings.Repeat("0", len(f.Nonce)))
			g.output(wire.KindStdout, "late")
			g.done(f, "ok", 0)
			return true
		}, Finished, "late"},
		{"a call of another execution", func(g *guestEnd, f frame) bool {
			g.control(`{"type":"call","id":1,"run":%d,"method":"call_tool","params":{}}`, f.ID+7)
			if r, _ := g.next(); r.Type != "reply" || r.OK {
				panic(fmt.Sprintf("answered %+v", r))
			}
			g.done(f, "ok", 0)
			return true
		}, Finished, ""},
		{"ready once more", func(g *guestEnd, f frame) bool { g.ready(); g.done(f, "ok", 0); return true }, Finished, ""},
		{"a length without a frame", func(g *guestEnd, f frame) bool { raw(g, 0xff, 0xff, 0xff, 0xff); g.next(); return false }, Died, ""},
		{"no JSON", func(g *guestEnd, f frame) bool {
			raw(g, wire.AppendControl(nil, []byte("hello"))...)
			g.next()
			return false
		}, Died, ""},
		{"an unknown type", func(g *guestEnd, f frame) bool { g.control(`{"type":"root"}`); g.next(); return false }, Died, ""},
		{"half a frame", func(g *guestEnd, f frame) bool { raw(g, 0, 0, 0, 10, '{'); return false }, Died, ""},
		{"an output frame that is too long", func(g *guestEnd, f frame) bool {
			_, _ = g.err.Write([]byte{0x7f, 0, 0, 0})
			g.next()
			return false
		}, Died, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{guest: each(func(g *guestEnd, f frame) bool {
					if f.Code == "attack" {
						return tt.attack(g, f)
					}
					return words(g, f)
				})}
				s := newSingle(t, e, nil)
				out := exec(t, s, "attack")
				if out.End != tt.end || out.Stdout.Head != tt.stdout || out.End == Raised && out.ExitCode != 1 {
					t.Errorf("%+v", out)
				}
				if after := exec(t, s, "say fine"); after.Stdout.Head != "fine" || out.Lost == "" && tt.end == Died || after.Lost != "" {
					t.Errorf("after it: %+v", after)
				}
			})
		})
	}
}

func TestStrayOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(func(g *guestEnd, f frame) bool {
			g.done(f, "ok", 0)
			time.Sleep(time.Second)
			g.output(wire.KindStdout, "late\n")
			return true
		})}
		s := newSingle(t, e, nil)
		exec(t, s, "x")
		time.Sleep(2 * time.Second)
		if out := exec(t, s, "y"); out.IdleOutput != "late\n" || out.Stdout.Head != "" {
			t.Errorf("%+v", out)
		}
	})
}

func TestABusyBackgroundIsPaused(t *testing.T) {
	for _, tt := range []struct {
		name       string
		processors float64
		config     func(*setup)
		paused     bool
	}{
		{"busy", 1, nil, true},
		{"within its share", 0.05, nil, false},
		{"busy without a bound", 8, func(c *setup) { c.Background = -1 }, false},
		{"busy with a larger share", 0.4, func(c *setup) { c.Background = 0.5 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{guest: each(words), pausable: true}
				s := newSingle(t, e, tt.config)
				exec(t, s, "say x")
				r := e.run(0)
				r.spin(tt.processors)
				time.Sleep(time.Minute)
				r.mu.Lock()
				paused := r.paused
				r.mu.Unlock()
				if paused != tt.paused {
					t.Errorf("paused %v", paused)
				}
				if out := exec(t, s, "say y"); out.Stdout.Head != "y" || out.Lost != "" {
					t.Errorf("%+v", out)
				}
				r.mu.Lock()
				paused, r.rate = r.paused, 0
				r.mu.Unlock()
				if paused {
					t.Error("an execution ran in a paused sandbox")
				}
				s.Close()
			})
		})
	}
}

func TestCancellation(t *testing.T) {
	tests := []struct {
		name, code string
		cause      error
		took       time.Duration
		survived   bool
	}{
		{"a client's", "sleep 1h", errTest, time.Second, true},
		{"a client's, and the code does not listen", "stubborn", errTest, 3 * time.Second, false},
		{"a stop", "sleep 1h", ErrStop, time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &scripted{guest: each(words)}
				s := newSingle(t, e, nil)
				exec(t, s, "say warm")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(tt.cause) })
				began := time.Now()
				out, err := s.Exec(ctx, s.Enter(), Request{Submission: Submission{Code: tt.code, Timeout: time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tt.took || out.End != Cancelled || out.Survived != tt.survived {
					t.Errorf("after %v: %+v", took, out)
				}
			})
		})
	}
}

func TestCloseEndsWhatRunsAndWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words)}
		s := newSingle(t, e, nil)
		results := make(chan error, 3)
		for _, code := range []string{"stubborn", "say never", "say never"} {
			ticket := s.Enter()
			go func() {
				_, err := s.Exec(t.Context(), ticket, Request{Submission: Submission{Code: code, Timeout: time.Hour}})
				results <- err
			}()
		}
		synctest.Wait()
		if s.Waiting() != 3 {
			t.Errorf("%d wait or run", s.Waiting())
		}
		began := time.Now()
		s.Close()
		for range 3 {
			<-results
		}
		if time.Since(began) != 0 || e.started() != 1 || !e.run(0).isDestroyed() {
			t.Errorf("after %v, %d sandboxes", time.Since(began), e.started())
		}
	})
}

func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scripted{guest: each(words)}
		set := newTestSet(setup{Template: Template{Engine: e}})
		a, err := set.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := set.Get("a"); err != nil || again != a {
			t.Errorf("another session of the same name: %v", err)
		}
		for _, name := range []string{"", "../x", "a b", strings.Repeat("x", 65), "-x", "ä"} {
			if _, err := set.Get(name); err == nil {
				t.Errorf("a session named %q", name)
			}
		}
		exec(t, a, "say x")
		set.Close()
		set.Close()
		if !e.run(0).isDestroyed() {
			t.Error("Close leaves a sandbox")
		}
		if _, err := set.Get("a"); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestNewRefusesHalfAConfiguration(t *testing.T) {
	if _, err := New(Key{Name: "x"}, Options{Logger: discard}, &Template{}); err == nil {
		t.Error("without an engine")
	}
	if _, err := New(Key{Name: "x"}, Options{}, &Template{Engine: &scripted{}}); err == nil {
		t.Error("without a logger")
	}
}

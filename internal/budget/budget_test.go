package budget

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimits(t *testing.T) {
	root := New(100)
	a, b := root.Sub(80, 10), root.Sub(80, 10)
	for _, step := range []struct {
		budget   *Budget
		n        int64
		ok       bool
		rootUsed int64
	}{
		{a, 10, true, 0},   // the floor
		{a, 70, true, 70},  // all that a may have
		{a, 1, false, 70},  // more
		{b, 40, true, 100}, // 10 of its own, and what is left
		{b, 1, false, 100}, // no more of the root
	} {
		if got := step.budget.TryAcquire(step.n); got != step.ok || root.Used() != step.rootUsed {
			t.Errorf("%d more: got %v with %d of the root used, want %v with %d", step.n, got, root.Used(), step.ok, step.rootUsed)
		}
	}
	a.Release(80)
	b.Release(40)
	if a.Used() != 0 || b.Used() != 0 || root.Used() != 0 {
		t.Errorf("after everything was released: %d, %d and %d are used, want 0", a.Used(), b.Used(), root.Used())
	}
	if err := a.Acquire(t.Context(), 81); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than fits: got %v, want ErrTooLarge", err)
	}
	var none *Budget
	if err := none.Acquire(t.Context(), 1<<60); err != nil || !none.TryAcquire(1<<60) {
		t.Errorf("a nil budget refuses: %v", err)
	}
	none.Release(1 << 60)
	none.Close()
}

// A budget whose siblings hold everything still has its floor.
func TestFloor(t *testing.T) {
	root := New(100)
	greedy, other := root.Sub(1000, 0), root.Sub(50, 20)
	if !greedy.TryAcquire(100) {
		t.Fatal("the whole root cannot be acquired")
	}
	if !other.TryAcquire(20) || other.TryAcquire(1) {
		t.Errorf("beside a sibling that holds everything %d bytes can be acquired, want 20", other.Used())
	}
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := New(100)
		a, b := root.Sub(200, 0), root.Sub(100, 0)
		_ = a.Acquire(t.Context(), 60)
		var mu sync.Mutex
		var got []string
		wait := func(who string, of *Budget, n int64) {
			go func() {
				if err := of.Acquire(t.Context(), n); err != nil {
					t.Errorf("%s: %v", who, err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, who)
			}()
			synctest.Wait()
		}
		wait("large", a, 90) // waits for the root
		wait("small", a, 10) // would fit, and must not overtake
		wait("other", b, 10)
		if len(got) != 0 {
			t.Errorf("%v went ahead of one who waits", got)
		}
		a.Release(60)
		synctest.Wait()
		if len(got) != 2 || got[0]+got[1] != "largesmall" && got[0]+got[1] != "smalllarge" {
			t.Errorf("after a release %v have theirs, want large and small", got)
		}
		a.Release(90)
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("in the end %v have theirs, want all three", got)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10)
		_ = b.Acquire(t.Context(), 10)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too late"))
		defer cancel()
		if err := b.Acquire(ctx, 5); err == nil || err.Error() != "too late" {
			t.Errorf("got %v, want the context's cause", err)
		}
		failed := make(chan error, 1)
		go func() { failed <- b.Acquire(context.Background(), 5) }()
		synctest.Wait()
		b.Close()
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		if err := b.Acquire(t.Context(), 1); !errors.Is(err, ErrClosed) || b.TryAcquire(1) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
		b.Release(10)
		if b.Used() != 0 {
			t.Errorf("%d bytes are used in the end, want 0", b.Used())
		}
	})
}

// Whoever gives up does not stay in the way of those behind.
func TestGivingUpLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10)
		_ = b.Acquire(t.Context(), 5)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.Acquire(ctx, 10) }()
		synctest.Wait()
		passed := make(chan error, 1)
		go func() { passed <- b.Acquire(context.Background(), 5) }()
		synctest.Wait()
		cancel()
		if err := <-passed; err != nil {
			t.Error(err)
		}
	})
}

func TestLease(t *testing.T) {
	s := NewHost(1).NewSandbox()
	l := s.Lease()
	if !l.TryAcquire(100) || !l.TryDisk(50) || l.Acquire(t.Context(), 20) != nil {
		t.Fatal("a fresh sandbox has no room")
	}
	if l.Reduce(70); l.Held() != 70 || s.Replies.Used() != 70 || s.Spool.Used() != 50 {
		t.Errorf("holds %d, and %d and %d are used, want 70, 70 and 50", l.Held(), s.Replies.Used(), s.Spool.Used())
	}
	l.Release()
	l.Release()
	if l.TryAcquire(1) || l.TryDisk(1) || !errors.Is(l.Acquire(t.Context(), 1), ErrClosed) {
		t.Error("a lease that has ended can be used")
	}
	if s.Used() != 0 || s.Spool.Used() != 0 {
		t.Errorf("%d and %d bytes are used in the end, want 0", s.Used(), s.Spool.Used())
	}
	var none *Lease
	if !none.TryAcquire(1) || !none.TryDisk(1) || none.Acquire(t.Context(), 1) != nil || none.Held() != 0 {
		t.Error("a nil lease refuses")
	}
	none.Reduce(0)
	none.Release()
	if From(With(t.Context(), l)) != l || From(t.Context()) != nil {
		t.Error("a context does not keep its lease")
	}
}

// FuzzBudget does what the bytes say, and compares with a model.
func FuzzBudget(f *testing.F) {
	f.Add([]byte{0x05, 0x45, 0x85, 0xc5, 0x01, 0x11})
	f.Fuzz(func(t *testing.T, ops []byte) {
		synctest.Test(t, func(t *testing.T) {
			root := New(40)
			subs := []*Budget{root.Sub(30, 5), root.Sub(30, 0), root.Sub(8, 8), root.Sub(50, 10)}
			type hold struct {
				of *Budget
				n  int64
			}
			var held []hold
			var waiting []func() (hold, bool)
			granted := func() {
				synctest.Wait()
				left := waiting[:0]
				for _, look := range waiting {
					if h, ok := look(); ok {
						held = append(held, h)
					} else {
						left = append(left, look)
					}
				}
				waiting = left
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, op := range ops {
				b, n := subs[op>>6], int64(op&15)
				switch op >> 4 & 3 {
				case 0:
					if b.TryAcquire(n) {
						held = append(held, hold{b, n})
					}
				case 1, 2:
					done := make(chan error, 1)
					go func() { done <- b.Acquire(ctx, n) }()
					waiting = append(waiting, func() (hold, bool) {
						select {
						case err := <-done:
							if err != nil {
								n = 0
							}
							return hold{b, n}, true
						default:
							return hold{}, false
						}
					})
				case 3:
					if len(held) > 0 {
						i := int(n) % len(held)
						held[i].of.Release(held[i].n)
						held = append(held[:i], held[i+1:]...)
					}
				}
				granted()
				var all int64
				for _, s := range subs {
					var used int64
					for _, h := range held {
						if h.of == s {
							used += h.n
						}
					}
					if s.Used() != used || used > s.limit {
						t.Fatalf("%d bytes are used of %d, want %d", s.Used(), s.limit, used)
					}
					all += max(0, used-s.floor)
				}
				if root.Used() != all || all > 40 {
					t.Fatalf("%d bytes of the root are used, want %d", root.Used(), all)
				}
			}
			// Whatever waits gets its turn when everything is released.
			for len(held) > 0 {
				for _, h := range held {
					h.of.Release(h.n)
				}
				held = nil
				granted()
			}
			if len(waiting) != 0 || root.Used() != 0 {
				t.Fatalf("%d still wait and %d bytes are used, want none", len(waiting), root.Used())
			}
		})
	})
}

// A caller that releases too much must not end the program.
func TestTooMuchIsReleased(t *testing.T) {
	root := New(100)
	a, b := root.Sub(80, 10), root.Sub(80, 0)
	if !a.TryAcquire(30) || !b.TryAcquire(20) {
		t.Fatal("there is no room")
	}
	a.Release(50)
	if a.Used() != 0 || b.Used() != 20 || root.Used() != 20 {
		t.Errorf("%d, %d and %d are used, want 0, 20 and 20", a.Used(), b.Used(), root.Used())
	}
}

// The runtime's memory limit is there while much is charged.
func TestMemoryLimitFollows(t *testing.T) {
	if !unlimited() {
		t.Skip("GOMEMLIMIT is set")
	}
	h := NewHost(1)
	h.sandboxes.tree.heap.limits = true
	s := h.NewSandbox()
	for _, n := range []int64{limitFrom, 60 << 20} {
		if !s.Requests.TryAcquire(n) {
			t.Fatal("there is no room")
		}
		if got := debug.SetMemoryLimit(-1); got < n+slack || got > n+slack+64<<20 {
			t.Errorf("with %d bytes charged the limit is %d, want about %d", n, got, n+slack)
		}
		s.Requests.Release(n)
		if !unlimited() {
			t.Errorf("with nothing charged the limit is %d, want none", debug.SetMemoryLimit(-1))
		}
	}
}

// What was reserved and not used gives the collector no work.
func TestReturn(t *testing.T) {
	h := NewHost(1)
	heap := &h.sandboxes.tree.heap
	l := h.NewSandbox().Lease()
	for _, step := range []struct {
		allocated, held, debt int64
	}{
		{0, 0, 0},
		{1 << 20, 1 << 20, 1 << 20},
		{40 << 20, 32 << 20, 33 << 20}, // more than was reserved
	} {
		if !l.TryAcquire(32 << 20) {
			t.Fatal("there is no room")
		}
		l.Return(step.allocated)
		if got, debt := l.Held(), heap.debt.Load(); got != step.held || debt != step.debt {
			t.Errorf("with %d bytes allocated: %d held and a debt of %d, want %d and %d", step.allocated, got, debt, step.held, step.debt)
		}
		l.Reduce(0)
	}
	if used := l.memory.Used(); used != 0 {
		t.Errorf("%d bytes are used in the end, want 0", used)
	}
	before := Allocated()
	kept = make([]byte, 8<<20)
	if got := Allocated() - before; got < 8<<20 {
		t.Errorf("Allocated grew by %d bytes for 8 MB, want at least %d", got, 8<<20)
	}
}

var kept []byte

package places

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// enter brings executions of a client, which wait for their turn or run.
func enter(t *testing.T, l *Line, n int) []*Place {
	t.Helper()
	list := make([]*Place, n)
	for i := range list {
		list[i] = &Place{}
		if err := l.Enter(list[i]); err != nil {
			t.Fatalf("execution %d: %v", i+1, err)
		}
		list[i].Try()
	}
	return list
}

func sleep(n int) { time.Sleep(time.Duration(n) * time.Millisecond) }

// Clients take turns, and the executions of each keep their order.
func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entered string // which client's executions arrive
		want    string // who runs, in order
	}{
		{"one client", "aaa", "a1 a2 a3"},
		{"one after many", "aaaaaab", "a1 b1 a2 a3 a4 a5 a6"},
		{"two clients", "aaabbb", "a1 b1 a2 b2 a3 b3"},
		{"three clients", "aaabcbc", "a1 b1 c1 a2 b2 c2 a3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := New(Limits{Running: 1})
			lines, all, number := map[rune]*Line{}, map[string]*Place{}, map[rune]int{}
			for _, c := range tt.entered {
				if lines[c] == nil {
					lines[c] = q.Line()
				}
				number[c]++
				all[fmt.Sprintf("%c%d", c, number[c])] = enter(t, lines[c], 1)[0]
			}
			var got []string
			for range tt.entered {
				for name, p := range all {
					if _, waits := p.Position(); waits == 0 {
						got = append(got, name)
						delete(all, name)
						p.Leave()
						break
					}
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
			if running, waiting := q.Counts(); running+waiting+q.inside+len(q.lines) != 0 {
				t.Errorf("afterwards: %+v", q)
			}
		})
	}
}

// The position is the order in which turns come, if no other arrives.
func TestPosition(t *testing.T) {
	q := New(Limits{Running: 1})
	a, b, c := q.Line(), q.Line(), q.Line()
	first := enter(t, a, 1)[0]
	if at, of := first.Position(); at != 0 || of != 0 {
		t.Errorf("of one that runs: %d of %d", at, of)
	}
	waiting := slices.Concat(enter(t, a, 3), enter(t, b, 2), enter(t, c, 1))
	var got []int
	for _, p := range waiting {
		at, of := p.Position()
		if of != len(waiting) {
			t.Errorf("%d wait, want %d", of, len(waiting))
		}
		got = append(got, at)
	}
	if want := []int{3, 5, 6, 1, 4, 2}; !slices.Equal(got, want) {
		t.Fatalf("positions %v, want %v", got, want)
	}
	first.Leave()
	for n := range len(waiting) { // and so it is
		i := slices.Index(got, n+1)
		if !waiting[i].Try() {
			t.Errorf("execution %d has not its turn after %d others", i, n)
		}
		waiting[i].Leave()
	}
}

// A client cannot have all places, and one that has as many as it may delays no other.
func TestPlacesOfAClient(t *testing.T) {
	q := New(Limits{Running: 4, ClientRunning: 3})
	a, b := q.Line(), q.Line()
	greedy := enter(t, a, 100)
	if running, waiting := q.Counts(); running != 3 || waiting != 97 {
		t.Errorf("%d run and %d wait, want 3 and 97", running, waiting)
	}
	one := enter(t, b, 2)
	if !one[0].Try() || one[1].Try() {
		t.Error("want the first execution of another client to run, and its second to wait")
	}
	one[0].Done() // the first client cannot have this place
	if !one[1].Try() || greedy[3].Try() {
		t.Error("the place went to the client that has most")
	}
}

// The executions of a client have their turns in the order of arrival, whenever they
// begin to wait: one waits for its session first.
func TestOrderOfArrival(t *testing.T) {
	l := New(Limits{Running: 1}).Line()
	runs := enter(t, l, 1)[0]
	var early Place
	if err := l.Enter(&early); err != nil {
		t.Fatal(err)
	}
	late := enter(t, l, 1)[0]
	early.Try()
	runs.Leave()
	if !early.Try() || late.Try() {
		t.Error("the execution that arrived later had its turn first")
	}
}

// New clients that come all the time do not keep another waiting.
func TestNewClients(t *testing.T) {
	q := New(Limits{Running: 1})
	runs := enter(t, q.Line(), 1)[0]
	old := enter(t, runs.line, 1)[0]
	for n := 0; !old.Try(); n++ {
		if n > 1 {
			t.Fatal("a client that came later had a second turn first")
		}
		next := enter(t, q.Line(), 1)[0]
		runs.Leave()
		runs = next
	}
}

func TestFull(t *testing.T) {
	q := New(Limits{Running: 2, Queued: 3, ClientRunning: 1, ClientQueued: 2})
	a, b, c := q.Line(), q.Line(), q.Line()
	first := enter(t, a, 3)
	refused := func(l *Line, want string) {
		t.Helper()
		if err := l.Enter(&Place{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refused(a, "3 executions of this client run or wait, as many as may (policy.executions.perClient.queued)")
	enter(t, b, 2)
	refused(b, "5 executions of all clients run or wait, as many as may (policy.executions.queued)")
	enter(t, c, 1) // the first one of a client
	refused(c, "policy.executions.queued")
	first[2].Leave()
	refused(c, "policy.executions.queued") // one too many was let in
	first[1].Leave()
	enter(t, c, 1)
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Limits{Running: 1})
		a := q.Line()
		list := enter(t, a, 3)
		cause := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := func(p *Place, ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { done <- p.Wait(ctx) }()
			synctest.Wait()
			return done
		}
		second, third := waits(list[1], ctx), waits(list[2], t.Context())
		cancel(cause)
		if err := <-second; !errors.Is(err, cause) {
			t.Errorf("cancelled: %v", err)
		}
		if _, waiting := q.Counts(); waiting != 1 {
			t.Errorf("%d wait, want 1: the cancelled one has left", waiting)
		}
		list[0].Done()
		if err := <-third; err != nil {
			t.Error(err)
		}
		for _, p := range list {
			p.Leave()
			p.Leave() // once more does nothing
			p.Done()
		}
		if running, waiting := q.Counts(); running+waiting+q.inside+a.inside != 0 {
			t.Errorf("afterwards: %+v", q)
		}
		var none *Place
		if err := none.Wait(ctx); err != nil || none.Line() != nil {
			t.Errorf("no place: %v", err)
		}
		none.Done()
	})
}

// Whatever clients do, no more run than may, all that wait have their turn, and
// nothing is left.
func TestManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Running: 3, Queued: 40, ClientRunning: 2, ClientQueued: 10}
		q := New(limits)
		random := rand.New(rand.NewPCG(1, 2))
		for range 8 {
			l := q.Line()
			for range 30 {
				p, ctx, patience, work := &Place{}, t.Context(), random.IntN(8), random.IntN(5)
				go func() {
					sleep(work)
					if l.Enter(p) != nil {
						return
					}
					defer p.Leave()
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					go func() { sleep(patience); cancel() }()
					if p.Wait(ctx) != nil {
						return
					}
					q.mu.Lock()
					if q.running > limits.Running || l.running > limits.ClientRunning {
						t.Errorf("%d run, %d of one client", q.running, l.running)
					}
					q.mu.Unlock()
					sleep(work)
				}()
			}
		}
		sleep(1000)
		if running, waiting := q.Counts(); running+waiting+q.inside+len(q.lines) != 0 {
			t.Errorf("afterwards: %+v", q)
		}
	})
}

// An execution that need not wait costs no memory.
func TestAllocations(t *testing.T) {
	l := New(Limits{Running: 1, Queued: 1, ClientRunning: 1, ClientQueued: 1}).Line()
	var p Place
	if n := testing.AllocsPerRun(100, func() {
		_ = l.Enter(&p)
		_ = p.Wait(context.Background())
		p.Leave()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

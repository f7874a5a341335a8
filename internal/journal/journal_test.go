package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
)

func quiet() *journal.Journal { return journal.New(slog.New(slog.DiscardHandler)) }

// names collects what a subscriber gets.
type names struct {
	mu   sync.Mutex
	got  []string
	lost int
}

func (n *names) handle(events []journal.Event, lost int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost += lost
	for _, e := range events {
		switch e := e.(type) {
		case *journal.ServerChanged:
			n.got = append(n.got, e.Server)
		case *journal.SessionChanged:
			n.got = append(n.got, "session "+e.Session)
		}
	}
	return nil
}

// all returns what there is so far.
func (n *names) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

func server(name string) journal.Event { return &journal.ServerChanged{Server: name} }

func session(name string) journal.Event {
	return &journal.SessionChanged{Origin: journal.Origin{Session: name}}
}

func TestTopics(t *testing.T) {
	j := quiet()
	if j.Wants(journal.Everything) {
		t.Error("a journal without subscribers wants events")
	}
	var all, servers names
	a := j.Subscribe(journal.Options{Topics: journal.Everything, Handle: all.handle})
	b := j.Subscribe(journal.Options{Topics: journal.Servers, Handle: servers.handle})
	j.Publish(server("one"))
	j.Publish(session("two"))
	b.Close()
	j.Publish(server("three"))
	if !j.Wants(journal.Sessions) {
		t.Error("nobody wants sessions, and one subscriber has asked for everything")
	}
	a.Close()
	a.Close()
	j.Publish(server("four"))
	if got, want := fmt.Sprint(all.got), "[one session two three]"; got != want {
		t.Errorf("everything: got %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(servers.got), "[one]"; got != want {
		t.Errorf("servers: got %s, want %s", got, want)
	}
	if j.Wants(journal.Everything) {
		t.Error("events are wanted after the last subscriber has gone")
	}
}

// TestNil: a journal that is not there publishes nothing, and commits.
func TestNil(t *testing.T) {
	var j *journal.Journal
	j.Publish(server("one"))
	if err := j.Commit(t.Context(), server("one")); err != nil || j.Wants(journal.Everything) || len(j.Lost()) != 0 {
		t.Errorf("got %v, %t, %v, want nothing", err, j.Wants(journal.Everything), j.Lost())
	}
}

// TestSlowSubscriber: it slows nobody and has bounded memory; its losses are
// counted and told to it and to the log.
func TestSlowSubscriber(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options journal.Options
		sent    int
		want    int // handled
	}{
		{"by number", journal.Options{Events: 3}, 10, 4},
		{"by bytes", journal.Options{Bytes: 2000}, 10, 4}, // of about 512 each
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				j := journal.New(slog.New(slog.NewTextHandler(&log, nil)))
				var n, fast names
				busy := make(chan struct{})
				tt.options.Name, tt.options.Topics = "slow", journal.Servers
				tt.options.Handle = func(events []journal.Event, lost int) error {
					<-busy
					return n.handle(events, lost)
				}
				s := j.Subscribe(tt.options)
				f := j.Subscribe(journal.Options{Topics: journal.Servers, Handle: fast.handle})
				for i := range tt.sent {
					j.Publish(server(fmt.Sprint(i)))
					synctest.Wait() // the first is being handled
				}
				if len(fast.all()) != tt.sent {
					t.Errorf("the other subscriber got %d events, want %d", len(fast.all()), tt.sent)
				}
				if got, want := j.Lost()["slow"], uint64(tt.sent-tt.want); got != want {
					t.Errorf("got %d lost, want %d", got, want)
				}
				close(busy)
				s.Close()
				f.Close()
				if len(n.got) != tt.want || n.lost != tt.sent-tt.want {
					t.Errorf("got %v and %d lost, want %d and %d", n.got, n.lost, tt.want, tt.sent-tt.want)
				}
				if !strings.Contains(log.String(), "subscriber=slow events=6") {
					t.Errorf("the log says %q, want how many events were lost", &log)
				}
			})
		})
	}
}

// TestEvery: events are collected, unless someone waits for them.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := quiet()
		var n names
		s := j.Subscribe(journal.Options{Topics: journal.Servers, Every: time.Minute, Handle: n.handle})
		defer s.Close()
		j.Publish(server("one"))
		j.Publish(server("two"))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(n.all()) != 0 {
			t.Errorf("after 59 s: got %v, want nothing yet", n.all())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(n.all()) != 2 {
			t.Errorf("after a minute: got %v, want two", n.all())
		}
		j.Publish(server("three"))
		began := time.Now()
		if err := s.Flush(t.Context()); err != nil || len(n.all()) != 3 || time.Since(began) != 0 {
			t.Errorf("flushed: got %v after %s (%v), want three at once", n.all(), time.Since(began), err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("flushing an empty queue: got %v", err)
		}
	})
}

func TestCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := quiet()
		full := errors.New("the disk is full")
		var answer error
		var n names
		s := j.Subscribe(journal.Options{Topics: journal.Servers, Every: time.Hour, Events: 2, Required: true, Handle: func(events []journal.Event, lost int) error {
			time.Sleep(time.Second)
			_ = n.handle(events, lost)
			return answer
		}})
		began := time.Now()
		if err := j.Commit(t.Context(), server("one")); err != nil || time.Since(began) != time.Second || len(n.all()) != 1 {
			t.Errorf("got %v after %s, with %v handled, want one after a second", err, time.Since(began), n.all())
		}
		answer = full
		if err := j.Commit(t.Context(), server("two")); !errors.Is(err, full) {
			t.Errorf("got %v, want %v", err, full)
		}
		if err := j.Commit(t.Context(), session("another topic")); err != nil {
			t.Errorf("got %v, want nothing: nobody wants it", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := j.Commit(ctx, server("three")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that it took too long", err)
		}
		// Three is being handled; two more wait, and there is room for no other.
		j.Publish(server("four"))
		j.Publish(server("five"))
		if err := j.Commit(t.Context(), server("six")); !errors.Is(err, journal.ErrLost) {
			t.Errorf("got %v, want %v", err, journal.ErrLost)
		}
		s.Close()
		if got, want := strings.Join(n.all(), " "), "one two three four five"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := s.Flush(t.Context()); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("a closed subscription: got %v, want %v", err, journal.ErrClosed)
		}
	})
}

// TestOrder: each subscriber gets what one goroutine publishes in that order.
func TestOrder(t *testing.T) {
	j := quiet()
	var n names
	s := j.Subscribe(journal.Options{Topics: journal.Servers, Handle: n.handle})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				j.Publish(server(fmt.Sprintf("%d %d", g, i)))
			}
		})
	}
	all.Wait()
	s.Close()
	next := map[int]int{}
	for _, name := range n.got {
		var g, i int
		if _, err := fmt.Sscan(name, &g, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[g] {
			t.Fatalf("got event %d of goroutine %d, want %d", i, g, next[g])
		}
		next[g]++
	}
	if len(n.got) != 8*500 {
		t.Errorf("got %d events, want %d", len(n.got), 8*500)
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{0, 1, 3} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			j := quiet()
			for range subscribers {
				s := j.Subscribe(journal.Options{Topics: journal.Servers, Every: time.Millisecond, Events: 1 << 30, Bytes: 1 << 40, Handle: func([]journal.Event, int) error { return nil }})
				b.Cleanup(s.Close)
			}
			b.ReportAllocs()
			for b.Loop() {
				if j.Wants(journal.Servers) {
					j.Publish(server("x"))
				}
			}
		})
	}
}

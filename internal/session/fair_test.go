package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/places"
)

// A user is a client of a set whose executions take turns.
type user struct {
	t    *testing.T
	set  *testSet
	line *places.Line
}

// start begins an execution, whose result or error is sent.
func (u *user) start(ctx context.Context, name, code string) <-chan string {
	u.t.Helper()
	s, place, done := get(u.t, u.set, name), &places.Place{}, make(chan string, 1)
	if err := u.line.Enter(place); err != nil {
		u.t.Fatal(err)
	}
	ticket := s.Enter()
	go func() {
		defer place.Leave()
		out, err := s.Exec(ctx, ticket, Request{Place: place, Submission: Submission{Code: code, Timeout: time.Hour}})
		switch {
		case err != nil:
			done <- err.Error()
		case out.Lost != "":
			done <- "lost: " + out.Lost
		default:
			done <- out.Stdout.Head
		}
	}()
	synctest.Wait()
	return done
}

func (u *user) exec(name, code string) string {
	u.t.Helper()
	return <-u.start(u.t.Context(), name, code)
}

// users returns clients of a set that may have so many sandboxes and executions.
func users(t *testing.T, e *saving, running int, limits places.Limits) (ann, bob *user, close func()) {
	open, _ := sets(t, func(c *setup) { c.MaxRunning = running; c.Idle = 0 })
	set, q := open(e), places.New(limits)
	return &user{t, set, q.Line()}, &user{t, set, q.Line()}, set.Close
}

// awake lists the sessions that have a sandbox.
func (u *user) awake() (names string) {
	for _, i := range u.set.List() {
		if i.Status == hibernate.Running {
			names += i.Name
		}
	}
	return names
}

// The client that has most sandboxes makes room, with the one that it has not used
// for longest.
func TestClientWithMostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 3, places.Limits{Running: 3})
		defer end()
		bob.exec("x", "set v 1")
		for _, name := range []string{"a", "b"} {
			time.Sleep(time.Second)
			ann.exec(name, "set v 1")
		}
		time.Sleep(time.Second)
		ann.exec("c", "set v 1")
		if got := ann.awake(); got != "bcx" {
			t.Errorf("awake: %s, want bcx: ann's oldest made room, not bob's, which is older", got)
		}
		bob.exec("y", "set v 1")
		if got := ann.awake(); got != "cxy" {
			t.Errorf("awake: %s, want cxy", got)
		}
		time.Sleep(time.Second)
		ann.exec("x", "set v 2") // it is ann's now, as who used it last
		time.Sleep(time.Second)
		bob.exec("z", "set v 1")
		if got := ann.awake(); got != "xyz" {
			t.Errorf("awake: %s, want xyz: of ann's two, the older one made room", got)
		}
	})
}

// A client whose sessions all run or wait does not keep another from a sandbox: what
// waits is suspended, and resumed when its turn comes.
func TestWaitingSessionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 2, places.Limits{Running: 2, ClientRunning: 1})
		defer end()
		ann.exec("a", "set v a")
		ann.exec("b", "set v b")
		ann.exec("a", "get v")
		busy := ann.start(t.Context(), "a", "sleep 30s")
		waits := ann.start(t.Context(), "b", "get v") // awake, in use, and without a place
		if i := get(t, ann.set, "b").info(); i.Turn != "1st of 1" || i.Waiting != 1 {
			t.Errorf("got %+v, want that it waits for its turn", i)
		}
		if got := bob.exec("x", "set v x"); got != "" {
			t.Errorf("another client: %s", got)
		}
		if got := ann.awake(); got != "ax" {
			t.Errorf("awake: %s, want ax", got)
		}
		select {
		case r := <-waits:
			t.Fatalf("it ran without a place: %s", r)
		default:
		}
		<-busy
		if got := <-waits; got != "b" {
			t.Errorf("after its turn came: %q, want its variable", got)
		}
	})
}

// A client whose sessions wait makes room before one that has fewer and uses none.
func TestWaitingSessionsOfTheClientWithMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 3, places.Limits{Running: 2, ClientRunning: 1})
		defer end()
		bob.exec("x", "set v x")
		time.Sleep(time.Second)
		ann.exec("a", "set v a")
		ann.exec("b", "set v b")
		busy := ann.start(t.Context(), "a", "sleep 30s")
		waits := ann.start(t.Context(), "b", "get v")
		bob.exec("y", "set v y")
		if got := ann.awake(); got != "axy" {
			t.Errorf("awake: %s, want axy", got)
		}
		<-busy
		if got := <-waits; got != "b" {
			t.Errorf("after its turn came: %q, want its variable", got)
		}
	})
}

// An execution that has its place waits for a sandbox that is neither idle nor runs
// code; without a place, it is refused.
func TestPlaceWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 1, places.Limits{Running: 1})
		defer end()
		ann.exec("a", "set v a")
		held := get(t, ann.set, "a")
		ticket := held.Enter() // such as an export's
		done := bob.start(t.Context(), "x", "set v x")
		time.Sleep(30 * time.Second)
		held.Leave(ticket)
		if got := <-done; got != "" {
			t.Errorf("with a place: %s", got)
		}
		ticket = get(t, ann.set, "x").Enter()
		defer get(t, ann.set, "x").Leave(ticket)
		if _, err := held.Exec(t.Context(), held.Enter(), Request{Submission: Submission{Code: "get v", Timeout: time.Second}}); !errors.Is(err, ErrNoRoom) {
			t.Errorf("without a place: %v, want ErrNoRoom", err)
		}
		if got := ann.exec("a", "get v"); !strings.Contains(got, ErrNoRoom.Error()) {
			t.Errorf("for longer than a sandbox may take to start: %s, want ErrNoRoom", got)
		}
	})
}

// A cancelled execution leaves the line at once, also where its session is held.
func TestCancelInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 4, places.Limits{Running: 1})
		defer end()
		busy := ann.start(t.Context(), "a", "sleep 30s")
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := bob.start(ctx, "x", "set v x")
		next := bob.start(t.Context(), "x", "say next")
		began := time.Now()
		cancel(errTest)
		if got := <-waits; got != errTest.Error() || time.Since(began) != 0 {
			t.Errorf("got %s after %v", got, time.Since(began))
		}
		synctest.Wait()
		if i := get(t, ann.set, "x").info(); i.Turn != "1st of 1" {
			t.Errorf("the next one of the session: %q, want that it waits for its turn", i.Turn)
		}
		<-busy
		if got := <-next; !strings.Contains(got, "next") {
			t.Errorf("the next one: %s", got)
		}
	})
}

// A session that cannot be suspended does not keep the others from making room.
func TestNextOneMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		ann, bob, end := users(t, e, 2, places.Limits{Running: 2})
		defer end()
		ann.exec("a", "set v a")
		time.Sleep(time.Second)
		ann.exec("b", "set v b")
		e.saveErr, e.saveErrOnce = errTest, true
		if got := bob.exec("x", "set v x"); got != "" {
			t.Errorf("got %s, want that the second session made room", got)
		}
		if got := ann.awake(); got != "ax" {
			t.Errorf("awake: %s, want ax", got)
		}
	})
}

// One client with a hundred executions in as many sessions, and others with one each:
// none is refused, and the others are served in the first round.
func TestManySessionsFewPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob, end := users(t, newSaving(), 4, places.Limits{Running: 4, ClientRunning: 3})
		defer end()
		var all []<-chan string
		for i := range 100 {
			all = append(all, ann.start(t.Context(), fmt.Sprint("s", i), "sleep 10s"))
		}
		began := time.Now()
		if got := bob.exec("x", "set v x"); got != "" || time.Since(began) > time.Second {
			t.Errorf("got %s after %v, want a result at once", got, time.Since(began))
		}
		for _, done := range all {
			if got := <-done; got != "" {
				t.Fatalf("got %s", got)
			}
		}
	})
}

package session

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A session that makes room and cannot be saved reports that, or is forgotten
// with its template.
func TestForget(t *testing.T) {
	for _, forget := range []bool{false, true} {
		t.Run(fmt.Sprintf("forget %t", forget), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newSaving()
				set := NewSet(Options{Logger: discard, MaxRunning: 1, Forget: forget})
				defer set.Close()
				one, two := &Template{Engine: e}, &Template{Engine: e, Env: map[string]string{"A": "b"}}
				a, b := Key{Name: "a"}, Key{Name: "b"}
				exec(t, keyed(t, set, a, one), "set x 1")
				exec(t, keyed(t, set, b, one), "set x 2")
				if !e.run(0).isDestroyed() {
					t.Error("the sandbox of a session that made room is left")
				}
				_, err := set.Get(a, two)
				if got := errors.Is(err, ErrTemplate); got == forget {
					t.Errorf("with another template: got %v, want it refused: %t", err, !forget)
				}
				got := exec(t, keyed(t, set, a, map[bool]*Template{false: one, true: two}[forget]), "get x")
				if got.Stdout.Head != "" || (got.Lost == "") != forget {
					t.Errorf("got %q (lost: %q), want nothing and the loss reported: %t", got.Stdout.Head, got.Lost, !forget)
				}
			})
		})
	}
}

// A session whose ticket was taken before another one needs room is not
// forgotten: its caller gets it.
func TestEnterKeepsASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		set := NewSet(Options{Logger: discard, MaxRunning: 1, Forget: true})
		defer set.Close()
		template := &Template{Engine: e}
		exec(t, keyed(t, set, Key{Name: "a"}, template), "set x 1")
		s, ticket, err := set.Enter(Key{Name: "a"}, template)
		if err != nil {
			t.Fatal(err)
		}
		other := keyed(t, set, Key{Name: "b"}, template)
		if _, err := other.Exec(t.Context(), other.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}}); !errors.Is(err, ErrNoRoom) {
			t.Errorf("another session: got %v, want ErrNoRoom", err)
		}
		out, err := s.Exec(t.Context(), ticket, Request{Submission: Submission{Code: "get x", Timeout: time.Second}})
		if err != nil || out.Stdout.Head != "1" {
			t.Errorf("got %+v (%v), want its variable", out, err)
		}
		if again := keyed(t, set, Key{Name: "a"}, template); again != s {
			t.Error("the session was replaced")
		}
		set.Close()
		if _, _, err := set.Enter(Key{Name: "a"}, template); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
	})
}

// What a process knows of sessions without state is bounded, also of those that
// were never started.
func TestUnstartedNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		set := NewSet(Options{Logger: discard, MaxNamed: 1, Forget: true})
		defer set.Close()
		template := &Template{Engine: e}
		for i := range 2 * maxKnown {
			keyed(t, set, Key{Owner: fmt.Sprint(i), Name: "a"}, template)
			time.Sleep(entering)
		}
		if n := len(set.sessions); n > maxKnown+1 {
			t.Errorf("got %d names, want at most %d", n, maxKnown+1)
		}
	})
}

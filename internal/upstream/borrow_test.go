//go:build unix

package upstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestBorrow(t *testing.T) {
	m := manage(t, Options{}, define(t, "a", "sdk"), define(t, "b", "dies-at-start"))
	look := func(s *Server) error {
		_, err := s.Tools(t.Context())
		return err
	}
	// Nobody else wants it: it is gone afterwards.
	var first *Server
	if err := m.Borrow(t.Context(), "a", func(s *Server) error { first = s; return look(s) }); err != nil {
		t.Fatal(err)
	}
	if first.Alive() || len(m.Running()) != 0 {
		t.Error("it runs on")
	}
	// Somebody gets it meanwhile: it stays his.
	var theirs *Server
	err := m.Borrow(t.Context(), "a", func(s *Server) error {
		var err error
		theirs, err = m.Server(t.Context(), "a")
		return err
	})
	if err != nil || !theirs.Alive() || look(theirs) != nil {
		t.Errorf("%v; what somebody uses was ended", err)
	}
	// It runs anyway: it goes on.
	failed := errors.New("no")
	if err := m.Borrow(t.Context(), "a", func(s *Server) error { return failed }); !errors.Is(err, failed) || !theirs.Alive() {
		t.Errorf("%v; what runs anyway was ended", err)
	}
	if err := m.Borrow(t.Context(), "b", look); !errors.Is(err, ErrStart) {
		t.Error(err)
	}
	if err := m.Borrow(t.Context(), "c", look); !errors.Is(err, ErrUnknownServer) {
		t.Error(err)
	}
}

// TestBorrowGivenUp: a start that took too long leaves nothing behind.
func TestBorrowGivenUp(t *testing.T) {
	m := manage(t, Options{StartTimeout: time.Minute}, define(t, "a", "slow-start"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := m.Borrow(ctx, "a", func(*Server) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	e := m.set.Load().slots["a"].entry
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		e.mu.Lock()
		over := e.starting == nil && e.current == nil
		e.mu.Unlock()
		if over {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it runs on")
		}
	}
	// Somebody who waits for the same start gets what it brings.
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_ = m.Borrow(ctx, "a", func(*Server) error { return nil })
	s, err := m.Server(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tools(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBorrowAndUse: who gets a server can use it, whoever borrows beside.
func TestBorrowAndUse(t *testing.T) {
	m := manage(t, Options{}, define(t, "a", "sdk"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 8 {
				if err := m.Borrow(t.Context(), "a", func(s *Server) error {
					_, err := s.Tools(t.Context())
					return err
				}); err != nil && !IsGone(err) {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 8 {
				s, err := m.Server(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Tools(t.Context()); err != nil {
					t.Errorf("what was handed out cannot be used: %v", err)
				}
			}
		})
	}
	all.Wait()
}

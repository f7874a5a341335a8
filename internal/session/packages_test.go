package session

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// install does what a guest does that adds an archive, in a session.
func install(t *testing.T, s *Session, offered, added string) error {
	t.Helper()
	call := s.packages.observe(func(_ context.Context, c wire.Call) ([]byte, error) {
		return json.Marshal(map[string]any{"archive": offered, "packages": []string{}})
	})
	if _, err := call(t.Context(), wire.Call{Method: wire.MethodInstallPackages}); err != nil {
		t.Fatal(err)
	}
	_, err := call(t.Context(), wire.Call{Method: wire.MethodPackagesInstalled, Params: json.RawMessage(`{"archive":"` + added + `"}`)})
	return err
}

// TestPackages: the packages that code has added come back after a loss of state.
func TestPackages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set := open(e)
		s := get(t, set, "work")
		got := func(step, want, lost string) {
			t.Helper()
			out := exec(t, s, "packages")
			if out.Stdout.Head != want || out.Lost != lost {
				t.Errorf("%s: got packages %q, lost %q, want %q, %q", step, out.Stdout.Head, out.Lost, want, lost)
			}
		}
		got("first", "", "")
		for _, archive := range []string{"aa", "bb", "aa"} {
			if err := install(t, s, archive, archive); err != nil {
				t.Fatal(err)
			}
		}
		if err := install(t, s, "cc", "dd"); err == nil {
			t.Error("an archive that was not offered was noted")
		}
		got("in the same sandbox", "", "")
		out := exec(t, s, "vanish")
		if want := "the sandbox is gone; packages that code added are kept"; out.Lost != want {
			t.Errorf("got lost %q want %q", out.Lost, want)
		}
		got("in the next sandbox", "aa bb", "")
		got("after that", "", "")

		// Suspended, its sandbox still has them.
		s.keepPackages(nil)
		if err := s.Suspend(t.Context()); err != nil {
			t.Fatal(err)
		}
		out = exec(t, s, "packages")
		if out.Lost != "" {
			t.Errorf("after suspending: lost %q", out.Lost)
		}

		// Killed: what is left is its record.
		time.Sleep(2 * time.Minute)
		exec(t, s, "say awake")
		s.checkpoint.Release()
		next := open(e)
		s = get(t, next, "work")
		got("in another process", "aa bb", "the Sallyport that ran this session ended without saving it; packages that code added are kept")
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		got("after a reset", "", "")
		next.Close()
		get(t, set, "work").checkpoint = nil
		set.Close()
	})
}

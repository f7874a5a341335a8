package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	}, nil)
	if _, err := call(t.Context(), wire.Call{Method: wire.MethodInstallPackages}); err != nil {
		t.Fatal(err)
	}
	_, err := call(t.Context(), wire.Call{Method: wire.MethodPackagesInstalled, Params: json.RawMessage(`{"archive":"` + added + `"}`)})
	return err
}

// TestPackagesWithinMemory: an archive that does not fit into the memory that is left is
// refused at its first part, with the setting to change.
func TestPackagesWithinMemory(t *testing.T) {
	for _, tt := range []struct {
		name         string
		archive      int64 // MB
		offset, left int64
		known        bool
		want         string
	}{
		{"fits", 68, 0, 100, true, "<nil>"},
		{"too large", 69, 0, 100, true, "limit_exceeded: to install the packages takes 101 MB of memory, and 100 MB of the sandbox's 512 MB are left: nothing of them was kept. Ask for fewer. The user can raise limits.memory, or make an environment, whose packages are not in memory"},
		{"a later part", 85, 1, 10, true, "<nil>"},
		{"unknown", 85, 0, 10, false, "<nil>"},
		{"more is used than may be", 1, 0, -9, true, "limit_exceeded: to install the packages takes 33 MB of memory, and 0 MB of the sandbox's 512 MB"},
	} {
		p := packages{archives: []string{"aa"}}
		call := p.observe(func(context.Context, wire.Call) ([]byte, error) {
			return json.Marshal(wire.PackageData{Bytes: tt.archive << 20})
		}, func() (int64, int64, bool) { return tt.left << 20, 512 << 20, tt.known })
		params, err := json.Marshal(wire.PackagePart{Archive: "aa", Offset: tt.offset})
		if err != nil {
			t.Fatal(err)
		}
		_, err = call(t.Context(), wire.Call{Method: wire.MethodPackagePart, Params: params})
		got := fmt.Sprint(err)
		var forCode *wire.CallError
		if errors.As(err, &forCode) {
			got = forCode.Kind + ": " + forCode.Message
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
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
		s.packages.keepWith(s.checkpoint.KeepPackages) // as while code runs
		for _, archive := range []string{"aa", "bb", "aa"} {
			if err := install(t, s, archive, archive); err != nil {
				t.Fatal(err)
			}
		}
		lost := s.packages.observe(func(context.Context, wire.Call) ([]byte, error) {
			return nil, &wire.CallError{Kind: wire.KindNotFound}
		}, nil)
		if err := install(t, s, "ee", "ee"); err != nil {
			t.Fatal(err)
		}
		_, _ = lost(t.Context(), wire.Call{Method: wire.MethodPackagePart, Params: json.RawMessage(`{"archive":"ee"}`)})
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
		if err := s.Suspend(t.Context()); err != nil {
			t.Fatal(err)
		}
		out = exec(t, s, "packages")
		if out.Lost != "" {
			t.Errorf("after suspending: lost %q", out.Lost)
		}

		// Meanwhile another process resets it, and adds others.
		if err := s.Suspend(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := open(e)
		o := get(t, other, "work")
		if err := o.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, o, "say hello")
		o.packages.keepWith(o.checkpoint.KeepPackages)
		if err := install(t, o, "ff", "ff"); err != nil {
			t.Fatal(err)
		}
		other.Close()
		exec(t, s, "vanish")
		got("after another process", "ff", "")

		// Killed: what is left is its record.
		time.Sleep(2 * time.Minute)
		exec(t, s, "say awake")
		s.checkpoint.Release()
		next := open(e)
		s = get(t, next, "work")
		got("in another process", "ff", "the Sallyport that ran this session ended without saving it; packages that code added are kept")
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		got("after a reset", "", "")
		next.Close()
		get(t, set, "work").checkpoint = nil
		set.Close()
	})
}

package app

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
)

// TestOwnersKeepApart: what one owner's code keeps under a key or a name is not
// what another's finds there, however alike the owners are.
func TestOwnersKeepApart(t *testing.T) {
	owners := []string{
		authz.LocalOwner, "ann", "Ann", "../ann", "..", ".", "/", "memory", "user_tools", "owners", "é", "e\u0301", "con", "a/b", "%2e", "~",
		strings.Repeat("x", 1000), strings.Repeat("x", 999) + "y",
	}
	dir := t.TempDir()
	set := &settings.Settings{StateDir: dir}
	set.Memory.Enabled, set.Saved.Enabled = true, true
	s := newStores(&App{Settings: set})
	seen := map[string]string{}
	for i, owner := range owners {
		for _, name := range []store.Area{store.Memory, store.SavedTools} {
			path := s.app.owned(owner, name).Path("")
			if rel, err := filepath.Rel(dir, path); err != nil || strings.HasPrefix(rel, "..") {
				t.Errorf("%s of %q: got %s, want it in the state directory", name, owner, path)
			}
			if other, taken := seen[strings.ToLower(path)]; taken {
				t.Errorf("%s of %q: got %s, which is that of %q", name, owner, path, other)
			}
			seen[strings.ToLower(path)] = owner
		}
		if _, err := s.Memory(owner).Put("k", json.RawMessage(fmt.Sprint(i)), nil); err != nil {
			t.Fatalf("memory of %q: %v", owner, err)
		}
		if _, err := s.SavedTools(owner).Save("f", savedtools.Version{Source: fmt.Sprintf("def f(): return %d", i), Signature: "()"}); err != nil {
			t.Fatalf("saved tools of %q: %v", owner, err)
		}
	}
	for i, owner := range owners {
		e, err := s.Memory(owner).Get("k")
		if err != nil || string(e.Value) != fmt.Sprint(i) {
			t.Errorf("memory of %q: got %s (%v), want %d", owner, e.Value, err, i)
		}
		if list, err := s.Memory(owner).List(); err != nil || len(list) != 1 {
			t.Errorf("memories of %q: got %d (%v), want 1", owner, len(list), err)
		}
		f, err := s.SavedTools(owner).Get("f")
		if want := fmt.Sprintf("return %d", i); err != nil || len(f.Versions) != 1 || !strings.Contains(f.Versions[0].Source, want) {
			t.Errorf("saved tools of %q: got %+v (%v), want one version with %q", owner, f, err, want)
		}
	}
	if got, want := s.app.owned(authz.LocalOwner, "memory").Path(""), filepath.Join(dir, "memory"); got != want {
		t.Errorf("the local user's memory: got %s, want %s", got, want)
	}
	// Nobody keeps nothing.
	if _, err := s.Memory("").Put("k", json.RawMessage("1"), nil); err == nil {
		t.Error("memory of no owner: got no error, want one")
	}
	set.Memory.Enabled, set.Saved.Enabled = false, false
	if s.Memory("ann") != nil || s.SavedTools("ann") != nil {
		t.Error("switched off: got stores, want none")
	}
}

package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/store"
)

// TestRulesAreRemembered: a program that begins after rules have vanished notices
// it, until the file says that there are none.
func TestRulesAreRemembered(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".config", "sallyport", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func(config string) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &App{Env: NewEnvironment([]string{"HOME=" + home}), Dir: home, Log: slog.New(slog.DiscardHandler)}
		set, err := a.Env.LoadSettings(home, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Settings = set
		rules := a.Rules()
		a.keepHadRules(rules)
		return rules.Broken(true)
	}
	for _, step := range []struct {
		config string
		broken bool
	}{
		{"python: python3\n", false},
		{"policy: {tools: [{action: deny}]}\n", false},
		{"python: python3\n", true},
		{"python: python3\n", true},
		{"policy: {profile: open}\n", false},
		{"python: python3\n", false},
		{"policy: {profile: careful}\n", false},
		{"", true},
	} {
		if err := begin(step.config); (err != nil) != step.broken {
			t.Errorf("with %q: got %v, want broken: %v", step.config, err, step.broken)
		}
	}
	// A record that is damaged is no reason to forget.
	state := store.At(filepath.Join(home, ".local", "state", "sallyport")).Area(store.Rules)
	names, err := state.List()
	if err != nil || len(names) != 1 {
		t.Fatalf("got the records %v, %v, want one", names, err)
	}
	if err := state.Write(names[0], []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := begin("python: python3\n"); err == nil || !strings.Contains(err.Error(), "it had rules") {
		t.Errorf("with a damaged record: got %v", err)
	}
}

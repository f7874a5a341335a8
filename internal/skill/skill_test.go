package skill

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/manual"
)

func TestPlaces(t *testing.T) {
	home := t.TempDir()
	elsewhere := filepath.Join(home, "elsewhere")
	for _, dir := range []string{".cursor", ".codex"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	variables := func(values map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	}
	for _, test := range []struct {
		name    string
		folders Folders
		clients []string
		want    []string // below home, with slashes
	}{
		{"those that are here", Folders{Home: home}, nil, []string{".codex/skills", ".cursor/skills"}},
		{"by name", Folders{Home: home}, []string{"gemini-cli", "claude-code"}, []string{".claude/skills", ".gemini/skills"}},
		{"once, by two names", Folders{Home: home}, []string{"vscode", "copilot"}, []string{".copilot/skills"}},
		{"a project's", Folders{Home: home, Project: filepath.Join(home, "p")}, nil, []string{"p/.agents/skills", "p/.cursor/skills"}},
		{"where a variable says", Folders{Home: home, Env: variables(map[string]string{"CLAUDE_CONFIG_DIR": elsewhere})}, []string{"claude-code"}, []string{"elsewhere/skills"}},
		{"a relative variable", Folders{Home: home, Env: variables(map[string]string{"CODEX_HOME": "here"})}, []string{"codex"}, []string{".codex/skills"}},
		{"a variable that names nothing", Folders{Home: home, Env: variables(map[string]string{"CODEX_HOME": elsewhere})}, nil, []string{".cursor/skills"}},
	} {
		places, err := test.folders.Places(test.clients)
		var got, want []string
		for _, p := range places {
			got = append(got, p.Path())
		}
		for _, w := range test.want {
			want = append(want, filepath.Join(home, filepath.FromSlash(w), "sallyport", "SKILL.md"))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, want)
		}
	}
	if _, err := (Folders{Home: home}).Places([]string{"emacs"}); err == nil || !strings.Contains(err.Error(), "there are: claude-code, ") {
		t.Errorf("got %v, want an error that names the clients", err)
	}
}

// TestNothingElseIsTouched: a file that is not ours, whatever it is, stays, and so
// does what is beside it.
func TestNothingElseIsTouched(t *testing.T) {
	base := t.TempDir()
	p := Place{Client: "test", base: base, below: "skills/sallyport"}
	for _, change := range []func(bool) (Result, error){p.Install, p.Remove} {
		for name, text := range map[string]string{
			"empty": "", "the user's": "mine", "edited": manual.Skill() + "more",
			"large": strings.Repeat("x", maxSize) + manual.Skill(),
		} {
			if err := os.MkdirAll(filepath.Dir(p.Path()), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.Path(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := change(false)
			if !errors.Is(err, ErrChanged) || r.Changed || r.Before != Changed {
				t.Errorf("%s: got %+v, %v, want that it was changed", name, r, err)
			}
			if got, err := os.ReadFile(p.Path()); err != nil || string(got) != text {
				t.Errorf("%s: got %.40q, %v, want it as it was", name, got, err)
			}
			r, err = change(true)
			if err != nil || !r.Changed || r.Backup == "" {
				t.Errorf("%s: got %+v, %v, want a backup", name, r, err)
			}
			if got, err := os.ReadFile(r.Backup); err != nil || string(got) != text {
				t.Errorf("%s: the backup: got %.40q, %v", name, got, err)
			}
		}
	}
	// The backups keep the folder.
	entries, err := os.ReadDir(filepath.Dir(p.Path()))
	if err != nil || len(entries) != 8 {
		t.Errorf("got %v, %v, want the 8 backups alone", entries, err)
	}
}

// TestFailureRestores: if the skill cannot be written, the user's file is back.
func TestFailureRestores(t *testing.T) {
	p := Place{Client: "test", base: t.TempDir(), below: "skills/sallyport"}
	if err := os.MkdirAll(filepath.Dir(p.Path()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Path(), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := errors.New("no space")
	r, err := p.change(true, func(*os.Root, State) error { return want })
	if !errors.Is(err, want) || r.Backup != "" {
		t.Errorf("got %+v, %v, want %v", r, err, want)
	}
	if got, err := os.ReadFile(p.Path()); err != nil || string(got) != "mine" {
		t.Errorf("got %q, %v, want the user's file", got, err)
	}
}

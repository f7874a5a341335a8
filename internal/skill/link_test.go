//go:build unix

package skill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/manual"
)

// TestLinks: in the home directory a link to a folder of the user's is followed,
// and one to a folder that others can write to is not; in a project, neither.
func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		name, link string
		mode       os.FileMode
		project    bool
		refused    string
	}{
		{"the client's folder", ".claude", 0o755, false, ""},
		{"its folder of skills", ".claude/skills", 0o755, false, ""},
		{"a folder that others can write to", ".claude", 0o777, false, "other users can write to it"},
		{"in a project", ".claude", 0o755, true, "leads out of"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			home, dotfiles := filepath.Join(top, "home"), filepath.Join(top, "dotfiles")
			link := filepath.Join(home, filepath.FromSlash(tt.link))
			for _, dir := range []string{filepath.Dir(link), dotfiles} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dotfiles, tt.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dotfiles, link); err != nil {
				t.Fatal(err)
			}
			f := Folders{Home: home}
			if tt.project {
				f = Folders{Home: top, Project: home}
			}
			places, err := f.Places([]string{"claude-code"})
			if err != nil {
				t.Fatal(err)
			}
			p := places[0]
			want := filepath.Join(home, ".claude", "skills", "sallyport", "SKILL.md")
			if p.Path() != want {
				t.Errorf("got %s, want %s", p.Path(), want)
			}
			_, err = p.Install(false)
			if tt.refused != "" {
				entries, _ := os.ReadDir(dotfiles)
				if err == nil || !strings.Contains(err.Error(), tt.refused) || len(entries) > 0 {
					t.Errorf("got %v and %v, want an error with %q", err, entries, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(want); err != nil || string(text) != manual.Skill() {
				t.Errorf("got %v, %d bytes", err, len(text))
			}
			if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("the link is gone: %v, %v", info, err)
			}
			if _, err := p.Remove(false); err != nil {
				t.Error(err)
			}
			if entries, err := os.ReadDir(filepath.Dir(filepath.Dir(want))); err != nil || len(entries) > 0 {
				t.Errorf("left: %v (%v)", entries, err)
			}
		})
	}
}

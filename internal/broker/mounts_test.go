//go:build unix

package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
)

// stubFolders are the folders of settings.
type stubFolders struct {
	now   []sandbox.Mount
	notes []string
	err   error
	again map[string]error // by place
	// unset are folders that were in the settings, by place.
	unset map[string]error
}

func (s *stubFolders) Now() ([]sandbox.Mount, []string, error) { return s.now, s.notes, s.err }
func (s *stubFolders) Again(m sandbox.Mount) error {
	if err := s.unset[m.Target]; err != nil && m.By == "" {
		return err
	}
	return s.again[m.Target]
}

// mounted returns a mount of a folder at a place.
func mounted(source, target string, mode sandbox.MountMode) sandbox.Mount {
	return sandbox.Mount{Source: source, Target: target, Mode: mode}
}

// A new session sees the folders of the settings and of its request, and keeps them. One
// on disk goes on with those that it saw, if the settings allow them.
func TestFoldersOfSessions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &stubFolders{}
	var seen [][]string // in the facts of the gate
	j := journal.New(newParts().Logger)
	sub := j.Subscribe(journal.Options{Name: "test", Topics: journal.Actions, Handle: func(events []journal.Event, _ int) error {
		for _, e := range events {
			if d, ok := e.(*journal.Decided); ok && d.Action == "run_code" {
				seen = append(seen, d.Folders)
			}
		}
		return nil
	}})
	b, _ := newBroker(t, func(p *parts) {
		p.Folders, p.Journal = s, j
		p.Gate = laxTo(j)
		p.sessions.Snapshots, p.sessions.Records = snapshot.At(filepath.Join(dir, "snapshots")), store.At(dir)
	})
	for name, status := range map[string]string{"old": "suspended", "older": "suspended", "lost": "gone", "removed": "suspended"} {
		record := fmt.Sprintf(`{"name":%q,"status":%q,"engine":"fake","mounts":[{"source":"/d/old","target":"/mnt/old","mode":"ro"},{"source":"/d/mine","target":"/mnt/mine","mode":"rw","by":"person"}]}`, name, status)
		if err := os.WriteFile(filepath.Join(dir, store.FileName(name, "")+".json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, out, other := mounted("/d/data", "/mnt/data", "ro"), mounted("/d/out", "/mnt/out", "rw"), mounted("/d/other", "/mnt/data", "copy")
	root := mounted("/d/p", "/roots/p", "ro")
	s.now, s.notes = []sandbox.Mount{data}, []string{"files.mounts: gone"}
	type mounts = []sandbox.Mount
	for _, tt := range []struct {
		name, session string
		shown         bool
		mounts        mounts
		err           string // a part of the error
		sees          string // places, by comma
		notes         string // a part of the notes; empty: none
		change        func()
	}{
		{name: "a new one", session: "a", sees: "/mnt/data", notes: "files.mounts: gone"},
		{name: "again", session: "a", sees: "/mnt/data"},
		{name: "a folder that it sees", session: "a", shown: true, mounts: mounts{data}, sees: "/mnt/data"},
		{name: "a folder that it does not see", session: "a", shown: true, mounts: mounts{out}, err: "Session a sees /mnt/data (read-only), and not /mnt/out (changes reach the user's folder): a session keeps the folders that it began with. Name another --session, or begin this one anew: sallyport sessions reset a"},
		{name: "another mode", session: "a", shown: true, mounts: mounts{mounted("/d/data", "/mnt/data", "rw")}, err: "and not /mnt/data (changes"},
		{name: "roots that come later", session: "a", mounts: mounts{root}, sees: "/mnt/data", notes: "without the client's roots /roots/p"},
		{name: "and again", session: "a", mounts: mounts{root}, sees: "/mnt/data"},
		{name: "with a folder", session: "b", shown: true, mounts: mounts{out}, sees: "/mnt/data,/mnt/out", notes: "gone"},
		{name: "a place of the settings", session: "c", shown: true, mounts: mounts{other}, sees: "/mnt/data", notes: "gone"},
		{name: "the settings' own", session: "d", shown: true, mounts: mounts{data}, sees: "/mnt/data", notes: "gone"},
		{name: "two in one place", session: "e", shown: true, mounts: mounts{mounted("/d/x", "/mnt/data/x", "ro")}, err: "overlap"},
		{name: "roots", session: "f", mounts: mounts{root}, sees: "/mnt/data,/roots/p", notes: "gone"},
		{name: "a root in a folder's place", session: "g", mounts: mounts{mounted("/d/x", "/mnt/data", "ro"), root}, sees: "/mnt/data,/roots/p", notes: "a root of the client is not visible"},
		{name: "one on disk", session: "old", sees: "/mnt/old,/mnt/mine", notes: "the session began without /mnt/data and does not see it"},
		{name: "and again in memory", session: "old", sees: "/mnt/old,/mnt/mine"},
		{name: "one whose state is lost", session: "lost", sees: "/mnt/data,/mnt/mine", notes: "gone"},
		{name: "a folder that the settings do not have", session: "removed", err: "Session removed was suspended with the folder /mnt/old: files.mounts does not have it any more. Or name another session, or forget this one's state ('sallyport sessions reset removed')",
			change: func() { s.unset = map[string]error{"/mnt/old": errors.New("files.mounts does not have it any more")} }},
		{name: "which is named now", session: "removed", shown: true, mounts: mounts{mounted("/d/old", "/mnt/old", "ro")}, sees: "/mnt/old,/mnt/mine", notes: "began without /mnt/data"},
		{name: "a folder that is refused", session: "i", shown: true, mounts: mounts{out}, err: "it has keys",
			change: func() {
				s.again = map[string]error{"/mnt/out": errors.New("it has keys"), "/roots/p": errors.New("it has keys")}
			}},
		{name: "a root that is refused", session: "i", mounts: mounts{root}, sees: "/mnt/data", notes: "not visible: it has keys"},
		{name: "one on disk, with its folder, which is refused", session: "older", shown: true, mounts: mounts{mounted("/d/old", "/mnt/old", "ro")}, err: "it has keys",
			change: func() { s.again, s.unset = map[string]error{"/mnt/old": errors.New("it has keys")}, nil }},
		{name: "another on disk, with a new folder", session: "older", shown: true, mounts: mounts{out}, err: "and not /mnt/out", change: func() { s.again = nil }},
		{name: "a wrong setting", session: "h", err: "files.mounts: folder", change: func() { s.err = errors.New(`files.mounts: folder "/": no`) }},
		{name: "and a session that has begun", session: "a", sees: "/mnt/data"},
	} {
		if tt.change != nil {
			tt.change()
		}
		req := Request{Principal: user, Session: tt.session, Shown: tt.shown, Mounts: tt.mounts, Submission: Submission{Code: "1", Timeout: time.Minute}}
		r := b.Execute(t.Context(), req)
		if tt.err != "" {
			if r.Status == Success || !strings.Contains(r.Error, tt.err) {
				t.Errorf("%s: got %s, %q, want an error with %q", tt.name, r.Status, r.Error, tt.err)
			}
			continue
		}
		var sees []string
		for _, i := range b.Sessions() {
			if i.Name == tt.session {
				for _, m := range i.Folders {
					sees = append(sees, m.Target)
				}
			}
		}
		notes := slices.DeleteFunc(r.Notes, func(n string) bool {
			return strings.HasPrefix(n, "folders of the user: ") || strings.Contains(n, "ends with this program")
		})
		if got := strings.Join(sees, ","); r.Status != Success || got != tt.sees {
			t.Errorf("%s: got %s %q, a session that sees %q, want %q", tt.name, r.Status, r.Error, got, tt.sees)
		}
		if got := strings.Join(notes, "\n"); tt.notes == "" && got != "" || !strings.Contains(got, tt.notes) {
			t.Errorf("%s: got the notes %q, want %q in them", tt.name, got, tt.notes)
		}
	}
	sub.Close()
	if want := "/d/data:/mnt/data:ro"; len(seen) == 0 || len(seen[0]) != 1 || seen[0][0] != want {
		t.Errorf("the gate's facts: got %q, want %q first", seen, want)
	}
}

// An engine that can mount no folders runs code without the roots of a client, and says
// so once for a session.
func TestRootsThatNoEngineShows(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	e.report = func(r *sandbox.Report) { r.NoFolders = "podman runs containers on another machine" }
	for i, want := range []string{"the client's roots are not visible: podman runs containers on another machine", ""} {
		r := b.Execute(t.Context(), Request{Principal: user, Mounts: []sandbox.Mount{mounted("/d/p", "/roots/p", "ro")}, Submission: Submission{Code: "1", Timeout: time.Minute}})
		notes := slices.DeleteFunc(r.Notes, func(n string) bool { return strings.Contains(n, "ends with this program") })
		if got := strings.Join(notes, "\n"); r.Status != Success || got != want {
			t.Errorf("call %d: got %s %q with the notes %q, want success with %q", i+1, r.Status, r.Error, got, want)
		}
		for _, s := range b.Sessions() {
			if len(s.Folders) > 0 {
				t.Errorf("call %d: got a session that sees %v, want none", i+1, s.Folders)
			}
		}
	}
}

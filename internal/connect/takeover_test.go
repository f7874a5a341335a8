package connect_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/edit"
)

// folder is ~/MCPs as the library sees it.
type folder struct{ dir string }

func (f folder) Defined(name string) string {
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.json"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if v, err := edit.Get(edit.JSONC, text, edit.At("mcpServers", name)); err == nil && v != nil {
			return file
		}
	}
	return ""
}

func (f folder) NewFile(name string, taken func(string) bool) string {
	path := filepath.Join(f.dir, name+".json")
	for exists(path) || taken(path) {
		path = strings.TrimSuffix(path, ".json") + "-2.json"
	}
	return path
}

// move plans the take-over of clients in order, and makes it.
func move(t *testing.T, m connect.Machine, journal connect.Journal, clients ...string) (records []connect.Record, plans []connect.TakeOver) {
	t.Helper()
	mover := connect.NewMover(m, folder{m.Places.MCPs()})
	for _, name := range clients {
		kept, err := m.Look(target(t, m, name, false))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := mover.Plan(kept, start)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	for _, plan := range plans {
		if len(plan.Changes) == 0 {
			continue
		}
		record, err := journal.Apply("g", "take-over", plan.Changes)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records, plans
}

// shared is one server of two clients, each in its own form.
var shared = map[string]string{
	"cursor": `{"mcpServers": {"files": {"command": "c", "args": ["-x"]}, "mine": {"command": "a"}}}` + "\n",
	"codex":  "# mine\n[mcp_servers.files]\ncommand = \"c\"\nargs = [\"-v\"]\n[mcp_servers.theirs]\ncommand = \"b\"\n",
	"kiro":   `{"mcpServers": {"files": {"command": "c", "args": ["-x"], "autoApprove": ["read"]}}}` + "\n",
}

func shareServers(t *testing.T, m connect.Machine) {
	t.Helper()
	for name, text := range shared {
		put(t, target(t, m, name, false).File, text, 0o600)
	}
}

// TestSharedServer: equal definitions of several clients become one copy, which
// stays until the last client is given back; another one stays where it is.
func TestSharedServer(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		m, journal := place(t)
		shareServers(t, m)
		clients := []string{"cursor", "codex", "kiro"}
		records, plans := move(t, m, journal, clients...)
		if left := plans[1].Left; len(left) != 1 || left[0].Name != "files" || !strings.Contains(left[0].Reason, "mcp.json already defines a server of that name, with other args") {
			t.Errorf("codex: got %+v, want that files stays, because its arguments are others", left)
		}
		if got := plans[2].Moved; len(got) != 1 || !got[0].Shared || got[0].File != plans[0].Moved[0].File {
			t.Errorf("kiro: got %+v, want the copy of cursor's", got)
		}
		copied := plans[0].Moved[0].File
		for _, want := range []string{`"-x"`, `"cursor": {`, `"kiro": {`, `"approvedTools": ["read"]`} {
			if got := read(t, copied); !strings.Contains(got, want) {
				t.Errorf("the copy has no %s:\n%s", want, got)
			}
		}
		// Again: nothing to do.
		if _, plans := move(t, m, journal, clients...); len(plans[0].Changes)+len(plans[1].Changes)+len(plans[2].Changes) > 0 {
			t.Errorf("a second time: got %+v", plans)
		}
		users := 2 // of the copy
		for _, i := range order {
			if err := journal.Undo(records[i]); err != nil {
				t.Fatalf("%v: %s: %v", order, clients[i], err)
			}
			if got := read(t, target(t, m, clients[i], false).File); got != shared[clients[i]] {
				t.Errorf("%v: %s: got\n%s\nwant\n%s", order, clients[i], got, shared[clients[i]])
			}
			if clients[i] != "codex" {
				users--
			}
			if exists(copied) != (users > 0) {
				t.Errorf("%v: after %s: the copy exists: %v, want %v", order, clients[i], exists(copied), users > 0)
			} else if users > 0 && strings.Contains(read(t, copied), `"`+clients[i]+`"`) {
				t.Errorf("%v: %s is still an origin:\n%s", order, clients[i], read(t, copied))
			}
		}
		if left, err := os.ReadDir(m.Places.MCPs()); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("left: %v (%v), want nothing", left, err)
		}
	}
}

// TestSharedServerLater: a client that is moved later joins the copy, but not a
// definition of the user's own, which is not changed.
func TestSharedServerLater(t *testing.T) {
	m, journal := place(t)
	shareServers(t, m)
	first, _ := move(t, m, journal, "cursor")
	second, plans := move(t, m, journal, "kiro")
	if got := plans[0].Moved; len(got) != 1 || !got[0].Shared {
		t.Fatalf("got %+v", got)
	}
	copied := plans[0].Moved[0].File
	for _, r := range append(first, second...) {
		if err := journal.Undo(r); err != nil {
			t.Fatal(err)
		}
	}
	if exists(copied) {
		t.Errorf("the copy is left:\n%s", read(t, copied))
	}

	const own = `{"mcpServers": {"files": {"args": ["-x"], "command": "c"}}} // mine` + "\n"
	put(t, copied, own, 0o600)
	record, plans := move(t, m, journal, "kiro")
	if got := plans[0].Moved; len(got) != 1 || read(t, copied) != own {
		t.Errorf("got %+v, and the user's own file is\n%s", got, read(t, copied))
	}
	if err := journal.Undo(record[0]); err != nil || read(t, copied) != own {
		t.Errorf("got %v, and the user's own file is\n%s", err, read(t, copied))
	}
}

// TestSharedServerFails: where one client's file cannot be written, the other's
// server is moved all the same.
func TestSharedServerFails(t *testing.T) {
	m, journal := place(t)
	shareServers(t, m)
	mover := connect.NewMover(m, folder{m.Places.MCPs()})
	var plans []connect.TakeOver
	for _, name := range []string{"cursor", "kiro"} {
		kept, err := m.Look(target(t, m, name, false))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := mover.Plan(kept, start)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	put(t, target(t, m, "cursor", false).File, "{}", 0o600)
	if _, err := journal.Apply("g", "take-over", plans[0].Changes); !errors.Is(err, connect.ErrChanged) {
		t.Fatalf("cursor: got %v, want ErrChanged", err)
	}
	record, err := journal.Apply("g", "take-over", plans[1].Changes)
	if err != nil {
		t.Fatalf("kiro: %v", err)
	}
	copied := plans[1].Moved[0].File
	if got := read(t, copied); strings.Contains(got, "cursor") || !strings.Contains(got, "kiro") {
		t.Errorf("got the copy\n%s", got)
	}
	// What the user changed in it is not lost.
	changed := strings.Replace(read(t, copied), `"c"`, `"other"`, 1)
	put(t, copied, changed, 0o600)
	if err := journal.Undo(record); !errors.Is(err, connect.ErrChanged) || read(t, copied) != changed {
		t.Errorf("got %v and\n%s", err, read(t, copied))
	}
}

// TestLeftServers: an entry that cannot be switched off stays, and the others
// move.
func TestLeftServers(t *testing.T) {
	m, journal := place(t)
	tt := target(t, m, "goose", false)
	put(t, tt.File, "extensions:\n  one: {type: stdio, cmd: a, args: [], enabled: true}\n  two:\n    type: stdio\n    cmd: b\n    enabled: true\n", 0o600)
	_, plans := move(t, m, journal, "goose")
	if got := plans[0].Left; len(got) != 1 || got[0].Name != "one" || !strings.Contains(got[0].Reason, "it cannot be switched off in "+tt.File) {
		t.Errorf("left: got %+v, want one", got)
	}
	if got := plans[0].Moved; len(got) != 1 || got[0].Name != "two" {
		t.Errorf("moved: got %+v, want two", got)
	}
	if got := read(t, tt.File); !strings.Contains(got, "one: {type: stdio, cmd: a, args: [], enabled: true}") || !strings.Contains(got, "enabled: false") {
		t.Errorf("got\n%s", got)
	}
}

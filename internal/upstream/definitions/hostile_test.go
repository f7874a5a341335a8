package definitions

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// hostileProject makes a folder in which everything is as large as it can be.
func hostileProject(t testing.TB, size int, entry string) string {
	t.Helper()
	dir := t.TempDir()
	var servers, many strings.Builder
	for i := 0; servers.Len() < size; i++ {
		fmt.Fprintf(&servers, `"s%d":%s,`, i, entry)
	}
	for many.Len() < size {
		many.WriteString("[],")
	}
	object := `{"mcpServers":{` + servers.String() + `"last":{"command":"x"}},"servers":{},"x":[` + many.String() + `0]}`
	files := map[string]string{"vars": strings.Repeat("A=1\n", maxEnvFile/4-1)}
	for _, s := range (Places{Dir: dir}).project() {
		if s.File != "" {
			name, err := filepath.Rel(dir, s.File)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = object
		}
	}
	files[".codex/config.toml"] = "[" + strings.Repeat("a.", 200) + "a]\n"
	for i := range 40 {
		files[fmt.Sprintf("mcp-servers/%04d.json", i)] = object
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestHostileProject: however much a project's folder holds, little of it is
// read, and the user's own definitions count all the same.
func TestHostileProject(t *testing.T) {
	for name, entry := range map[string]string{
		"servers":            `{"command":"x"}`,
		"files of variables": `{"command":"x","envFile":"vars"}`,
		"unknown keys":       `{"command":"x","unknown":1}`,
		"broken":             `{"command":1}`,
	} {
		t.Run(name, func(t *testing.T) { readHostile(t, hostileProject(t, 100<<10, entry)) })
	}
}

func readHostile(t *testing.T, dir string) {
	home := t.TempDir()
	mine := filepath.Join(home, "MCPs", "mine.json")
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte(`{"mcpServers":{"mine":{"command":"y"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	places := Places{OS: runtime.GOOS, Home: home, Dir: dir}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := Read(places.Sources([]string{"*"}), Options{Home: home, Dir: dir, Places: places})
	runtime.ReadMemStats(&after)
	if len(r.Definitions) > maxProjectServers+1 || len(r.Problems) > 2*maxProjectProblems {
		t.Errorf("%d definitions and %d problems, want at most %d and %d", len(r.Definitions), len(r.Problems), maxProjectServers+1, 2*maxProjectProblems)
	}
	found := false
	for _, d := range r.Definitions {
		found = found || d.Name == "mine" && d.Offer == ""
	}
	if !found {
		t.Error("the user's own definition is missing")
	}
	said := false
	for _, p := range r.Problems {
		said = said || strings.Contains(p.Reason, "larger than 1024 KiB together")
	}
	if !said {
		t.Errorf("nobody is told that not all was read: %v", r.Problems[:min(5, len(r.Problems))])
	}
	// Without the bounds it is gigabytes.
	if got := after.TotalAlloc - before.TotalAlloc; got > 256<<20 {
		t.Errorf("reading it took %d MB of memory, all in all", got>>20)
	}
	t.Logf("allocated %d MB for %d definitions", (after.TotalAlloc-before.TotalAlloc)>>20, len(r.Definitions))
}

func TestDottedKeys(t *testing.T) {
	if _, err := parseTOML([]byte("[" + strings.Repeat("a.", 500_000) + "a]\n")); err == nil || !strings.Contains(err.Error(), "too deeply") {
		t.Errorf("got %v, want that it is nested too deeply", err)
	}
}

//go:build unix

package upstream

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// npmVariable names a directory whose node_modules has the official servers:
// npm install @modelcontextprotocol/server-{filesystem,everything,memory}.
const npmVariable = "SALLYPORT_NPM_DIR"

// npmServer defines an installed server; the launcher is a shell that starts
// node as its child, as npx does.
func npmServer(t testing.TB, name string, l definitions.Launch) Definition {
	t.Helper()
	dir := os.Getenv(npmVariable)
	if dir == "" {
		t.Skip(npmVariable + " is not set")
	}
	script := filepath.Join(dir, "node_modules", ".bin", "mcp-server-"+name)
	if _, err := os.Stat(script); err != nil {
		t.Fatal(err)
	}
	l.Command = "/bin/sh"
	l.Args = append([]string{"-c", `node "$@"; exit $?`, "sh", script}, l.Args...)
	return definitions.New(name, "", l)
}

func TestNPMFilesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := manage(t, Options{}, npmServer(t, "filesystem", definitions.Launch{Args: []string{dir}}))
	s := running(t, m, "filesystem")
	tools, err := s.Tools(t.Context())
	if err != nil || len(tools) < 10 || !hasTool(tools, "read_text_file") {
		t.Fatalf("%d tools, %v", len(tools), err)
	}
	content := strings.Repeat("A line with \"quotes\", a \\ and é.\n", 1<<15)
	path := filepath.Join(dir, "big.txt")
	args, _ := json.Marshal(map[string]string{"path": path, "content": content})
	must(t)(s.CallTool(t.Context(), "write_file", args))
	args, _ = json.Marshal(map[string]string{"path": path})
	if got := text(t, must(t)(s.CallTool(t.Context(), "read_text_file", args))); got != content {
		t.Errorf("%d bytes, want %d", len(got), len(content))
	}
	outside := must(t)(s.CallTool(t.Context(), "read_text_file", json.RawMessage(`{"path":"/etc/passwd"}`)))
	if !strings.Contains(string(outside), `"isError":true`) {
		t.Errorf("%.200s", outside)
	}
	// The node under the shell ends with it.
	began := time.Now()
	group := s.Info().PID
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(-group, 0) == nil {
		t.Error("something of its group is left")
	}
	t.Logf("started in %v, stopped in %v", s.Info().StartTook, time.Since(began))
}

func TestNPMEverythingAndMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.json")
	m := manage(t, Options{}, npmServer(t, "everything", definitions.Launch{}), npmServer(t, "memory", definitions.Launch{Env: map[string]string{"MEMORY_FILE_PATH": file}}))
	s := running(t, m, "everything")
	tools, err := s.Tools(t.Context())
	if err != nil || !hasTool(tools, "echo") {
		t.Fatalf("%d tools, %v", len(tools), err)
	}
	if got := text(t, must(t)(s.CallTool(t.Context(), "echo", json.RawMessage(`{"message":"héllo"}`)))); !strings.Contains(got, "héllo") {
		t.Error(got)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.CallTool(t.Context(), "echo", json.RawMessage(`{"message":"x"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	s = running(t, m, "memory")
	must(t)(s.CallTool(t.Context(), "create_entities", json.RawMessage(`{"entities":[{"name":"n","entityType":"t","observations":["o"]}]}`)))
	if got := must(t)(s.CallTool(t.Context(), "read_graph", nil)); !strings.Contains(string(got), "observations") {
		t.Errorf("%s", got)
	}
	for _, s := range m.Running() {
		t.Logf("%s speaks %s, started in %v", s.Info().Name, s.Info().ProtocolVersion, s.Info().StartTook.Round(time.Millisecond))
	}
}

// A package that npx has to look for and that is not there: the error says so.
func TestNPXThatFails(t *testing.T) {
	if os.Getenv(npmVariable) == "" {
		t.Skip(npmVariable + " is not set")
	}
	if _, err := exec.LookPath("npx"); err != nil {
		t.Fatal(err)
	}
	def := definitions.New("x", "", definitions.Launch{Command: "npx", Args: []string{"--offline", "-y", "@modelcontextprotocol/no-such-server-here"}})
	_, err := manage(t, Options{}, def).Server(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "no-such-server-here") || !strings.Contains(err.Error(), "last output") {
		t.Error(err)
	}
}

// TestTenClientsOfNPM: ten clients with five servers start five, and when all have
// gone nothing of them is left.
func TestTenClientsOfNPM(t *testing.T) {
	dir := t.TempDir()
	defs := []Definition{
		npmServer(t, "filesystem", definitions.Launch{Args: []string{dir}}), npmServer(t, "everything", definitions.Launch{}),
		npmServer(t, "memory", definitions.Launch{Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.json")}}),
		define(t, "one", "sdk"), define(t, "two", "sdk", "V=2"),
	}
	p := pooled(t, Options{StartTimeout: 10 * time.Minute})
	p.linger = time.Millisecond
	var managers []*Manager
	for range 10 {
		managers = append(managers, p.NewManager(defs, here()))
	}
	var mu sync.Mutex
	servers := map[int]*Server{}
	var all sync.WaitGroup
	for _, m := range managers {
		for _, d := range defs {
			all.Go(func() {
				s, err := m.Server(t.Context(), d.Name)
				if err == nil {
					_, err = s.Tools(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				servers[s.Info().PID] = s
			})
		}
	}
	all.Wait()
	if len(servers) != len(defs) {
		t.Errorf("got %d processes, want %d", len(servers), len(defs))
	}
	for _, m := range managers {
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for group, s := range servers {
		exited(t, s)
		waitFor(t, func() bool { return syscall.Kill(-group, 0) != nil })
	}
}

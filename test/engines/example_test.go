//go:build linux

package engines

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// npmEnv is where the official servers are installed: scripts/setup does it.
const npmEnv = "SALLYPORT_NPM_DIR"

// exampleBlock is the guide's first example of what an agent writes.
var exampleBlock = regexp.MustCompile("(?s)```python\n(files = await mcp_filesystem.*?)```")

// example runs the guide's first example in the executable, on the engine that
// the environment names: the same code, over the same server, has the same
// result on each.
func example(t *testing.T, name string, env ...string) {
	t.Helper()
	bin, npm := os.Getenv(binaryEnv), os.Getenv(npmEnv)
	if bin == "" || npm == "" {
		sandboxtest.Skip(t, name+".example", binaryEnv+" or "+npmEnv+" is not set")
	}
	modules, err := filepath.Abs(filepath.Join(npm, "node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/GUIDE.md")
	if err != nil {
		t.Fatal(err)
	}
	block := exampleBlock.FindSubmatch(guide)
	if block == nil {
		t.Fatal("the guide has no such example any more")
	}
	folder, home := t.TempDir(), t.TempDir()
	for _, file := range []string{"notes.txt", "other.txt", "old-notes.md"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code := strings.ReplaceAll(string(block[1]), "/tmp", folder)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"filesystem": map[string]any{
		"command": filepath.Join(modules, "mcp-server-filesystem"), "args": []string{folder},
		"env": map[string]string{"PATH": modules + ":" + os.Getenv("PATH")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	servers := filepath.Join(home, "servers.json")
	if err := os.WriteFile(servers, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, "run", "--servers-config", servers, "--server", "filesystem", "-c", code)
	cmd.Dir = home
	cmd.Env = append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
	}, env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if got, want := string(out), "[FILE] notes.txt\n[FILE] old-notes.md\n"; !sameLines(got, want) {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// outOfMemory runs code that takes more memory than it may in a way that no limit of
// a process bounds: what a person sees of it, and the exit status, are the same on
// each engine.
func outOfMemory(t *testing.T, name string, env ...string) {
	t.Helper()
	bin := os.Getenv(binaryEnv)
	if bin == "" {
		sandboxtest.Skip(t, name+".memory", binaryEnv+" is not set")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, "run", "-c", "import os\nf, data = os.memfd_create('f'), bytes(1 << 20)\nwhile True: os.write(f, data)")
	cmd.Dir = home
	cmd.Env = append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "SALLYPORT_LIMITS_MEMORY=200m",
		"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
	}, env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, _ := cmd.Output()
	const want = "sallyport: the sandbox ran out of memory: it may use 200 MB (limits.memory)\n"
	if got := cmd.ProcessState.ExitCode(); got != 137 || errs.String() != want || len(out) > 0 {
		t.Errorf("got exit status %d, output %q, errors %q; want 137, nothing, %q", got, out, errs.String(), want)
	}
}

// sameLines compares what is printed without its order, which is the file
// system's.
func sameLines(a, b string) bool {
	count := map[string]int{}
	for line := range strings.Lines(a) {
		count[line]++
	}
	for line := range strings.Lines(b) {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

//go:build linux

package smoke

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

const (
	binaryEnv = "SALLYPORT_BIN"
	// patience bounds each wait. It is for what hangs: nothing takes that long.
	patience = 3 * time.Minute
)

// TestMain runs the tests, or one of the MCP servers if a definition says so.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == roleArgument {
		serveRole(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// place is where everything of one run of the tests is.
type place struct {
	dir        string
	executable string // a copy of the executable that only these tests run
	servers    string // a copy of the test binary, which is the MCP servers
	runtimes   string // a runtime directory for each script
}

// TestSmoke makes all the checks with one private copy of the executable. The
// last one sees that they have left nothing.
func TestSmoke(t *testing.T) {
	bin := os.Getenv(binaryEnv)
	if bin == "" {
		t.Skip(binaryEnv + " is not set: it names the executable to test")
	}
	dir, err := os.MkdirTemp("", "smoke-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p := &place{
		dir: dir, runtimes: filepath.Join(dir, "r"),
		executable: sandboxtest.Copy(t, bin, filepath.Join(dir, "sallyport")),
		servers:    sandboxtest.Copy(t, "/proc/self/exe", filepath.Join(dir, "servers")),
	}
	if err := os.Mkdir(p.runtimes, 0o700); err != nil {
		t.Fatal(err)
	}
	// The attacks plant secrets in the environment, so they run alone.
	t.Run("attacks", func(t *testing.T) { attacks(t, p) })
	t.Run("checks", func(t *testing.T) {
		t.Run("readme", func(t *testing.T) { t.Parallel(); readme(t, p) })
		t.Run("session", func(t *testing.T) { session(t, p) })
		scripts(t, p)
	})
	// Part of this test, so that all checks run again with it.
	nothingLeft(t, p)
}

// nothingLeft waits until no process, mount or file of the checks is on the
// host. It is the last check.
func nothingLeft(t *testing.T, p *place) {
	ours := sandboxtest.HostState{Executable: p.executable}
	servers := sandboxtest.HostState{Executable: p.servers}
	sandboxes, err1 := filepath.Glob(filepath.Join(p.runtimes, "*", "sallyport", "gvisor"))
	sockets, err2 := filepath.Glob(filepath.Join(p.runtimes, "*", "sallyport", "control"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if len(sandboxes) < 10 && !filtered() {
		t.Errorf("got %d runtime directories of sandboxes, want at least 10: is this test looking in the right place?", len(sandboxes))
	}
	ours.Dirs = append(sandboxes, sockets...)
	until(t, func() []string { return slices.Concat(ours.Left(), servers.Left(), socketsOfHubs(p)) })
}

// socketsOfHubs lists what hubs have left in their directories. A log stays, for
// "sallyport hub logs", and so does its lock.
func socketsOfHubs(p *place) []string {
	found, _ := filepath.Glob(filepath.Join(p.runtimes, "*", "sallyport", "hub", "*"))
	return slices.DeleteFunc(found, func(path string) bool {
		return strings.HasSuffix(path, ".log") || strings.HasSuffix(path, ".busy")
	})
}

// filtered reports whether only some of the tests run.
func filtered() bool {
	for _, name := range []string{"test.run", "test.skip"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return false
}

// until waits until left returns nothing.
func until(t *testing.T, left func() []string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		now := left()
		if len(now) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left on the host:\n%s", strings.Join(now, "\n"))
		}
	}
}

// environment makes the directories of one check, and returns the variables
// that its processes get: nothing of the machine's but its PATH.
func (p *place) environment(name string) ([]string, error) {
	own := filepath.Join(p.dir, "h", name)
	home, bin, run := filepath.Join(own, "home"), filepath.Join(own, "bin"), filepath.Join(p.runtimes, name)
	var err error
	for _, d := range []string{home, bin, run} {
		err = errors.Join(err, os.MkdirAll(d, 0o700))
	}
	if err := errors.Join(err, os.Symlink(p.executable, filepath.Join(bin, "sallyport"))); err != nil {
		return nil, err
	}
	chosen, err := sandboxtest.ChosenEngine(home)
	return append([]string{
		"HOME=" + home, "XDG_RUNTIME_DIR=" + run, "LANG=C.UTF-8",
		"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"SALLYPORT_HUB_ENABLED=false",        // except in the scripts about it
		"SALLYPORT_OUTPUT_STRUCTURED=always", // what the checks read; an agent gets the text
	}, chosen...), err
}

// variable returns the value of a variable in a list of them.
func variable(list []string, name string) string {
	for _, v := range list {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// python3 returns a Python that every user of the machine can run.
func python3(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no python3 in /usr/bin or in PATH")
	return ""
}

// define writes the definition of a server of this test into a home.
func (p *place) define(home, name string) error {
	dir := filepath.Join(home, "MCPs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	definition := fmt.Sprintf(`{"mcpServers": {%q: {"command": %q, "args": [%q, %q]}}}`, name, p.servers, roleArgument, name)
	return os.WriteFile(filepath.Join(dir, name+".json"), []byte(definition), 0o600)
}

package cli_test

import (
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// executable is the program under test: what SALLYPORT_BIN names, or a build
// of this tree.
func executable(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the executable, with real sandboxes")
	}
	if bin := os.Getenv("SALLYPORT_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "sallyport")
	build := exec.Command("go", "build", "-o", bin, "github.com/sallyport/sallyport/cmd/sallyport")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	return bin
}

// TestScripts runs the whole program, with real sandboxes, as a user would.
func TestScripts(t *testing.T) {
	bin := executable(t)
	commands := (&agents{}).commands()
	maps.Copy(commands, map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"status": status,
		"spoil":  spoil,

		"spoilcatalog": spoilCatalog,
		"registry":     serveRegistry,
		"oauthserver":  serveOAuth,
		"wheel":        writeWheel,
		"freeport":     freePort,
	})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// A machine where only this program is new.
			dir := filepath.Join(env.WorkDir, "bin")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			if err := os.Symlink(bin, filepath.Join(dir, "sallyport")); err != nil {
				return err
			}
			home := filepath.Join(env.WorkDir, "home")
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			// A script's archive holds text only.
			if err := os.WriteFile(filepath.Join(env.WorkDir, "latin1.py"), []byte("print('caf\xe9')\n"), 0o644); err != nil {
				return err
			}
			env.Setenv("HOME", home)
			env.Setenv("NPM", os.Getenv("SALLYPORT_NPM_DIR"))
			env.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "runtime"))
			env.Setenv("SALLYPORT_HUB_ENABLED", "false") // but for the scripts about it
			chosen, err := sandboxtest.ChosenEngine(home)
			if err != nil {
				return err
			}
			env.Vars = append(env.Vars, chosen...)
			return os.Mkdir(filepath.Join(env.WorkDir, "runtime"), 0o700)
		},
		Condition: condition,
		Cmds:      commands,
	})
}

// freePort sets a variable to a port that nobody listens at.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(errors.Join(err, l.Close()))
	ts.Setenv(args[0], port)
}

// status runs a command and checks its exit status: status 3 sallyport …
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = strings.TrimPrefix(exit.String(), "exit status ")
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// spoil leaves in a runtime directory what a killed program leaves there.
func spoil(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(filepath.Join(args[0], "deadbeef00"))
	ts.Check(os.MkdirAll(filepath.Join(dir, "mount"), 0o700))
	ts.Check(os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
	ts.Check(os.WriteFile(filepath.Join(dir, "r1.json"), []byte(`{"cgroups":null}`), 0o600))
}

// spoilCatalog cuts every file of a folder in half, as no write of ours does.
func spoilCatalog(ts *testscript.TestScript, neg bool, args []string) {
	files, err := filepath.Glob(ts.MkAbs(filepath.Join(args[0], "*.json")))
	ts.Check(err)
	for _, name := range files {
		data, err := os.ReadFile(name)
		ts.Check(err)
		ts.Check(os.WriteFile(name, data[:len(data)/2], 0o600))
	}
}

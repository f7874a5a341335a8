//go:build unix

package container

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// fakeEnv names the directory of an engine that this test's executable plays:
// a client that answers as Podman's does and whose containers are plain
// processes. Files of the directory say what it has and does.
const fakeEnv = "SALLYPORT_TEST_FAKE_ENGINE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeEnv); dir != "" {
		os.Exit(fakeEngine(dir, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// fakeEngine is the client.
func fakeEngine(dir string, args []string) int {
	log, _ := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	fmt.Fprintln(log, strings.Join(args[:min(2, len(args))], " "))
	log.Close()
	say := func(name string) (string, bool) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		return string(b), err == nil
	}
	fail := func(text string) int {
		fmt.Fprintln(os.Stderr, text)
		return 125
	}
	if text, down := say("down"); down {
		return fail(text)
	}
	container := func(name string) string { return filepath.Join(dir, "container-"+name) }
	last := args[len(args)-1]
	switch args[0] {
	case "info":
		text, _ := say("info")
		fmt.Print(text)
	case "image":
		if args[1] == "rm" {
			_ = os.Remove(filepath.Join(dir, "image"))
			return 0
		}
		if text, ok := say("image"); ok {
			fmt.Print(text)
			return 0
		}
		fmt.Println("[]")
		return fail("Error: inspecting object: " + last + ": image not known")
	case "machine":
		if args[1] == "list" {
			text, _ := say("machines")
			fmt.Print(text)
		}
	case "load":
		if text, err := io.ReadAll(os.Stdin); err != nil || !strings.HasSuffix(string(text), "whole") {
			return fail("Error: payload does not match any of the supported image formats")
		}
		_ = os.WriteFile(filepath.Join(dir, "image"), []byte(fakeImage), 0o600)
	case "pull":
		if text, ok := say("pull"); ok {
			_ = os.WriteFile(filepath.Join(dir, "image"), []byte(text), 0o600)
			return 0
		}
		return fail("Error: initializing source docker://x: pinging container registry: no such host")
	case "run":
		if args[1] == "--help" {
			fmt.Println("  -i, --interactive   Keep STDIN open\n      --env-host      Use the host's environment\n      --http-proxy    Set proxies")
			return 0
		}
		return fakeRun(dir, args, container, say, fail)
	case "container":
		b, err := os.ReadFile(container(last))
		if err != nil {
			return fail("Error: inspecting object: no such container " + last)
		}
		fmt.Printf("[%s]\n", b)
	case "ps":
		if args[1] == "--quiet" { // all that runs in the machine
			text, _ := say("others")
			fmt.Print(text)
			return 0
		}
		found, _ := filepath.Glob(container("*"))
		want := strings.TrimPrefix(args[len(args)-1], "label="+labelInstance+"=")
		for _, f := range found {
			if name := strings.TrimPrefix(filepath.Base(f), "container-"); strings.HasPrefix(name, namePrefix+want+"-") {
				fmt.Println(name)
			}
		}
	case "rm", "kill", "pause", "unpause":
		b, err := os.ReadFile(container(last))
		if err != nil {
			return fail("Error: no container with name or ID \"" + last + "\" found: no such container")
		}
		var c struct{ State struct{ Pid int } }
		_ = json.Unmarshal(b, &c)
		signal := map[string]syscall.Signal{"rm": syscall.SIGKILL, "kill": syscall.SIGINT, "pause": syscall.SIGSTOP, "unpause": syscall.SIGCONT}[args[0]]
		if c.State.Pid > 0 {
			_ = syscall.Kill(c.State.Pid, signal)
		}
		if args[0] == "rm" {
			defer lockFake(dir)()
			_ = os.Remove(container(last))
		}
	default:
		return fail("Error: unknown command " + args[0])
	}
	return 0
}

// lockFake keeps the client of a container that ends from recording that after
// another client has removed the container.
func lockFake(dir string) (unlock func()) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		panic(err)
	}
	return func() { f.Close() }
}

// fakeRun starts the guest as a plain process.
func fakeRun(dir string, args []string, container func(string) string, say func(string) (string, bool), fail func(string) int) int {
	name, i := "", 0
	for j, a := range args {
		if a == "--name" {
			name = args[j+1]
		}
		if a == "--entrypoint" {
			i = j + 1
		}
	}
	if text, ok := say("refuse"); ok {
		_ = os.WriteFile(container(name), []byte(`{"Id":"x","State":{"Status":"created"}}`), 0o600)
		return fail(text)
	}
	if text, ok := say("warning"); ok {
		fmt.Fprintln(os.Stderr, text)
	}
	cmd := exec.Command(args[i], args[i+2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HTTP_PROXY=http://secret@proxy", "PYTHONPATH=/nonexistent", "container=podman"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fail("Error: " + err.Error())
	}
	write := func(state string) {
		_ = os.WriteFile(container(name)+".new", []byte(`{"Id":"x","State":`+state+`}`), 0o600)
		_ = os.Rename(container(name)+".new", container(name))
	}
	write(fmt.Sprintf(`{"Status":"running","Running":true,"Pid":%d}`, cmd.Process.Pid))
	_ = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	_, oom := say("oom")
	defer lockFake(dir)()
	if _, err := os.Stat(container(name)); err == nil {
		write(fmt.Sprintf(`{"Status":"exited","Running":false,"ExitCode":%d,"OOMKilled":%v}`, code, oom))
	}
	return code
}

// fake is an engine for one test.
type fake struct {
	dir  string
	opts Options
}

const fakeImage = `[{"Id":"sha256:f00","Architecture":"amd64","Os":"linux","Config":{}}]`

func newFake(t *testing.T) *fake {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{dir: t.TempDir()}
	place := t.TempDir()
	f.opts = Options{
		Engine: Podman, Command: self, Image: "test:1", Program: python.Program(), Interpreter: interpreter,
		Environ: []string{fakeEnv + "=" + f.dir, "PATH=" + os.Getenv("PATH"), "SECRET=1"},
		State:   store.At(filepath.Join(place, "state")), Cache: store.At(filepath.Join(place, "cache")),
	}
	f.put(t, "info", string(recorded(t, "podman-root-v1.json")))
	f.put(t, "image", fakeImage)
	return f
}

func (f *fake) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) drop(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		t.Fatal(err)
	}
}

// containers are the names of those that there are.
func (f *fake) containers(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(f.dir, "container-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// backend makes one. A plain process would not pass a inspection: what one would
// have found is put in its place.
func (f *fake) backend(t *testing.T) *Engine {
	t.Helper()
	b, err := New(f.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	facts, err := parseInfo(recorded(t, "podman-root-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	b.keep(f.opts.Image, facts, &image{ID: "sha256:f00", inspection: &inspection{inside: good()}})
	return b
}

// good is what a container says of itself that is as it should be.
func good() inside {
	return inside{
		Python: "3.13.0", Executable: "/usr/bin/python3", UID: 65534, GID: 65534, PID: 1, Files: 777,
		Kernel: "6.18.44-fc-v595 #1", Interfaces: []string{"lo"},
		Status: map[string][]string{"CapEff": {"0000000000000000"}, "NoNewPrivs": {"1"}, "Seccomp": {"2"}},
		Sizes:  map[string]int64{"/workspace": 48 << 20, "/tmp": 24 << 20, "/dev/shm": 24 << 20, "/packages": 72 << 20},
		Groups: map[string]string{"memory.max": strconv.Itoa(384 << 20), "pids.max": "61", "cpu.max": "50000 100000"},
	}
}

func (f *fake) spec(t *testing.T, id string) *sandbox.Spec {
	return &sandbox.Spec{ID: id, Program: python.Program(), Env: map[string]string{sandbox.WorkspaceEnv: t.TempDir(), "MINE": "1"}}
}

// open starts a run and its conversation.
func (f *fake) open(t *testing.T, b *Engine, id string) (sandbox.Run, *guest.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := b.Start(ctx, f.spec(t, id))
	if err != nil {
		t.Fatal(err)
	}
	ch := run.(sandbox.Duplexer).Channel()
	conn := guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{})
	t.Cleanup(func() {
		_ = conn.Close()
		if err := run.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	if _, err := conn.Ready(ctx); err != nil {
		logs, _ := run.(sandbox.Logger).Logs(ctx)
		t.Fatalf("%v\n%s", err, logs)
	}
	return run, conn
}

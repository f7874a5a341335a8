//go:build linux

package smoke

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// scripts runs the scripts of testdata, each with a home of its own.
func scripts(t *testing.T, p *place) {
	commands := (&clients{}).commands()
	maps.Copy(commands, map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"status": status, "interrupt": interrupt, "question": question, "kill9": p.kill9,
		"define": func(ts *testscript.TestScript, neg bool, args []string) {
			for _, name := range args {
				ts.Check(p.define(ts.Getenv("HOME"), name))
			}
		},
	})
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			variables, err := p.environment(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"))
			for _, v := range variables {
				name, value, _ := strings.Cut(v, "=")
				env.Setenv(name, value)
			}
			env.Setenv("SALLYPORT", p.executable)
			env.Setenv("SERVERS", p.servers)
			return err
		},
		Cmds:               commands,
		RequireUniqueNames: true,
	})
}

// status runs a command and checks its exit status: status 3 sallyport …
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args]")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	checkStatus(ts, args[0], exit)
}

func checkStatus(ts *testscript.TestScript, want string, exit *exec.ExitError) {
	got := "0"
	if exit != nil {
		got = strings.TrimPrefix(exit.String(), "exit status ")
	}
	if got != want {
		ts.Fatalf("got exit status %s, want %s", got, want)
	}
}

// interrupt runs a command, sends SIGINT once it has printed the line "up", and
// checks its exit status: interrupt 130 sallyport …
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt N command [args]")
	}
	// Whoever runs this test may ignore the signal, as shells do for what they
	// run in the background. A process that handles it passes on the default.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, os.Interrupt)
	defer signal.Stop(handled)
	cmd := exec.Command(ts.Getenv("SALLYPORT"), args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range passed {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	ts.Check(cmd.Start())
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewReader(out)
	for line := ""; line != "up\n"; {
		line, err = lines.ReadString('\n')
		if err != nil {
			_ = cmd.Wait()
			ts.Fatalf("before it was up: %v\n%s", err, errs.String())
		}
		fmt.Fprint(ts.Stdout(), line)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(ts.Stdout(), lines)
	ts.Check(err)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	_, err = errs.WriteTo(ts.Stderr())
	ts.Check(err)
	checkStatus(ts, args[0], exit)
}

// question waits until a program that runs in the background asks for approval of
// so many calls. The name of the question is then in the variable QUESTION.
func question(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: question CALLS")
	}
	calls, err := strconv.Atoi(args[0])
	ts.Check(err)
	answered, _, _ := strings.Cut(ts.Getenv("QUESTION"), ".")
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ts.Check(ts.Exec("sallyport", "approvals", "list", "--json"))
		var list struct {
			Open []struct {
				ID       string
				Revision int
				Process  int
			}
		}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &list))
		for _, q := range list.Open {
			// Other programs of this user may ask something, too.
			own := slices.ContainsFunc(ts.BackgroundCmds(), func(c *exec.Cmd) bool { return c.Process.Pid == q.Process })
			if own && q.ID != answered && q.Revision == calls {
				ts.Setenv("QUESTION", fmt.Sprintf("%s.%d", q.ID, q.Revision))
				return
			}
		}
	}
	ts.Fatalf("no question about %d calls", calls)
}

// kill9 kills a client's server and waits until the processes of its sandboxes
// have ended.
func (p *place) kill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 NAME")
	}
	pid, err := strconv.Atoi(ts.Getenv("PID_" + args[0]))
	ts.Check(err)
	own := func() []sandboxtest.Process { return p.sandboxesIn(ts.Getenv("XDG_RUNTIME_DIR")) }
	before := own()
	ts.Logf("before: %v", before)
	if len(before) < 2 {
		ts.Fatalf("got %d processes of the sandbox, want at least 2: is this looking in the right place?", len(before))
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		left := own()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("still there: %v", left)
		}
	}
}

// sandboxesIn lists the processes of the executable that have a file below a
// runtime directory in their arguments, and those that started them.
func (p *place) sandboxesIn(dir string) []sandboxtest.Process {
	state := sandboxtest.HostState{Executable: p.executable}
	all := state.Processes()
	var own []sandboxtest.Process
	for _, one := range all {
		arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one.PID))
		if bytes.Contains(arguments, []byte(dir+"/")) {
			own = append(own, one)
		}
	}
	for i := 0; i < len(own); i++ {
		for _, one := range all {
			if one.PID == own[i].Parent && !slices.Contains(own, one) {
				own = append(own, one)
			}
		}
	}
	return own
}

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// agents are the clients of a script's serving processes, by name.
type agents struct {
	mu  sync.Mutex
	all map[*testscript.TestScript]map[string]*agent
}

// agent is one client, which asks and waits for the answer.
type agent struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	ids int
}

// commands are those of scripts: "serve NAME [args]" starts a process, whose
// number is then in the variable PID_NAME; "call NAME SESSION CODE" runs code,
// in the process's own session for "-"; "progress NAME CODE" prints what the
// client is told meanwhile; "hangup NAME" ends the process, "kill9 NAME" kills
// it.
func (a *agents) commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	a.all = map[*testscript.TestScript]map[string]*agent{}
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"serve": a.serve, "call": a.call, "progress": a.progress, "hangup": a.hangUp, "kill9": a.kill,
	}
}

func (a *agents) serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: serve NAME [args]")
	}
	path, err := exec.LookPath(ts.Getenv("WORK") + "/bin/sallyport")
	ts.Check(err)
	cmd := exec.Command(path, append([]string{"serve"}, args[1:]...)...)
	for _, name := range []string{"HOME", "PATH", "XDG_RUNTIME_DIR", "TMPDIR", "SALLYPORT_STATE_DIR", "SALLYPORT_PYTHON", "SALLYPORT_ENGINE", "SALLYPORT_HUB_ENABLED", "SALLYPORT_POLICY_PROFILE"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Dir = ts.MkAbs(".")
	one := &agent{cmd: cmd}
	one.in, err = cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	said := &logged{}
	cmd.Stderr = said
	ts.Check(cmd.Start())
	one.out = bufio.NewReaderSize(out, 1<<20)
	ts.Defer(func() {
		one.end()
		ts.Logf("%s wrote:\n%s", args[0], said.text())
	})
	a.mu.Lock()
	if a.all[ts] == nil {
		a.all[ts] = map[string]*agent{}
	}
	a.all[ts][args[0]] = one
	a.mu.Unlock()
	ts.Setenv("PID_"+args[0], fmt.Sprint(cmd.Process.Pid))
	one.ask(ts, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"client `+args[0]+`","version":"1"}}`, nil)
	_, err = io.WriteString(one.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	ts.Check(err)
	// It has been read when the next request is answered.
	one.ask(ts, "ping", "{}", nil)
}

// logged keeps log lines for the end: a script's own log is not for others.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (a *agents) get(ts *testscript.TestScript, name string) *agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.all[ts][name]
	if one == nil {
		ts.Fatalf("there is no %s", name)
	}
	return one
}

// message is what comes from a server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Message string `json:"message"`
	} `json:"params"`
	Result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

func (o *agent) ask(ts *testscript.TestScript, method, params string, told func(message)) message {
	o.ids++
	_, err := fmt.Fprintf(o.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", o.ids, method, params)
	ts.Check(err)
	for {
		line, err := o.out.ReadBytes('\n')
		ts.Check(err)
		var m message
		ts.Check(json.Unmarshal(line, &m))
		switch {
		case string(m.ID) == fmt.Sprint(o.ids):
			if m.Error != nil {
				ts.Fatalf("%s: %s", method, m.Error)
			}
			return m
		case told != nil:
			told(m)
		}
	}
}

func (a *agents) call(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: call NAME SESSION CODE")
	}
	arguments := map[string]any{"code": strings.ReplaceAll(args[2], `\n`, "\n")}
	if args[1] != "-" {
		arguments["session"] = args[1]
	}
	params, err := json.Marshal(map[string]any{"name": "run_python", "arguments": arguments})
	ts.Check(err)
	m := a.get(ts, args[0]).ask(ts, "tools/call", string(params), nil)
	for _, c := range m.Result.Content {
		fmt.Fprintln(ts.Stdout(), c.Text)
		ts.Logf("%s", c.Text)
	}
	if m.Result.IsError != neg {
		ts.Fatalf("the call's isError is %v", m.Result.IsError)
	}
}

func (a *agents) progress(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: progress NAME CODE")
	}
	params, err := json.Marshal(map[string]any{
		"name": "run_python", "arguments": map[string]any{"code": strings.ReplaceAll(args[1], `\n`, "\n")},
		"_meta": map[string]any{"progressToken": "token"},
	})
	ts.Check(err)
	a.get(ts, args[0]).ask(ts, "tools/call", string(params), func(m message) {
		fmt.Fprintln(ts.Stdout(), m.Method, m.Params.Message)
	})
}

func (a *agents) hangUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hangup NAME")
	}
	a.get(ts, args[0]).end()
}

func (a *agents) kill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 NAME")
	}
	one := a.get(ts, args[0])
	ts.Check(one.cmd.Process.Kill())
	_ = one.cmd.Wait()
}

// end closes the conversation and waits for the process. It is idempotent.
func (o *agent) end() {
	_ = o.in.Close()
	_ = o.cmd.Wait()
}

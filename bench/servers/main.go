// Command servers measures what many MCP servers cost: how long after its start
// Sallyport knows the tools of all of them, with nothing known before and with
// everything known, how long a search takes then, and how much memory the
// program holds. The servers are bench/echoserver, which starts at once: what
// real ones take is theirs. It prints a table and is no test.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/servers:", err)
		os.Exit(1)
	}
}

// place is where everything of one measurement lies.
type place struct {
	bin, echo, home string
	servers, tools  int
	rest            bool
}

func run() error {
	var p place
	flag.StringVar(&p.bin, "bin", "bin/sallyport", "the executable")
	flag.IntVar(&p.servers, "servers", 50, "how many servers")
	flag.IntVar(&p.tools, "tools", 60, "how many tools each lists")
	flag.BoolVar(&p.rest, "rest", false, "also wait until what is not used is given back, which takes minutes")
	flag.Parse()
	var err error
	if p.bin, err = filepath.Abs(p.bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p.echo = filepath.Join(dir, "echoserver")
	build := exec.Command("go", "build", "-o", p.echo, "./bench/echoserver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building bench/echoserver: %w: %s", err, out)
	}
	p.home = filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(p.home, "runtime"), 0o700); err != nil {
		return err
	}
	fmt.Printf("%d servers with %d tools each\n\n", p.servers, p.tools)

	none, err := p.idle()
	if err != nil {
		return err
	}
	if err := p.define(); err != nil {
		return err
	}
	direct, err := p.direct()
	if err != nil {
		return err
	}
	defined, err := p.idle()
	if err != nil {
		return err
	}
	cold, err := p.cold()
	if err != nil {
		return err
	}
	warm, err := p.warm()
	if err != nil {
		return err
	}
	row := func(what, figure string) { fmt.Printf("%-58s %12s\n", what, figure) }
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
	mb := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	row("start, list and end of one server, directly", ms(direct))
	row("cold catalog: start to the first result", ms(cold.first))
	row("cold catalog: start to all servers known", ms(cold.known))
	row("cold catalog: from the first result on, for each server", ms((cold.known-cold.first)/time.Duration(p.servers)))
	row("warm catalog: start to the first result", ms(warm.first))
	row("warm catalog: start to a search over all servers", ms(warm.known))
	row("warm catalog: the first search alone", ms(warm.known-warm.first))
	row("a later search, from the sandbox and back", ms(warm.search))
	row("idle PSS of the program, no definitions", mb(none))
	row(fmt.Sprintf("idle PSS of the program, %d definitions", p.servers), mb(defined))
	row("PSS of the program after all servers were listed", mb(cold.memory))
	row("PSS of the program after searches", mb(warm.memory))
	if p.rest {
		row("… and two and a half minutes without any", mb(warm.rested))
	}
	row("the catalog's files", mb(size(filepath.Join(p.state(), "catalog"))))
	return nil
}

func (p *place) state() string { return filepath.Join(p.home, ".local", "state", "sallyport") }

// define writes the definitions.
func (p *place) define() error {
	type server struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	servers := map[string]server{}
	for i := range p.servers {
		servers[fmt.Sprintf("server%02d", i)] = server{p.echo, []string{"-tools", strconv.Itoa(p.tools)}}
	}
	encoded, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		return err
	}
	dir := filepath.Join(p.home, "MCPs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "all.json"), encoded, 0o600)
}

// direct is what one server takes by itself.
func (p *place) direct() (time.Duration, error) {
	began := time.Now()
	const n = 5
	for range n {
		cmd := exec.Command(p.echo, "-tools", strconv.Itoa(p.tools))
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n")
		if out, err := cmd.Output(); err != nil || len(out) == 0 {
			return 0, fmt.Errorf("bench/echoserver: %d bytes, %w", len(out), err)
		}
	}
	return time.Since(began) / n, nil
}

type figures struct {
	first, known, search time.Duration
	memory, rested       int64
}

// idle is the memory of a program that has answered and does nothing.
func (p *place) idle() (int64, error) {
	s, err := p.serve("SALLYPORT_CATALOG_REFRESH=off")
	if err != nil {
		return 0, err
	}
	defer s.close()
	if _, err := s.python("print(1 + 1)", "2"); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second)
	return pss(s.cmd.Process.Pid)
}

// cold: nothing is known.
func (p *place) cold() (f figures, err error) {
	began := time.Now()
	s, err := p.serve()
	if err != nil {
		return f, err
	}
	defer s.close()
	if _, err := s.python("print(1 + 1)", "2"); err != nil {
		return f, err
	}
	f.first = time.Since(began)
	pattern := filepath.Join(p.state(), "catalog", "*.json")
	for {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return f, err
		}
		if len(names) == p.servers {
			break
		}
		if time.Since(began) > 5*time.Minute {
			return f, fmt.Errorf("after 5 minutes %d servers are known", len(names))
		}
		time.Sleep(5 * time.Millisecond)
	}
	f.known = time.Since(began)
	time.Sleep(2 * time.Second)
	f.memory, err = pss(s.cmd.Process.Pid)
	return f, err
}

// warm: another program has listed all servers before.
func (p *place) warm() (f figures, err error) {
	began := time.Now()
	s, err := p.serve()
	if err != nil {
		return f, err
	}
	defer s.close()
	if _, err := s.python("print(1 + 1)", "2"); err != nil {
		return f, err
	}
	f.first = time.Since(began)
	const search = "print(len(runtime.search_tool_docs_sync('echo a text', limit=20)))"
	answer, err := s.python(search, "20")
	if err != nil {
		return f, err
	}
	if strings.Contains(answer, "left out") {
		return f, errors.New("not everything was known: " + answer)
	}
	f.known = time.Since(began)
	const n = 20
	from := time.Now()
	if _, err := s.python("for _ in range("+strconv.Itoa(n)+"): runtime.search_tool_docs_sync('echo a text')\nprint('done')", "done"); err != nil {
		return f, err
	}
	f.search = time.Since(from) / n
	time.Sleep(2 * time.Second)
	if f.memory, err = pss(s.cmd.Process.Pid); err != nil || !p.rest {
		return f, err
	}
	time.Sleep(150 * time.Second)
	f.rested, err = pss(s.cmd.Process.Pid)
	return f, err
}

// session is a running program that we are the client of.
type session struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	next   int
	cancel context.CancelFunc
}

func (p *place) serve(env ...string) (*session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	s := &session{cancel: cancel}
	s.cmd = exec.CommandContext(ctx, p.bin, "serve")
	s.cmd.Stderr = os.Stderr
	s.cmd.Env = append([]string{
		"HOME=" + p.home, "XDG_RUNTIME_DIR=" + filepath.Join(p.home, "runtime"), "PATH=" + os.Getenv("PATH"),
		"SALLYPORT_SERVERS_SOURCES=mcps",
	}, env...)
	if python := os.Getenv("SALLYPORT_PYTHON"); python != "" {
		s.cmd.Env = append(s.cmd.Env, "SALLYPORT_PYTHON="+python)
	}
	in, err := s.cmd.StdinPipe()
	if err == nil {
		var out io.Reader
		if out, err = s.cmd.StdoutPipe(); err == nil {
			s.in, s.out = in, bufio.NewReaderSize(out, 1<<20)
			err = s.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	_, err = s.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "bench", "version": "0"},
	})
	if err == nil {
		_, err = io.WriteString(s.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) ask(method string, params any) (string, error) {
	s.next++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.next, "method": method, "params": params})
	if err != nil {
		return "", err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return "", err
	}
	return s.out.ReadString('\n')
}

// python runs code and returns the whole answer, whose text begins with want.
func (s *session) python(code, want string) (string, error) {
	answer, err := s.ask("tools/call", map[string]any{"name": "run_python", "arguments": map[string]any{"code": code}})
	if err != nil {
		return "", err
	}
	if !strings.Contains(answer, `"text":"`+want) {
		return "", fmt.Errorf("%s: %s", code, answer)
	}
	return answer, nil
}

func (s *session) close() {
	s.in.Close()
	_ = s.cmd.Wait() // what it was asked has been answered
	s.cancel()
}

// pss is the proportional set size of one process, in bytes.
func pss(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}

// size is what the files of a folder take.
func size(dir string) (total int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// Command agent measures what an agent's tasks cost through run_python: code as
// models write it, mistakes included, run by the real executable over MCP.
//
//	CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport
//	test/realservers/run                       # once: installs the servers
//	go run ./bench/agent                       # all tasks
//	go run ./bench/agent --only 'csv-.*' -v    # some, with their conversations
//	go run ./bench/agent --python .venv/bin/python --json
//	go run ./bench/agent --task FILE --brief   # a task of your own; scripts/demo does this
//
// The corpus (bench/agent/corpus) has a file for each group of tasks. A task has
// a checker for its answer and three variants of code. A variant that fails is
// rewritten by the fixed rules in rules.go, each of which follows one hint, and
// sent again, at most four times.
//
// It prints how many variants were solved, how many calls they took, the tokens
// (o200k) of each answer in every form in which clients give it to their model, and
// the tokens of the same tasks as direct tool calls: the schemas of the servers, and
// each result read by the model.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

type options struct {
	bin, servers, python, only, task, client string
	json, brief, verbose                     bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/sallyport", "the executable")
	flag.StringVar(&o.servers, "servers", ".cache/realservers", "where test/realservers/run installed the servers")
	flag.StringVar(&o.python, "python", "", "interpreter of the sandbox; tasks whose packages it lacks are not run")
	flag.StringVar(&o.only, "only", "", "run the tasks whose names match this regular expression")
	flag.StringVar(&o.task, "task", "", "run the tasks of this file, in a copy of its folder, instead of the corpus")
	flag.BoolVar(&o.brief, "brief", false, "print two lines for each task instead of the table")
	flag.StringVar(&o.client, "client", "agent-bench", "name of the client, by which its answers' form is chosen")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.BoolVar(&o.verbose, "v", false, "print every conversation on standard error")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Usage: go run ./bench/agent [flags]\n\nMeasures an agent's tasks: solved, calls, tokens. Example:\n  go run ./bench/agent --only 'fs-.*' -v\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	tasks, err := o.tasks()
	if err != nil {
		return err
	}
	only, err := regexp.Compile("^(?:" + o.only + ")$")
	if err != nil {
		return err
	}
	m, err := newMachine(o, stderr)
	if err != nil {
		return err
	}
	defer m.close()
	var rep report
	for _, t := range tasks {
		if o.only != "" && !only.MatchString(t.name) {
			continue
		}
		if missing := m.missing(t); missing != "" {
			rep.NotRun = append(rep.NotRun, t.name+" (needs "+missing+")")
			continue
		}
		if !o.brief {
			fmt.Fprintf(stderr, "agent: %s\n", t.name)
		}
		done, err := m.task(ctx, t)
		if err != nil {
			return fmt.Errorf("task %s: %w", t.name, err)
		}
		rep.Tasks = append(rep.Tasks, done)
	}
	rep.Definition, rep.Client = m.definition, o.client
	switch {
	case o.json:
		return rep.writeJSON(stdout)
	case o.brief:
		return rep.writeBrief(stdout)
	}
	return rep.writeTable(stdout)
}

// A machine has what tasks run with.
type machine struct {
	options
	stderr     io.Writer
	dir        string // removed at the end
	node       string
	packages   map[string]bool // of Python: whether the interpreter has them
	schemas    map[string]int  // tokens of the tools of a server
	definition int             // tokens of what a client reads of Sallyport
}

func newMachine(o options, stderr io.Writer) (*machine, error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%w; build it: CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport", err)
	}
	o.bin = bin
	if o.servers, err = filepath.Abs(o.servers); err != nil {
		return nil, err
	}
	if o.python != "" {
		if o.python, err = filepath.Abs(o.python); err != nil {
			return nil, err
		}
	}
	// Code names paths of the host, which are below the home of a person.
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(home, "sallyport-agent-")
	if err != nil {
		return nil, err
	}
	m := &machine{options: o, stderr: stderr, dir: dir, packages: map[string]bool{}, schemas: map[string]int{}}
	for _, p := range []string{filepath.Join(filepath.Dir(o.servers), "node/bin/node"), "node"} {
		if m.node, err = exec.LookPath(p); err == nil {
			break
		}
	}
	return m, nil
}

func (m *machine) close() { _ = os.RemoveAll(m.dir) }

// commands are the servers that tasks use: npm's file, or PyPI's command.
var commands = map[string][]string{
	"filesystem": {"node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "{work}"},
	"memory":     {"node_modules/@modelcontextprotocol/server-memory/dist/index.js"},
	"everything": {"node_modules/@modelcontextprotocol/server-everything/dist/index.js"},
	"thinking":   {"node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js"},
	"git":        {"venv/bin/mcp-server-git"},
	"time":       {"venv/bin/mcp-server-time", "--local-timezone", "UTC"},
}

// command returns the command line of a server, or nil if it is not installed.
func (m *machine) command(server, work string) []string {
	line := commands[server]
	if line == nil {
		return nil
	}
	file := filepath.Join(m.servers, line[0])
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	var argv []string
	if strings.HasSuffix(file, ".js") {
		if m.node == "" {
			return nil
		}
		argv = []string{m.node}
	}
	argv = append(argv, file)
	for _, a := range line[1:] {
		argv = append(argv, strings.ReplaceAll(a, "{work}", work))
	}
	return argv
}

// missing returns what a task needs and this machine lacks.
func (m *machine) missing(t *task) string {
	for _, s := range t.servers {
		if m.command(s, "") == nil {
			return "server " + s
		}
	}
	for _, p := range t.packages {
		have, known := m.packages[p]
		if !known {
			have = exec.Command(cmp.Or(m.python, "/usr/bin/python3"), "-c", "import "+p).Run() == nil
			m.packages[p] = have
		}
		if !have {
			return "package " + p
		}
	}
	return ""
}

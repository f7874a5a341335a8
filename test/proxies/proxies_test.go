package proxies

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/calls.json")

const goldenCalls = "testdata/calls.json"

// A tool as a server lists it.
type tool struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

type server struct {
	Name  string `json:"server"`
	Tools []tool `json:"tools"`
	file  string
}

func servers(t *testing.T) []server {
	t.Helper()
	files, err := filepath.Glob("testdata/tools/*.json")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var all []server
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := server{file: file}
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, s)
	}
	return all
}

// call is one of a tool, with the names that it has in Python.
type call struct {
	Server      string          `json:"server"`
	ServerAlias string          `json:"serverAlias"`
	Tool        string          `json:"tool"`
	Alias       string          `json:"alias"`
	Arguments   json.RawMessage `json:"arguments"`
}

func calls(t *testing.T) []call {
	t.Helper()
	var all []call
	for _, s := range servers(t) {
		for _, tool := range s.Tools {
			decoder := json.NewDecoder(bytes.NewReader(tool.InputSchema))
			decoder.UseNumber()
			var root map[string]any
			if err := decoder.Decode(&root); err != nil {
				t.Fatalf("%s %s: %v", s.Name, tool.Name, err)
			}
			all = append(all, call{
				Server: s.Name, ServerAlias: identifier(s.Name), Tool: tool.Name, Alias: toolAlias(tool.Name),
				Arguments: object(newGenerator(s.Name+" "+tool.Name, root).arguments()),
			})
		}
	}
	return all
}

// The rules for aliases, as they are documented.

var notWord = regexp.MustCompile(`[^a-z0-9_]+`)

func identifier(name string) string {
	alias := notWord.ReplaceAllString(strings.ToLower(name), "_")
	if alias != "" && alias[0] >= '0' && alias[0] <= '9' {
		alias = "_" + alias
	}
	return alias
}

func toolAlias(name string) string {
	switch alias := identifier(name); alias {
	case "":
		return "tool"
	case "class", "from", "import", "del", "with", "global", "pass", "return": // those that occur
		return alias + "_"
	default:
		return alias
	}
}

// TestCallsAreOfTheTools: the calls are what the generator makes of the tools.
func TestCallsAreOfTheTools(t *testing.T) {
	all := calls(t)
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, c := range all {
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false) // it would reach into what is raw
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
		b.Truncate(b.Len() - 1)
		if i < len(all)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	if *update {
		if err := os.WriteFile(goldenCalls, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenCalls)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, b.Bytes()) {
		t.Error(goldenCalls + " is not what the generator makes: go test ./test/proxies -update")
	}
	real := 0
	for _, c := range all {
		if c.Server != "odd names!" {
			real++
		}
	}
	if real != 458 {
		t.Errorf("%d tools of real servers", real)
	}
}

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

//go:embed testdata/program.py
var program string

// definition is how a server is started.
type definition struct {
	Command string            `json:"command"`
	Env     map[string]string `json:"env"`
}

// sallyport has the whole program run Python code, with a real sandbox, and
// grants it the servers. It answers what the code printed.
func sallyport(t *testing.T, dir string, servers map[string]definition, code string) string {
	t.Helper()
	bin := executable(t)
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "servers.json"), config)
	write(t, filepath.Join(dir, "program.py"), []byte(code))
	args := []string{"run", "--timeout", "110", "--servers-config", filepath.Join(dir, "servers.json")}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		args = append(args, "--server", name)
	}
	cmd := exec.CommandContext(t.Context(), bin, append(args, filepath.Join(dir, "program.py"))...)
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SALLYPORT_") && !strings.HasPrefix(kv, "MCP_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+dir, "SALLYPORT_STATE_DIR="+filepath.Join(dir, "state"), "XDG_RUNTIME_DIR="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	// Some of the arguments are not the tools' own, which hints say.
	said := slices.DeleteFunc(strings.Split(stderr.String(), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "Hint: ") })
	if err != nil || len(said) > 0 {
		t.Fatalf("%v\n%.4000s\n%.4000s", err, stdout, stderr.String())
	}
	return string(stdout)
}

// TestEveryTool calls every tool of servers that record what they are asked.
func TestEveryTool(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	definitions := map[string]definition{}
	record := func(s server) string { return filepath.Join(dir, filepath.Base(s.file)+".record") }
	for _, s := range servers(t) {
		tools, err := filepath.Abs(s.file)
		if err != nil {
			t.Fatal(err)
		}
		definitions[s.Name] = definition{self, map[string]string{recordVariable: record(s), toolsVariable: tools}}
	}
	all := calls(t)
	cases, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	// The cases are ASCII, so that a JSON text of theirs is a Python one too.
	literal, err := json.Marshal(string(cases))
	if err != nil {
		t.Fatal(err)
	}
	stdout := sallyport(t, dir, definitions, "CASES = "+string(literal)+"\n"+program)
	if want := fmt.Sprintf("%d calls\n", len(all)); stdout != want {
		t.Fatalf("%.4000s\nwant %s", stdout, want)
	}

	recorded := map[string][]string{}
	for _, s := range servers(t) {
		b, err := os.ReadFile(record(s))
		if err != nil {
			t.Fatal(err)
		}
		recorded[s.Name] = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	for _, c := range all {
		name, err := json.Marshal(c.Tool)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"name":` + string(name) + `,"arguments":` + string(c.Arguments) + `}`
		lines := recorded[c.Server]
		if len(lines) == 0 || lines[0] != want {
			t.Errorf("%s %s:\n%.600q reached the server, want\n%.600q", c.Server, c.Tool, lines, want)
		}
		recorded[c.Server] = lines[min(1, len(lines)):]
	}
	for name, lines := range recorded {
		if len(lines) > 0 {
			t.Errorf("%s was called %d times more", name, len(lines))
		}
	}
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

//go:embed testdata/carry.py
var carryProgram string

// TestWhatResultsCarry: images, resources and prompts of a server, as code in a
// sandbox has them; and the helpers, by the names that they are bound to.
func TestWhatResultsCarry(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]definition{"carrier": {self, map[string]string{carryVariable: "1"}}}
	if got := sallyport(t, t.TempDir(), servers, carryProgram); got != "all of it\n" {
		t.Error(got)
	}
}

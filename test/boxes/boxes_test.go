//go:build linux

package boxes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What test/boxes/run sets.
const (
	binaryEnv  = "SALLYPORT_BIN"
	imageEnv   = "SALLYPORT_TEST_IMAGE"   // it has a shell, no Python, and the user 1000
	enginesEnv = "SALLYPORT_TEST_ENGINES" // podman, docker, or both, with a blank between
	runtimeEnv = "SALLYPORT_TEST_RUNTIME" // Podman's
	userEnv    = "SALLYPORT_TEST_USER"    // an ordinary user of this machine
)

// job is the README's first command, what doctor says, and then an MCP server. Only the
// server's messages are for standard output.
const job = `sallyport run -c 'import sys; print("in a sandbox:", sys.version)' </dev/null >&2 &&
sallyport doctor </dev/null >&2 && exec sallyport serve`

// serverArgument makes the test binary an MCP server with one tool.
const serverArgument = "mcp-server"

func TestMain(m *testing.M) {
	play()
	if len(os.Args) == 2 && os.Args[1] == serverArgument {
		s := mcp.NewServer(&mcp.Implementation{Name: "adder", Version: "1"}, nil)
		type numbers struct {
			A int `json:"a"`
			B int `json:"b"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds two numbers."}, func(_ context.Context, _ *mcp.CallToolRequest, n numbers) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n.A + n.B)}}}, nil, nil
		})
		if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// place makes a directory with what the job needs, which every user can read.
func place(t *testing.T) string {
	t.Helper()
	bin := os.Getenv(binaryEnv)
	if bin == "" {
		t.Skip(binaryEnv + " is not set: test/boxes/run sets it")
	}
	dir, err := os.MkdirTemp("", "boxes-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"sallyport": bin, "server": self} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"config.yaml":  fmt.Sprintf("servers:\n  config: [%s/servers.json]\n", dir),
		"servers.json": fmt.Sprintf(`{"mcpServers": {"adder": {"command": "%s/server", "args": [%q]}}}`, dir, serverArgument),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// work does the job by a command, which has standard input, output and error of it.
func work(t *testing.T, command []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // only a hang takes that long
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = &said
	cmd.WaitDelay = time.Minute
	session, err := mcp.NewClient(&mcp.Implementation{Name: "boxes", Version: "1"}, nil).
		Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: got %v, want a server; it said:\n%s", command, err, &said)
	}
	for _, step := range []struct{ code, want string }{
		{"x = 20; 'kept'", "kept"},
		{"import mcp_adder; int(await mcp_adder.add(a=x, b=1)) * 2", "42"},
		{"import platform; platform.machine()", "wasm32"},
	} {
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": step.code}})
		if err != nil {
			t.Errorf("%s: got %v, want a result", step.code, err)
			break
		}
		text, _ := r.Content[0].(*mcp.TextContent)
		if r.IsError || text == nil || !strings.Contains(text.Text, step.want) {
			t.Errorf("%s: got error %v, %+v, want %q", step.code, r.IsError, text, step.want)
		}
	}
	if err := session.Close(); err != nil {
		t.Errorf("the end: got %v, want none", err)
	}
	for _, want := range []string{"in a sandbox: 3.13", "engine wasm: isolation by wasm", "run_python can run here."} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("got %q, want that it has %q", said.String(), want)
		}
	}
}

// TestContainers does the job in containers with the default filter and the default
// capabilities. No setting names an engine.
func TestContainers(t *testing.T) {
	image, engines := os.Getenv(imageEnv), strings.Fields(os.Getenv(enginesEnv))
	if image == "" || len(engines) == 0 {
		t.Skip(imageEnv + " or " + enginesEnv + " is not set: test/boxes/run sets them")
	}
	dir := place(t)
	for _, tt := range []struct {
		name    string
		engines string // all by default
		flags   []string
		command []string
	}{
		{name: "root"},
		{name: "user", flags: []string{"--user=1000:1000", "--env=HOME=/home/box"}},
		{name: "user without a home", engines: "podman", flags: []string{"--user=4711:4711"}},
		{name: "HOME unset", engines: "podman", command: []string{"env", "-u", "HOME"}},
		{name: "read-only", flags: []string{"--read-only", "--tmpfs=/root", "--tmpfs=/run"}},
		// Podman has a place for temporary files even then.
		{name: "read-only home", engines: "podman", flags: []string{"--read-only", "--user=1000:1000"}},
		{name: "1 GiB of memory", flags: []string{"--memory=1g"}},
		{name: "no capabilities", engines: "podman", flags: []string{"--cap-drop=ALL", "--security-opt=no-new-privileges"}},
	} {
		for _, engine := range engines {
			if tt.engines != "" && tt.engines != engine {
				continue
			}
			t.Run(tt.name+"/"+engine, func(t *testing.T) {
				var command []string
				if r := os.Getenv(runtimeEnv); r != "" && engine == "podman" {
					command = []string{"--runtime=" + r}
				}
				// A machine that is a container itself may not raise limits.
				command = slices.Concat([]string{engine}, command, []string{
					"run", "--rm", "--interactive", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
					"--volume=" + dir + ":" + dir + ":ro", "--volume=" + dir + "/sallyport:/usr/local/bin/sallyport:ro",
					"--env=SALLYPORT_CONFIG=" + dir + "/config.yaml",
				}, tt.flags, []string{image}, tt.command, []string{"sh", "-c", job})
				work(t, command)
			})
		}
	}
}

// TestNoUserNamespaces does the job where nobody can make a user namespace: within one
// whose own limit is none, without capabilities there.
func TestNoUserNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user, too")
	}
	const closed = `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --no-new-privs sh -c "$JOB"`
	for _, name := range []string{"root", os.Getenv(userEnv)} {
		t.Run(name, func(t *testing.T) {
			u, err := user.Lookup(name)
			if err != nil {
				t.Skipf("%v: %s names an ordinary user", err, userEnv)
			}
			dir := place(t)
			home := filepath.Join(dir, "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("chown", u.Uid+":"+u.Gid, home).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			// Within its namespace the user is root, whose files are elsewhere.
			work(t, []string{"runuser", "-u", name, "--", "env", "-i", "-C", home, "HOME=" + home, "TMPDIR=" + home, "PATH=" + dir + ":/usr/bin:/bin",
				"SALLYPORT_CONFIG=" + dir + "/config.yaml", "JOB=" + job, "unshare", "--user", "--map-root-user", "sh", "-c", closed})
		})
	}
}

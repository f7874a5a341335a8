package definitions

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DepthVariable tells a program how many Sallyports are above it. Every server
// gets it, so that a nested Sallyport notices even if no rule here recognises
// how it was started.
const DepthVariable = "SALLYPORT_DEPTH"

// Depth returns how many Sallyports are above this process.
func Depth(env Environment) int {
	text, _ := env(DepthVariable)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// CheckDepth returns an error if this process was started, directly or not, as
// a server of another Sallyport and nesting is not allowed: each would start
// all servers again, itself included.
func CheckDepth(env Environment, allowSelf bool) error {
	// Even an allowed nest ends somewhere.
	most := 0
	if allowSelf {
		most = 3
	}
	if depth := Depth(env); depth > most {
		return fmt.Errorf("started as a server of another Sallyport (%s is %d): remove it from the server definitions, or allow it with MCP_BRIDGE_ALLOW_SELF_SERVER=1", DepthVariable, depth)
	}
	return nil
}

// ownNames lists the names of this program, and of the one that it replaces.
var ownNames = []string{"sallyport", "mcp-server-code-execution-mode", "mcp_server_code_execution_mode"}

// launchers lists programs that run what an argument names.
var launchers = []string{
	"npx", "npm", "pnpx", "pnpm", "yarn", "bun", "bunx", "deno", "node", "uvx", "uv", "pipx", "pip", "python", "python3", "go",
	"docker", "podman", "nerdctl", "docker-compose", "kubectl", "nix", "mise", "asdf", "brew", "flatpak", "snap", "wsl", "ssh",
	"env", "sudo", "doas", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "time", "xargs", "systemd-run", "bwrap", "firejail",
	"sh", "bash", "dash", "zsh", "fish", "busybox", "cmd", "powershell", "pwsh",
}

// Self recognises definitions that would start this program again.
type Self struct {
	// Executable is the path of this program, or empty if it is unknown.
	Executable string
}

// why returns why a server would be this program, or an empty string.
func (s Self) why(name string, l *Launch) string {
	if isOwnName(name) {
		return "it is named like Sallyport itself"
	}
	if isOwnName(program(l.Command)) || s.same(l.Command) {
		return "its command is Sallyport itself"
	}
	if s.wraps(l.Command) {
		return "its command is a script that starts Sallyport itself"
	}
	launcher := slices.Contains(launchers, program(l.Command))
	for _, arg := range l.Args {
		// The seed's name is enough wherever it appears. Our own name may be just a
		// folder, unless it is passed to something that runs programs.
		base := program(arg)
		if strings.HasPrefix(base, "mcp-server-code-execution-mode") && !isDir(arg) || base == "mcp_server_code_execution_mode" {
			return "its arguments start Sallyport itself"
		}
		if strings.ContainsAny(arg, `/\`) && s.same(arg) {
			return "its arguments start Sallyport itself"
		}
		if launcher && slices.ContainsFunc(words(arg), func(word string) bool {
			return isOwnName(program(word)) && !(strings.ContainsAny(word, `/\`) && isDir(word))
		}) {
			return "its arguments start Sallyport itself"
		}
	}
	return ""
}

// Is reports whether a definition would start this program.
func (s Self) Is(d Definition) bool { return s.why(d.Name, d.Launch()) != "" }

// Starts is Is for what the definition starts, whatever its name is.
func (s Self) Starts(d Definition) bool { return s.why("", d.Launch()) != "" }

// Runs reports whether a command is this program, or one of its name, and not a
// launcher that starts it.
func (s Self) Runs(command string) bool { return isOwnName(program(command)) || s.same(command) }

// IsFile reports whether a command leads to the file of this program.
func (s Self) IsFile(command string) bool { return s.same(command) }

// words returns what an argument of a launcher may name: the words of a shell's
// command line, or the value of a flag.
func words(arg string) []string {
	return strings.FieldsFunc(arg, func(r rune) bool {
		return r == ' ' || r == '\t' || r == '\n' || r == ';' || r == '&' || r == '|' ||
			r == '"' || r == '\'' || r == '=' && strings.HasPrefix(arg, "-")
	})
}

// wraps reports whether command is a shell script with a line that runs this
// program. [CheckDepth] catches what such a line hides too well.
func (s Self) wraps(command string) bool {
	path, err := exec.LookPath(command)
	if err != nil {
		return false
	}
	f, err := openFile(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	const most = 16 << 10 // a wrapper is short
	text := make([]byte, most)
	n, _ := io.ReadFull(f, text)
	if !strings.HasPrefix(string(text[:n]), "#!") {
		return false
	}
	for line := range strings.Lines(string(text[:n])) {
		fields := strings.Fields(line)
		for len(fields) > 0 && (fields[0] == "exec" || slices.Contains(launchers, program(fields[0])) || strings.Contains(fields[0], "=")) {
			fields = fields[1:]
		}
		if len(fields) > 0 && (isOwnName(program(strings.Trim(fields[0], `"'`))) || strings.ContainsAny(fields[0], `/\`) && s.same(strings.Trim(fields[0], `"'`))) {
			return true
		}
	}
	return false
}

func isOwnName(name string) bool {
	return slices.Contains(ownNames, strings.ToLower(strings.TrimSpace(name)))
}

// program returns the name of a program without folder, version and suffix.
func program(path string) string {
	path = strings.ToLower(path)
	if i := strings.LastIndexAny(path, `/\`); i >= 0 {
		path = path[i+1:]
	}
	// Versions, tags, extras: name@1, name:1, name==1, name[x].
	if i := strings.IndexAny(path, "@:=[<>~"); i > 0 {
		path = path[:i]
	}
	for _, suffix := range []string{".exe", ".cmd", ".py", ".git"} {
		path = strings.TrimSuffix(path, suffix)
	}
	return path
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// same reports whether command is our own executable.
func (s Self) same(command string) bool {
	if s.Executable == "" || command == "" {
		return false
	}
	path := command
	if !strings.ContainsAny(command, `/\`) {
		found, err := exec.LookPath(command)
		if err != nil {
			return false
		}
		path = found
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	ours, err := os.Stat(s.Executable)
	if err != nil {
		return false
	}
	theirs, err := os.Stat(path)
	return err == nil && os.SameFile(ours, theirs)
}

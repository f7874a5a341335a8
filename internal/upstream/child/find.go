package child

import "fmt"

// NotFoundError: no directory of the search path has the command.
type NotFoundError struct {
	Command string
	Path    string // the search path
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("command %q not found", e.Command)
	if hint := whereFrom(e.Command); hint != "" {
		text += ": install " + hint + ", or give its full path"
	}
	if e.Path == "" {
		return text + " (PATH is empty)"
	}
	return text + fmt.Sprintf(" (PATH is %s)", e.Path)
}

// whereFrom names what brings the launchers that server definitions use.
func whereFrom(command string) string {
	switch command {
	case "npx", "node", "npm":
		return "Node.js"
	case "uvx", "uv":
		return "uv"
	case "bunx", "bun":
		return "Bun"
	case "deno":
		return "Deno"
	case "docker":
		return "Docker"
	case "podman":
		return "Podman"
	case "python", "python3", "pipx":
		return "Python"
	}
	return ""
}

package definitions

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPlacesOfTheFirstBridge: all places where it looked are looked at, on each
// system, in its order where that decides which definition counts.
func TestPlacesOfTheFirstBridge(t *testing.T) {
	const home, dir = "/home/ann", "/work/project"
	common := []string{
		home + "/MCPs", home + "/.config/mcp/servers", home + "/.claude.json", home + "/.cursor/mcp.json",
		home + "/.codeium/windsurf/mcp_config.json", home + "/.opencode.json",
		home + "/.gemini/settings.json", home + "/.codex/config.toml", home + "/.gemini/antigravity/mcp_config.json",
	}
	project := []string{dir + "/mcp-servers", dir + "/.vscode/mcp.json"}
	const support = home + "/Library/Application Support"
	for system, own := range map[string][]string{
		"linux":  {home + "/.config/Code/User/settings.json"},
		"darwin": {support + "/Claude Code/claude_code_config.json", support + "/Claude/claude_desktop_config.json", support + "/Code/User/settings.json"},
	} {
		t.Run(system, func(t *testing.T) {
			var paths []string
			byPath := map[string]Source{}
			for _, s := range (Places{OS: system, Home: home, Dir: dir}).Sources([]string{"*"}) {
				path := filepath.ToSlash(s.File + s.Dir)
				paths = append(paths, path)
				byPath[path] = s
			}
			for _, want := range slices.Concat(common, project, own) {
				s, ok := byPath[want]
				if !ok {
					t.Errorf("%s is not looked at", want)
				}
				if fromProject := slices.Contains(project, want); (s.Project != "") != fromProject {
					t.Errorf("%s: of a project: %v", want, !fromProject)
				}
			}
			if paths[0] != common[0] || paths[1] != common[1] {
				t.Errorf("first are %q", paths[:2])
			}
		})
	}
}

// TestWithout: comments stay, and UTF-16 is not rewritten.
func TestWithout(t *testing.T) {
	text := "{\"mcpServers\": {\n  // first\n  \"a\": {\"command\": \"x\"},\n  // second\n  \"b\": {\"command\": \"y\"},\n}}\n"
	rest, more, err := Without([]byte(text), "a")
	if err != nil || !more || !strings.Contains(string(rest), "// second") || strings.Contains(string(rest), `"a"`) {
		t.Errorf("got %q, %v, %v", rest, more, err)
	}
	if _, _, err := Without([]byte(utf16Text(binary.LittleEndian, text)), "a"); err == nil || !strings.Contains(err.Error(), "save it as UTF-8") {
		t.Errorf("UTF-16: got %v, want an error that says what to do", err)
	}
}

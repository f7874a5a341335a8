package definitions

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestShares: for whom servers run that people have.
func TestShares(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		args          []string
		how           Sharing
		anywhere      bool
	}{
		// The servers of shared data, as their documents say to start them.
		{"antv-chart", "npx", []string{"-y", "@antv/mcp-server-chart"}, ShareAll, true},
		{"devtools", "npx", []string{"-y", "chrome-devtools-mcp@latest"}, ShareClient, false},
		{"context7", "npx", []string{"-y", "@upstash/context7-mcp@1.0.0"}, ShareAll, true},
		{"everything", "npx", []string{"-y", "@modelcontextprotocol/server-everything"}, ShareAll, true},
		{"files", "npx", []string{"-y", "@modelcontextprotocol/server-filesystem", "/data"}, ShareAll, false},
		{"git", "npx", []string{"@cyanheads/git-mcp-server@latest"}, ShareClient, false},
		{"github", "docker", []string{"run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/github/github-mcp-server:v1"}, ShareAll, true},
		{"gitlab", "npx", []string{"-y", "@zereight/mcp-gitlab"}, ShareAll, true},
		{"k8s", "npx", []string{"mcp-server-kubernetes"}, ShareClient, false},
		{"memory", "npx", []string{"-y", "@modelcontextprotocol/server-memory"}, ShareAll, true},
		{"mongo", "npx", []string{"-y", "mongodb-mcp-server@latest", "--readOnly"}, ShareClient, false},
		{"notion", "npx", []string{"-y", "@notionhq/notion-mcp-server"}, ShareAll, true},
		{"pw", "npx", []string{"@playwright/mcp@latest", "--headless"}, ShareClient, false},
		{"think", "npx", []string{"-y", "@modelcontextprotocol/server-sequential-thinking"}, ShareClient, false},
		{"slack", "npx", []string{"-y", "@modelcontextprotocol/server-slack"}, ShareAll, true},

		{"commander", "npx", []string{"-y", "@wonderwhy-er/desktop-commander"}, ShareClient, false},
		{"a name of its own", "/opt/bin/mcp-server-playwright", nil, ShareClient, false},
		{"a script", "node", []string{"/opt/node_modules/.bin/mcp-server-puppeteer"}, ShareClient, false},
		{"playwright", "/opt/x", nil, ShareClient, false},
		{"a shell's line", "sh", []string{"-c", "exec npx @playwright/mcp"}, ShareClient, false},
		{"a folder with such a name", "npx", []string{"-y", "@modelcontextprotocol/server-filesystem", "/home/me/browser"}, ShareAll, false},
		{"in memory", "uvx", []string{"mcp-server-sqlite", "--db-path", ":memory:"}, ShareClient, false},
		{"sqlite", "uvx", []string{"mcp-server-sqlite", "--db-path", "data.db"}, ShareAll, false},
		{"a path that is relative", "npx", []string{"-y", "@modelcontextprotocol/server-memory", "./x"}, ShareAll, false},
		{"a volume", "docker", []string{"run", "-v", "data:/data", "mcp/memory"}, ShareAll, false},
		{"a program that is relative", "./github-mcp-server", nil, ShareAll, false},
		{"a program", "github-mcp-server", []string{"stdio"}, ShareAll, true},
		{"nothing known", "/opt/server", []string{"--stdio"}, ShareAll, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(tt.name, "", Launch{Command: tt.command, Args: tt.args})
			how, why := d.Shares()
			if how != tt.how || (why == "") != (how == ShareAll) {
				t.Errorf("got %s (%s), want %s", how, why, tt.how)
			}
			if how == ShareAll && d.Anywhere() != tt.anywhere {
				t.Errorf("got anywhere %t, want %t", d.Anywhere(), tt.anywhere)
			}
			d.Sharing = ShareSession
			if how, _ := d.Shares(); how != ShareSession {
				t.Errorf("got %s, want what the definition says", how)
			}
			d.Source = NameProject
			if d.Anywhere() {
				t.Error("a project's server does not start in its folder")
			}
		})
	}
}

// TestSharingKey: the key of a definition.
func TestSharingKey(t *testing.T) {
	for entry, want := range map[string]string{
		`{"command":"x","sharing":"session"}`: "session",
		`{"command":"x","sharing":null}`:      "",
		`{"command":"x"}`:                     "",
		`{"command":"x","sharing":"both"}`:    "error",
		`{"command":"x","sharing":true}`:      "error",
	} {
		d, err := Parse("a", json.RawMessage(entry), Options{}, true)
		if want == "error" {
			if err == nil || !strings.Contains(err.Error(), "session, client, all") {
				t.Errorf("%s: got %v, want an error that names the values", entry, err)
			}
			continue
		}
		if err != nil || string(d.Sharing) != want {
			t.Errorf("%s: got %q, %v, want %q", entry, d.Sharing, err, want)
		}
	}
}

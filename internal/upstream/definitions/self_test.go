package definitions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSelf: what would start this program again is recognised, and what only
// looks like it is not.
func TestSelf(t *testing.T) {
	dir := t.TempDir()
	ours := filepath.Join(dir, "ours")
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script("ours", "\x7fELF")
	link := filepath.Join(dir, "innocent")
	chain := filepath.Join(dir, "more-innocent")
	if err := os.Symlink(ours, link); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(link, chain); err != nil {
		t.Fatal(err)
	}
	hard := filepath.Join(dir, "hard")
	if err := os.Link(ours, hard); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "sallyport")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	const seed = "mcp-server-code-execution-mode"
	self := Self{Executable: ours}
	tests := []struct {
		name    string
		command string
		args    []string
		self    bool
	}{
		{"by its name", "sallyport", []string{"serve"}, true},
		{"by its path", "/opt/bin/sallyport", nil, true},
		{"on Windows", `C:\Tools\Sallyport.exe`, nil, true},
		{"by its file", ours, nil, true},
		{"by a link", link, nil, true},
		{"by links of links", chain, nil, true},
		{"by a hard link", hard, nil, true},
		{"by its file as an argument", "anything", []string{link, "serve"}, true},
		{"the first bridge", seed, []string{"run"}, true},
		{"its module", "python3", []string{"-m", "mcp_server_code_execution_mode"}, true},
		{"its file", "python", []string{"/src/mcp_server_code_execution_mode.py"}, true},
		{"uvx from git", "uvx", []string{"--from", "git+https://github.com/elusznik/" + seed, seed, "run"}, true},
		{"uvx from git at a commit", "uvx", []string{"--from=git+https://github.com/elusznik/" + seed + ".git@abc123", "x"}, true},
		{"uvx with a version", "uvx", []string{seed + "==0.3.0"}, true},
		{"uv tool run", "uv", []string{"tool", "run", "sallyport>=1"}, true},
		{"npx", "npx", []string{"-y", "sallyport"}, true},
		{"npx with a version", "npx", []string{"-y", "sallyport@2.0.1", "serve"}, true},
		{"npx with a scope", "npx.cmd", []string{"-y", "@example/sallyport@latest"}, true},
		{"npx with a package", "npx", []string{"--package=sallyport", "start"}, true},
		{"npm exec", "npm", []string{"exec", "--", "sallyport"}, true},
		{"docker", "docker", []string{"run", "-i", "--rm", "ghcr.io/example/sallyport:1.2", "serve"}, true},
		{"docker by digest", "docker", []string{"run", "-i", "sallyport@sha256:0123"}, true},
		{"docker, the first bridge", "docker", []string{"run", "-i", "ghcr.io/elusznik/" + seed + ":latest"}, true},
		{"podman", "/usr/bin/podman", []string{"run", "-i", "localhost/sallyport"}, true},
		{"a shell", "sh", []string{"-c", "cd /tmp && exec sallyport serve"}, true},
		{"a shell with quotes", "bash", []string{"-lc", `"/opt/my tools/sallyport" serve; echo`}, true},
		{"env", "env", []string{"A=b", "sallyport", "serve"}, true},
		{"a script", script("start.sh", "#!/bin/sh\n# starts the server\nexport A=b\nexec sallyport serve \"$@\"\n"), nil, true},
		{"a script with its file", script("start2.sh", "#!/bin/bash\nA=1 nice \""+link+"\" serve\n"), nil, true},

		{"another program", "/bin/sh", []string{"-c", "echo hello"}, false},
		{"a folder of that name", "mcp-server-filesystem", []string{"/home/ann/sallyport"}, false},
		{"a folder of that name for npx", "npx", []string{"-y", "server-filesystem", folder}, false},
		{"a volume of that name", "docker", []string{"run", "-i", "-v", folder + ":/data", "mcp/filesystem"}, false},
		{"a database of that name", "sqlite-server", []string{"--db", "sallyport"}, false},
		{"a variable of that value", "env", []string{"NAME=sallyport", "other"}, false},
		{"a longer name", "npx", []string{"-y", "sallyport-notes"}, false},
		{"a script that speaks of it", script("other.sh", "#!/bin/sh\n# not sallyport\necho sallyport\nexec other --for sallyport\n"), nil, false},
		{"a program that is no script", script("binary", "exec sallyport\n"), nil, false},
		{"nothing that exists", filepath.Join(dir, "nothing"), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			entry, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"x": map[string]any{"command": tt.command, "args": tt.args}}})
			if err != nil {
				t.Fatal(err)
			}
			file := write(t, filepath.Join(t.TempDir(), "f.json"), string(entry))
			defs, problems := Load([]Source{{File: file}}, Options{Self: self})
			if (len(defs) == 0) != tt.self {
				t.Errorf("taken for this program: %v, want %v (%s)", len(defs) == 0, tt.self, show(problems))
			}
			if defs, _ = Load([]Source{{File: file}}, Options{Self: self, AllowSelf: true}); len(defs) != 1 {
				t.Error("left out although it is allowed")
			}
		})
	}
	for name, want := range map[string]int{"sallyport": 0, " Sallyport ": 0, seed: 0, "my-sallyport": 1} {
		entry, err := json.Marshal(map[string]any{"mcpServers": map[string]any{name: map[string]any{"command": "x"}}})
		if err != nil {
			t.Fatal(err)
		}
		file := write(t, filepath.Join(t.TempDir(), "f.json"), string(entry))
		if defs, problems := Load([]Source{{File: file}}, Options{Self: self}); len(defs) != want {
			t.Errorf("a server named %q: %d definitions, want %d (%s)", name, len(defs), want, show(problems))
		}
	}
}

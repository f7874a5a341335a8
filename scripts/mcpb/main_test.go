package main

import (
	"bytes"
	"debug/macho"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestReproducible: the same executables make the same bundle.
func TestReproducible(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("an executable"), 0o700); err != nil {
		t.Fatal(err)
	}
	var bundles [2][]byte
	for i := range bundles {
		out := filepath.Join(dir, "bundle.mcpb")
		if err := run(out, "v1.2.3", program, program, program); err != nil {
			t.Fatal(err)
		}
		var err error
		if bundles[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(bundles[0], bundles[1]) {
		t.Error("two bundles of the same executables differ")
	}
	for _, version := range []string{"", "1.2", "1.2.3 ", `1.2.3", "x": "`, "latest"} {
		if err := run(filepath.Join(dir, "x"), version, program, program, program); err == nil {
			t.Errorf("version %q: got a bundle, want an error", version)
		}
	}
	if err := run(filepath.Join(dir, "x"), "1.2.3", program, program+"-none", program); err == nil {
		t.Error("got a bundle without an executable for macOS")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v, want the program and the bundle alone", entries, err)
	}
}

// TestForm: each field of the form becomes one setting, may stay empty, and secrets
// are marked.
func TestForm(t *testing.T) {
	var m struct {
		Server struct {
			MCPConfig struct {
				Env map[string]string `json:"env"`
			} `json:"mcp_config"`
		} `json:"server"`
		UserConfig map[string]struct {
			Required, Sensitive bool
			Default             *string
		} `json:"user_config"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{ // that each field takes
		"servers_file": "manifest.json", "allowed_servers": "git*,notes", "engine": "docker", "isolation": "container",
		"image": "python:3.13-slim", "memory": "1g", "timeout": "60s", "plain_http": "nas.local", "batch_services": "runpod,kaggle",
		"runpod_endpoint": "4m7x2k9q", "runpod_key": "rpa_0123456789",
	}
	field := regexp.MustCompile(`^\$\{user_config\.([a-z_]+)\}$`)
	used := map[string]bool{}
	for variable, reference := range m.Server.MCPConfig.Env {
		match := field.FindStringSubmatch(reference)
		if match == nil {
			t.Errorf("%s: got %q, want a field of the form", variable, reference)
			continue
		}
		used[match[1]] = true
		f, ok := m.UserConfig[match[1]]
		// Claude Desktop passes on the reference itself if there is no default.
		if !ok || f.Required || f.Default == nil || *f.Default != "" {
			t.Errorf("%s: got %+v, %t, want an optional field whose default is empty", match[1], f, ok)
		}
		for _, value := range []string{values[match[1]], ""} {
			dir, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := settings.Load(settings.Sources{Environ: map[string]string{variable: value}, Home: dir, Dir: dir}); err != nil {
				t.Errorf("%s=%q: %v", variable, value, err)
			}
		}
		if values[match[1]] == "" {
			t.Errorf("%s: no value is tried", match[1])
		}
		if secret := regexp.MustCompile(`KEY|TOKEN|SECRET|PASSWORD`).MatchString(variable); f.Sensitive != secret {
			t.Errorf("%s: got sensitive %t, want %t", match[1], f.Sensitive, secret)
		}
	}
	if len(used) != len(m.UserConfig) {
		t.Errorf("got %d fields in use, want all %d", len(used), len(m.UserConfig))
	}
}

// TestUniversal builds a small program for both kinds of Mac.
func TestUniversal(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for _, arch := range []string{"arm64", "amd64"} {
		out := filepath.Join(dir, arch)
		build := exec.Command("go", "build", "-o", out, source)
		build.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, data)
	}
	whole, err := universal(parts)
	if err != nil {
		t.Fatal(err)
	}
	fat, err := macho.NewFatFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	if len(fat.Arches) != 2 || fat.Arches[0].Cpu != macho.CpuArm64 || fat.Arches[1].Cpu != macho.CpuAmd64 {
		t.Fatalf("got %+v, want arm64 and amd64", fat.Arches)
	}
	for i, a := range fat.Arches {
		if got := whole[a.Offset : a.Offset+a.Size]; !bytes.Equal(got, parts[i]) || a.Offset%(1<<a.Align) != 0 {
			t.Errorf("part %d: got %d bytes at %d, want the executable's %d, aligned", i, a.Size, a.Offset, len(parts[i]))
		}
	}
	if _, err := universal([][]byte{[]byte("x"), []byte("y")}); err == nil {
		t.Error("two files that are no executables: got no error")
	}
}

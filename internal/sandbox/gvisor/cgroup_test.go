//go:build linux && (amd64 || arm64)

package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

// hostTree writes what the kernel would show under /proc/self.
func hostTree(t *testing.T, cgroup, mountinfo string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "proc/self")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"cgroup": cgroup, "mountinfo": mountinfo} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindHierarchy(t *testing.T) {
	const (
		v1 = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n" +
			"31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"32 25 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
		v1Docker = "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
		v2       = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid   = v1 + "36 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	)
	tests := []struct {
		name, cgroup, mounts string
		want                 map[string]string // "" is version 2
	}{
		{"version 1", "4:memory:/outer/x\n3:cpu,cpuacct:/\n2:pids:/\n", v1, map[string]string{
			"memory": "sys/fs/cgroup/memory/outer/x/sallyport-a",
			"cpu":    "sys/fs/cgroup/cpu,cpuacct/sallyport-a",
			"pids":   "sys/fs/cgroup/pids/sallyport-a",
		}},
		{"version 1 in a container", "4:memory:/docker/abc\n", v1Docker, map[string]string{
			"memory": "sys/fs/cgroup/memory/sallyport-a",
		}},
		{"version 2", "0::/user.slice/session-1.scope\n", v2, map[string]string{
			"": "sys/fs/cgroup/sallyport/sallyport-a",
		}},
		{"hybrid", "4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n0::/\n", hybrid, map[string]string{
			"memory": "sys/fs/cgroup/memory/sallyport-a",
			"cpu":    "sys/fs/cgroup/cpu,cpuacct/sallyport-a",
			"pids":   "sys/fs/cgroup/pids/sallyport-a",
		}},
		{"none", "", "", map[string]string{}},
	}
	for _, tt := range tests {
		root := hostTree(t, tt.cgroup, tt.mounts)
		g := findHierarchy(root).group(cgroupPrefix + "a")
		got := map[string]string{}
		if g.v2 != "" {
			got[""] = g.v2
		}
		for c, d := range g.dirs {
			got[c] = d
		}
		for c, d := range tt.want {
			if got[c] != filepath.Join(root, d) {
				t.Errorf("%s: controller %q: got %s, want %s", tt.name, c, got[c], d)
			}
			delete(got, c)
		}
		if len(got) > 0 {
			t.Errorf("%s: also %v", tt.name, got)
		}
	}
}

func TestOutOfMemoryIsRead(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		file, content string
		v2, want      bool
	}{
		{"memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n", true, true},
		{"memory.events", "low 0\nmax 4\noom_kill 0\n", true, false},
		{"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", false, true},
		{"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false, false},
	}
	for _, tt := range tests {
		if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.content), 0o644); err != nil {
			t.Fatal(err)
		}
		g := &cgroup{dirs: map[string]string{"memory": dir}}
		if tt.v2 {
			g = &cgroup{v2: dir}
		}
		if got := g.outOfMemory(); got != tt.want {
			t.Errorf("%s %q: got %v", tt.file, tt.content, got)
		}
	}
}

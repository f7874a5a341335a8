package container

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseInfo(t *testing.T) {
	for _, tt := range []struct {
		file string
		want facts
	}{
		{"podman-root-v1.json", facts{Podman: true, Version: "4.3.1", Memory: true, Swap: true, Pids: true, CPU: true, Seccomp: true, Runtime: "crun", Kernel: "6.18.44-fc-v595", System: "debian 12", Storage: "overlay"}},
		{"podman-rootless-v1.json", facts{Podman: true, Version: "4.3.1", Rootless: true, UIDs: 65537, GIDs: 65537, Seccomp: true, Runtime: "crun", Kernel: "6.18.44-fc-v595", System: "debian 12", Storage: "vfs"}},
		{"podman-rootless-v2-nomemory.json", facts{Podman: true, Version: "4.9.3", Rootless: true, CgroupV2: true, Seccomp: true, Runtime: "crun", Kernel: "6.8.0-45-generic", System: "ubuntu 24.04", Storage: "overlay"}},
		{"podman-machine.json", facts{Podman: true, Version: "5.2.3", Remote: true, Rootless: true, CgroupV2: true, Memory: true, Swap: true, Pids: true, CPU: true, Seccomp: true, SELinux: true, Runtime: "crun", Kernel: "6.10.10-200.fc40.aarch64", System: "fedora 40", Storage: "overlay"}},
		{"docker-root-v1.json", facts{Version: "20.10.24+dfsg1", Memory: true, Swap: true, Pids: true, CPU: true, Seccomp: true, Runtime: "runc", Kernel: "6.18.44-fc-v595", System: "Debian GNU/Linux 12 (bookworm)", Storage: "overlay2"}},
		{"docker-rootless-v2.json", facts{Version: "27.3.1", Rootless: true, CgroupV2: true, Memory: true, Swap: true, Pids: true, Seccomp: true, Runtime: "runc", Kernel: "6.8.0-45-generic", System: "Debian GNU/Linux 12 (bookworm)", Storage: "overlay2"}},
		{"docker-desktop.json", facts{Version: "27.4.0", CgroupV2: true, Memory: true, Swap: true, Pids: true, CPU: true, Runtime: "runc", Kernel: "6.10.14-linuxkit", System: "Docker Desktop", Storage: "overlay2"}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, err := parseInfo(recorded(t, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if got.Target == "" || strings.TrimSpace(got.where()) == "" {
				t.Errorf("an engine that cannot be told from others: %+v", got)
			}
			got.Target, got.Controllers, got.Runtimes = "", nil, nil
			if !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", *got, tt.want)
			}
		})
	}
}

func TestTargetsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, file := range []string{"podman-root-v1.json", "podman-rootless-v1.json", "docker-root-v1.json", "docker-rootless-v2.json", "podman-machine.json"} {
		f, err := parseInfo(recorded(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[f.Target]; ok {
			t.Errorf("%s and %s are both %q", file, other, f.Target)
		}
		seen[f.Target] = file
	}
}

func TestParseInfoRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		data    string
		failure error // as asFailure tells
		text    string
	}{
		"daemon down":        {string(recorded(t, "docker-down.json")), errNotRunning, "Cannot connect"},
		"Windows containers": {string(recorded(t, "docker-windows.json")), nil, "Linux containers are needed"},
		"neither":            {`{"a":1}`, nil, "neither"},
		"empty":              {``, nil, ""},
		"a list":             {`[]`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseInfo([]byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %q", err, tt.text)
			}
			if got := asFailure(err); got != tt.failure {
				t.Errorf("it means %v, not %v", got, tt.failure)
			}
		})
	}
}

func TestParseImage(t *testing.T) {
	img, err := parseImage([]byte(`[{"Id":"sha256:abc","Architecture":"amd64","Os":"linux","Config":{"Volumes":{"/data":{},"/var/lib/x/":{},"/tmp":{}}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/data", "/var/lib/x"}; img.ID != "sha256:abc" || !reflect.DeepEqual(img.Volumes, want) {
		t.Errorf("got %+v", img)
	}
	for name, data := range map[string]string{
		"none":                `[]`,
		"no ID":               `[{"Os":"linux"}]`,
		"an ID of options":    `[{"Id":"--env-file=/etc/shadow","Os":"linux"}]`,
		"for Windows":         `[{"Id":"x","Os":"windows"}]`,
		"a volume at /":       `[{"Id":"x","Config":{"Volumes":{"/":{}}}}]`,
		"a volume at /proc":   `[{"Id":"x","Config":{"Volumes":{"/proc":{}}}}]`,
		"a volume above":      `[{"Id":"x","Config":{"Volumes":{"/a/../..":{}}}}]`,
		"a volume of options": `[{"Id":"x","Config":{"Volumes":{"/a:exec,rw":{}}}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			if img, err := parseImage([]byte(data)); err == nil {
				t.Errorf("accepted as %+v", img)
			}
		})
	}
}

func TestParseCondition(t *testing.T) {
	c, err := parseCondition([]byte(`[{"Id":"` + strings.Repeat("f0", 32) + `","State":{"Status":"exited","Running":false,"OOMKilled":true,"Pid":0,"ExitCode":137,"Error":""}}]`))
	if err != nil || c.ID != strings.Repeat("f0", 32) || !c.OOMKilled || c.ExitCode != 137 || c.Running {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseCondition([]byte(`[{"Id":"user.slice","State":{"Pid":1}}]`)); err != nil || c.ID != "" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := parseCondition([]byte(`[]`)); !errors.Is(err, errNoContainer) {
		t.Errorf("none: %v", err)
	}
}

func TestCheckReference(t *testing.T) {
	for _, good := range []string{"python:3.13-slim", "docker.io/library/python@sha256:00", "sha256:abc", "localhost:5000/x"} {
		if err := checkReference(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "--privileged", "-v", "a b", "a\nb", "a\x00", strings.Repeat("a", 600)} {
		if err := checkReference(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzParseInfo(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := parseInfo(data); (got == nil) == (err == nil) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// What clients of several versions and systems have said.
var complaints = []struct {
	text string
	want error
}{
	{"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", errNotRunning},
	{"docker: Cannot connect to the Docker daemon at unix:///tmp/d.sock. Is the docker daemon running?\n\nRun 'docker run --help' for more information", errNotRunning},
	{"failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory", errNotRunning},
	{`error during connect: this error may indicate that the docker daemon is not running: Get "http://%2F%2F.%2Fpipe%2Fdocker_engine/v1.24/info": open //./pipe/docker_engine: The system cannot find the file specified.`, errNotRunning},
	{`error during connect: Get "http://%2F%2F.%2Fpipe%2FdockerDesktopLinuxEngine/v1.47/info": open //./pipe/dockerDesktopLinuxEngine: The system cannot find the file specified.`, errNotRunning},
	{"error during connect: Get \"http://10.0.0.1:2375/v1.24/info\": dial tcp 10.0.0.1:2375: connect: connection refused", errNotRunning},
	{"permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get \"http://%2Fvar%2Frun%2Fdocker.sock/v1.24/info\": dial unix /var/run/docker.sock: connect: permission denied", errNoPermission},
	{"Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Post http://…: dial unix /var/run/docker.sock: connect: permission denied", errNoPermission},
	{"Cannot connect to Podman. Please verify your connection to the Linux system using `podman system connection list`, or try `podman machine init` and `podman machine start` to manage a new Linux VM\nError: unable to connect to Podman socket: Get \"http://d/v4.3.1/libpod/_ping\": dial unix /tmp/nosock: connect: no such file or directory", errNotRunning},
	{"Error: unable to connect to Podman socket: failed to connect: dial tcp 127.0.0.1:57254: connect: connection refused", errNotRunning},
	{"Error: inspecting object: nosuch: image not known", errNoImage},
	{"Error response from daemon: no such image: nosuch: No such image: nosuch:latest", errNoImage},
	{"docker: Error response from daemon: No such image: nosuch:latest", errNoImage},
	{"Error response from daemon: No such container: nosuch", errNoContainer},
	{"Error: inspecting object: no such container nosuch", errNoContainer},
	{"Error: no container with name or ID \"x\" found: no such container", errNoContainer},
	{`docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "py9": executable file not found in $PATH: unknown`, errNoPython},
	{`Error: runc: runc create failed: unable to start container process: exec: "py9": executable file not found in $PATH: OCI runtime attempted to invoke a command that was not found`, errNoPython},
	{"Error: crun: executable file `py9` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found", errNoPython},
	{`docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/opt/py": stat /opt/py: no such file or directory: unknown`, errNoPython},
	{"Error: runc: runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 6: operation not permitted: OCI permission denied", errRlimit},
	{"Error: crun: setrlimit `RLIMIT_NPROC`: Operation not permitted: OCI permission denied", errRlimit},
	{"docker: Error response from daemon: Unknown runtime specified foo", errNoRuntime},
	{"docker: Error response from daemon: unknown or invalid runtime name: kata", errNoRuntime},
	{"Error: default OCI runtime \"foo\" not found: invalid argument", errNoRuntime},
	{"Error: OCI runtime error: crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv2", errCgroup},
	{"Error: cannot find UID/GID for user x: no subuid ranges found for user \"x\" in /etc/subuid", errSubuid},
	{"Error: potentially insufficient UIDs or GIDs available in user namespace", errSubuid},
	{"Error: writing blob: adding layer: write /var/lib/containers/x: no space left on device", errDiskFull},
	{"docker: Error response from daemon: Conflict. The container name \"/sallyport-x\" is already in use by container \"2e191\".", errNameTaken},
	{"docker: Error response from daemon: NanoCPUs can not be set, as your kernel does not support CPU CFS scheduler or the cgroup is not mounted.", errNoLimits},
	{"something else entirely", nil},
	{"", nil},
}

func TestAsFailure(t *testing.T) {
	for _, c := range complaints {
		err := fmt.Errorf("start: %w", &commandError{command: "docker run", code: 125, stderr: c.text, err: errors.New("exit status 125")})
		if got := asFailure(err); got != c.want {
			t.Errorf("%.80q means %v, not %v", c.text, got, c.want)
		}
	}
	if asFailure(nil) != nil {
		t.Error("no error means something")
	}
	if got := asFailure(fmt.Errorf("podman: %w", errNoCommand)); got != errNoCommand {
		t.Errorf("a missing command means %v", got)
	}
}

func TestExplain(t *testing.T) {
	down := &commandError{command: "podman info", code: 125, stderr: "Cannot connect to Podman. Please verify your connection", err: errors.New("exit status 125")}
	for _, tt := range []struct {
		engine, goos string
		err          error
		machine      string
		title        string
		remedy       string
	}{
		{Podman, "linux", errNoCommand, "", "podman is not installed", "apt-get install podman"},
		{Docker, "linux", errNoCommand, "", "docker is not installed", "docker.io"},
		{Podman, "darwin", errNoCommand, "", "podman is not installed", "brew install podman && podman machine init && podman machine start"},
		{Docker, "darwin", errNoCommand, "", "docker is not installed", "docker-desktop"},
		{Podman, "windows", errNoCommand, "", "podman is not installed", "wsl --install"},
		{Docker, "windows", errNoCommand, "", "docker is not installed", "wsl --install"},
		{Podman, "darwin", down, "podman machine start m", "no virtual machine of podman is running", "podman machine start m"},
		{Podman, "windows", context.DeadlineExceeded, "podman machine start m", "podman does not answer", "podman machine start m"},
		{Podman, "linux", down, "", "podman does not answer", "CONTAINER_HOST"},
		{Docker, "darwin", down, "", "the docker daemon does not run", "Docker Desktop"},
		{Docker, "linux", down, "", "the docker daemon does not run", "systemctl start docker"},
		{Docker, "linux", errPodmanService, "", "docker's client is connected to a Podman service, whose API for Docker lacks options that a sandbox needs", "CONTAINER_HOST"},
		{Podman, "linux", errElsewhere, "", "a remote Podman starts containers with the OCI runtime of its service", "remove container.runtime here"},
		{Docker, "linux", errNoPermission, "", "docker cannot be used", ""},
	} {
		t.Run(tt.engine+" "+tt.goos+" "+tt.title, func(t *testing.T) {
			f := explain(Options{Engine: tt.engine}, tt.goos, tt.err, func() string { return tt.machine })
			if !f.Fatal || f.Title != tt.title || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("got %+v", f)
			}
		})
	}
	// Whatever is known has a remedy, but for what the user must decide.
	for _, p := range phrases {
		err := &commandError{command: "x", stderr: p.text, err: errors.New("x")}
		f := explain(Options{Engine: Docker, Runtime: "kata"}, "linux", err, func() string { return "" })
		switch asFailure(err) {
		case errNoImage, errNoContainer, errNameTaken, errNoLimits:
		default:
			if f.Remedy == "" {
				t.Errorf("%q has no remedy: %+v", p.text, f)
			}
		}
	}
}

func TestFirstLines(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"docker: Error response from daemon: No such image: x\n\nRun 'docker run --help' for more information\n", "No such image: x"},
		{"Error: one\nError: two\n", "one; two"},
		{"\n\n", ""},
	} {
		if got := firstLines(tt.in, 3); got != tt.want {
			t.Errorf("%q becomes %q, not %q", tt.in, got, tt.want)
		}
	}
}

func TestMachineRemedy(t *testing.T) {
	list := func(text string) []listed {
		m, err := parseMachines([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	// As `podman machine list --format json` of Podman 4 and 5 prints it.
	stopped := `[{"Name":"podman-machine-default","Default":true,"Created":"2024-10-02T10:00:00+02:00","Running":false,"Starting":false,"LastUp":"2024-10-03T10:00:00+02:00","Stream":"default","VMType":"applehv","CPUs":5,"Memory":"2147483648","DiskSize":"107374182400","Port":57254,"RemoteUsername":"core","IdentityPath":"/Users/x/.local/share/containers/podman/machine/machine","UserModeNetworking":true}]`
	running := strings.Replace(stopped, `"Running":false`, `"Running":true`, 1)
	starting := strings.Replace(stopped, `"Starting":false`, `"Starting":true`, 1)
	two := `[{"Name":"other","Default":false,"Running":false},{"Name":"mine","Default":true,"Running":false}]`
	for _, tt := range []struct {
		name, machines, goos, want string
		err                        error
	}{
		{name: "none", machines: `[]`, goos: "darwin", want: "podman machine init; podman machine start"},
		{name: "none, Windows", machines: `[]`, goos: "windows", want: "wsl --install"},
		{name: "stopped", machines: stopped, goos: "darwin", want: "podman machine start podman-machine-default"},
		{name: "starting", machines: starting, goos: "darwin", want: "is starting"},
		{name: "running", machines: running, goos: "windows", want: "podman machine stop; podman machine start"},
		{name: "two", machines: two, goos: "darwin", want: "podman machine start mine"},
		{name: "not known", machines: `[]`, goos: "darwin", err: errors.New("x"), want: "podman machine init"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := machineRemedy(list(tt.machines), tt.err, tt.goos)
			if !strings.Contains(got, tt.want) {
				t.Errorf("%q has no %q", got, tt.want)
			}
			if strings.Contains(got, "rootful") {
				t.Errorf("%q changes the machine", got)
			}
		})
	}
	if _, err := parseMachines([]byte("nonsense")); err == nil {
		t.Error("nonsense is a list")
	}
}

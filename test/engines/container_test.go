//go:build linux

package engines

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/container"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/store"
)

const (
	// imageEnv names the image that the engines have; without it no container
	// engine is tested. test/engines/run makes it, and sets the rest, too.
	imageEnv = "SALLYPORT_TEST_IMAGE"
	// runtimeEnv is the OCI runtime that Podman is to use, where its own choice
	// does not work on the machine.
	runtimeEnv = "SALLYPORT_TEST_RUNTIME"
	// runscEnv is the path of a runsc.
	runscEnv = "SALLYPORT_TEST_RUNSC"
)

// TestPodman runs the suite over Podman, as whoever runs the test.
func TestPodman(t *testing.T) {
	testContainer(t, "podman."+who(), container.Options{Engine: container.Podman, Runtime: os.Getenv(runtimeEnv)})
}

// TestDocker runs the suite over Docker.
func TestDocker(t *testing.T) {
	testContainer(t, "docker."+who(), container.Options{Engine: container.Docker})
}

// TestPodmanRunsc runs the suite over Podman with gVisor as its OCI runtime.
func TestPodmanRunsc(t *testing.T) {
	name := "podman-runsc." + who()
	runsc := os.Getenv(runscEnv)
	if runsc == "" {
		sandboxtest.Skip(t, name, runscEnv+" names no runsc")
	}
	testContainer(t, name, container.Options{Engine: container.Podman, Runtime: runsc})
}

// TestPodmanRemote runs the suite over a Podman service, as CONTAINER_HOST names
// it: a client of it lacks options that a local Podman has.
func TestPodmanRemote(t *testing.T) {
	name := "podman-remote." + who()
	if os.Getenv("CONTAINER_HOST") == "" {
		sandboxtest.Skip(t, name, "CONTAINER_HOST names no service")
	}
	testContainer(t, name, container.Options{Engine: container.Podman})
	t.Run("environment", serviceEnvironment)
}

// serviceEnvironment: a service gives containers its own proxy variables; none
// of its environment reaches a sandbox.
func serviceEnvironment(t *testing.T) {
	const secret = "service-secret" // see podman_service in machine.sh
	read := []string{"python3", "-c", "print(open('/proc/1/environ').read())"}
	image := os.Getenv(imageEnv)
	plain := exec.Command("podman", append([]string{"run", "--rm", "--network=none", "--ulimit=nofile=256:256", "--ulimit=nproc=256:256", image}, read...)...)
	if out, err := plain.CombinedOutput(); err != nil || !strings.Contains(string(out), secret) {
		t.Fatalf("the control, a plain container: got %v %q, want the service's secret", err, out)
	}
	home := t.TempDir()
	cmd := exec.Command(os.Getenv(binaryEnv), "run", "-c", read[2])
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + home, "CONTAINER_HOST=" + os.Getenv("CONTAINER_HOST"),
		"SALLYPORT_ENGINE=podman", "SALLYPORT_IMAGE=" + image, "SALLYPORT_IMAGES_PULL=never", "SALLYPORT_POLICY_MIN_ISOLATION=container",
		"CLIENT_SECRET=" + secret,
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), secret) || !strings.Contains(string(out), "container=podman") {
		t.Errorf("a sandbox: got %v %q, want an environment without the service's secret", err, out)
	}
}

func testContainer(t *testing.T, name string, opts container.Options) {
	opts.Image = os.Getenv(imageEnv)
	if opts.Image == "" {
		sandboxtest.Skip(t, name, imageEnv+" names no image")
	}
	place := t.TempDir()
	opts.State, opts.Cache = store.At(filepath.Join(place, "state")), store.At(filepath.Join(place, "cache"))
	opts.Program = python.Program()
	opts.Path, opts.Pull = os.Getenv("PATH"), container.PullNever
	opts.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	sandboxtest.Run(t, sandboxtest.Config{
		Engine: name,
		New: func(t testing.TB) sandbox.Engine {
			opts := opts
			opts.Environ = os.Environ() // with the secret that the suite has put there
			b, err := container.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		StateDir:   place,
		HostPython: hostPython,
		ProofsFile: os.Getenv(proofsEnv),
		Leftovers:  func(mark string) []string { return containersLeft(opts.Engine, mark) },
	})
	env := []string{
		"SALLYPORT_ENGINE=" + opts.Engine, "SALLYPORT_IMAGE=" + opts.Image, "SALLYPORT_IMAGES_PULL=never",
		"SALLYPORT_POLICY_MIN_ISOLATION=container",
	}
	if opts.Runtime != "" {
		env = append(env, "SALLYPORT_CONTAINER_RUNTIME="+opts.Runtime)
	}
	for _, name := range []string{"CONTAINERS_STORAGE_CONF", "DOCKER_HOST", "CONTAINER_HOST"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	t.Run("example", func(t *testing.T) { example(t, name, env...) })
	t.Run("memory", func(t *testing.T) { outOfMemory(t, name, env...) })
	// With a user that the embedded gVisor does not have, the container engine builds,
	// too.
	t.Run("packages", func(t *testing.T) {
		packages(t, name, append(env, "SALLYPORT_ENGINE=auto", "SALLYPORT_CONTAINER_USER=65533")...)
	})
}

// containersLeft lists what a container engine has of the runs with mark in
// their names: containers, and processes that name them.
func containersLeft(engine, mark string) []string {
	var left []string
	var out, errs bytes.Buffer
	cmd := exec.Command(engine, "ps", "--all", "--filter", "name="+mark, "--format", "{{.Names}} {{.Status}}")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		left = append(left, fmt.Sprintf("%s ps: %v %s", engine, err, errs.String()))
	}
	for line := range strings.Lines(out.String()) {
		left = append(left, "container "+strings.TrimSpace(line))
	}
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range names {
		b, _ := os.ReadFile(file)
		if bytes.Contains(b, []byte(mark)) {
			left = append(left, fmt.Sprintf("process %s: %.200s", filepath.Base(filepath.Dir(file)), bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return left
}

//go:build linux

package engines

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// insideEnv is the container engine in whose containers TestInsideContainer
// starts the executable.
const insideEnv = "SALLYPORT_TEST_INSIDE"

// TestInsideContainer runs the executable in a default container. gVisor cannot
// start there, and the error names flags: with those, each time added to the
// ones before, it must start.
func TestInsideContainer(t *testing.T) {
	engine, image, bin := os.Getenv(insideEnv), os.Getenv(imageEnv), os.Getenv("SALLYPORT_BIN")
	if engine == "" || image == "" || bin == "" {
		sandboxtest.Skip(t, "inside", insideEnv+", "+imageEnv+" or SALLYPORT_BIN is not set")
	}
	for _, tt := range []struct {
		name  string
		flags []string
	}{
		{"root", nil},
		{"user", []string{"--user=1000"}},
		{"root with SYS_ADMIN", []string{"--cap-add=SYS_ADMIN"}},
		{"user without capabilities", []string{"--user=1000", "--cap-drop=ALL"}},
		{"root without capabilities", []string{"--cap-drop=ALL"}},
		{"user without new privileges", []string{"--user=1000", "--security-opt=no-new-privileges"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
				"--volume=" + bin + ":/usr/local/bin/sallyport:ro", "--env=HOME=/tmp"}
			if r := os.Getenv(runtimeEnv); r != "" && engine == "podman" {
				args = append([]string{"--runtime=" + r}, args...)
			}
			args = append(args, tt.flags...)
			run := func(flags []string) (string, error) {
				all := append(append(append([]string{}, args...), flags...), image, "sallyport", "run", "--set", "engine=gvisor", "-c", "6*7")
				out, err := exec.Command(engine, all...).CombinedOutput()
				return strings.TrimSpace(string(out)), err
			}
			out, err := run(nil)
			if err == nil {
				if tt.name == "root with SYS_ADMIN" && out == "42" {
					return // Podman's filter lets it
				}
				t.Fatalf("a default container: got %q, want an error", out)
			}
			named := regexp.MustCompile("add to `" + engine + " run`: ((?:--[a-z-]+ [A-Za-z_=]+ ?)+)").FindStringSubmatch(out)
			if named == nil {
				t.Fatalf("got %q, want the flags of %s run that help", out, engine)
			}
			if out, err := run(strings.Fields(named[1])); err != nil || out != "42" {
				t.Errorf("with %s: got %v, %q, want 42", named[1], err, out)
			}
		})
	}
}

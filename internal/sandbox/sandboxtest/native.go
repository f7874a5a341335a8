//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed prelude.py
var prelude string

//go:embed neighbour.py
var neighbourProgram string

// A verdict is the outcome of a probe: "reached", "blocked", or "broken" if the
// probe itself has a bug.
type verdict struct {
	Verdict string `json:"verdict"`
	Errno   string `json:"errno,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

func (v verdict) String() string {
	if v.Errno != "" {
		return v.Verdict + " " + v.Errno
	}
	return v.Verdict
}

const (
	reached = "reached"
	blocked = "blocked"
	broken  = "broken"
)

// probeCall returns the Python statement that runs one probe after the prelude.
func probeCall(name, source string, params map[string]any) (string, error) {
	spec, err := json.Marshal(map[string]any{"name": name, "probe": source, "params": params})
	if err != nil {
		return "", err
	}
	literal, err := json.Marshal(string(spec)) // a JSON string of ASCII is a Python literal
	if err != nil {
		return "", err
	}
	return "run_attempt(json.loads(" + string(literal) + "))\n", nil
}

// findVerdict extracts the verdict from a probe's output. An output without one
// means that the probe died first.
func findVerdict(output string) (verdict, bool) {
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(line, "PROBE "); ok {
			var v verdict
			if err := json.Unmarshal([]byte(rest), &v); err == nil {
				return v, true
			}
		}
	}
	return verdict{}, false
}

// runNatively runs the attempt's positive control on the host.
func runNatively(ctx context.Context, h *host, a *Attempt, params map[string]any) (verdict, error) {
	source := a.Probe
	if a.Control.Probe != "" {
		source = a.Control.Probe
	}
	call, err := probeCall(a.Name, source, params)
	if err != nil {
		return verdict{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.python, "-I", "-c", prelude+"\n"+call)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR="+h.tmp)
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	root := os.Geteuid() == 0
	if a.Control.Private && root {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET
	} else if a.Control.Private {
		return verdict{Verdict: blocked, Detail: "only root can run it apart from the host"}, nil
	}
	if a.Control.Nobody && root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	runErr := cmd.Run()
	v, ok := findVerdict(out.String())
	if !ok {
		return verdict{}, fmt.Errorf("the probe gave no verdict: %w\n%s%s", errors.Join(runErr, ctx.Err()), out.String(), errs.String())
	}
	return v, nil
}

// neighbourParams describes one neighbour: a sandbox or its native stand-in.
type neighbourParams struct {
	Token string `json:"neighbour"`
	Port  int    `json:"neighbourport"`
	Key   int    `json:"neighbourkey"`
}

func (n neighbourParams) params() map[string]any {
	return map[string]any{"neighbour": n.Token, "neighbourport": n.Port, "neighbourkey": n.Key}
}

// program returns the Python that plants the neighbour's secrets.
func (n neighbourParams) program() string {
	b, _ := json.Marshal(n)
	return prelude + "\n" + neighbourProgram + "\nneighbour_plant(json.loads('" + string(b) + "'))\n"
}

// nativeNeighbour runs the stand-in until the test ends.
func nativeNeighbour(t *testing.T, h *host, n neighbourParams) {
	t.Helper()
	cmd := exec.Command(h.python, "-I", "-c", n.program()+"print('planted', flush=True)\nsys.stdin.read()\nneighbour_remove()\n")
	cmd.Dir = "/"
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("native neighbour: %v", err)
		}
	})
	buf := make([]byte, 16)
	if n, err := stdout.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "planted") {
		t.Fatalf("native neighbour: %q, %v", buf[:n], err)
	}
}

// newNeighbour chooses a neighbour's secrets.
func newNeighbour(t *testing.T) neighbourParams {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return neighbourParams{Token: randomToken(), Port: l.Addr().(*net.TCPAddr).Port, Key: 0x5a110000 + mathrand.IntN(1<<16)}
}

//go:build linux

package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// leave writes files of some sizes and says their digests: a picture of what was
// left that does not go through the store.
const leave = `
import hashlib, os, random
for name in ("small", "large"):
    data = os.urandom(random.choice([1, 5000, 200_000, 3_000_000]))
    with open("%s.bin" % name, "wb") as f:
        f.write(data)
    print("left", name + ".bin", hashlib.sha256(data).hexdigest())
`

var left = regexp.MustCompile(`left (\S+) ([0-9a-f]{64})`)

// TestHubKillKeepsArtifacts kills the hub, a client's process or a `serve` without a hub at
// random moments, while code leaves files: what an answer has named can be saved.
func TestHubKillKeepsArtifacts(t *testing.T) {
	h, n := newHubHost(t, 6)
	total := 0
	for i := range n {
		what := []string{"hub", "front", "serve"}[i%3]
		var c *client
		if what == "serve" {
			c = dial(t, h.host.Executable, h.env, nil, h.home)
		} else {
			c = h.must(t)
		}
		named := map[string]string{} // digests by address
		note := func(a answer) {
			digests := map[string]string{}
			for _, m := range left.FindAllStringSubmatch(a.text(), -1) {
				digests[m[1]] = m[2]
			}
			addresses := 0
			for _, file := range a.Structured.Artifacts {
				address, found := strings.CutPrefix(file.URI, "sallyport://artifacts/")
				if !found {
					continue
				}
				_, path, _ := strings.Cut(address, "/")
				named[address] = digests[path]
				addresses++
			}
			if !a.IsError && a.err == nil && addresses != 2 {
				t.Errorf("round %d: got %d addresses, want 2: %v", i, addresses, a)
			}
		}
		first := wait(c.runPython(leave), hubPatience)
		if first.err != nil || first.IsError {
			t.Fatalf("round %d: %v\n%s", i, first, c.logs)
		}
		note(first)
		victim := c.cmd.Process.Pid
		if what == "hub" {
			victim = h.hub(t)
		}
		h.mu.Lock()
		delete(h.fronts, victim)
		h.mu.Unlock()
		delay := time.Duration(h.rng.IntN(1500)) * time.Millisecond
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(delay)
			_ = syscall.Kill(victim, syscall.SIGKILL)
		}()
		for last := false; !last; {
			select {
			case <-killed:
				last = true
			default:
			}
			note(wait(c.runPython(leave), hubPatience))
		}
		for address, want := range named {
			if got, err := h.saved(address); err != nil || got != want {
				t.Errorf("round %d, a %s killed after %v: %s: got digest %q, %v, want %q", i, what, delay, address, got, err, want)
			}
		}
		total += len(named)
		if what == "hub" {
			if err := h.hangUp(c); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			break
		}
	}
	h.tidy(t)
	h.end(t)
	t.Logf("%d rounds, %d files that answers had named", n, total)
}

// saved returns the digest of what `sallyport artifacts save` writes.
func (h *hubHost) saved(address string) (string, error) {
	cmd := exec.Command(h.host.Executable, "artifacts", "save", address, "-o", "-")
	cmd.Env, cmd.Dir = h.env, h.home
	digest := sha256.New()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = digest, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// TestHubKillRunKeepsArtifacts kills `sallyport run` at random moments: what it has named can be
// saved.
func TestHubKillRunKeepsArtifacts(t *testing.T) {
	h, n := newHubHost(t, 6)
	named := 0
	for i := range n {
		cmd := exec.Command(h.host.Executable, "run", "-c", leave)
		cmd.Env, cmd.Dir = h.env, h.home
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var killing sync.WaitGroup
		if i > 0 { // the first ends by itself
			delay := time.Duration(h.rng.IntN(3000)) * time.Millisecond
			killing.Go(func() {
				time.Sleep(delay)
				_ = cmd.Process.Kill() // nothing where it has ended
			})
		}
		err := cmd.Wait()
		killing.Wait()
		found := saveHint.FindStringSubmatch(stderr.String())
		if i == 0 && (err != nil || found == nil) {
			t.Fatalf("got %v, %q, want a success that names its files", err, stderr.String())
		}
		if found == nil {
			continue
		}
		for _, m := range left.FindAllStringSubmatch(stdout.String(), -1) {
			address := strings.TrimSuffix(found[1], "/") + "/" + m[1]
			if got, err := h.saved(address); err != nil || got != m[2] {
				t.Errorf("round %d: %s: got digest %q, %v, want %q", i, address, got, err, m[2])
			}
			named++
		}
	}
	h.tidy(t)
	h.end(t)
	t.Logf("%d rounds, %d files that the command had named", n, named)
}

// tidy runs code once more: whatever starts next removes what the killed ones left.
func (h *hubHost) tidy(t *testing.T) {
	t.Helper()
	c := dial(t, h.host.Executable, h.env, nil, h.home)
	if a := wait(c.runPython("1"), hubPatience); a.err != nil || a.IsError {
		t.Errorf("after all: %v\n%s", a, c.logs)
	}
	if err := h.hangUp(c); err != nil {
		t.Error(err)
	}
}

// saveHint is how `sallyport run` says where its files are kept.
var saveHint = regexp.MustCompile("sallyport artifacts save ([a-z0-9]{10})")

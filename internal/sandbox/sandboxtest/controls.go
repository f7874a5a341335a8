//go:build linux

package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A proof says whether an attempt's positive control succeeded.
type proof struct {
	Proved bool   `json:"proved"`
	By     string `json:"by"`     // "natively", "as root", or ""
	Detail string `json:"detail"` // what it reached, or why it did not
	// Allowed says why an unproven attempt is accepted; "" fails the test.
	Allowed string `json:"allowed,omitempty"`
}

// proveAll runs every attempt's positive control on the host. A run as an
// ordinary user reads the proofs that only root can produce from the file that
// root's run wrote.
func proveAll(ctx context.Context, t *testing.T, h *host, cfg *Config, neighbour neighbourParams) map[string]proof {
	t.Helper()
	root := os.Geteuid() == 0
	var byRoot map[string]proof
	if !root {
		byRoot = readProofs(t, cfg.ProofsFile)
	}
	proofs := map[string]proof{}
	attempts, err := selected(cfg.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts {
		p := prove(ctx, t, h, &a, neighbour)
		if r := byRoot[a.Name]; !p.Proved && (r.Proved || r.Allowed != "") {
			p = r
			if r.Proved {
				p.By = "as root"
			}
		}
		if !p.Proved && p.Allowed == "" && !root && a.Control.Root && len(byRoot) == 0 {
			p.Allowed = "only root can prove it, and no run by root has saved proofs"
		}
		proofs[a.Name] = p
	}
	if root && cfg.ProofsFile != "" {
		if err := keepProofs(cfg.ProofsFile, proofs); err != nil {
			t.Errorf("saving the proofs: %v", err)
		}
	}
	return proofs
}

// keepProofs writes the file atomically: another run may read it at the same
// time.
func keepProofs(file string, proofs map[string]proof) error {
	b, err := json.Marshal(proofs)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".proofs-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), file)
}

// proofsLeft returns the proofs that another run by root has saved, if this run
// is by root too: what root can reach here does not depend on the engine.
func proofsLeft(t *testing.T, cfg *Config) map[string]proof {
	if os.Geteuid() != 0 {
		return nil
	}
	return readProofs(t, cfg.ProofsFile)
}

// readProofs reads the proofs in a file. It returns nil if there is no such
// file.
func readProofs(t *testing.T, file string) map[string]proof {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var left map[string]proof
	if err := json.Unmarshal(b, &left); err != nil {
		t.Errorf("reading the proofs of another run: %v", err)
	}
	return left
}

// Prove runs every positive control as root and leaves the proofs in
// cfg.ProofsFile, for a suite that runs as an ordinary user.
func Prove(t *testing.T, cfg Config) {
	t.Helper()
	h := newHost(t, &cfg)
	native := newNeighbour(t)
	nativeNeighbour(t, h, native)
	proveAll(t.Context(), t, h, &cfg, native)
}

func prove(ctx context.Context, t *testing.T, h *host, a *Attempt, neighbour neighbourParams) proof {
	t.Helper()
	params := h.with(neighbour.params())
	params["init"] = h.perm.cmd.Process.Pid // the host's own process 1 is not to be touched
	var c *canary
	if a.Canary {
		c = newCanary(t, h.python, h.token)
		defer c.stop()
		params["canary"] = c.params()
	}
	if a.Folders {
		maps.Copy(params, folderParams(h.native.base, h.native.secret))
	}
	v, err := runNatively(ctx, h, a, params)
	if err != nil {
		t.Errorf("%s: control: %v", a.Name, err)
		return proof{Detail: err.Error()}
	}
	if v.Verdict == broken {
		t.Errorf("%s: the probe has a bug: %s", a.Name, v.Detail)
		return proof{Detail: v.Detail}
	}
	if c != nil && v.Verdict != reached {
		if s := c.struck(); s != "" {
			v = verdict{Verdict: reached, Detail: s}
		}
	}
	if v.Verdict == reached {
		return proof{Proved: true, By: "natively", Detail: v.Detail}
	}
	return proof{Detail: v.String() + ": " + v.Detail, Allowed: a.Control.Unproven}
}

//go:build !linux

package sandboxtest

import "testing"

// Run skips: the suite's attempts, and what it plants on the host, need Linux.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	Skip(t, cfg.Engine, "the suite runs on Linux only")
}

// Attack skips, as [Run] does.
func Attack(t *testing.T, cfg Config) {
	t.Helper()
	Run(t, cfg)
}

// Prove skips, as [Run] does.
func Prove(t *testing.T, _ Config) {
	t.Helper()
	Skip(t, "controls", "the suite runs on Linux only")
}

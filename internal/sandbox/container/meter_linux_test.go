package container

import (
	"os"
	"strings"
	"testing"
)

// TestOurs: a process of this program's own process namespace is no container's,
// whatever an engine and an image say of it.
func TestOurs(t *testing.T) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Skip(err)
	}
	state := &condition{Pid: os.Getpid(), ID: strings.Repeat("f0", 32)}
	if ours(state, link) || apart(state) {
		t.Error("this very process is taken for a container's")
	}
	if got := look(state, link); got.Local || got.Watchable {
		t.Errorf("%+v", got)
	}
}

package executable

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is started, and those that it starts, have the slack; this one keeps its
// own.
func TestStart(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, slack := range []time.Duration{Late, Prompt} {
		var out strings.Builder
		cmd := exec.Command("sh", "-c", "cat /proc/self/timerslack_ns")
		cmd.Stdout = &out
		if err := Start(cmd, slack); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.TrimSpace(out.String()), fmt.Sprint(slack.Nanoseconds()); got != want {
			t.Errorf("the process has a slack of %s ns, want %s", got, want)
		}
	}
	after, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || after != before {
		t.Errorf("this process has a slack of %d ns (%v), want its own, %d", after, err, before)
	}
	if err := Start(exec.Command("/no/such/program"), Late); err == nil {
		t.Error("a program that does not exist was started")
	}
}

package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/broker"
)

// TestWhatRunSays of code that was ended: to the person at the keyboard, who is
// no client, and of variables only where they outlive the command.
func TestWhatRunSays(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	cancelled := "Cancelled by the client; "
	for _, test := range []struct {
		ctx     context.Context
		session string
		error   string
		want    string
	}{
		{ended, "", cancelled + broker.Kept, "interrupted"},
		{ended, "", cancelled + broker.Lost, "interrupted"},
		{ended, "work", cancelled + broker.Kept, "interrupted; " + broker.Kept},
		{ended, "work", cancelled + broker.Lost, "interrupted; " + broker.Lost},
		{t.Context(), "", "Execution timed out after 1s; " + broker.Lost, "Execution timed out after 1s"},
		{t.Context(), "work", "Execution timed out after 1s; " + broker.Kept, "Execution timed out after 1s; " + broker.Kept},
		{t.Context(), "", "the sandbox did not start", "the sandbox did not start"},
	} {
		var said strings.Builder
		c := &runCmd{Session: test.session}
		c.explain(&ui{ctx: test.ctx, stdio: Stdio{Err: &said}}, &broker.Result{Status: broker.Failed, Error: test.error})
		if got := said.String(); got != "sallyport: "+test.want+"\n" {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

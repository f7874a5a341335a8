package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestTold: what servers tell is in the log and not in the output, and bounded.
func TestTold(t *testing.T) {
	many := func(n int, line string) []string {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = line
		}
		return lines
	}
	for _, test := range []struct {
		what string
		tell []string
		want []string
	}{
		{"nothing", nil, nil},
		{"one line", []string{"warning: text"}, []string{"github: warning: text"}},
		{"many lines", many(203, "x"), append(many(200, "github: x"), ": 3 more lines of servers were dropped")},
		{"long lines", append(many(5, strings.Repeat("x", 8<<10)), "y"), append(many(3, "github: "+strings.Repeat("x", 8<<10)), ": 3 more lines of servers were dropped")},
	} {
		synctest.Test(t, func(t *testing.T) {
			open, dir := sets(t, logged(1<<20))
			set := open(newSaving())
			defer set.Close()
			told := &Told{}
			told.Add("github", "before the code runs")
			s := get(t, set, "work")
			out, err := s.Exec(t.Context(), s.Enter(), Request{
				Submission: Submission{Code: "call", Timeout: 10 * time.Second}, Told: told,
				Call: func(context.Context, wire.Call) ([]byte, error) {
					for _, line := range test.tell {
						told.Add("github", line)
					}
					return []byte(`"x"`), nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			told.Add("github", "after it")
			if all := out.Stdout.Head + out.Stderr.Head; strings.Contains(all, "github") || strings.Contains(all, "dropped") {
				t.Errorf("%s: got the output %q, want nothing that servers tell", test.what, all)
			}
			time.Sleep(time.Second) // for the log
			r := sessionlog.ReadOutput(dir + "/logs/named/work")
			defer r.Close()
			var got []string
			ended := false
			for _, e := range entries(t, r) {
				ended = ended || e.End != ""
				if e.Told != "" {
					got = append(got, e.Server+": "+e.Told)
					if ended || e.Execution != 1 {
						t.Errorf("%s: got %+v, want it before the end of execution 1", test.what, e)
					}
				}
			}
			if fmt.Sprintf("%.60q", got) != fmt.Sprintf("%.60q", test.want) {
				t.Errorf("%s: got %.60q, want %.60q", test.what, got, test.want)
			}
		})
	}
}

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/store"
)

// What running processes say shows a clock that was set, and servers that fail.
func TestSelfCheckOfProcesses(t *testing.T) {
	uptime := sinceBoot()
	now := time.Now()
	ran := func(hours time.Duration, clock time.Duration) *control.Process {
		p := &control.Process{PID: 7, Started: now.Add(-hours*time.Hour - clock)}
		if uptime > 0 {
			p.SinceBoot = uptime - hours*time.Hour
		}
		return p
	}
	for name, tt := range map[string]struct {
		process *control.Process
		newest  time.Time
		want    string // a part of the only warning
	}{
		"nothing happened":     {process: ran(1, 0), newest: now},
		"drift":                {process: ran(48, 20*time.Second), newest: now},
		"set forward":          {process: ran(1, 2*time.Hour), want: "the clock was set by 2h0m0s since process 7"},
		"set back":             {process: ran(3, -time.Hour), want: "the clock was set by -1h0m0s since process 7"},
		"a record of tomorrow": {process: ran(1, 0), newest: now.Add(24 * time.Hour), want: "the clock is behind"},
		"another system":       {process: &control.Process{Started: now.Add(time.Hour)}},
		"a server that fails": {process: &control.Process{PID: 7, Failing: []control.Failing{{Server: "git", Class: "did not start", Times: 3}}},
			want: "server git did not start, 3 times in a row, in process 7"},
	} {
		if uptime == 0 && strings.Contains(tt.want, "was set") {
			continue // this system does not tell
		}
		c := &selfCheck{running: []*control.Process{tt.process}, report: &store.Report{Newest: tt.newest}}
		c.clock()
		c.servers()
		var got []string
		for _, f := range c.findings {
			if f.Level == FindingWarn {
				got = append(got, f.Text)
			}
		}
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

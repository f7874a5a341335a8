package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// An engine counts as ok only where the trial run succeeded in it.
func TestDoctorTrialDecides(t *testing.T) {
	for name, test := range map[string]struct {
		usable bool
		policy string
		trial  trial
		want   []string
	}{
		"succeeded": {true, "ok", trial{OK: true}, []string{"ok    engine fake: isolation by kernel", "ok    trial run"}},
		"failed": {true, "ok", trial{Error: "run 1: Python did not start"}, []string{
			"FAIL  engine fake: isolation by kernel, but the trial run failed: see below", "FAIL  trial run: run 1: Python did not start"}},
		"not allowed": {true, "too weak", trial{Skipped: true}, []string{"ok    engine fake", "FAIL  policy: too weak", "--    trial run: skipped"}},
		"unusable":    {false, "not checked", trial{Skipped: true}, []string{"FAIL  engine fake", "--    trial run: skipped"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnosis{
				Engine: &sandbox.Report{Backend: "fake", Usable: test.usable, Isolation: sandbox.KernelIsolation},
				Policy: test.policy, Trial: test.trial, Usable: test.trial.OK,
			}
			var b strings.Builder
			d.print(&b)
			for _, want := range test.want {
				if !strings.Contains(b.String(), want+"\n") && !strings.Contains(b.String(), want+":") {
					t.Errorf("got\n%s\nwant a line %q", b.String(), want)
				}
			}
			if !test.trial.OK && strings.Contains(b.String(), "run_python can run here") {
				t.Errorf("got\n%s\nwant no success", b.String())
			}
		})
	}
}

// The line about the hub says whether clients share one, and why not.
func TestDoctorHub(t *testing.T) {
	for _, tt := range []struct {
		d    hubDiagnosis
		want string
	}{
		{hubDiagnosis{Used: true}, "ok    hub: the first client starts it\n"},
		{hubDiagnosis{Used: true, PID: 7, Clients: 2}, "ok    hub: process 7, clients: 2\n"},
		{hubDiagnosis{Used: true, PID: 7, Others: []int{8}}, "ok    hub: process 7, clients: 0\nnote  hubs with other settings: 1 ('sallyport hub status' says which)\n"},
		{hubDiagnosis{Why: "no socket"}, "note  each client has a process of its own, without a hub: no socket\n"},
		{hubDiagnosis{Used: true, Alone: []int{9}}, "ok    hub: the first client starts it\nnote  clients without the hub: 1 ('sallyport hub status' says which)\n"},
	} {
		var b strings.Builder
		if tt.d.print(&b); b.String() != tt.want {
			t.Errorf("%+v: got\n%swant\n%s", tt.d, &b, tt.want)
		}
	}
}

// Where serve could not start a hub, doctor does not say that a client starts it.
func TestDiagnoseHub(t *testing.T) {
	for name, tt := range map[string]struct {
		blocked bool
		want    string
	}{
		"can be started": {false, "ok    hub: the first client starts it\n"},
		"cannot":         {true, "note  each client has a process of its own, without a hub: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			u := &ui{App: &app.App{Env: app.Environment{"XDG_RUNTIME_DIR": dir}}}
			var err error
			if u.Settings, err = u.Env.LoadSettings(t.TempDir(), "", nil); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "sallyport"), 0o700); err != nil {
				t.Fatal(err)
			}
			place, err := u.hubPlace()
			if err != nil {
				t.Fatal(err)
			}
			if tt.blocked {
				if err := os.WriteFile(place.Dir, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d := u.diagnoseHub(t.Context())
			var b strings.Builder
			if d.print(&b); !strings.HasPrefix(b.String(), tt.want) {
				t.Errorf("got %q, want %q first", b.String(), tt.want)
			}
			if begun := place.Begin(t.Context(), func(context.Context) error { return nil }); (begun == nil) != d.Used {
				t.Errorf("got used %v, want what the start of a hub says: %v", d.Used, begun)
			}
		})
	}
}

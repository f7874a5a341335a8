//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon/codecarbontest"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

// TestDashboard: what runs here is on the user's dashboard once, though the
// network is cut again and again, and nothing of it is in the output.
func TestDashboard(t *testing.T) {
	t.Parallel()
	const token = "cpt_nobody-sees-this"
	dir := t.TempDir()
	home, project := filepath.Join(dir, "home"), filepath.Join(dir, "project")
	for _, d := range []string{home, project, filepath.Join(dir, "runtime")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	api := &codecarbontest.API{Token: token}
	cut := map[string]bool{}
	api.Fault = func(method, path string) codecarbontest.Fault {
		if !cut[method+path] && method == "POST" { // each once
			cut[method+path] = true
			return codecarbontest.Lost
		}
		return codecarbontest.None
	}
	server := httptest.NewServer(api)
	defer server.Close()

	// The user's own configuration of CodeCarbon; and somebody else's in the
	// folder, which changes nothing.
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".codecarbon.config"), "[codecarbon]\napi_key = "+token+"\nexperiment_id = 8edb03e1-1111-4222-8333-444455556666\napi_endpoint = "+server.URL+"\n")
	write(filepath.Join(project, ".codecarbon.config"), "[codecarbon]\napi_endpoint = http://127.0.0.1:1\n")

	bin := executable(t)
	command := func(location string, args ...string) *exec.Cmd {
		cmd := exec.Command(bin, append([]string{"--log-level", "debug"}, args...)...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=",
			"CODECARBON_API_KEY=", "CODECARBON_API_ENDPOINT=", "CODECARBON_EXPERIMENT_ID=", "SALLYPORT_CARBON_LOCATION="+location)
		return cmd
	}
	run := func(location string, args ...string) string {
		t.Helper()
		cmd := command(location, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if text := stdout.String() + stderr.String(); err != nil || strings.Contains(text, token) {
			t.Fatalf("%v: %v, or the token is in\n%s", args, err, text)
		}
		return stdout.String()
	}

	// Without a place nothing is reported.
	run("", "run", "-c", "sum(range(10**5))")
	if got := api.Requests(); len(got) != 0 {
		t.Fatalf("reported without a place: %v", got)
	}
	for range 2 {
		run("FRA", "run", "--session", "work", "-c", "sum(range(10**6))")
	}
	run("FRA", "carbon", "sync")
	out := run("FRA", "carbon", "report", "--json")
	if runs := api.Runs(); len(runs) != 1 {
		t.Errorf("%d runs on the dashboard, want 1: %v", len(runs), api.Requests())
	}
	joules := 0.0
	for _, e := range api.Emissions("") {
		joules += e["energy_consumed"].(float64) * 3.6e6
	}
	var report struct{ Groups []ledger.Sum }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	want := -1.0
	for _, g := range report.Groups {
		if g.Name == "work" {
			want = *g.Joules
		}
	}
	if math.Abs(joules-want) > 1e-6 {
		t.Errorf("%v J on the dashboard, %v J in the ledger", joules, want)
	}
	run("FRA", "config")

	// A token that is rejected is not tried again in the time that is left.
	run("FRA", "run", "--session", "more", "-c", "sum(range(10**6))")
	api.Token = "another"
	before := len(api.Requests())
	cmd := command("FRA", "carbon", "sync", "--timeout", "1h")
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "403") || strings.Contains(string(text), token) {
		t.Errorf("carbon sync: %v, and\n%s\nwant the status 403 without the token", err, text)
	}
	if got := len(api.Requests()) - before; got != 1 {
		t.Errorf("carbon sync made %d requests with a rejected token, want 1", got)
	}
}

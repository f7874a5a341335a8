//go:build linux

package cli_test

import (
	"bufio"
	"encoding/json"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon/codecarbontest"
)

// TestKaggleCarbon: a client asks for a run on Kaggle and gets its output, its
// files, energy and emissions; the user's dashboard has the run once, though
// the network to it was cut three times.
func TestKaggleCarbon(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to run Kaggle's scripts")
	}
	dir := t.TempDir()
	for _, d := range []string{"home", "runtime", "kernels"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	service := kaggletest.New(kaggletest.Options{Python: python, Dir: filepath.Join(dir, "kernels"),
		Accounts: map[string]*kaggletest.Account{"ada": {Key: "0123456789abcdef0123456789abcdef"}}})
	defer service.Close()
	api := &codecarbontest.API{Token: "cpt_ada"}
	cuts := map[int]bool{1: true, 3: true, 5: true}
	requests := 0
	api.Fault = func(string, string) codecarbontest.Fault {
		requests++
		if cuts[requests] {
			return codecarbontest.Lost
		}
		return codecarbontest.None
	}
	dashboard := httptest.NewServer(api)
	defer dashboard.Close()

	bin := executable(t)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SALLYPORT_HUB_ENABLED=false", "HOME="+filepath.Join(dir, "home"), "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=",
			"KAGGLE_USERNAME=ada", "KAGGLE_KEY=0123456789abcdef0123456789abcdef", "KAGGLE_API_TOKEN=", "KAGGLE_CONFIG_DIR=",
			"CODECARBON_API_KEY=cpt_ada", "CODECARBON_EXPERIMENT_ID=8edb03e1-1111-4222-8333-444455556666", "CODECARBON_API_ENDPOINT="+dashboard.URL,
			"SALLYPORT_BATCH_SERVICES=kaggle", "SALLYPORT_KAGGLE_URL="+service.URL(), "SALLYPORT_CARBON_KAGGLE_LOCATION=gcp/us-central1", "SALLYPORT_OUTPUT_USAGE=true")
		cmd.Stderr = os.Stderr
		return cmd
	}
	serve := command("serve")
	in, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	call := func(id, method, params string) json.RawMessage {
		t.Helper()
		if _, err := in.Write([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + "}\n")); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			var m struct {
				ID     json.Number
				Result json.RawMessage
			}
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.ID.String() == id {
				return m.Result
			}
		}
		t.Fatalf("no answer to %s", method)
		return nil
	}
	call("1", "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	raw := call("2", "tools/call", `{"name":"run_python","arguments":{"backend":"kaggle","code":"x = sum(i * i for i in range(10**6))\nopen('result.txt', 'w').write(str(x))\nprint('sum', x)"}}`)
	_ = in.Close()
	if err := serve.Wait(); err != nil {
		t.Error(err)
	}
	text := string(raw)
	for _, part := range []string{"sum 333332833333500000", "result.txt", "used: ", " J, ", "mg CO2e", `"gramsPerKWh":430`, `"joules":`} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in the answer: %s", part, text)
		}
	}

	if out, err := command("carbon", "sync").Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if runs := api.Runs(); len(runs) != 1 || runs[0].Body["provider"] != "gcp" || runs[0].Body["region"] != "us-central1" {
		t.Errorf("on the dashboard: %+v after %v", runs, api.Requests())
	}
	report, err := command("carbon", "report", "--by", "backend", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var ledger struct {
		Groups []struct {
			Name   string
			Runs   int
			Joules float64
		}
	}
	if err := json.Unmarshal(report, &ledger); err != nil || len(ledger.Groups) != 1 || ledger.Groups[0].Name != "kaggle" || ledger.Groups[0].Runs != 1 {
		t.Fatalf("%v: %s", err, report)
	}
	if got := api.Sum("", "energy_consumed") * 3.6e6; math.Abs(got-ledger.Groups[0].Joules) > 1e-6 || got == 0 || len(api.Emissions("")) != 1 {
		t.Errorf("%v J in %d emissions on the dashboard, %v J in the ledger", got, len(api.Emissions("")), ledger.Groups[0].Joules)
	}
}

package codecarbon

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testToken      = "cpt_a-secret-that-nobody-sees"
	testExperiment = "8edb03e1-1111-4222-8333-444455556666"
)

func TestMerge(t *testing.T) {
	home := Layer{Name: "home", Keys: map[string]string{"api_key": "home-token", "experiment_id": testExperiment}}
	for name, c := range map[string]struct {
		layers          []Layer
		token, endpoint string
	}{
		"home alone": {[]Layer{home}, "home-token", DefaultEndpoint},
		"a project does not redirect": {[]Layer{home, {Name: "here", Local: true, Keys: map[string]string{"api_endpoint": "https://evil.example"}}},
			"home-token", DefaultEndpoint},
		"a project with its own token": {[]Layer{home, {Name: "here", Local: true, Keys: map[string]string{"api_endpoint": "https://own.example", "api_key": "own"}}},
			"own", "https://own.example"},
		"the environment's token does not go to a project's endpoint": {[]Layer{home,
			{Name: "here", Local: true, Keys: map[string]string{"api_endpoint": "https://evil.example", "api_key": "x"}},
			{Name: "environment", Keys: map[string]string{"api_key": "env-token"}}}, "env-token", DefaultEndpoint},
		"the environment says both": {[]Layer{home, FromEnviron([]string{"CODECARBON_API_ENDPOINT=http://127.0.0.1:1", "codecarbon_api_key=e", "PATH=/"})},
			"e", "http://127.0.0.1:1"},
		"the placeholder is none": {[]Layer{{Name: "home", Keys: map[string]string{"api_key": "api_key", "experiment_id": noExperiment}}}, "", DefaultEndpoint},
	} {
		got := Merge(c.layers...)
		if got.Token.Reveal() != c.token || got.Endpoint != c.endpoint {
			t.Errorf("%s: %q at %s", name, got.Token.Reveal(), got.Endpoint)
		}
		if err := got.Ready(); (err == nil) != (c.token != "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	maps := Merge(Layer{Keys: map[string]string{"co2_signal_api_token": "old"}})
	if maps.ElectricityMaps.Reveal() != "old" {
		t.Errorf("%+v", maps)
	}
}

func TestReady(t *testing.T) {
	ok := Config{Token: NewSecret("t"), ExperimentID: testExperiment, Endpoint: DefaultEndpoint}
	for name, change := range map[string]func(*Config){
		"no token":      func(c *Config) { c.Token = Secret{} },
		"no experiment": func(c *Config) { c.ExperimentID = "" },
		"no UUID":       func(c *Config) { c.ExperimentID = "../../x" },
		"in the clear":  func(c *Config) { c.Endpoint = "http://dashboard.example" },
		"no URL":        func(c *Config) { c.Endpoint = "file:///etc/passwd" },
		"with a user":   func(c *Config) { c.Endpoint = "https://u:p@x.example" },
	} {
		c := ok
		change(&c)
		if c.Ready() == nil {
			t.Errorf("%s: ready", name)
		}
	}
	if err := ok.Ready(); err != nil {
		t.Error(err)
	}
}

func TestSecretStaysOne(t *testing.T) {
	s := NewSecret(testToken)
	c := Config{Token: s, ElectricityMaps: s}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", s, "config", c)
	text := fmt.Sprintf("%s %v %+v %#v %q %x %d %s", s, s, c, c, s, s, s, raw) + log.String()
	if strings.Contains(text, testToken) || strings.Contains(text, fmt.Sprintf("%x", testToken)) {
		t.Errorf("%s", text)
	}
}

func TestParseFile(t *testing.T) {
	keys, err := ParseFile([]byte("\xef\xbb\xbf# a comment\n[other]\nkey = no\n[codecarbon]\nAPI_KEY = abc=def\nexperiment_id: x:y\n; more\n\n[more]\napi_key=z\n"))
	if err != nil || len(keys) != 2 || keys["api_key"] != "abc=def" || keys["experiment_id"] != "x:y" {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := ParseFile([]byte("[codecarbon]\nnothing\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	if _, err := ReadConfig(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxConfig+1000), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := ReadConfig(path)
	if err != nil || len(raw) > maxConfig+1 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if _, err := ParseFile(raw); err == nil {
		t.Error("a file that is too large is taken")
	}
	for _, not := range []string{dir, os.DevNull} {
		if _, err := ReadConfig(not); err == nil {
			t.Errorf("%s is read", not)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("[codecarbon]\napi_key = x\n"))
	f.Add([]byte("[]\n=\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		keys, err := ParseFile(raw)
		if err == nil {
			c := Merge(Layer{Name: "x", Keys: keys})
			_ = c.Ready()
		}
	})
}

func aRow(id string) Row {
	return Row{Time: time.Unix(1763700000, 0), Project: "my, \"proj\"", RunID: id, Seconds: 2, Kilograms: 1e-6, CPU: 2e-6, RAM: 1e-6,
		Country: "France", CountryCode: "FRA", OS: "Linux", Version: "sallyport 1", CPUs: 2, CPUModel: "x", RAMTotal: 16, CPUPercent: 50, RAMPercent: -1, RAMUsed: -1}
}

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, r := range records[1:] {
		m := map[string]string{}
		for i, h := range records[0] {
			m[h] = r[i]
		}
		rows = append(rows, m)
	}
	return rows
}

func TestCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "emissions.csv")
	f := OpenFile(path)
	if err := f.Append([]Row{aRow("a")}); err != nil {
		t.Fatal(err)
	}
	unknown := aRow("b")
	unknown.Kilograms, unknown.Country, unknown.CountryCode = -1, "", ""
	if err := f.Append([]Row{unknown}); err != nil {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(path)
	if first, _, _ := strings.Cut(string(raw), "\n"); first != strings.Join(Columns(), ",") || len(Columns()) != 38 {
		t.Errorf("%s", first)
	}
	rows := readCSV(t, path)
	if len(rows) != 2 || rows[0]["emissions"] != "1e-06" || rows[0]["energy_consumed"] != "3e-06" || rows[0]["project_name"] != `my, "proj"` ||
		rows[0]["cpu_power"] != "3.6" || rows[1]["emissions"] != "" || rows[1]["country_name"] != "" || rows[0]["ram_utilization_percent"] != "" ||
		rows[0]["on_cloud"] != "N" || rows[0]["pue"] != "1" {
		t.Errorf("%v", rows)
	}
}

// TestCSVOfOthers: the order of a file's columns is kept, another set of
// columns is put aside, a line that somebody left torn is closed off.
func TestCSVOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "emissions.csv")
	turned := Columns()
	turned[0], turned[37] = turned[37], turned[0]
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Join(turned, ",") + "\n1," + strings.Repeat(",", 36) + "2026-01-01T00:00:00") // no line's end
	if err := OpenFile(path).Append([]Row{aRow("a")}); err != nil {
		t.Fatal(err)
	}
	rows := readCSV(t, path)
	if len(rows) != 2 || rows[1]["run_id"] != "a" || rows[0]["timestamp"] != "2026-01-01T00:00:00" || rows[1]["wue"] != "0.0" {
		t.Errorf("%v", rows)
	}
	for i, text := range []string{"a,b\n1,2\n", "x\n", "", "\"broken\n"} {
		write(text)
		if err := OpenFile(path).Append([]Row{aRow(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
		if rows := readCSV(t, path); len(rows) != 1 || rows[0]["run_id"] != fmt.Sprint(i) {
			t.Errorf("%q: %v", text, rows)
		}
	}
	for name, text := range map[string]string{".bak": "a,b\n1,2\n", "_1.bak": "x\n", "_2.bak": "\"broken\n"} {
		if raw, err := os.ReadFile(path + name); err != nil || string(raw) != text {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}

// TestCSVManyProcesses: every row of every process is there once, whole.
func TestCSVManyProcesses(t *testing.T) {
	const variable = "SALLYPORT_TEST_CSV"
	if path := os.Getenv(variable); path != "" {
		for i := range 50 {
			if err := OpenFile(path).Append([]Row{aRow(fmt.Sprint(os.Getpid(), "-", i))}); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	path := filepath.Join(t.TempDir(), "emissions.csv")
	var others []*exec.Cmd
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCSVManyProcesses$")
		cmd.Env = append(os.Environ(), variable+"="+path)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, cmd)
	}
	var all sync.WaitGroup
	for g := range 2 {
		all.Go(func() {
			for i := range 25 {
				if err := OpenFile(path).Append([]Row{aRow(fmt.Sprint("me", g, "-", i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]bool{}
	for _, row := range readCSV(t, path) {
		if len(row) != 38 || seen[row["run_id"]] {
			t.Errorf("%v", row)
		}
		seen[row["run_id"]] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d rows, want 200", len(seen))
	}
}

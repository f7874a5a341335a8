package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/usage/ledger"
)

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"24h": now.Add(-24 * time.Hour), "7d": now.AddDate(0, 0, -7), "90m": now.Add(-90 * time.Minute),
		"2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local), "2026-11-01T10:00:00Z": time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1h", "yesterday", "-3d", "3", "2026-13-01"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestWithUnit(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0 J", 1: "1.00 J", 999.6: "1.00 kJ", 0.0123: "12.3 mJ", 1234567: "1.23 MJ", 150: "150 J", 1e-7: "100 nJ", 0.9996: "1.00 J", -2: "-2.00 J", 99.99: "100 J", 1e30: "1000000000000000000 TJ",
	} {
		if got := withUnit(f, "J"); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
}

func TestBar(t *testing.T) {
	for value, want := range map[float64]string{0: "", 100: strings.Repeat("█", 30), 50: strings.Repeat("█", 15), 1e-9: "▏", 1: "▎"} {
		if got := barOf(value, 100); got != want {
			t.Errorf("%v: %q, want %q", value, got, want)
		}
	}
	if barOf(1, 0) != "" {
		t.Error("a bar of nothing")
	}
}

func TestExposition(t *testing.T) {
	grams, joules, cpu := 2.0, 7.2e6, 3.6e6
	text := exposition([]ledger.Sum{
		{Name: "gvisor", Runs: 3, Wall: 10, Rested: 10, Joules: &joules, CPUJoules: &cpu, Grams: &grams},
		{Name: "podman", Runs: 2, Unknown: 1, Wall: 10, Joules: &joules, CPUJoules: &cpu, Incomplete: []string{"cpuJoules", "joules"}},
		{Name: "odd\"\\\n", Runs: 1},
	}, "my proj")
	for _, line := range []string{
		`codecarbon_duration{project_name="my proj",backend="gvisor"} 10`,
		`codecarbon_energy_consumed{project_name="my proj",backend="gvisor"} 2`,
		`codecarbon_energy_total{project_name="my proj",backend="gvisor"} 2`,
		`codecarbon_cpu_energy{project_name="my proj",backend="gvisor"} 1`,
		`codecarbon_cpu_power{project_name="my proj",backend="gvisor"} 180000`,
		`codecarbon_emissions{project_name="my proj",backend="gvisor"} 0.002`,
		`codecarbon_emissions_rate{project_name="my proj",backend="gvisor"} 0.0001`,
		`sallyport_runs_total{project_name="my proj",backend="odd\"\\\n"} 1`,
		`# TYPE codecarbon_energy_total counter`,
		`sallyport_energy_incomplete{project_name="my proj",backend="gvisor"} 0`,
		`sallyport_energy_incomplete{project_name="my proj",backend="podman"} 1`,
		`sallyport_runs_incomplete_total{project_name="my proj",backend="podman"} 1`,
		`codecarbon_energy_total{project_name="my proj",backend="podman"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	// What is not known is not there.
	for _, absent := range []string{
		`codecarbon_emissions{project_name="my proj",backend="odd`, `codecarbon_energy_total{project_name="my proj",backend="odd`,
		`codecarbon_ram_energy{project_name="my proj",backend="podman`, `codecarbon_cpu_power{project_name="my proj",backend="podman`,
	} {
		if strings.Contains(text, absent) {
			t.Errorf("%s in\n%s", absent, text)
		}
	}
}

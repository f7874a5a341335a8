package app

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// TestDefaultsAgree: the defaults of the settings are those that the packages
// have of themselves.
func TestDefaultsAgree(t *testing.T) {
	s, err := settings.Load(settings.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if got := limitsOf(s.Limits); got != sandbox.DefaultLimits {
		t.Errorf("limits %+v, want %+v", got, sandbox.DefaultLimits)
	}
	got, err := policyOf(s.Policy)
	if err != nil {
		t.Fatal(err)
	}
	if want := authz.Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("policy %+v, want %+v", got, want)
	}
}

// TestEveryWordOfAPolicyIsKnown: what the settings accept, the contract knows.
func TestEveryWordOfAPolicyIsKnown(t *testing.T) {
	for key, words := range map[string][]string{
		"policy.minIsolation":      {"platform", "container", "wasm", "kernel"},
		"policy.require.memory":    {"absent", "soft", "hard"},
		"policy.require.openFiles": {"absent", "soft", "hard"},
	} {
		for _, word := range words {
			s, err := settings.Load(settings.Sources{Flags: []settings.Flag{{Name: "--set", Key: key, Value: word}}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := policyOf(s.Policy)
			if err != nil {
				t.Fatalf("%s: %s: %v", key, word, err)
			}
			var got string
			switch key {
			case "policy.minIsolation":
				got = p.MinIsolation.String()
			case "policy.require.memory":
				got = p.Require[sandbox.Memory].String()
			default:
				got = p.Require[sandbox.OpenFiles].String()
			}
			if got != word {
				t.Errorf("%s: %s became %s", key, word, got)
			}
		}
	}
	if _, err := policyOf(settings.Policy{MinIsolation: "kernel"}); err == nil {
		t.Error("a policy without words is accepted")
	}
	if _, err := policyOf(settings.Policy{}); err == nil {
		t.Error("the zero policy is accepted")
	}
}

// TestWhatAPolicyNamesIsASetting: the setting that a violation tells people to
// change can be changed so.
func TestWhatAPolicyNamesIsASetting(t *testing.T) {
	err := authz.New(authz.Config{Policy: authz.Default()}).Decide(authz.Local(""), authz.RunCode{Engine: &sandbox.Report{Backend: "x", Isolation: sandbox.PlatformIsolation}}).Reason
	var v *authz.Violation
	if !errors.As(err, &v) {
		t.Fatalf("%v", err)
	}
	for _, missing := range v.Missing {
		key, value, ok := strings.Cut(missing.Accept, ": ")
		if !ok {
			t.Errorf("%q is no setting", missing.Accept)
			continue
		}
		if _, err := settings.Load(settings.Sources{Flags: []settings.Flag{{Name: "--set", Key: key, Value: value}}}); err != nil {
			t.Errorf("%s: %v", missing.Accept, err)
		}
	}
	if len(v.Missing) != 5 {
		t.Errorf("%d shortfalls", len(v.Missing))
	}
}

// An engine that cannot do what it is asked for says so, and nothing takes its
// place. (None is installed where the search path is empty.)
func TestLackingEngine(t *testing.T) {
	tests := []struct {
		name  string
		flags []settings.Flag
		want  string // the engine's name
	}{
		{"podman", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "podman"}}, "podman"},
		{"docker and an image", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "docker"}, {Name: "--set image", Key: "image", Value: "x"}}, "docker"},
		{"a user of a container", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "docker"}, {Name: "--set container.user", Key: "container.user", Value: "1:1"}}, "docker"},
		{"an image of wasm", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "wasm"}, {Name: "--set image", Key: "image", Value: "x"}}, "wasm"},
		{"an interpreter of wasm", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "wasm"}, {Name: "--set python", Key: "python", Value: "python3.12"}}, "wasm"},
		{"a user of wasm", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "wasm"}, {Name: "--set container.user", Key: "container.user", Value: "1:1"}}, "wasm"},
		{"a user of gVisor", []settings.Flag{{Name: "--set engine", Key: "engine", Value: "gvisor"}, {Name: "--set container.user", Key: "container.user", Value: "1:1"}}, "gvisor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := settings.Load(settings.Sources{Flags: tt.flags})
			if err != nil {
				t.Fatal(err)
			}
			engine, err := (&App{Settings: s, Log: slog.New(slog.DiscardHandler)}).Engine()
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			report, err := engine.Probe(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if engine.Name() != tt.want || report.Backend != tt.want || report.Usable || len(report.Findings) != 1 {
				t.Errorf("%s: %+v", engine.Name(), report)
			}
			for _, f := range report.Findings {
				if !f.Fatal || f.Title == "" || f.Remedy == "" {
					t.Errorf("a finding that helps nobody: %+v", f)
				}
			}
			if _, err := engine.Start(context.Background(), &sandbox.Spec{ID: "a", Program: python.Program()}); !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("Start: %v", err)
			}
			if _, err := engine.Attach(context.Background(), sandbox.Handle{Version: 1, Backend: tt.want, ID: "a"}); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Attach: %v", err)
			}
		})
	}
}

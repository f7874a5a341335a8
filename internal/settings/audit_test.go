package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestSettingsAreNotWeakened: what comes with a client's configuration can make the
// audit log and the profile for calls stricter than the file, or the default, and not
// weaker.
func TestSettingsAreNotWeakened(t *testing.T) {
	const variable, flag = settings.LayerEnvironment, settings.LayerFlag
	for _, test := range []struct {
		name, file, variable, flag string // values; empty: not set
		key, want                  string
		from                       settings.Layer
		ignored                    int
	}{
		{"off by a variable", "", "off", "", "audit.mode", "on", settings.LayerDefault, 1},
		{"off by a flag", "", "", "off", "audit.mode", "on", settings.LayerDefault, 1},
		{"off by both, strict in the file", "strict", "OFF", "on", "audit.mode", "strict", settings.LayerFile, 2},
		{"off in the file", "off", "", "", "audit.mode", "off", settings.LayerFile, 0},
		{"on after off in the file", "off", "on", "", "audit.mode", "on", variable, 0},
		{"off, and off in the file", "off", "off", "", "audit.mode", "off", variable, 0},
		{"strict by a variable", "", "strict", "", "audit.mode", "strict", variable, 0},
		{"strict by a variable, off by a flag", "", "strict", "off", "audit.mode", "strict", variable, 1},
		{"strict by a variable, on by a flag", "", "strict", "on", "audit.mode", "on", flag, 0},
		{"no code", "complete", "hash", "", "audit.code", "complete", settings.LayerFile, 1},
		{"code", "", "", "complete", "audit.code", "complete", flag, 0},
		{"no arguments", "", "omit", "", "audit.arguments", "hash", settings.LayerDefault, 1},
		{"arguments", "omit", "complete", "hash", "audit.arguments", "hash", flag, 0},
		{"little disk", "", "1m", "", "audit.maxDisk", "1g", settings.LayerDefault, 1},
		{"much disk", "2m", "", "3m", "audit.maxDisk", "3m", flag, 0},
		{"a day", "", "24h", "", "audit.keep", "2160h", settings.LayerDefault, 1},
		{"a day instead of forever", "forever", "24h", "9000h", "audit.keep", "forever", settings.LayerFile, 2},
		{"a weaker profile", "careful", "open", "", "policy.profile", "careful", settings.LayerFile, 1},
		{"a stricter profile", "careful", "locked", "open", "policy.profile", "locked", variable, 1},
		{"forever", "24h", "forever", "", "audit.keep", "forever", variable, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := settings.Sources{Home: t.TempDir(), Environ: map[string]string{}}
			if test.file != "" {
				src.ConfigFile = filepath.Join(src.Home, "config.yaml")
				if err := os.WriteFile(src.ConfigFile, []byte(test.key+": "+test.file+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var entry settings.Entry
			for _, e := range mustLoad(t, settings.Sources{}).Entries() {
				if e.Key == test.key {
					entry = e
				}
			}
			if test.variable != "" {
				src.Environ[entry.Variables[0]] = test.variable
			}
			if test.flag != "" {
				src.Flags = []settings.Flag{{Name: "--set " + test.key, Key: test.key, Value: test.flag}}
			}
			s := mustLoad(t, src)
			for _, e := range s.Entries() {
				if e.Key == test.key {
					entry = e
				}
			}
			if entry.Value != test.want || entry.Origin.Layer != test.from || len(entry.Ignored) != test.ignored {
				t.Errorf("got %v (%v, ignored %v), want %s (%s, ignored %d)", entry.Value, entry.Origin, entry.Ignored, test.want, test.from, test.ignored)
			}
			if got := s.Fingerprint(func(string) bool { return false })[test.key]; got != test.want {
				t.Errorf("got the fingerprint %q, want %q", got, test.want)
			}
			warnings := s.Warnings()
			if len(warnings) != test.ignored {
				t.Fatalf("got the warnings %q, want %d", warnings, test.ignored)
			}
			for _, w := range warnings {
				if !strings.Contains(w, "sallyport config set "+test.key) || !strings.Contains(w, test.want+" (") {
					t.Errorf("got %q, want what holds and what to do", w)
				}
			}
			if got := strings.Count(s.YAML(), "which is weaker and ignored"); got != test.ignored {
				t.Errorf("got %d comments in the printed settings, want %d", got, test.ignored)
			}
		})
	}
}

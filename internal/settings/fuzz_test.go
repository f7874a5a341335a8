package settings_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		everything, "", "a: b: c", "limits: {memory: 1g, cpus: unlimited}", "limits.memory: 64m\n", "<<: *a", "? a\n: b",
		"policy: {servers: [a, 'b,c', \"\\u00e9\"]}", "python: |\n  x\n", "x: &a [*a]", "--- \n...\n---", "log:\n  level: !t x\n", "%YAML 1.1\n---\n",
		"servers: {inherit: []}", "timeouts: {default: 1h0.5s, max: 3h}", "image: \"# no comment\"", "\r\r0",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 4<<10 {
			return // the parser's time grows with the square of the depth
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		src := settings.Sources{Home: "/h", ConfigFile: path}
		s, err := settings.Load(src)
		if err != nil {
			var e *settings.Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("%T %v", err, err)
			}
			for _, p := range e.Problems {
				if p.Message == "" || p.Line < 0 || p.Line > bytes.Count(content, []byte("\n"))+bytes.Count(content, []byte("\r"))+2 || len(p.Message) > 2000 {
					t.Fatalf("a problem %+v", p)
				}
				if strings.ContainsAny(p.Message, "\n\r\x00\x1b") {
					t.Fatalf("a message of several lines, or with control characters: %q", p.Message)
				}
			}
			return
		}
		// What is printed gives the same settings.
		printed := s.YAML()
		if err := os.WriteFile(path, []byte(printed), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := settings.Load(src)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		for i, e := range s.Entries() {
			if other := again.Entries()[i]; !reflect.DeepEqual(e.Value, other.Value) {
				t.Fatalf("%s: %v became %v\n%s", e.Key, e.Value, other.Value, printed)
			}
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, seed := range []string{"512m", "1.5g", "0", "9223372036854775807", "1KiB", "-1", "1e3", "0x10", ".5g", "5.", "00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := settings.ParseSize(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
		if again, err := settings.ParseSize(settings.FormatSize(n)); err != nil || again != n {
			t.Fatalf("%q is %d, printed %q, read %d, %v", text, n, settings.FormatSize(n), again, err)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"30", "30s", "0.5", "1h30m", "1h0.5s", "10m0s", "-1", "1e9", "inf", "9999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := settings.ParseDuration(text)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %v", text, d)
		}
		if again, err := settings.ParseDuration(settings.FormatDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %v, printed %q, read %v, %v", text, d, settings.FormatDuration(d), again, err)
		}
	})
}

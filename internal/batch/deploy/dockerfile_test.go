package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

const root = "../../.."

// instructions are a Dockerfile's, each with what continues it.
func instructions(t *testing.T, text string) (list [][2]string) {
	t.Helper()
	var line string
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "#") || l == "" {
			continue
		}
		if more, ok := strings.CutSuffix(l, "\\"); ok {
			line += more + " "
			continue
		}
		name, rest, _ := strings.Cut(line+l, " ")
		list = append(list, [2]string{name, strings.TrimSpace(rest)})
		line = ""
	}
	return list
}

// TestDockerfile reads the workers' image as far as that can be done without
// building it: its bases are pinned, what it copies is there, and what it sets
// are settings.
func TestDockerfile(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "deploy/runpod/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	s, err := settings.Load(settings.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Entries() {
		for _, v := range e.Variables {
			known[v] = true
		}
	}
	pinned := regexp.MustCompile(`^[a-z]+:\d+\.\d+\.\d+-[a-z-]+@sha256:[0-9a-f]{64}$`)
	stages, args, environ := map[string]bool{}, map[string]string{}, map[string]string{}
	var last map[string]string
	for _, in := range instructions(t, string(b)) {
		name, rest := in[0], in[1]
		switch name {
		case "ARG":
			k, v, _ := strings.Cut(rest, "=")
			args[k] = v
		case "FROM":
			f := strings.Fields(rest)
			base := args[strings.Trim(f[0], "${}")]
			if !pinned.MatchString(base) {
				t.Errorf("FROM %s: the base %q is not pinned", rest, base)
			}
			if len(f) == 3 {
				stages[f[2]] = true
			}
			last = map[string]string{}
		case "COPY":
			f := strings.Fields(rest)
			if from, ok := strings.CutPrefix(f[0], "--from="); ok {
				if !stages[from] {
					t.Errorf("COPY %s: no such stage", rest)
				}
				continue
			}
			for _, source := range f[:len(f)-1] {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("COPY %s: %v", rest, err)
				}
			}
		case "ENV":
			for kv := range strings.FieldsSeq(rest) {
				k, v, ok := strings.Cut(kv, "=")
				environ[k] = v
				if !ok || strings.HasPrefix(k, "SALLYPORT_") && !known[k] {
					t.Errorf("ENV %s: it is no setting", kv)
				}
				if regexp.MustCompile(`KEY|TOKEN|SECRET|PASSW`).MatchString(k) {
					t.Errorf("ENV %s: a secret in an image", k)
				}
			}
		case "ENTRYPOINT", "CMD", "USER", "STOPSIGNAL":
			last[name] = rest
		case "ADD":
			t.Errorf("ADD %s: it may fetch what nobody has looked at", rest)
		}
	}
	if last["ENTRYPOINT"] != `["/usr/local/bin/sallyport"]` || last["CMD"] != `["worker", "runpod"]` {
		t.Errorf("it starts %v", last) // in a shell, SIGTERM would not arrive
	}
	if _, err := settings.Load(settings.Sources{Environ: environ, Home: t.TempDir(), Dir: "/"}); err != nil {
		t.Errorf("the image's environment: %v", err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if version == nil || !strings.HasPrefix(args["GO_IMAGE"], "golang:"+string(version[1])+".") {
		t.Errorf("go.mod has %s, the image %s", version, args["GO_IMAGE"])
	}
}

// TestRequirements: every package of the image is named by version and hash.
func TestRequirements(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "deploy/runpod/requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := os.ReadFile(filepath.Join(root, "deploy/runpod/requirements.in"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for l := range strings.Lines(string(wanted)) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "#") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(l)+`(==\S+)? `).MatchString(text) {
			t.Errorf("%s is not in requirements.txt: resolve it again", l)
		}
	}
	for _, in := range instructions(t, text) {
		if !strings.Contains(in[0], "==") || !strings.Contains(in[1], "--hash=sha256:") {
			t.Errorf("%s is not pinned", in[0])
		}
	}
}

//go:build linux

package smoke

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An example is a command of the README with its output.
type example struct {
	command string
	output  *regexp.Regexp
}

var (
	shellBlock   = regexp.MustCompile("(?s)```sh\n(.*?)```")
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	mainJob      = regexp.MustCompile(`bin/sallyport run -c '[^']*'`)
)

// examples are those of the README that need neither a build nor a server.
func examples(t *testing.T, readme string) []example {
	t.Helper()
	var found []example
	if block := shellBlock.FindString(readme); block != "" {
		for _, command := range mainJob.FindAllString(block, -1) {
			found = append(found, example{command, regexp.MustCompile(`^in a sandbox: 3\.\d+\.\d+.*\n$`)})
		}
	}
	block := consoleBlock.FindStringSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no console block")
	}
	for _, entry := range strings.Split("\n"+block[1], "\n$ ") {
		command, output, _ := strings.Cut(entry+"\n", "\n")
		if !strings.HasPrefix(command, "sallyport run ") || strings.Contains(command, "--servers-config") {
			continue
		}
		output = strings.TrimRight(output, "\n") + "\n"
		found = append(found, example{command, regexp.MustCompile("^" + regexp.QuoteMeta(output) + "$")})
	}
	return found
}

// readme runs what a reader of the README would type first.
func readme(t *testing.T, p *place) {
	raw, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := examples(t, string(raw))
	if len(found) < 3 {
		t.Fatalf("got %d examples, want at least 3: %v", len(found), found)
	}
	env, err := p.environment("readme")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", e.command)
		cmd.Dir = filepath.Dir(variable(env, "HOME")) // it has bin/sallyport
		cmd.Env = env
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || !e.output.Match(out) || errs.Len() > 0 {
			t.Errorf("%s\ngot %v, output %q, errors %q\nwant output %s", e.command, err, out, errs.String(), e.output)
		}
	}
}

//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// completionHome returns the environment of a user who has some servers and
// kept values.
func completionHome(t *testing.T) (environ []string, dir string) {
	t.Helper()
	bin, home := executable(t), t.TempDir()
	path := filepath.Join(home, "bin")
	for _, d := range []string{path, filepath.Join(home, "MCPs"), filepath.Join(home, "folder")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(bin, filepath.Join(path, "sallyport")); err != nil {
		t.Fatal(err)
	}
	servers := map[string]any{}
	for _, name := range []string{"filesystem", "team:tools", "team:times", "$(touch pwned)"} {
		servers[name] = map[string]any{"command": "false"}
	}
	b, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	// A program of the folder must not run because its name is on the line.
	for name, content := range map[string]string{"MCPs/a.json": string(b), "report one.py": "", "folder/sallyport": "#!/bin/sh\ntouch ../pwned\necho evil\n"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"HOME=" + home, "PATH=" + path + ":" + os.Getenv("PATH"), "XDG_STATE_HOME=" + home, "TERM=dumb", "LANG=C.UTF-8", "ZDOTDIR=" + home, "XDG_CONFIG_HOME=" + home}, home
}

// completed are lines, and their words once a tab completed them.
var completed = []struct{ line, want string }{
	{"sallyport doc", "sallyport|doctor"},
	{"sallyport servers show file", "sallyport|servers|show|filesystem"},
	{"sallyport servers show team:to", "sallyport|servers|show|team:tools"},
	{"sallyport servers show team:", "sallyport|servers|show|team:t"},
	{"sallyport run --server=team:ti", "sallyport|run|--server=team:times"},
	{"sallyport run --set limits.memory=1g --set log.lev", "sallyport|run|--set|limits.memory=1g|--set|log.level="},
	{"sallyport run --set limits.mem\t1g", "sallyport|run|--set|limits.memory=1g"}, // no space before 1g
	{"sallyport run --set log.level=w", "sallyport|run|--set|log.level=warn"},
	{"sallyport --config=x run --log-level e", "sallyport|--config=x|run|--log-level|error"},
	{"sallyport run rep", "sallyport|run|report one.py"},
	{"sallyport run --out fol", "sallyport|run|--out|folder/"},
	{"folder/sallyport doc", "folder/sallyport|doctor"},
}

// TestBashCompletes types into an interactive bash.
func TestBashCompletes(t *testing.T) {
	typeInto(t, "PS1='> '; source <(sallyport completion bash)", "bash", "--noprofile", "--norc", "-i")
}

// TestZshCompletes types into an interactive zsh.
func TestZshCompletes(t *testing.T) {
	typeInto(t, "PS1='> '; bindkey -e; autoload -Uz compinit; compinit -u -D; source <(sallyport completion zsh)", "zsh", "-f", "-i")
}

// typeInto types each line, a tab, and around both what prints the words that
// the shell would run. The shell reads what is typed meanwhile afterwards.
func typeInto(t *testing.T, setup, shell string, args ...string) {
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	environ, home := completionHome(t)
	s := startShell(t, environ, home, shell, args...)
	s.send(setup + "; printf '[%s]' rea\"d\"y\n")
	s.until("[ready]")
	const begin, end = "\x01", "\x05"
	for _, tt := range completed {
		s.send(tt.line + "\t" + begin + "printf '[%s]' " + end + " e\"n\"d\n")
		out := strings.TrimSuffix(s.until("[end]"), "[end]")
		out = out[strings.LastIndexAny(out, "\r\n")+1:]
		got := strings.Join(strings.Split(strings.Trim(out, "[]"), "]["), "|")
		if strings.HasSuffix(tt.want, "/") {
			got = strings.TrimSuffix(got, "/") + "/" // zsh removes it before a space
		}
		if got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.line, got, tt.want)
		}
	}
	notRun(t, home)
}

// notRun checks that completing ran nothing that stands in a name or in the
// folder.
func notRun(t *testing.T, home string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(home, "pwned")); err == nil {
		t.Error("completing ran what stands in a name or in the folder")
	}
}

// TestFishCompletes asks fish what it would offer.
func TestFishCompletes(t *testing.T) {
	if _, err := exec.LookPath("fish"); err != nil {
		t.Skip(err)
	}
	environ, home := completionHome(t)
	args := []string{"--no-config", "-c", "sallyport completion fish | source; for line in $argv; echo \"[$line]\"; complete -C $line; end"}
	for _, tt := range completed {
		args = append(args, strings.ReplaceAll(tt.line, "\t1g", ""))
	}
	cmd := exec.Command("fish", args...)
	cmd.Env, cmd.Dir = environ, home
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range completed {
		_, offered, _ := strings.Cut(string(out), "["+strings.ReplaceAll(tt.line, "\t1g", "")+"]\n")
		got, _, _ := strings.Cut(offered, "\n")
		got, _, _ = strings.Cut(got, "\t")
		want := strings.TrimSuffix(tt.want[strings.LastIndex(tt.want, "|")+1:], "1g")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: the first of %q is %q, want %q", tt.line, offered, got, want)
		}
	}
	notRun(t, home)
}

// shellTerminal is an interactive shell.
type shellTerminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	tty    *os.File
	output bytes.Buffer
	all    bytes.Buffer // that until has read
}

// until reads until the shell has printed something.
func (s *shellTerminal) until(what string) string {
	s.t.Helper()
	var b [4096]byte
	for {
		if i := bytes.Index(s.output.Bytes(), []byte(what)); i >= 0 {
			return string(s.output.Next(i + len(what)))
		}
		if err := s.tty.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			s.t.Fatal(err)
		}
		n, err := s.tty.Read(b[:])
		if err != nil {
			s.t.Fatalf("waiting for %q: %v; got %q", what, err, s.output.String())
		}
		s.output.Write(b[:n])
		s.all.Write(b[:n])
	}
}

func (s *shellTerminal) send(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func startShell(t *testing.T, environ []string, dir, shell string, args ...string) *shellTerminal {
	t.Helper()
	cmd := exec.Command(shell, args...)
	cmd.Env, cmd.Dir = environ, dir
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		tty.Close()
	})
	return &shellTerminal{t: t, cmd: cmd, tty: tty}
}

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// copyWork copies corpus/work, or the folder of the file of tasks, to a new folder.
func (o options) copyWork(to string) error {
	if o.task != "" {
		return os.CopyFS(to, os.DirFS(filepath.Dir(o.task)))
	}
	sub, err := fs.Sub(corpus, "corpus/work")
	if err != nil {
		return err
	}
	return os.CopyFS(to, sub)
}

// commits are the history of the work folder's repository, the oldest first.
var commits = []struct{ author, day, message, file, content string }{
	{"Ann", "2026-03-02", "Add the readme", "README.md", "# Demo\n"},
	{"Bob", "2026-03-05", "Add the parser", "parser.py", "def parse(s):\n    return s.split()\n"},
	{"Ann", "2026-03-09", "Fix the parser for empty lines", "parser.py", "def parse(s):\n    return s.split() if s else []\n"},
	{"Cleo", "2026-03-11", "Add tests", "test_parser.py", "from parser import parse\n\ndef test_empty():\n    assert parse('') == []\n"},
	{"Ann", "2026-03-15", "Describe the parser", "README.md", "# Demo\n\nparse(s) splits a line.\n"},
}

// makeRepository makes a repository with the commits, a branch, and a change that
// is not committed.
func makeRepository(ctx context.Context, dir string) error {
	git := func(env []string, args ...string) error {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Env = append(os.Environ(), append(env, "GIT_CONFIG_GLOBAL=/dev/null")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := git(nil, "init", "-q", "-b", "main"); err != nil {
		return err
	}
	for _, c := range commits {
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o644); err != nil {
			return err
		}
		date := c.day + "T12:00:00Z"
		env := []string{"GIT_AUTHOR_NAME=" + c.author, "GIT_AUTHOR_EMAIL=" + strings.ToLower(c.author) + "@example.com", "GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
		if err := git(nil, "add", c.file); err != nil {
			return err
		}
		if err := git(env, "commit", "-q", "-m", c.message); err != nil {
			return err
		}
	}
	if err := git(nil, "branch", "release-1"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "parser.py"), []byte("def parse(s):\n    return s.split(',') if s else []\n"), 0o644)
}

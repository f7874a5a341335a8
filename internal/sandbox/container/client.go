package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// client runs the engine's command line. An API would not do: only the command
// line knows all of the user's contexts, connections, machines, certificates and
// credential helpers, and a run needs one process of it and no library.
type client struct {
	engine  string
	command string // as configured
	path    string
	environ []string
	global  []string // arguments before the command's own
	log     *slog.Logger
}

func newClient(opts Options) *client {
	c := &client{
		engine:  opts.Engine,
		command: opts.Command,
		path:    opts.Path,
		environ: opts.Environ,
		log:     opts.Log,
	}
	return c
}

// errNoCommand: the client is not on this machine.
var errNoCommand = errors.New("command not found")

// find returns the path of the client's executable.
func (c *client) find() (string, error) {
	if filepath.IsAbs(c.command) {
		if _, err := exec.LookPath(c.command); err != nil {
			return "", fmt.Errorf("%s: %w", c.command, errNoCommand)
		}
		return c.command, nil
	}
	for _, dir := range filepath.SplitList(c.path) {
		if !filepath.IsAbs(dir) {
			continue // never from the working directory
		}
		if found, err := exec.LookPath(filepath.Join(dir, c.command)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s: %w", c.command, errNoCommand)
}

// maxAnswer bounds what is read from one command.
const maxAnswer = 8 << 20

// commandError is a command that failed.
type commandError struct {
	command string // "podman info"
	code    int    // exit status; -1 if there is none
	stderr  string
	err     error
}

func (e *commandError) Error() string {
	text := firstLines(e.stderr, 3)
	if text == "" {
		text = e.err.Error()
	}
	return e.command + ": " + text
}

func (e *commandError) Unwrap() error { return e.err }

// firstLines returns the first lines of a client's error message that carry
// information.
func firstLines(text string, n int) string {
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.HasPrefix(line, "See '"), strings.HasPrefix(line, "Run '"):
			continue
		}
		line = strings.TrimPrefix(strings.TrimPrefix(line, "Error: "), "docker: ")
		line = strings.TrimPrefix(line, "Error response from daemon: ")
		if len(line) > 400 {
			line = line[:400] + "…"
		}
		if kept = append(kept, line); len(kept) == n {
			break
		}
	}
	return strings.Join(kept, "; ")
}

// build returns a command that is not started yet.
func (c *client) build(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := c.find()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append(append([]string{}, c.global...), args...)...)
	cmd.Env = append([]string{}, c.environ...) // never nil, which would mean this program's own
	cmd.Dir = rootDir()
	cmd.WaitDelay = 2 * time.Second
	detach(cmd)
	return cmd, nil
}

// output runs a command and returns what it wrote.
func (c *client) output(ctx context.Context, args ...string) ([]byte, error) {
	return c.feed(ctx, nil, args...)
}

// feed is output for a command that reads something.
func (c *client) feed(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd, err := c.build(ctx, args...)
	if err != nil {
		return nil, err
	}
	cmd.Stdin = stdin
	var stdout, stderr bounded
	stdout.left, stderr.left = maxAnswer, 64<<10
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err = cmd.Run()
	c.log.Debug("container engine", "command", args[0], "took", time.Since(began).Round(time.Millisecond), "error", err)
	if err != nil {
		code := -1
		if cmd.ProcessState != nil {
			code = cmd.ProcessState.ExitCode()
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer: %w", ctx.Err())
			stderr.Reset()
		}
		return stdout.Bytes(), &commandError{command: c.engine + " " + args[0], code: code, stderr: stderr.String(), err: err}
	}
	return stdout.Bytes(), nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}

// rootDir returns a directory that always exists: what a client starts may not
// be able to read the working directory.
func rootDir() string {
	if wd, err := os.Getwd(); err == nil {
		return filepath.VolumeName(wd) + string(filepath.Separator)
	}
	return string(filepath.Separator)
}

// Installed reports whether the engine's client is on this machine.
func (b *Engine) Installed() bool {
	_, err := b.cli.find()
	return err == nil
}

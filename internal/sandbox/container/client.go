package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// client runs the engine's command line. It, and no API, because only it knows
// all of the user's contexts, connections, machines, certificates and
// credential helpers; and because a run needs one process of it and no library.
type client struct {
	engine  string
	command string // as asked for
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

// find is the path of the client's executable.
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

// maxAnswer bounds what is read of one command.
const maxAnswer = 8 << 20

// commandError is a command that failed.
type commandError struct {
	command string // "podman info"
	code    int    // exit status; -1 where there was none
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

// firstLines are the lines of a client's complaint that say something, without
// the noise around them.
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

// build makes a command that is not yet started.
func (c *client) build(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := c.find()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append(append([]string{}, c.global...), args...)...)
	cmd.Env = append([]string{}, c.environ...) // never nil, which would be our own
	cmd.Dir = rootDir()
	cmd.WaitDelay = 2 * time.Second
	detach(cmd)
	return cmd, nil
}

// output runs a command and returns what it wrote.
func (c *client) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd, err := c.build(ctx, args...)
	if err != nil {
		return nil, err
	}
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

// rootDir is a directory that is always there: the working directory may not
// be readable for what a client starts.
func rootDir() string {
	if wd, err := os.Getwd(); err == nil {
		return filepath.VolumeName(wd) + string(filepath.Separator)
	}
	return string(filepath.Separator)
}

// Installed says whether the engine's client is on this machine.
func (b *Backend) Installed() bool {
	_, err := b.cli.find()
	return err == nil
}

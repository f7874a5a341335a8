package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Health is what a client would find.
type Health struct {
	Server   string        // name and version
	Protocol string        // revision
	Tools    []string      // names
	Shown    string        // what a model reads: the tools and the instructions
	Took     time.Duration // from the start to the list of tools
}

// Check starts a program as a client does, and asks it for its tools.
func Check(ctx context.Context, launch *definitions.Launch, environ []string, version string) (Health, error) {
	start := time.Now()
	cmd := exec.CommandContext(ctx, launch.Command, launch.Args...)
	cmd.Env = slices.Clone(environ)
	for _, name := range slices.Sorted(maps.Keys(launch.Env)) {
		cmd.Env = append(cmd.Env, name+"="+launch.Env[name])
	}
	cmd.Dir = launch.Dir
	said := &last{}
	cmd.Stderr = said
	client := mcp.NewClient(&mcp.Implementation{Name: "sallyport-install", Version: version}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Second}, nil)
	if err != nil {
		return Health{}, said.explain(err)
	}
	defer func() { _ = session.Close() }()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return Health{}, said.explain(err)
	}
	h := Health{Took: time.Since(start)}
	for _, t := range tools.Tools {
		text, err := json.Marshal(struct {
			Name        string `json:"name"`
			Description string `json:"description,omitempty"`
			InputSchema any    `json:"inputSchema"`
		}{t.Name, t.Description, t.InputSchema})
		if err != nil {
			return h, err
		}
		h.Shown += string(text)
	}
	if info := session.InitializeResult(); info != nil {
		h.Protocol = info.ProtocolVersion
		h.Shown += info.Instructions
		if info.ServerInfo != nil {
			h.Server = strings.TrimSpace(info.ServerInfo.Name + " " + info.ServerInfo.Version)
		}
	}
	for _, t := range tools.Tools {
		h.Tools = append(h.Tools, t.Name)
	}
	return h, nil
}

// last keeps the end of what a program wrote.
type last struct {
	mu   sync.Mutex
	text []byte
}

func (l *last) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 4 << 10
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-most):]
	return len(p), nil
}

// explain adds the program's last line to an error.
func (l *last) explain(err error) error {
	var missing *exec.Error
	if errors.As(err, &missing) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(string(bytes.TrimSpace(l.text)), "\n")
	if line := strings.TrimSpace(lines[len(lines)-1]); line != "" {
		return fmt.Errorf("%w; it wrote: %s", err, line)
	}
	return err
}

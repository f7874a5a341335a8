// Command goclient plays the conversations of a script through the official Go
// client and prints what it saw as JSON, for test_session.py to judge.
//
//	goclient REVISION SCRIPT SERVER [ARGUMENT...]
//
// REVISION is a protocol revision, or auto for the client's own choice.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type script struct {
	Conversations [][]step
}

type step struct {
	Name string
	List string
	Read string
	Call map[string]any
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: goclient REVISION SCRIPT SERVER [ARGUMENT...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "goclient:", err)
		os.Exit(1)
	}
}

func run(revision, name string, server []string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var s script
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var seen [][]any
	for _, steps := range s.Conversations {
		answers, err := converse(ctx, revision, server, steps)
		if err != nil {
			return err
		}
		seen = append(seen, answers)
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

func converse(ctx context.Context, revision string, server []string, steps []step) (answers []any, err error) {
	command := exec.Command(server[0], server[1:]...)
	command.Stderr = os.Stderr
	options := &mcp.ClientSessionOptions{}
	if revision != "auto" {
		options.ProtocolVersion = revision
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "sallyport-test", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: command}, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := session.Close(); err == nil {
			err = closed
		}
	}()
	for _, step := range steps {
		answer, err := play(ctx, session, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.Name, err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func play(ctx context.Context, session *mcp.ClientSession, step step) (any, error) {
	switch {
	case step.List == "tools":
		return session.ListTools(ctx, nil)
	case step.List == "resources":
		return session.ListResources(ctx, nil)
	case step.Read != "":
		return session.ReadResource(ctx, &mcp.ReadResourceParams{URI: step.Read})
	default:
		return session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: step.Call})
	}
}

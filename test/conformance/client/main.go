// Command client is what the official conformance suite starts to test a client
// of the Model Context Protocol: it plays the part that a scenario gives it with
// the code that Sallyport reaches servers with, and nothing else.
//
//	MCP_CONFORMANCE_SCENARIO=tools_call client http://127.0.0.1:1234/mcp
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// scenarios are those that want more than a connection and a list of tools.
var scenarios = map[string]func(context.Context, *upstream.Server) error{
	"tools_call":                          call("add_numbers", `{"a":5,"b":3}`),
	"sse-retry":                           call("test_reconnection", `{}`),
	"sep-2322-client-request-state":       callAll,
	"elicitation-sep1034-client-defaults": callAll,
	"http-standard-headers":               everything,
	"http-custom-headers":                 givenCalls,
	"http-invalid-tool-headers":           callAll,
	"json-schema-2020-12-preservation":    echoSchema,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: client URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := play(ctx, os.Args[1], os.Getenv("MCP_CONFORMANCE_SCENARIO")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(ctx context.Context, url, scenario string) (err error) {
	given, err := credentials(scenario)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "conformance-logins-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := upstream.NewManager(
		[]upstream.Definition{definitions.NewRemote("suite", "", definitions.Remote{Transport: definitions.Auto, URL: url, OAuth: given})},
		upstream.Options{
			Log: log, ClientName: "sallyport", ClientVersion: "0.1.0", Environ: os.Environ(),
			May:    func(upstream.Definition) inquiry.Takes { return agreeing{}.Takes() },
			Logins: oauth.New(store.At(filepath.Join(dir, "logins")), oauth.Options{Log: log, Metadata: metadata}),
		})
	defer func() { err = errors.Join(err, m.Close(ctx)) }()
	if strings.HasPrefix(scenario, "auth/") {
		return signingIn(ctx, m)
	}
	s, err := m.Server(ctx, "suite")
	if err != nil {
		return err
	}
	if _, err := s.Tools(ctx); err != nil {
		return err
	}
	if more := scenarios[scenario]; more != nil {
		return more(upstream.WithHost(ctx, agreeing{}), s)
	}
	return nil
}

func call(name, arguments string) func(context.Context, *upstream.Server) error {
	return func(ctx context.Context, s *upstream.Server) error {
		_, err := s.CallTool(ctx, name, json.RawMessage(arguments))
		return err
	}
}

// callAll calls every tool that is left of a list with tools that must be left
// out.
func callAll(ctx context.Context, s *upstream.Server) error {
	tools, err := s.Tools(ctx)
	for _, tool := range tools {
		_, callErr := s.CallTool(ctx, tool.Name, json.RawMessage(`{"region":"us-west1"}`))
		err = errors.Join(err, callErr)
	}
	return err
}

// givenCalls makes the calls that the scenario lists.
func givenCalls(ctx context.Context, s *upstream.Server) error {
	var given struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given)
	for _, c := range given.ToolCalls {
		_, callErr := s.CallTool(ctx, c.Name, c.Arguments)
		err = errors.Join(err, callErr)
	}
	return err
}

// everything makes a request of each kind that names something.
func everything(ctx context.Context, s *upstream.Server) error {
	err := callAll(ctx, s)
	_, listed := s.Resources(ctx)
	_, read := s.ReadResource(ctx, "file:///path/to/file%20name.txt")
	_, prompts := s.Prompts(ctx)
	_, got := s.GetPrompt(ctx, "test_prompt", nil)
	return errors.Join(err, listed, read, prompts, got)
}

// echoSchema sends a tool's schema back as it arrived.
func echoSchema(ctx context.Context, s *upstream.Server) error {
	tools, err := s.Tools(ctx)
	if err != nil {
		return err
	}
	for _, tool := range tools {
		if tool.Name == "json_schema_2020_12_tool" {
			_, err := s.CallTool(ctx, "json_schema_echo", fmt.Appendf(nil, `{"schema":%s}`, tool.InputSchema))
			return err
		}
	}
	return errors.New("the server has no tool json_schema_2020_12_tool")
}

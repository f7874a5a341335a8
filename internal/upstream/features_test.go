//go:build unix

package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

const featuresVariable = "UPSTREAM_TEST_FEATURES"

// TestFeaturesServer is no test: run with the variable, it is a server that has
// resources and prompts.
func TestFeaturesServer(t *testing.T) {
	role := os.Getenv(featuresVariable)
	if role == "" {
		t.Skip("runs as a server of TestFeatures")
	}
	in := bufio.NewReader(os.Stdin)
	for page := 1; ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var r struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal(line, &r) != nil {
			os.Exit(9)
		}
		if r.ID == nil {
			continue
		}
		answer := `"error":{"code":-32601,"message":"Method not found"}`
		switch {
		case r.Method == "initialize":
			answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"f","version":"1"}}`
		case role == "none":
		case role == "refuses":
			answer = `"error":{"code":-32002,"message":"no such resource"}`
		case role == "odd":
			answer = `"result":[]`
		case role == "no list":
			answer = `"result":{"resources":7,"nextCursor":"x"}`
		case role == "circles":
			answer = fmt.Sprintf(`"result":{"resources":[%d],"nextCursor":"c%d"}`, page, page%2)
			page++
		case role == "endless":
			answer = fmt.Sprintf(`"result":{"resources":[%s0],"nextCursor":"%d"}`, strings.Repeat("1,", 8999), page)
			page++
		case role == "deaf":
			continue
		case r.Method == "resources/list" && !strings.Contains(string(r.Params), "cursor"):
			answer = `"result":{"resources":[{"uri":"a://1","z":9007199254740993,"a":null}],"nextCursor":{"page":2}}`
		case r.Method == "resources/list":
			answer = `"result":{"resources":[{"uri":"a://2"}],"nextCursor":""}`
		case r.Method == "resources/templates/list":
			answer = `"result":{"resourceTemplates":[]}`
		case r.Method == "prompts/list":
			answer = `"result":{"prompts":[{"name":"p"}],"nextCursor":null}`
		case r.Method == "resources/read", r.Method == "prompts/get":
			answer = `"result":{"asked":` + string(r.Params) + `}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", r.ID, answer)
	}
}

func TestFeatures(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var defs []Definition
	for _, role := range []string{"full", "none", "refuses", "odd", "no list", "circles", "endless", "deaf"} {
		defs = append(defs, definitions.New(role, "", definitions.Launch{
			Command: exe, Args: []string{"-test.run=^TestFeaturesServer$"}, Env: map[string]string{featuresVariable: role},
		}))
	}
	m := manage(t, Options{}, defs...)
	read := func(uri string) func(*Server) (json.RawMessage, error) {
		return func(s *Server) (json.RawMessage, error) { return s.ReadResource(t.Context(), uri) }
	}
	prompt := func(args string) func(*Server) (json.RawMessage, error) {
		return func(s *Server) (json.RawMessage, error) {
			return s.GetPrompt(t.Context(), "näme", json.RawMessage(args))
		}
	}
	resources := func(s *Server) (json.RawMessage, error) { return s.Resources(t.Context()) }
	templates := func(s *Server) (json.RawMessage, error) { return s.ResourceTemplates(t.Context()) }
	prompts := func(s *Server) (json.RawMessage, error) { return s.Prompts(t.Context()) }
	tests := []struct {
		name, server string
		ask          func(*Server) (json.RawMessage, error)
		want         string
		kind         error
	}{
		{"all pages, as sent", "full", resources, `[{"uri":"a://1","z":9007199254740993,"a":null},{"uri":"a://2"}]`, nil},
		{"templates", "full", templates, `[]`, nil},
		{"prompts", "full", prompts, `[{"name":"p"}]`, nil},
		{"read", "full", read(`a://"ä"`), `{"asked":{"uri":"a://\"ä\""}}`, nil},
		{"prompt", "full", prompt(`{"b":"1","a":"2"}`), `{"asked":{"name":"näme","arguments":{"b":"1","a":"2"}}}`, nil},
		{"prompt without arguments", "full", prompt(""), `{"asked":{"name":"näme","arguments":{}}}`, nil},
		{"arguments that are a list", "full", prompt("[]"), "", ErrInvalidArguments},
		{"arguments that are more", "full", prompt(`{},"x":{}`), "", ErrInvalidArguments},
		{"nothing offered", "none", resources, "", ErrNotOffered},
		{"nothing to read", "none", read("a://1"), "", ErrNotOffered},
		{"no prompts", "none", prompts, "", ErrNotOffered},
		{"no list", "no list", resources, "", ErrBadAnswer},
		{"no object", "odd", resources, "", ErrBadAnswer},
		{"no object to read", "odd", read("a://1"), "", ErrBadAnswer},
		{"in circles", "circles", resources, `[1,2,3]`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.ask(running(t, m, tt.server))
			if string(got) != tt.want || !errors.Is(err, tt.kind) {
				t.Errorf("%s, %v; want %s, %v", got, err, tt.want, tt.kind)
			}
		})
	}
	t.Run("the server's own error", func(t *testing.T) {
		_, err := running(t, m, "refuses").ReadResource(t.Context(), "a://1")
		var answered *jsonrpc.Error
		if !errors.As(err, &answered) || answered.Code != -32002 || !strings.Contains(err.Error(), `MCP server "refuses", resources/read`) {
			t.Error(err)
		}
	})
	t.Run("too many", func(t *testing.T) {
		got, err := running(t, m, "endless").Resources(t.Context())
		var entries []int
		if err != nil || json.Unmarshal(got, &entries) != nil || len(entries) != maxListed {
			t.Errorf("%d entries, %v", len(entries), err)
		}
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := running(t, m, "deaf")
		cancel()
		if _, err := s.Prompts(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

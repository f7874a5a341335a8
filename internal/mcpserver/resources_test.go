package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
)

// shelf is a source of resources.
type shelf map[string]*thing

type thing struct{ kind, data string }

var order = []string{"sallyport://files/a.txt", "sallyport://files/b.png", "sallyport://files/broken"}

func (s shelf) List(context.Context) (all []Resource, err error) {
	if s == nil {
		return nil, errors.New("the shelf fell")
	}
	for _, uri := range order {
		if c := s[uri]; c != nil {
			all = append(all, Resource{URI: uri, Name: uri[len("sallyport://files/"):], MIMEType: c.kind, Size: int64(len(c.data))})
		}
	}
	return all, nil
}

func (s shelf) Open(_ context.Context, uri string) (*Content, error) {
	if uri == "sallyport://files/broken" {
		return nil, errors.New("it cannot be read")
	}
	if c := s[uri]; c != nil {
		return Text(c.kind, c.data), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNoResource, uri)
}

func TestResourcesOfASource(t *testing.T) {
	source := shelf{
		order[0]: {"text/plain", "grüße"},
		order[1]: {"image/png", "\x89\x00\x01"},
	}
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			s := connect(t, Config{Resources: []Resources{shelf{}, source}}, version, nil)
			list, err := s.ListResources(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var uris []string
			for _, r := range list.Resources {
				uris = append(uris, r.URI)
			}
			if want := []string{capabilityURIs[1], capabilityURIs[0], order[0], order[1]}; !reflect.DeepEqual(uris, want) {
				t.Errorf("resources %q, want %q", uris, want)
			}
			if r := list.Resources[2]; r.Name != "a.txt" || r.MIMEType != "text/plain" || r.Size != 7 {
				t.Errorf("%+v", r)
			}
			if list.TTLMs != 0 {
				t.Errorf("a list that changes is good for %d ms", list.TTLMs)
			}
			for uri, want := range source {
				read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
				if err != nil {
					t.Fatal(err)
				}
				if c := read.Contents[0]; c.URI != uri || c.MIMEType != want.kind || c.Text+string(c.Blob) != want.data || (c.Blob == nil) != (want.kind == "text/plain") || c.Meta != nil {
					t.Errorf("%+v, want %+v", c, want)
				}
			}
			manual, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: capabilityURIs[0]})
			if err != nil || !strings.HasPrefix(manual.Contents[0].Text, "# Code Execution") {
				t.Errorf("the manual: %v, %v", manual, err)
			}
			if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: order[2]}); err == nil || !strings.Contains(err.Error(), "it cannot be read") {
				t.Errorf("a resource that cannot be read: %v", err)
			}
		})
	}
}

func TestASourceOfResourcesThatFails(t *testing.T) {
	s := connect(t, Config{Resources: []Resources{shelf(nil)}}, legacyLatest, nil)
	if _, err := s.ListResources(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the shelf fell") {
		t.Errorf("%v", err)
	}
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: toolName, Arguments: map[string]any{"code": "print on"}}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// many has more resources than are shown.
type many struct{ shelf }

func (many) List(context.Context) ([]Resource, error) {
	all := make([]Resource, 2*maxResources)
	for i := range all {
		all[i].URI = fmt.Sprintf("sallyport://many/%d", i)
	}
	return all, nil
}

func TestResourcesAreBounded(t *testing.T) {
	s := connect(t, Config{Resources: []Resources{many{}, many{}}}, legacyLatest, nil)
	list, err := s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != maxResources {
		t.Errorf("%d resources, %v", len(list.Resources), err)
	}
}

// TestUnknownResource: it is an error of invalid parameters that names the
// resource, in every revision.
func TestUnknownResource(t *testing.T) {
	const uri = "resource://mcp-server-code-execution-mode/nothing"
	for _, config := range []Config{{}, {Resources: []Resources{shelf{}}}} {
		for _, version := range revisions {
			s := connect(t, config, version, nil)
			_, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			var wire *jsonrpc.Error
			if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams || !strings.Contains(fmt.Sprint(wire.Message, string(wire.Data)), uri) {
				t.Errorf("%s: %v", version, err)
			}
		}
	}
}

// TestNoAnnotationClaimsTooMuch: a client may take a missing hint for its
// default, and a hint that is there must say no less.
func TestNoAnnotationClaimsTooMuch(t *testing.T) {
	for _, version := range revisions {
		s := connect(t, Config{}, version, nil)
		tools, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		hints := tools.Tools[0].Annotations
		if hints == nil {
			hints = &mcp.ToolAnnotations{}
		}
		if hints.ReadOnlyHint || hints.IdempotentHint || hints.DestructiveHint != nil && !*hints.DestructiveHint || hints.OpenWorldHint != nil && !*hints.OpenWorldHint {
			t.Errorf("%s: %+v", version, hints)
		}
		if tools.Tools[0].OutputSchema != nil {
			t.Errorf("%s: an output schema costs tokens", version)
		}
	}
}

// TestArgumentsOfTheFirstBridge: what is wrong with the arguments is answered
// in its words, by both ways into the tool.
func TestArgumentsOfTheFirstBridge(t *testing.T) {
	tests := []struct {
		arguments, message string
		servers            []string
	}{
		{`{}`, "Missing 'code' argument", nil},
		{`{"code":""}`, "Missing 'code' argument", nil},
		{`{"code":null}`, "Missing 'code' argument", nil},
		{`{"code":7}`, "Missing 'code' argument", nil},
		{`{"code":["print(1)"]}`, "Missing 'code' argument", nil},
		{`{"code":"print x","servers":"fs"}`, "'servers' must be a list", nil},
		{`{"code":"print x","servers":{"fs":1}}`, "'servers' must be a list", nil},
		{`{"code":"print x","servers":["fs",7,true]}`, "", []string{"fs", "7", "true"}},
		{`{"code":"print x","timeout":"5"}`, "'timeout' must be an integer", nil},
		{`{"code":"print x","timeout":5.5}`, "'timeout' must be an integer", nil},
		{`{"code":"print x","timeout":[5]}`, "'timeout' must be an integer", nil},
		{`{"code":"print x","timeout":5,"unknown":true}`, "", nil},
	}
	for _, sdkOnly := range []bool{false, true} {
		c := serve(t, Config{SDKOnly: sdkOnly, Structured: StructuredAlways})
		c.handshake(legacyLatest)
		for i, tt := range tests {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_python","arguments":%s}}`, i+1, tt.arguments))
			encoded, err := json.Marshal(c.receive()["result"])
			if err != nil {
				t.Fatal(err)
			}
			var result struct {
				StructuredContent broker.Result
				IsError           bool
			}
			if err := json.Unmarshal(encoded, &result); err != nil {
				t.Fatal(err)
			}
			got := result.StructuredContent
			switch {
			case tt.message != "" && (got.Status != broker.ValidationError || got.Error != tt.message || !result.IsError):
				t.Errorf("%s: %s, want %q", tt.arguments, encoded, tt.message)
			case tt.message == "" && (result.IsError || !reflect.DeepEqual(got.Servers, tt.servers)):
				t.Errorf("%s: %s", tt.arguments, encoded)
			}
		}
	}
}

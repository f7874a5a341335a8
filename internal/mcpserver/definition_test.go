package mcpserver

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/sallyport/sallyport/internal/manual"
	"github.com/sallyport/sallyport/internal/toolbox/search"
)

var update = flag.Bool("update", false, "write the golden files anew")

// revisions are those that a client may speak, the stateless one last.
var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

func stateless(version string) bool { return version >= "2026-07-28" }

// ask sends a request in the manner of a revision and returns the raw result.
func (c *client) ask(version, id, method, params string) json.RawMessage {
	c.t.Helper()
	meta := ""
	if stateless(version) {
		meta = `"_meta":{` + modernMeta + `}`
		if params != "" {
			meta += ","
		}
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, meta, params))
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	var answer struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.Error != nil {
		c.t.Fatalf("%s: %s (%v)", method, line, err)
	}
	return answer.Result
}

// open begins a conversation and returns what the server says of itself.
func (c *client) open(version string) json.RawMessage {
	c.t.Helper()
	if stateless(version) {
		return c.ask(version, "0", "server/discover", "")
	}
	result := c.ask(version, "0", "initialize", `"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}`)
	c.send(initialized)
	return result
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed (go test -update accepts it)\n got: %s\nwant: %s", name, got, want)
	}
}

func indent(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// TestWhatAnAgentReads keeps what every client puts into its model's context:
// a change is a visible difference, and it stays small.
// TestManualIsAffordable: the manual as a client reads it is at most 900 tokens.
func TestManualIsAffordable(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range capabilityURIs {
		n, err := codec.Count(manual.Resource(toolDescription, uri))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d tokens", uri, n)
		if n > 900 {
			t.Errorf("%s: got %d tokens, want at most 900", uri, n)
		}
	}
}

func TestWhatAnAgentReads(t *testing.T) {
	const most = 200
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			c := serve(t, Config{})
			self := c.open(version)
			list := c.ask(version, "1", "tools/list", "")
			golden(t, "definition/"+version+"-self.json", indent(t, self))
			golden(t, "definition/"+version+"-tools.json", indent(t, list))
			var hello struct{ Instructions string }
			if err := json.Unmarshal(self, &hello); err != nil {
				t.Fatal(err)
			}
			n, err := codec.Count(string(list) + hello.Instructions)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d tokens", n)
			if n > most {
				t.Errorf("tools/list and instructions measure %d tokens, more than %d", n, most)
			}
			for _, word := range []string{
				"persistent", "Discover", "discovered_servers()", "search_tool_docs(", "Call", "await mcp_", "servers=[",
				"Persist", "save_memory(", "load_memory(", "save_tool(", "last expression is echoed", "capability_summary()",
			} {
				if !strings.Contains(string(list)+hello.Instructions, word) {
					t.Errorf("an agent is not told of %q", word)
				}
			}
		})
	}
}

// TestToolSearchFindsIt: a client that shows its model only what a search finds
// finds the tool among those of other servers, in all descriptions.
func TestToolSearchFindsIt(t *testing.T) {
	raw, err := os.ReadFile("../../bench/search/testdata/golden/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var others map[string][]struct{ Name, Description string }
	if err := json.Unmarshal(raw, &others); err != nil {
		t.Fatal(err)
	}
	for _, config := range []Config{{}, {Backends: []string{"podman", "kaggle"}}, {Environments: []string{"data", "ml"}}, {Environments: []string{"bio", "data", "ml", "plots", "web"}}} {
		c := serve(t, config)
		c.open(revisions[0])
		var list struct {
			Tools []struct{ Name, Title, Description string }
		}
		if err := json.Unmarshal(c.ask(revisions[0], "1", "tools/list", ""), &list); err != nil {
			t.Fatal(err)
		}
		own := list.Tools[0]
		docs := []search.Doc{{Server: "sallyport", Name: own.Name, Description: own.Title + ". " + own.Description}}
		for _, server := range slices.Sorted(maps.Keys(others)) {
			if server == "github" || server == "gitlab" { // these are behind Sallyport
				continue
			}
			for _, o := range others[server] {
				docs = append(docs, search.Doc{Server: server, Name: o.Name, Description: o.Description})
			}
		}
		if len(docs) < 30 {
			t.Fatalf("got %d tools of other servers", len(docs)-1)
		}
		index := search.New(docs)
		for _, method := range []search.Method{search.Lexical, search.Both} {
			for _, query := range []string{"run code", "run python", "analyze a file", "analyse a file", "call my tools", "use an MCP server", "github issue", "execute a script"} {
				var found []string
				for _, h := range index.Search(query, search.Options{Limit: 5, Method: method}) {
					found = append(found, docs[h.Doc].Name)
				}
				if !slices.Contains(found, toolName) {
					t.Errorf("%v, %s: got %v, want %s among them", method, query, found, toolName)
				}
			}
		}
	}
}

// A choice of engines or environments is named, and fits; without one nothing is said
// of it.
func TestChoices(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range revisions {
		for _, tt := range []struct {
			config Config
			want   string // in the schema after the session; empty: no choice
		}{
			{Config{}, ""},
			{Config{Backends: []string{"gvisor"}}, ""},
			{Config{Backends: []string{"podman", "kaggle", "runpod"}}, `,"backend":{"enum":["podman","kaggle","runpod"]}`},
			{Config{Environments: []string{"data"}, Environment: "data"}, ""},
			{Config{Environments: []string{"data"}}, `,"env":{"enum":["host","data"]}`},
			{Config{Environments: []string{"data", "ml"}, Environment: "ml"}, `,"env":{"enum":["ml","data","host"]}`},
			{
				Config{Environments: []string{"bio", "data", "ml", "plots", "web"}, Environment: "data", Backends: []string{"podman", "kaggle", "runpod"}},
				`,"backend":{"enum":["podman","kaggle","runpod"]},"env":{"type":"string"}`,
			},
			{Config{Environments: []string{"data"}, Backends: []string{"podman", "kaggle", "runpod"}}, `,"backend":{"enum":["podman","kaggle","runpod"]},"env":{"enum":["host","data"]}`},
			{Config{Environments: []string{"bio", "data", "ml", "plots", "web"}}, `,"env":{"enum":["host","bio","data","ml","plots","web"]}`},
			{Config{Environments: []string{"a-rather-long-name", "and-another-one", "data", "ml", "the-fifth.one_2"}}, `,"env":{"type":"string"}`},
		} {
			c := serve(t, tt.config)
			self := c.open(version)
			list := string(c.ask(version, "1", "tools/list", ""))
			var schema bytes.Buffer
			if err := json.Compact(&schema, []byte(list)); err != nil {
				t.Fatal(err)
			}
			if want := `"session":{"type":"string"}` + tt.want + `}`; !strings.Contains(schema.String(), want) {
				t.Errorf("%s: got %s, want %s in it", version, list, want)
			}
			var hello struct{ Instructions string }
			if err := json.Unmarshal(self, &hello); err != nil {
				t.Fatal(err)
			}
			n, err := codec.Count(list + hello.Instructions)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d tokens with %s", version, n, tt.want)
			if n > 200 {
				t.Errorf("%s, %s: got %d tokens, want at most 200", version, tt.want, n)
			}
		}
	}
}

func TestTheManual(t *testing.T) {
	for _, version := range revisions {
		c := serve(t, Config{})
		c.open(version)
		var list struct {
			Resources []struct {
				URI, Name, Title, MIMEType string
				Size                       int
			}
		}
		if err := json.Unmarshal(c.ask(version, "1", "resources/list", ""), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Resources) != len(capabilityURIs) {
			t.Fatalf("%s: resources %v", version, list)
		}
		for i, r := range list.Resources {
			if r.URI != capabilityURIs[1-i] || r.Name != "code-execution-capabilities" || r.Title != "Code Execution Sandbox Helpers" || r.MIMEType != "text/markdown" {
				t.Errorf("%s: %+v", version, r)
			}
			var read struct {
				Contents []struct{ URI, MIMEType, Text string }
			}
			if err := json.Unmarshal(c.ask(version, "2", "resources/read", `"uri":"`+r.URI+`"`), &read); err != nil {
				t.Fatal(err)
			}
			if len(read.Contents) != 1 || read.Contents[0].URI != r.URI || len(read.Contents[0].Text) != r.Size {
				t.Errorf("%s: %s: %v", version, r.URI, read)
			}
			if !strings.HasPrefix(read.Contents[0].Text, "# Code Execution MCP Capabilities\n") || read.Contents[0].MIMEType != "text/markdown" {
				t.Errorf("%s: %+v", r.URI, read.Contents[0])
			}
			for _, want := range []string{toolDescription, "## Quick usage", "cwd"} {
				if !strings.Contains(read.Contents[0].Text, want) {
					t.Errorf("%s: the manual lacks %q", r.URI, want)
				}
			}
			if !strings.HasSuffix(read.Contents[0].Text, "Resource URI: "+r.URI) {
				t.Errorf("the manual of %s does not end with its name", r.URI)
			}
		}
	}
}

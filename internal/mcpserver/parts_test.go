package mcpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
)

// TestResourcesInParts reads resources to their ends, from one part to the next.
func TestResourcesInParts(t *testing.T) {
	text := strings.Repeat("a€", 3*maxPart/4-1) // no part ends between two characters
	source := shelf{
		"sallyport://files/text":  {"text/csv", text},
		"sallyport://files/bytes": {"", strings.Repeat("\xff\x00\x01", maxPart/2)},
		"sallyport://files/small": {"", "€€"},
		"sallyport://files/empty": {"text/plain", ""},
		"sallyport://files/a%3Fb": {"text/plain", "a name with a question mark"},
	}
	for _, version := range []string{legacyLatest, revisions[len(revisions)-1]} {
		s := connect(t, Config{Resources: []Resources{source}}, version, nil)
		for _, tt := range []struct {
			uri   string
			parts int
		}{
			{"sallyport://files/text", 1 + len(text)/maxPart}, {"sallyport://files/bytes", 2}, {"sallyport://files/small", 1}, {"sallyport://files/empty", 1},
			{"sallyport://files/a%3Fb", 1}, {"sallyport://files/small?length=4", 2}, {"sallyport://files/small?length=3&offset=0", 2}, {"sallyport://files/small?length=1", 6},
		} {
			var got strings.Builder
			parts := 0
			for uri := tt.uri; uri != ""; parts++ {
				read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
				if err != nil {
					t.Fatalf("%s: %v", uri, err)
				}
				c := read.Contents[0]
				if c.URI != uri || len(c.Text)+len(c.Blob) > maxPart {
					t.Errorf("%s: %d bytes of %s", uri, len(c.Text)+len(c.Blob), c.URI)
				}
				part, _ := c.Meta[partKey].(map[string]any)
				if part != nil && part["offset"] != float64(got.Len()) {
					t.Errorf("%s: the part is at %v, want %d", uri, part["offset"], got.Len())
				}
				got.WriteString(c.Text + string(c.Blob))
				uri, _ = part["next"].(string)
			}
			plain, _, _ := strings.Cut(tt.uri, "?")
			if got.String() != source[plain].data || parts != tt.parts {
				t.Errorf("%s: got %d bytes in %d parts, want %d in %d", tt.uri, got.Len(), parts, len(source[plain].data), tt.parts)
			}
		}
		for _, bad := range []string{"offset=-1", "offset=x", "length=0", "offset=1&offset=2", "line=3", "offset=99", "%zz"} {
			_, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "sallyport://files/small?" + bad})
			var wire *jsonrpc.Error
			if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
}

// TestLinks: a result links to what is kept, unless it shows it, for clients whose
// revision has links, and in the same way on both paths.
func TestLinks(t *testing.T) {
	r := &broker.Result{Status: broker.Success, Images: []broker.Image{{Path: "a.png", MIMEType: "image/png", Data: []byte{1}}}, Artifacts: []broker.Artifact{
		{Path: "a.png", Size: 1, URI: "sallyport://artifacts/aaaaaaaaaa/a.png", MIMEType: "image/png"},
		{Path: "b <&> é.csv", Size: 2, URI: "sallyport://artifacts/aaaaaaaaaa/b", MIMEType: "text/csv"},
		{Path: "empty", Size: 0, URI: "sallyport://artifacts/aaaaaaaaaa/empty"},
		{Path: "lost.csv", Size: 3},
	}}
	for i := range 2 * maxLinks {
		r.Artifacts = append(r.Artifacts, broker.Artifact{Path: fmt.Sprint(i), Size: 1, URI: fmt.Sprintf("sallyport://artifacts/aaaaaaaaaa/%d", i)})
	}
	for protocol, want := range map[string]int{"": maxLinks, "2024-11-05": 0, "2025-03-26": 0, "2025-06-18": maxLinks, "2025-11-25": maxLinks} {
		c := &conn{server: &Server{}, protocol: protocol}
		slow, err := marshal(c.toolResult("", r))
		if err != nil {
			t.Fatal(err)
		}
		fast, err := marshal(c.wireResult(r.Text(), nil, r))
		if err != nil {
			t.Fatal(err)
		}
		var content struct{ Content []map[string]any }
		if err := json.Unmarshal(fast, &content); err != nil {
			t.Fatal(err)
		}
		var links []map[string]any
		for _, block := range content.Content {
			if block["type"] == "resource_link" {
				links = append(links, block)
			}
		}
		if len(links) != want {
			t.Errorf("%q: %d links, want %d", protocol, len(links), want)
			continue
		}
		if want > 0 && (fmt.Sprint(links[0]) != "map[mimeType:text/csv name:b <&> é.csv size:2 type:resource_link uri:sallyport://artifacts/aaaaaaaaaa/b]" || links[1]["size"] != 0.0) {
			t.Errorf("%q: %v", protocol, links[:2])
		}
		if got := canonical(t, slow); got != canonical(t, fast) {
			t.Errorf("%q: the SDK's answer and ours differ:\n%s\n%s", protocol, slow, fast)
		}
	}
}

// canonical returns JSON in one form.
func canonical(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// FuzzPart: an address is read as a part with bounds, or refused.
func FuzzPart(f *testing.F) {
	f.Add("sallyport://files/a?offset=1&length=2")
	f.Add("a?offset=9223372036854775808")
	f.Add("a??&=;%")
	f.Fuzz(func(t *testing.T, uri string) {
		plain, offset, length, err := splitPart(uri)
		if err == nil && (offset < 0 || length <= 0 || length > maxPart || !strings.HasPrefix(uri, plain)) {
			t.Errorf("%q: %q, %d, %d", uri, plain, offset, length)
		}
	})
}

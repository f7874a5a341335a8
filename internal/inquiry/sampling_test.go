package inquiry

//lint:file-ignore SA1019 servers still ask for samples, in all revisions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// everythingSampling is what trigger-sampling-request of
// @modelcontextprotocol/server-everything 2026.8.31 asks.
const everythingSampling = `{"messages":[{"role":"user","content":{"type":"text","text":"Resource trigger-sampling-request context: Hello"}}],"systemPrompt":"You are a helpful test server.","maxTokens":100,"temperature":0.7}`

const fullSampling = `{"messages":[{"role":"user","content":[{"type":"text","text":"What is <this>?","annotations":{"priority":1}},{"type":"image","data":"AAEC","mimeType":"image/png"}]},` +
	`{"role":"assistant","content":[{"type":"audio","data":"AAEC","mimeType":"audio/wav"}]}],` +
	`"modelPreferences":{"hints":[{"name":"claude"},{}],"costPriority":0,"speedPriority":1,"intelligencePriority":0.5,"x":1},` +
	`"systemPrompt":"Be brief.","includeContext":"allServers","temperature":0,"maxTokens":1e2,"stopSequences":["\n"],"metadata":{"a":[1]},"_meta":{"progressToken":1},"x":1}`

const smallSampling = `{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}],"maxTokens":5}`

func TestParseSampling(t *testing.T) {
	for _, test := range []struct {
		params, want string
		tokens       int
	}{
		{everythingSampling,
			`{"messages":[{"role":"user","content":{"type":"text","text":"Resource trigger-sampling-request context: Hello"}}],"systemPrompt":"You are a helpful test server.","includeContext":"none","temperature":0.7,"maxTokens":100}`, 100},
		{fullSampling,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"What is <this>?"},{"type":"image","data":"AAEC","mimeType":"image/png"}]},{"role":"assistant","content":{"type":"audio","data":"AAEC","mimeType":"audio/wav"}}],` +
				`"modelPreferences":{"hints":[{"name":"claude"},{}],"costPriority":0,"speedPriority":1,"intelligencePriority":0.5},"systemPrompt":"Be brief.","includeContext":"none","temperature":0,"maxTokens":100,"stopSequences":["\n"],"metadata":{"a":[1]}}`, 100},
		{`{"messages":[{"role":"user","content":{"type":"text","text":""}}],"maxTokens":1e18,"tools":null}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":""}}],"includeContext":"none","maxTokens":1048576}`, 1 << 20},
	} {
		r := parsed(t, Sampling, test.params)
		if string(r.Params) != test.want || r.MaxTokens != test.tokens {
			t.Errorf("%s:\n got %s, %d tokens\nwant %s, %d tokens", test.params, r.Params, r.MaxTokens, test.want, test.tokens)
		}
		var sdk mcp.CreateMessageWithToolsParams
		if err := json.Unmarshal(r.For("s", false), &sdk); err != nil || sdk.MaxTokens != int64(test.tokens) {
			t.Errorf("the SDK reads %s as %+v, %v", r.For("s", false), sdk, err)
		}
	}
	var sdk mcp.CreateMessageParams
	if err := json.Unmarshal(parsed(t, Sampling, everythingSampling).For("s", false), &sdk); err != nil || len(sdk.Messages) != 1 || sdk.Temperature != 0.7 {
		t.Errorf("the SDK reads %+v, %v", sdk, err)
	}
}

func TestParseRefusesSampling(t *testing.T) {
	with := func(more string) string { return strings.TrimSuffix(smallSampling, "}") + "," + more + "}" }
	content := func(c string) string { return `{"messages":[{"role":"user","content":` + c + `}],"maxTokens":5}` }
	for _, test := range []struct {
		params string
		words  []string
	}{
		{`{}`, []string{"maxTokens"}},
		{`null`, []string{"object"}},
		{`{"messages":[],"maxTokens":5}`, []string{"messages"}},
		{`{"maxTokens":5}`, []string{"messages"}},
		{`{"messages":{},"maxTokens":5}`, []string{"messages", "array"}},
		{`{"messages":[` + strings.Repeat(`{},`, 100) + `{}],"maxTokens":5}`, []string{"messages", "100"}},
		{`{"messages":[1],"maxTokens":5}`, []string{"message 1"}},
		{`{"messages":[{"role":"system","content":{"type":"text","text":"x"}}],"maxTokens":5}`, []string{"message 1", "role"}},
		{`{"messages":[{"role":"user"}],"maxTokens":5}`, []string{"message 1", "content"}},
		{content(`[]`), []string{"content"}},
		{content(`"x"`), []string{"content"}},
		{content(`{"type":"text"}`), []string{"text"}},
		{content(`{"type":"text","text":1}`), []string{"text"}},
		{content(`{"type":"tool_use","id":"1","name":"x","input":{}}`), []string{"type"}},
		{content(`[{"type":"text","text":"x"},{"type":"tool_result","toolUseId":"1","content":[]}]`), []string{"type"}},
		{content(`{"type":"resource","resource":{}}`), []string{"type"}},
		{content(`{"type":"image","data":"","mimeType":"image/png"}`), []string{"Base64"}},
		{content(`{"type":"image","data":"A","mimeType":"image/png"}`), []string{"Base64"}},
		{content(`{"type":"image","data":"AAEC"}`), []string{"mimeType"}},
		{content(`{"type":"image","data":"AAEC","mimeType":"text/html"}`), []string{"mimeType"}},
		{content(`{"type":"audio","data":"AAEC","mimeType":"audio/"}`), []string{"mimeType"}},
		{with(`"maxTokens":6`), []string{"maxTokens", "twice"}},
		{strings.Replace(smallSampling, "5", "0", 1), []string{"maxTokens"}},
		{strings.Replace(smallSampling, "5", "1.5", 1), []string{"maxTokens"}},
		{strings.Replace(smallSampling, "5", `"5"`, 1), []string{"maxTokens"}},
		{with(`"tools":[]`), []string{"tools"}},
		{with(`"toolChoice":{}`), []string{"toolChoice"}},
		{with(`"temperature":"hot"`), []string{"temperature"}},
		{with(`"stopSequences":["a",1]`), []string{"stopSequences"}},
		{with(`"stopSequences":[` + strings.Repeat(`"a",`, 16) + `"a"]`), []string{"stopSequences", "16"}},
		{with(`"metadata":[]`), []string{"metadata"}},
		{with(`"metadata":{"a":"` + strings.Repeat("a", 16<<10) + `"}`), []string{"metadata"}},
		{with(`"modelPreferences":[]`), []string{"modelPreferences"}},
		{with(`"modelPreferences":{"costPriority":2}`), []string{"modelPreferences", "costPriority"}},
		{with(`"modelPreferences":{"hints":[1]}`), []string{"modelPreferences", "hints"}},
		{with(`"systemPrompt":1`), []string{"systemPrompt"}},
		{with(`"systemPrompt":"` + strings.Repeat("a", 1<<20) + `"`), []string{"1024 KiB"}},
	} {
		_, err := Parse(Sampling, json.RawMessage(test.params))
		wantError(t, test.params, err, test.words...)
	}
}

func TestWithMaxTokens(t *testing.T) {
	r := parsed(t, Sampling, everythingSampling)
	for _, test := range []struct{ n, want int }{{7, 7}, {100, 100}, {1000, 100}, {0, 1}, {-5, 1}} {
		got := r.WithMaxTokens(test.n)
		if want := fmt.Sprintf(`"maxTokens":%d}`, test.want); got.MaxTokens != test.want || !strings.HasSuffix(string(got.Params), want) {
			t.Errorf("WithMaxTokens(%d): %d in %s, want %d", test.n, got.MaxTokens, got.Params, test.want)
		}
	}
	if r.MaxTokens != 100 || !strings.HasSuffix(string(r.Params), `"maxTokens":100}`) {
		t.Errorf("WithMaxTokens has changed the request to %+v", r)
	}
	if got := parsed(t, Roots, "").WithMaxTokens(5); got.MaxTokens != 0 || string(got.Params) != "{}" {
		t.Errorf("roots with tokens: %+v", got)
	}
}

func TestCheckSampling(t *testing.T) {
	for _, test := range []struct{ result, want string }{
		{`{"role":"assistant","content":{"type":"text","text":"Hi","_meta":{}},"model":"m","stopReason":"endTurn","_meta":{},"resultType":"complete"}`,
			`{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m","stopReason":"endTurn"}`},
		{`{"role":"assistant","content":[{"type":"text","text":"Hi"}],"model":"m"}`, `{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m"}`},
		{`{"role":"user","content":[{"type":"text","text":""},{"type":"audio","data":"AAEC","mimeType":"audio/wav"}],"model":""}`,
			`{"role":"user","content":[{"type":"text","text":""},{"type":"audio","data":"AAEC","mimeType":"audio/wav"}],"model":""}`},
		{`{"role":"assistant","content":{"type":"text","text":"Hi"}}`, ``},
		{`{"role":"system","content":{"type":"text","text":"Hi"},"model":"m"}`, ``},
		{`{"role":"assistant","model":"m"}`, ``},
		{`{"role":"assistant","content":[],"model":"m"}`, ``},
		{`{"role":"assistant","content":{"type":"tool_use","id":"1","name":"x","input":{}},"model":"m"}`, ``},
		{`{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m","stopReason":1}`, ``},
		{`{"action":"decline"}`, ``},
		{`[]`, ``},
	} {
		got, err := parsed(t, Sampling, smallSampling).Check(json.RawMessage(test.result))
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s:\n got %s, %v\nwant %s", test.result, got, err, test.want)
		}
	}
}

func TestCheckRoots(t *testing.T) {
	for _, test := range []struct{ result, want string }{
		{`{"roots":[]}`, `{"roots":[]}`},
		{`{"roots":[{"uri":"file:///home/a%20b","name":"A","_meta":{}},{"uri":"file:///c"}],"_meta":{}}`, `{"roots":[{"uri":"file:///home/a%20b","name":"A"},{"uri":"file:///c"}]}`},
		{`{}`, ``},
		{`{"roots":{}}`, ``},
		{`{"roots":["file:///",{"name":"A"},{"uri":"https://example.com"},{"uri":"file:///%"},{"uri":"file:///a","name":1},{"uri":"file:///b"}]}`, `{"roots":[{"uri":"file:///b"}]}`},
		{`{"roots":[` + strings.Repeat(`{"uri":"file:///a"},`, 256) + `{"uri":"file:///a"}]}`, ``},
	} {
		got, err := parsed(t, Roots, "").Check(json.RawMessage(test.result))
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%.200s:\n got %s, %v\nwant %s", test.result, got, err, test.want)
		}
	}
}

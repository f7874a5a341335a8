//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestResourcesAndPrompts(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answer := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		mu.Lock()
		asked = append(asked, c.Method+" "+string(c.Params))
		mu.Unlock()
		answers := map[string]string{
			wire.MethodListResources:         `[{"uri":"a://1","name":"one","mimeType":"text/plain"},{"uri":"a://2","name":"two"}]`,
			wire.MethodListResourceTemplates: `[{"uriTemplate":"a://{n}","name":"n"}]`,
			wire.MethodReadResource:          `{"contents":[{"uri":"a://1","mimeType":"text/plain","text":"hello"},{"uri":"a://1/x.bin","blob":"AAEC"},7]}`,
			wire.MethodListPrompts:           `[{"name":"review","arguments":[{"name":"code","required":true}]}]`,
			wire.MethodGetPrompt:             `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"look"}},{"role":"user","content":{"type":"audio","data":"AAAA","mimeType":"audio/wav"}},{"role":"user"},3]}`,
		}
		if a, ok := answers[c.Method]; ok {
			return json.RawMessage(a), nil
		}
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
	}
	programs := []struct{ name, code, stdout, stderr, asked string }{
		{"list", `[r.uri for r in await list_resources("my-echo")]`, "['a://1', 'a://2']\n", "", `list_resources {"server":"my-echo"}`},
		{"list, by alias, without await", `list_resources_sync("my_echo")[0].name`, "'one'\n", "", `list_resources {"server":"my-echo"}`},
		{"templates", `(await runtime.list_resource_templates("my-echo"))[0].uriTemplate, list_resource_templates_sync("my-echo")[0].name`, "('a://{n}', 'n')\n", "", `list_resource_templates {"server":"my-echo"}`},
		{"read", `r = await read_resource("my-echo", "a://1 ä"); r`, "[<resource text/plain 'a://1', 5 characters: .text, .save(path)>, <resource 'a://1/x.bin', 3 bytes: .save(path), .data>]\n", "", `read_resource {"server":"my-echo","uri":"a://1 \u00e4"}`},
		{"read on", `r[0].text, r[1].data, r[1].save("."), open("x.bin", "rb").read(), r[0]["text"]`, "('hello', b'\\x00\\x01\\x02', './x.bin', b'\\x00\\x01\\x02', 'hello')\n", "", ""},
		{"read what is listed", `len(read_resource_sync("my-echo", list_resources_sync("my-echo")[1]))`, "2\n", "", `read_resource {"server":"my-echo","uri":"a://2"}`},
		{"read nothing", `await read_resource("my-echo", None)`, "", "ArgumentError: read_resource: the address of a resource must be str, not NoneType", ""},
		{"prompts", `list_prompts_sync("my-echo")[0].arguments[0].name, (await list_prompts("my-echo"))[0].name`, "('code', 'review')\n", "", `list_prompts {"server":"my-echo"}`},
		{"prompt", `p = await get_prompt("my-echo", "review", {"code": "x = 1"}); p.messages[0].content.text, p.messages[1].content, p.description`, "('look', <audio audio/wav, 3 bytes: .save(path), .data>, 'd')\n", "", `get_prompt {"server":"my-echo","name":"review","arguments":{"code":"x = 1"}}`},
		{"prompt without arguments", `get_prompt_sync("my-echo", "review").description`, "'d'\n", "", `get_prompt {"server":"my-echo","name":"review","arguments":{}}`},
		{"prompt's arguments are texts", `get_prompt_sync("my-echo", "review", {"code": 5})`, "", "ArgumentError: get_prompt: argument 'code' must be str, like all arguments of a prompt, not int", ""},
		{"prompt's arguments are an object", `get_prompt_sync("my-echo", "review", [])`, "", "ArgumentError: get_prompt: Arguments must be an object", ""},
		{"not loaded", `await list_resources("other")`, "", "MCPError: Server 'other' is not available", ""},
	}
	p := launch(t)
	p.run(t, wire.Exec{Code: "1", Define: []wire.Server{echoServer}}, answer)
	for _, prog := range programs {
		t.Run(prog.name, func(t *testing.T) {
			mu.Lock()
			asked = nil
			mu.Unlock()
			r := p.run(t, wire.Exec{Code: prog.code, Grants: []string{"my-echo"}}, answer)
			if r.err != nil || r.stdout != prog.stdout || !strings.Contains(r.stderr, prog.stderr) || prog.stderr == "" && r.stderr != "" {
				t.Errorf("%v, stdout %q, want %q; stderr %q, want %q in it", r.err, r.stdout, prog.stdout, r.stderr, prog.stderr)
			}
			mu.Lock()
			defer mu.Unlock()
			if last := append([]string{""}, asked...); last[len(last)-1] != prog.asked {
				t.Errorf("asked %q, want %q at last", asked, prog.asked)
			}
		})
	}
}

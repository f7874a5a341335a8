package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConvert(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := write(filepath.Join(from, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(raw)), " ")
	}
	put("mcpproxy_corpus_v2.json", `{"tools":[{"server":"disk","tool":"read","description":"Reads <b>.","schema":{"type":"object"}},{"server":"web","tool":"get","description":""}]}`)
	put("mcpproxy_golden.json", `{"queries":[{"query":"read & <b>","labels":[{"tool_id":"disk:read","relevance":2},{"tool_id":"web:get","relevance":0},{"tool_id":"web:a:b","relevance":1}]}]}`)
	put("real/notion.json", `{"tools":[]}`)
	put("real/memory.json", `{"tools":[]}`)

	// One of the sets is enough.
	if err := convert(from, to, filepath.Join(from, "real")); err != nil {
		t.Fatal(err)
	}
	if got, want := get("golden/queries.jsonl"), `{"query":"read & <b>","relevant":["disk/read","web/a:b"]}`; got != want {
		t.Errorf("queries are %s, want %s", got, want)
	}
	if got := get("golden/tools.json"); !strings.HasPrefix(got, `{ "disk": [ { "description":`) || !strings.Contains(got, `"inputSchema": { "type": "object" }, "name": "read"`) || !strings.Contains(got, `"web": [`) {
		t.Errorf("tools are %s", got)
	}
	get("real/notion.json")
	if _, err := os.Stat(filepath.Join(to, "real/memory.json")); err == nil {
		t.Error("memory is among the distractors: its tools are in the set")
	}

	put("metatool_des.json", `{"b":"Bs.","a":"As."}`)
	put("metatool_queries.csv", "Query,Tool\n\"one, two\",b\n")
	if err := convert(from, to, ""); err != nil {
		t.Fatal(err)
	}
	if got, want := get("metatool/queries.jsonl"), `{"query":"one, two","relevant":["metatool/b"]}`; got != want {
		t.Errorf("queries are %s, want %s", got, want)
	}
	if got, want := get("metatool/tools.json"), `{ "metatool": [ { "description": "As.", "name": "a" }, { "description": "Bs.", "name": "b" } ] }`; got != want {
		t.Errorf("tools are %s, want %s", got, want)
	}

	put("metatool_des.json", `[`)
	if err := convert(from, to, ""); err == nil || !strings.Contains(err.Error(), "metatool_des.json") {
		t.Errorf("a broken file: %v", err)
	}
	if err := convert(t.TempDir(), to, ""); err == nil {
		t.Error("an empty folder is no error")
	}
}

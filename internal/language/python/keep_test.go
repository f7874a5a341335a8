//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// keeper is a host that keeps memories and saved tools, for all sessions.
type keeper struct {
	mu       sync.Mutex
	memories map[string]*kept
	tools    map[string][]wire.SavedTool
	calls    int
	touch    func(key string) // runs before a write, as another session may
}

type kept struct {
	value, metadata json.RawMessage
	version         int
}

func newKeeper() *keeper {
	return &keeper{memories: map[string]*kept{}, tools: map[string][]wire.SavedTool{}}
}

func (k *keeper) call(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	var p struct {
		Key, Name       string
		Info            bool
		Value, Metadata json.RawMessage
		Version         *string
	}
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return nil, err
	}
	m := k.memories[p.Key]
	switch c.Method {
	case wire.MethodMemoryGet:
		if m == nil {
			return json.RawMessage("null"), nil
		}
		out := map[string]any{"key": p.Key, "metadata": m.metadata, "created_at": "then", "updated_at": "now", "version": strconv.Itoa(m.version)}
		if !p.Info {
			out["value"] = m.value
		}
		return json.Marshal(out)
	case wire.MethodMemoryPut:
		if k.touch != nil {
			k.touch(p.Key)
			m = k.memories[p.Key]
		}
		if m == nil {
			m = &kept{metadata: json.RawMessage("{}")}
		}
		if p.Version != nil {
			if now := strconv.Itoa(m.version); *p.Version != now && (*p.Version != "" || m.version != 0) {
				return json.RawMessage("false"), nil
			}
		} else if m.metadata = json.RawMessage("{}"); p.Metadata != nil {
			m.metadata = p.Metadata
		}
		m.value = p.Value
		m.version++
		k.memories[p.Key] = m
		return json.RawMessage("true"), nil
	case wire.MethodMemoryDelete:
		delete(k.memories, p.Key)
		return json.Marshal(m != nil)
	case wire.MethodMemoryList:
		list := []map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(k.memories)) {
			list = append(list, map[string]any{"key": key, "metadata": k.memories[key].metadata, "created_at": "then", "updated_at": "now"})
		}
		return json.Marshal(list)
	case wire.MethodToolSave:
		var t wire.SavedTool
		if err := json.Unmarshal(c.Params, &t); err != nil {
			return nil, err
		}
		k.tools[t.Name] = append(k.tools[t.Name], t)
		return json.Marshal(len(k.tools[t.Name]))
	case wire.MethodToolLoad:
		versions := k.tools[p.Name]
		if len(versions) == 0 {
			return json.RawMessage("null"), nil
		}
		t := versions[len(versions)-1]
		return json.Marshal(map[string]any{"name": t.Name, "version": len(versions), "servers": t.Servers, "source": t.Source})
	case wire.MethodToolNames:
		return json.Marshal(append([]string{}, slices.Sorted(maps.Keys(k.tools))...))
	case wire.MethodLoadServer:
		return json.Marshal(echoServer)
	}
	return say(ctx, c)
}

// cell is one execution of a script of them: what it prints, or what its
// traceback must contain.
type cell struct{ name, code, stdout, stderr string }

func (k *keeper) play(t *testing.T, p *process, cells []cell, servers ...string) {
	t.Helper()
	for i, c := range cells {
		if skipped(t, c.code) {
			continue
		}
		e := wire.Exec{Code: c.code, Discovered: []wire.ServerInfo{{Name: "my-echo", Alias: "my_echo"}}, Grants: servers}
		if i == 0 && len(servers) > 0 {
			e.Define = []wire.Server{echoServer}
		}
		r := p.run(t, e, k.call)
		if r.err != nil || r.stdout != c.stdout || c.stderr == "" && r.stderr != "" || !strings.Contains(r.stderr, c.stderr) {
			t.Errorf("%s: %v\nstdout %q\n  want %q\nstderr %s\n  want %s", c.name, r.err, r.stdout, c.stdout, r.stderr, c.stderr)
		}
		if strings.Contains(r.stderr, "sallyport_guest") {
			t.Errorf("%s: frames of ours: %s", c.name, r.stderr)
		}
	}
}

func TestMemory(t *testing.T) {
	k := newKeeper()
	k.play(t, launch(t), []cell{
		{"save", `save_memory("a", {"x": [1, None, 2**70, "grün 😀"]})`, "\"Memory 'a' saved.\"\n", ""},
		{"load", `load_memory("a")`, "{'x': [1, None, 1180591620717411303424, 'grün 😀']}\n", ""},
		{"by the module", "from mcp import runtime as r\nr.load_memory('a') == load_memory('a')", "True\n", ""},
		{"by name", "from mcp.runtime import load_memory as l\nl('a')['x'][0]", "1\n", ""},
		{"missing", `load_memory("b"), load_memory("b", default=7)`, "(None, 7)\n", ""},
		{"None is a value", `save_memory("n", None); print(load_memory("n", default=7), memory_exists("n"))`, "None True\n", ""},
		{"exists", `memory_exists("a"), memory_exists("b")`, "(True, False)\n", ""},
		{"info", `save_memory("m", 1, metadata={"tag": "x"}); get_memory_info("m"), get_memory_info("b")`,
			"({'key': 'm', 'value': 1, 'metadata': {'tag': 'x'}, 'created_at': 'then', 'updated_at': 'now'}, None)\n", ""},
		{"list", `list_memories() == [{"key": k, "metadata": {"tag": "x"} if k == "m" else {}, "created_at": "then", "updated_at": "now"} for k in "amn"]`, "True\n", ""},
		{"delete", `delete_memory("n"), delete_memory("n")`, "(\"Memory 'n' deleted.\", \"Memory 'n' not found.\")\n", ""},
		{"update", `update_memory("m", lambda v: v + 1)`, "2\n", ""},
		{"metadata are kept", `get_memory_info("m")["metadata"], load_memory("m")`, "({'tag': 'x'}, 2)\n", ""},
		{"update of nothing", `update_memory("new", lambda v: [v])`, "[None]\n", ""},
		{"an updater that raises", `update_memory("m", lambda v: v / 0)`, "", "ZeroDivisionError"},
		{"changes nothing", `load_memory("m")`, "2\n", ""},
		{"async updater", "async def up(v): return 1\nupdate_memory('m', up)", "", "TypeError: Memory 'm': updater must be a plain function, not an async one"},
		{"no updater", "update_memory('m', 3)", "", "TypeError: Memory 'm': updater must be a function, not int"},
		{"no key", `save_memory("", 1)`, "", "ValueError: Memory key cannot be empty"},
		{"a key that is no text", `load_memory(3)`, "", "TypeError: a memory's key must be a str, not int"},
		{"half a letter as key", `load_memory("\ud800")`, "", `ValueError: Memory key '\ud800' is not valid text`},
		{"half a letter as value", `save_memory("h", "\ud800"); load_memory("h") == "\ud800"`, "True\n", ""},
		{"any text", "for key in ['a/b', '..', ' ', 'A\\n', 'é' * 100, '💾']:\n    save_memory(key, key)\n    assert load_memory(key) == key", "", ""},
		{"no JSON", `save_memory("o", {"deep": object()})`, "", "TypeError: Memory 'o': a value of type object is not JSON; turn it into dict, list, str, int, float, bool or None"},
		{"not a number", `save_memory("o", [float("nan")])`, "", "ValueError: Memory 'o': Out of range float values are not JSON compliant"},
		{"circular", "x = []\nx.append(x)\nsave_memory('o', x)", "", "ValueError: Memory 'o': Circular reference detected"},
		{"deep", "x = []\nfor _ in range(100000): x = [x]\nsave_memory('o', x)", "", "ValueError: Memory 'o': too deeply nested"},
		{"keys of tuples", `save_memory("o", {(1, 2): 3})`, "", "TypeError: Memory 'o': keys must be str, int, float, bool or None, not tuple"},
		{"metadata that are no dict", `save_memory("o", 1, metadata=[1])`, "", "TypeError: Memory 'o': metadata must be a dict, not list"},
		{"none of these was kept", `memory_exists("o")`, "False\n", ""},
		{"as JSON has it", "import datetime, pathlib\nsave_memory('c', {'t': (1, 2), 's': {3}, 'd': datetime.datetime(2020, 1, 2, 3), 'p': pathlib.Path('/a'), 1: 2})\nload_memory('c')",
			"{'t': [1, 2], 's': [3], 'd': '2020-01-02T03:00:00', 'p': '/a', '1': 2}\n", ""},
		{"in a running loop", "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    save_memory('loop', 1)\n    return update_memory('loop', lambda v: v + 1)\nawait asyncio.gather(main(), main())", "[2, 2]\n", ""},
		{"in asyncio.run", "asyncio.run(main())", "2\n", ""},
		{"in threads", "from concurrent.futures import ThreadPoolExecutor\nsave_memory('n', 0)\nwith ThreadPoolExecutor(8) as ex:\n    list(ex.map(lambda _: update_memory('n', lambda v: v + 1), range(40)))\nload_memory('n')", "40\n", ""},
		{"beside a call that waits", "save_memory('n', 40)\nasync def both():\n    t = asyncio.ensure_future(runtime.list_servers())\n    return load_memory('n'), await t\nawait both()", "(40, ())\n", ""},
		{"in a fork", "import os\npid = os.fork()\nif pid == 0:\n    try: load_memory('n')\n    except runtime.MCPError as e: print(e)\nelse: os.waitpid(pid, 0)", "Memory 'n': a forked child process cannot call tools\n", ""},
	})
	k.play(t, launch(t), []cell{{"another session", `load_memory("a")["x"][2] == 2**70`, "True\n", ""}})
}

// TestUpdateIsAtomic: what others change meanwhile is not lost.
func TestUpdateIsAtomic(t *testing.T) {
	k := newKeeper()
	left := 5
	k.touch = func(key string) {
		if left > 0 {
			left--
			value := 0
			if m := k.memories[key]; m != nil {
				if err := json.Unmarshal(m.value, &value); err != nil {
					t.Error(err)
				}
			} else {
				k.memories[key] = &kept{metadata: json.RawMessage("{}")}
			}
			k.memories[key].value = json.RawMessage(strconv.Itoa(value + 10))
			k.memories[key].version++
		}
	}
	k.play(t, launch(t), []cell{
		{"counted", `update_memory("n", lambda v: (v or 0) + 1)`, "51\n", ""},
	})
}

// TestHostWithoutMemory: what the host refuses names the key.
func TestHostWithoutMemory(t *testing.T) {
	p := launch(t)
	refuse := func(context.Context, wire.Call) (json.RawMessage, error) {
		return nil, &wire.CallError{Kind: wire.KindDenied, Message: "memory is switched off here"}
	}
	for code, want := range map[string]string{
		`save_memory("k", 1)`: "MCPError: Memory 'k': memory is switched off here",
		`list_memories()`:     "MCPError: Memory: memory is switched off here",
		`user_tools.f`:        "MCPError: memory is switched off here",
	} {
		if r := p.run(t, wire.Exec{Code: code}, refuse); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s, want %s", code, r.stderr, want)
		}
	}
}

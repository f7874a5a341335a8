//go:build linux

package smoke

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// step is one step of a conversation in test/clients/session.json, which also
// says what its members mean.
type step struct {
	Name   string
	List   string
	Read   string
	Call   map[string]any
	Expect map[string]any
}

const clientsDir, serversDir = "../clients", "../compat"

// session plays the scripted session of test/clients with the official client,
// in revisions of the protocol from the first to the newest.
func session(t *testing.T, p *place) {
	raw, err := os.ReadFile(filepath.Join(clientsDir, "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Conversations [][]step }
	if err := json.Unmarshal(raw, &script); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, conversation := range script.Conversations {
		for i := range conversation {
			patient(&conversation[i])
			steps++
		}
	}
	if len(script.Conversations) < 2 || steps < 20 {
		t.Fatalf("got %d conversations with %d steps: is this the session?", len(script.Conversations), steps)
	}
	t.Run("judge", func(t *testing.T) { t.Parallel(); judgeSeesErrors(t, script.Conversations) })
	for _, revision := range []string{"auto", "2024-11-05", "2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			play(t, p, revision, script.Conversations)
		})
	}
}

// patient gives code that is meant to time out three seconds, so that it has
// printed something before, also on a busy machine.
func patient(s *step) {
	structured, _ := s.Expect["structured"].(map[string]any)
	if s.Call["timeout"] == 1.0 && structured["timeoutSeconds"] == 1.0 {
		s.Call["timeout"], structured["timeoutSeconds"] = 3.0, 3.0
	}
}

func play(t *testing.T, p *place, revision string, conversations [][]step) {
	env, err := p.environment("session-" + revision)
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Dir(variable(env, "HOME"))
	definitions := filepath.Join(place, "servers.json")
	write := exec.CommandContext(t.Context(), python3(t), "-B", "-c", "import pathlib, sys\nsys.path.insert(0, sys.argv[1])\nimport live\nlive.write_definitions(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))",
		serversDir, definitions, filepath.Join(place, "calls.jsonl"))
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("writing the definitions: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, steps := range conversations {
		command := exec.Command(p.executable, "serve", "--servers-config", definitions, "--set", "timeouts.grace=60s")
		command.Dir, command.Env = place, env
		c, err := connect(ctx, "smoke", revision, command)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			answer, err := c.answer(ctx, s)
			if err != nil {
				t.Fatalf("%s: %v\n%s", s.Name, err, c.said)
			}
			if wrong := problems(s, answer); len(wrong) > 0 {
				all, _ := json.MarshalIndent(answer, "", " ")
				t.Errorf("%s: %s\n%.3000s", s.Name, strings.Join(wrong, "; "), all)
			}
		}
		if err := c.session.Close(); err != nil {
			t.Errorf("the end: %v\n%s", err, c.said)
		}
	}
}

// answer makes one step, and returns the result as the protocol has it.
func (c *client) answer(ctx context.Context, s step) (map[string]any, error) {
	var result any
	var err error
	switch {
	case s.List == "tools":
		result, err = c.session.ListTools(ctx, nil)
	case s.List == "resources":
		result, err = c.session.ListResources(ctx, nil)
	case s.Read != "":
		result, err = c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: s.Read})
	default:
		result, err = c.session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: s.Call})
	}
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	var answer map[string]any
	return answer, json.Unmarshal(raw, &answer)
}

// problems says in which way an answer is not what a step expects.
func problems(s step, answer map[string]any) []string {
	var wrong []string
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	names := members(answer[s.List], map[string]string{"tools": "name", "resources": "uri"}[s.List])
	blocks := answer["content"]
	if s.Read != "" {
		blocks = answer["contents"]
	}
	text := strings.Join(members(blocks, "text"), "\n")
	for key, want := range s.Expect {
		switch key {
		case "names":
			if !slices.Equal(names, stringsOf(want)) {
				note("listed: %q", names)
			}
		case "includes":
			for _, name := range stringsOf(want) {
				if !slices.Contains(names, name) {
					note("not listed: %q", name)
				}
			}
		case "text":
			if text != want {
				note("text: %q", text)
			}
		case "contains":
			for _, part := range stringsOf(want) {
				if !strings.Contains(text, part) {
					note("no %q in the text", part)
				}
			}
		case "isError":
			if got, _ := answer["isError"].(bool); got != want {
				note("isError: %v", got)
			}
		case "structured":
			got, _ := answer["structuredContent"].(map[string]any)
			for member, value := range want.(map[string]any) {
				if !reflect.DeepEqual(got[member], value) {
					note("%s is not %v", member, value)
				}
			}
		default:
			note("the script expects %q, which nothing checks", key)
		}
	}
	return wrong
}

// members are the strings with a name in a list of objects.
func members(list any, name string) []string {
	var found []string
	objects, _ := list.([]any)
	for _, o := range objects {
		object, _ := o.(map[string]any)
		s, _ := object[name].(string)
		found = append(found, s)
	}
	return found
}

func stringsOf(list any) []string {
	var all []string
	for _, one := range list.([]any) {
		all = append(all, one.(string))
	}
	return all
}

// judgeSeesErrors: every step fails for an empty answer, and each must expect
// something.
func judgeSeesErrors(t *testing.T, conversations [][]step) {
	for _, steps := range conversations {
		for _, s := range steps {
			expected, _ := s.Expect["isError"].(bool)
			empty := map[string]any{"content": []any{}, "isError": !expected}
			if s.List != "" {
				empty = map[string]any{"tools": []any{}, "resources": []any{}}
			}
			if len(problems(s, empty)) == 0 {
				t.Errorf("%s: an empty answer passes", s.Name)
			}
		}
	}
}
